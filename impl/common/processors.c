/* processors.c - see processors.h. */
#include "common/processors.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CPUS = 1024, MOST_CPUS = 1 << 20 };

/* ---- Affinity ---- */

int df_affinity_count(int (*get)(pid_t pid, size_t bytes, cpu_set_t *set)) {
    for (size_t cpus = FIRST_CPUS; cpus <= MOST_CPUS; cpus *= 2) {
        const size_t bytes = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL) return 0;
        CPU_ZERO_S(bytes, set);
        const bool known = get(0, bytes, set) == 0;
        const int failure = errno, count = known ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (known || failure != EINVAL) return count; /* EINVAL: the kernel's mask is larger */
    }
    return 0;
}

/* ---- Quotas ---- */

/* The two versions of control groups; a machine may have both at once. */
typedef struct version {
    const char *filesystem;
    const char *controller; /* that a mount and a line of /proc/self/cgroup must name; NULL: they name none */
    double (*quota)(const char *folder);
} version;

static FILE *open_file(const char *folder, const char *name) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "re");
}

static double quota_of(double time, double period) { return time > 0.0 && period > 0.0 ? time / period : INFINITY; }

/* "50000 100000", or "max 100000". */
static double quota_v2(const char *folder) {
    double time = 0.0, period = 0.0;
    FILE *file = open_file(folder, "cpu.max");
    const bool limited = file != NULL && fscanf(file, "%lf %lf", &time, &period) == 2;
    if (file != NULL) fclose(file);
    return limited ? quota_of(time, period) : INFINITY;
}

static double number_in(const char *folder, const char *name) {
    double value = 0.0;
    FILE *file = open_file(folder, name);
    if (file != NULL && fscanf(file, "%lf", &value) != 1) value = 0.0;
    if (file != NULL) fclose(file);
    return value;
}

/* -1 is no limit. */
static double quota_v1(const char *folder) {
    return quota_of(number_in(folder, "cpu.cfs_quota_us"), number_in(folder, "cpu.cfs_period_us"));
}

/* Whether a list of words between commas has the word. */
static bool lists(const char *list, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = list; *at != '\0'; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        const size_t size = strcspn(at, ",\n");
        if (size == length && strncmp(at, word, length) == 0) return true;
    }
    return false;
}

/* One line of /proc/self/mountinfo: ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS] - FILESYSTEM SOURCE OPTIONS. */
static bool is_mount(const version *v, const char *line, char from[PATH_MAX], char point[PATH_MAX]) {
    char filesystem[32], options[512] = "";
    const char *rest = strstr(line, " - ");
    if (rest == NULL || sscanf(line, "%*s %*s %*s %4095s %4095s", from, point) != 2 ||
        sscanf(rest, " - %31s %*s %511s", filesystem, options) < 1)
        return false;
    return strcmp(filesystem, v->filesystem) == 0 && (v->controller == NULL || lists(options, v->controller));
}

/* One line of /proc/self/cgroup: HIERARCHY:CONTROLLERS:PATH. */
static bool is_group(const version *v, const char *line, char path[PATH_MAX]) {
    const char *controllers = strchr(line, ':'), *at = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    char list[512];
    if (at == NULL || sscanf(at, ":%4095[^\n]", path) != 1) return false;
    snprintf(list, sizeof list, "%.*s", (int)(at - controllers - 1), controllers + 1);
    return v->controller == NULL ? list[0] == '\0' : lists(list, v->controller);
}

/* The first line of a file that is one of the version's; what it says goes to `a` and `b`. */
static bool find_line(const version *v, const char *root, bool mount, char a[PATH_MAX], char b[PATH_MAX]) {
    FILE *file = open_file(root, mount ? "proc/self/mountinfo" : "proc/self/cgroup");
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    while (file != NULL && !found && getline(&line, &size, file) > 0)
        found = mount ? is_mount(v, line, a, b) : is_group(v, line, a);
    free(line);
    if (file != NULL) fclose(file);
    return found;
}

/* The least quota of a group and its parents, up to where the hierarchy is mounted. */
static double least_quota(const version *v, const char *root) {
    char from[PATH_MAX], point[PATH_MAX], path[PATH_MAX], folder[3 * PATH_MAX];
    if (!find_line(v, root, true, from, point) || !find_line(v, root, false, path, NULL)) return INFINITY;
    /* A container may be shown its group under the name that the machine has for it, and that part of the hierarchy
     * alone; what lies outside the mount cannot be read. */
    const size_t hidden = strcmp(from, "/") == 0 ? 0 : strlen(from);
    const bool inside = strncmp(path, from, hidden) == 0 && (path[hidden] == '/' || path[hidden] == '\0') &&
                        strstr(path, "/..") == NULL;
    const size_t top = (size_t)snprintf(folder, sizeof folder, "%s%s", root, point);
    snprintf(folder + top, sizeof folder - top, "%s", inside ? path + hidden : "");
    double least = INFINITY;
    for (;;) {
        least = fmin(least, v->quota(folder));
        char *last = strrchr(folder, '/');
        if (last == NULL || (size_t)(last - folder) < top) return least;
        *last = '\0';
    }
}

double df_cgroup_quota(const char *root) {
    static const version both[] = {{"cgroup2", NULL, quota_v2}, {"cgroup", "cpu", quota_v1}};
    return fmin(least_quota(&both[0], root), least_quota(&both[1], root));
}

int df_processors_within(int processors, double quota) {
    const double whole = ceil(quota);
    const int within = whole < (double)processors ? (int)whole : processors;
    return within > 0 ? within : 1;
}

int df_usable_processors(void) {
    return df_processors_within(df_affinity_count(sched_getaffinity), df_cgroup_quota(""));
}
