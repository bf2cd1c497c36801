/*
 * test_processors.c - how many threads a process gets when it does not say: affinity masks of any size, and the quotas
 * of control groups, from files in a scratch folder that look like a machine's.
 */
#include "suites.h"

#include "common/processors.h"
#include "engine/engine.h"
#include "base/process.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Affinity ---- */

static struct {
    int possible, usable; /* processors of the kernel's mask, and those of them that the process may run on */
    int failure;          /* errno of every call; 0: none */
    int calls;
} machine;

/* sched_getaffinity as the kernel has it: a set that is smaller than its mask is refused. */
static int get(pid_t pid, size_t bytes, cpu_set_t *set) {
    ck_assert_int_eq(pid, 0);
    machine.calls++;
    errno = machine.failure != 0 ? machine.failure : EINVAL;
    if (machine.failure != 0 || bytes * 8 < (size_t)machine.possible) return -1;
    for (int i = 0; i < machine.usable; i++) CPU_SET_S((size_t)(machine.possible - 1 - i), bytes, set);
    return 0;
}

START_TEST(every_processor_of_a_large_machine_counts) {
    static const struct {
        int possible, usable;
    } machines[] = {{2, 2}, {1024, 1024}, {1025, 1025}, {1025, 1}, {1536, 1500}, {8192, 8192}, {1 << 20, 3}};
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        machine.possible = machines[i].possible;
        machine.usable = machines[i].usable;
        machine.failure = 0;
        ck_assert_int_eq(df_affinity_count(get), machines[i].usable);
    }
}
END_TEST

START_TEST(a_mask_that_cannot_be_read_is_not_known) {
    machine.possible = 1 << 21; /* no set is large enough */
    machine.failure = machine.calls = 0;
    ck_assert_int_eq(df_affinity_count(get), 0);
    ck_assert_int_le(machine.calls, 11);
    machine.failure = EPERM;
    machine.calls = 0;
    ck_assert_int_eq(df_affinity_count(get), 0);
    ck_assert_int_eq(machine.calls, 1); /* a larger set would not help */
    ck_assert_int_eq(df_processors_within(0, INFINITY), 1);
}
END_TEST

/* ---- Quotas ---- */

typedef struct file {
    const char *path, *text;
} file;

#define MOUNT_V2 "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_V1                                                                                                       \
    "30 23 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"                                                       \
    "34 30 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"                                                \
    "33 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
#define GROUPS_V1 "5:cpuset:/\n4:cpu,cpuacct:/pod/box\n1:name=systemd:/elsewhere\n"
#define V1 "sys/fs/cgroup/cpu,cpuacct/"

static const struct {
    const char *what, *mounts, *groups;
    file files[4];
    double quota;
} quotas[] = {
    {"nothing at all", NULL, NULL, {{NULL, NULL}}, INFINITY},
    {"v2 without a limit", MOUNT_V2, "0::/a/b\n", {{"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}}, INFINITY},
    {"v2, its own group", MOUNT_V2, "0::/a/b\n", {{"sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"}}, 1.5},
    {"v2, a parent",
     MOUNT_V2,
     "0::/a/b\n",
     {{"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}, {"sys/fs/cgroup/a/cpu.max", "300000 100000\n"}},
     3.0},
    {"v2, the least of both",
     MOUNT_V2,
     "0::/a/b\n",
     {{"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"}, {"sys/fs/cgroup/a/cpu.max", "50000 25000\n"}},
     2.0},
    {"v2, a sibling's limit", MOUNT_V2, "0::/a/b\n", {{"sys/fs/cgroup/a/c/cpu.max", "100000 100000\n"}}, INFINITY},
    {"v2, in a name space of its own", MOUNT_V2, "0::/\n", {{"sys/fs/cgroup/cpu.max", "200000 100000\n"}}, 2.0},
    {"v2, a part of the hierarchy",
     "31 23 0:28 /pod/box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
     "0::/pod/box/a\n",
     {{"sys/fs/cgroup/a/cpu.max", "100000 100000\n"}},
     1.0},
    {"v2, outside what is mounted",
     "31 23 0:28 /pod/box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
     "0::/../other\n",
     {{"sys/fs/cgroup/cpu.max", "250000 100000\n"}},
     2.5},
    {"v2, no number", MOUNT_V2, "0::/a\n", {{"sys/fs/cgroup/a/cpu.max", "many 100000\n"}}, INFINITY},
    {"v2, a period of nothing", MOUNT_V2, "0::/a\n", {{"sys/fs/cgroup/a/cpu.max", "100000 0\n"}}, INFINITY},
    {"v1 without a limit",
     MOUNT_V1,
     GROUPS_V1,
     {{V1 "pod/box/cpu.cfs_quota_us", "-1\n"}, {V1 "pod/box/cpu.cfs_period_us", "100000\n"}},
     INFINITY},
    {"v1, its own group",
     MOUNT_V1,
     GROUPS_V1,
     {{V1 "pod/box/cpu.cfs_quota_us", "250000\n"}, {V1 "pod/box/cpu.cfs_period_us", "100000\n"}},
     2.5},
    {"v1, a parent",
     MOUNT_V1,
     GROUPS_V1,
     {{V1 "pod/cpu.cfs_quota_us", "80000\n"}, {V1 "pod/cpu.cfs_period_us", "20000\n"}},
     4.0},
    {"both, and v1 has the processors",
     MOUNT_V1 "36 30 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
     GROUPS_V1 "0::/pod/box\n",
     {{V1 "pod/box/cpu.cfs_quota_us", "100000\n"}, {V1 "pod/box/cpu.cfs_period_us", "50000\n"}},
     2.0},
};
enum { QUOTAS = sizeof quotas / sizeof *quotas };

/* Writes ROOT/PATH with the folders that it needs. */
static void put(const char *root, const char *path, const char *text) {
    char name[1024];
    snprintf(name, sizeof name, "%s/%s", root, path);
    for (char *slash = strchr(name + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        ck_assert(mkdir(name, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *to = fopen(name, "w");
    ck_assert_ptr_nonnull(to);
    ck_assert_int_ge(fputs(text, to), 0);
    ck_assert_int_eq(fclose(to), 0);
}

START_TEST(the_quota_of_a_container_is_found) {
    char root[DP_FOLDER_PATH];
    dflash_error err;
    ck_assert_int_eq(dp_scratch_make(root, &err), DFLASH_OK);
    if (quotas[_i].mounts != NULL) put(root, "proc/self/mountinfo", quotas[_i].mounts);
    if (quotas[_i].groups != NULL) put(root, "proc/self/cgroup", quotas[_i].groups);
    for (int i = 0; i < 4 && quotas[_i].files[i].path != NULL; i++)
        put(root, quotas[_i].files[i].path, quotas[_i].files[i].text);
    const double found = df_cgroup_quota(root);
    dp_scratch_remove(root);
    ck_assert_msg(found == quotas[_i].quota, "%s: %g, expected %g", quotas[_i].what, found, quotas[_i].quota);
}
END_TEST

START_TEST(threads_are_as_many_as_processors_within_the_quota) {
    static const struct {
        int processors;
        double quota;
        int threads;
    } cases[] = {{8, INFINITY, 8}, {8, 2.0, 2},          {8, 1.5, 2}, {8, 0.1, 1},
                 {8, 64.0, 8},     {2048, 1500.5, 1501}, {1, 4.0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_int_eq(df_processors_within(cases[i].processors, cases[i].quota), cases[i].threads);
}
END_TEST

START_TEST(an_engine_that_is_told_no_number_takes_that_one) {
    dflash_engine *engine = NULL;
    dflash_error err;
    ck_assert_int_eq(dflash_engine_create(&(dflash_engine_options){.threads = 0}, &engine, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_engine_threads(engine), df_usable_processors());
    ck_assert_int_eq(df_usable_processors(),
                     df_processors_within(df_affinity_count(sched_getaffinity), df_cgroup_quota("")));
    dflash_engine_destroy(engine);
}
END_TEST

Suite *suite_processors(void) {
    Suite *suite = suite_create("processors");
    TCase *tests = tcase_create("processors");
    tcase_add_test(tests, every_processor_of_a_large_machine_counts);
    tcase_add_test(tests, a_mask_that_cannot_be_read_is_not_known);
    tcase_add_loop_test(tests, the_quota_of_a_container_is_found, 0, QUOTAS);
    tcase_add_test(tests, threads_are_as_many_as_processors_within_the_quota);
    tcase_add_test(tests, an_engine_that_is_told_no_number_takes_that_one);
    suite_add_tcase(suite, tests);
    return suite;
}
