/*
 * processors.h - how many threads a process can keep busy: the processors that it may run on, within the quotas of its
 * control groups, which are how a container is given less than its machine has.
 */
#ifndef DF_CPU_PROCESSORS_H
#define DF_CPU_PROCESSORS_H

#include <sched.h>
#include <sys/types.h>

/* At least 1: the smaller of the two below. A quota of one and a half keeps two threads busy for three quarters of the
 * time, which is more than one thread does, so fractions count as a whole. */
int df_usable_processors(void);
int df_processors_within(int processors, double quota);

/* Processors in the affinity mask, whatever the size of the kernel's. `get` is sched_getaffinity. 0: it is not known.
 */
int df_affinity_count(int (*get)(pid_t pid, size_t bytes, cpu_set_t *set));

/*
 * Processors' worth of time that the control group of this process allows, or one of its parents, in version 2
 * (cpu.max) or 1 (cpu.cfs_quota_us); INFINITY where none limits it or nothing can be read. Every path
 * (/proc/self/cgroup, /proc/self/mountinfo, and the mount points named there) is looked for under `root`, "" on a real
 * machine.
 */
double df_cgroup_quota(const char *root);

#endif
