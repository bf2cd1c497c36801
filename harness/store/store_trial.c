/* store_trial.c - see store_trial.h. */
#include "store/store_trial.h"

#include "base/process.h"
#include "common/error.h"
#include "store/store_h5.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* How a trial ends that was not ended. None is a code that programs end with by habit. */
enum { READ_TO_ITS_END = 90, OUT_OF_MEMORY = 91, NO_LIMITS = 92 };
enum { MIB = 1 << 20, SIGNALLED = 128 };

static const char trial_word[] = "--read-trial"; /* PATH CPU_SECONDS MEMORY_MIB */

/* ---- Files that are known ---------------------------------------------------------------------------------------- */

enum { MOST_KNOWN = 64, SETTLED_SECONDS = 2 };
static struct stat known[MOST_KNOWN]; /* a ring: what falls out is tried again */
static int known_count;

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static bool is_known(const struct stat *info) {
    for (int i = 0; i < known_count && i < MOST_KNOWN; i++)
        if (same_file(&known[i], info)) return true;
    return false;
}

void dp_trial_vouch(const struct stat *info) {
    /* A file written just now can change once more with its times as they are. */
    if (time(NULL) - info->st_ctim.tv_sec < SETTLED_SECONDS || is_known(info)) return;
    known[known_count++ % MOST_KNOWN] = *info;
    if (known_count == 2 * MOST_KNOWN) known_count = MOST_KNOWN;
}

/* ---- The trial: all that a reader touches ------------------------------------------------------------------------ */

enum { DEEPEST = 4, MOST_LINKS = 4096, MOST_ATTRIBUTES = 64, ATTRIBUTE_TEXT = 1 << 16, BLOCK_BYTES = 64 * MIB };

/* libhdf5 calls this whenever one of its functions fails. That memory ran out must not be taken for a file that is
 * refused in good order: the reader that follows has no such limit. */
static herr_t find_memory(unsigned n, const H5E_error2_t *entry, void *user) {
    (void)n;
    (void)user;
    if (entry->maj_num == H5E_RESOURCE && (entry->min_num == H5E_NOSPACE || entry->min_num == H5E_CANTALLOC))
        _exit(OUT_OF_MEMORY);
    return 0;
}
static herr_t look_for_memory(hid_t stack, void *user) { return H5Ewalk2(stack, H5E_WALK_UPWARD, find_memory, user); }

static void try_attributes(hid_t object) {
    static char text[ATTRIBUTE_TEXT];
    H5O_info_t info;
    int64_t value[4];
    int count;
    if (H5Oget_info2(object, &info, H5O_INFO_NUM_ATTRS) < 0) return;
    for (hsize_t i = 0; i < info.num_attrs && i < MOST_ATTRIBUTES; i++) {
        char name[256];
        if (H5Aget_name_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT) < 0) return;
        dp_h5_text_attribute(object, "", name, text, sizeof text, NULL);
        dp_h5_int_attribute(object, "", name, value, 4, &count, NULL);
    }
}

typedef struct extent {
    int rank;
    hsize_t dim[H5S_MAX_RANK];
    size_t row;       /* bytes of one row */
    hsize_t together; /* rows that one chunk holds */
} extent;

/* Whether the values are numbers that are stored whole: of others a reader says that they are none of ours. */
static bool describe(hid_t dataset, hid_t type, hid_t space, hid_t list, extent *out) {
    hsize_t chunk[H5S_MAX_RANK] = {1};
    const H5T_class_t class = H5Tget_class(type);
    size_t total = H5Tget_size(type);
    bool good = (class == H5T_INTEGER || class == H5T_FLOAT) && total > 0;
    out->rank = H5Sget_simple_extent_ndims(space);
    good = good && out->rank >= 1 && H5Sget_simple_extent_dims(space, out->dim, NULL) == out->rank;
    for (int i = out->rank - 1; good && i >= 0; i--) {
        out->row = total;
        good = out->dim[i] > 0 && !__builtin_mul_overflow(total, out->dim[i], &total);
    }
    if (good && H5Pget_layout(list) == H5D_CHUNKED) good = H5Pget_chunk(list, out->rank, chunk) == out->rank;
    out->together = chunk[0];
    return good && out->together > 0 && H5Dget_storage_size(dataset) >= total;
}

/* Whole chunks at a time, since a part of one costs as much as all of it; a small dataset as a reader reads it. */
static void read_rows(hid_t dataset, hid_t type, hid_t space, const extent *e) {
    hsize_t start[H5S_MAX_RANK] = {0}, count[H5S_MAX_RANK], step = e->together, bytes;
    while (step < e->dim[0] && 2 * step * e->row <= BLOCK_BYTES) step *= 2;
    if (step > e->dim[0]) step = e->dim[0];
    if (__builtin_mul_overflow(step, e->row, &bytes)) return;
    unsigned char *block = malloc(bytes);
    if (block == NULL) _exit(OUT_OF_MEMORY);
    memcpy(count, e->dim, sizeof count);
    for (; start[0] < e->dim[0]; start[0] += step) {
        count[0] = e->dim[0] - start[0] < step ? e->dim[0] - start[0] : step;
        const bool all = count[0] == e->dim[0];
        const hid_t memory = all ? H5S_ALL : H5Screate_simple(e->rank, count, NULL);
        if (!all) H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        const herr_t outcome = H5Dread(dataset, type, memory, all ? H5S_ALL : space, H5P_DEFAULT, block);
        if (!all) H5Sclose(memory);
        if (outcome < 0) break;
    }
    free(block);
}

static void try_dataset(hid_t dataset) {
    char *text = NULL;
    size_t length;
    extent e;
    try_attributes(dataset);
    if (dp_h5_text_dataset(dataset, "", &text, &length, NULL) == DFLASH_OK) free(text);
    const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset), list = H5Dget_create_plist(dataset);
    if (type >= 0 && space >= 0 && list >= 0 && describe(dataset, type, space, list, &e))
        read_rows(dataset, type, space, &e);
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    if (list >= 0) H5Pclose(list);
}

static void try_group(hid_t group, int depth) {
    dp_h5_names names;
    try_attributes(group);
    if (dp_h5_list(group, "", MOST_LINKS, &names, NULL) != DFLASH_OK) return;
    for (int i = 0; i < names.count; i++) {
        hid_t object;
        if (dp_h5_open_dataset(group, "", names.name[i], &object, NULL) == DFLASH_OK) {
            try_dataset(object);
            H5Dclose(object);
        } else if (depth < DEEPEST && dp_h5_open_group(group, "", names.name[i], &object, NULL) == DFLASH_OK) {
            try_group(object, depth + 1);
            H5Gclose(object);
        }
    }
    dp_h5_names_release(&names);
}

static bool limit(const char *cpu_seconds, const char *memory_mib) {
    const rlim_t seconds = strtoul(cpu_seconds, NULL, 10), bytes = strtoul(memory_mib, NULL, 10) * MIB;
    const struct rlimit cpu = {seconds, seconds + 1}, memory = {bytes, bytes}, none = {0, 0};
    bool set = setrlimit(RLIMIT_CPU, &cpu) == 0;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* their shadows are terabytes of addresses */
    set = setrlimit(RLIMIT_AS, &memory) == 0 && set;
#else
    (void)memory;
#endif
    signal(SIGXCPU, SIG_DFL);
    /* A crash is an answer here, not something to keep the memory of. */
    return setrlimit(RLIMIT_CORE, &none) == 0 && prctl(PR_SET_DUMPABLE, 0) == 0 && set;
}

void dp_trial_main(int argc, char **argv) {
    enum { WORDS = 5 };
    dp_h5_quiet quiet;
    hid_t file;
    if (argc != WORDS || strcmp(argv[1], trial_word) != 0) return;
    if (!limit(argv[3], argv[4])) _exit(NO_LIMITS);
    dp_h5_quiet_begin(&quiet);
    H5Eset_auto2(H5E_DEFAULT, look_for_memory, NULL);
    if (dp_h5_open_untried(argv[2], &file, NULL) == DFLASH_OK) {
        try_group(file, 0);
        H5Fclose(file);
    }
    _exit(READ_TO_ITS_END); /* libhdf5 has nothing to tidy, and leaks of its own after damage */
}

/* ---- The caller ---------------------------------------------------------------------------------------------------
 */

static dflash_status judge(const char *path, int code, const dp_trial_limits *limits, dflash_error *err) {
    unsigned major = 0, minor = 0, release = 0;
    const int number = code > SIGNALLED ? code - SIGNALLED : 0;
    H5get_libversion(&major, &minor, &release);
    if (code == READ_TO_ITS_END) return DFLASH_OK;
    if (code == NO_LIMITS)
        return df_fail(err, DFLASH_ERR_IO, "oracle.trial.start",
                       "%s: the process that tries an HDF5 file first could not limit itself to %ld s and %ld MiB. "
                       "Expected limits (setrlimit) that may be lowered; raise those of this shell (ulimit -H).",
                       path, limits->cpu_seconds, limits->memory_mib);
    if (code == OUT_OF_MEMORY)
        return df_fail(err, DFLASH_ERR_MEMORY, "oracle.trial.memory",
                       "%s: reading it takes more than %ld MiB, or more than this machine has; expected less for a "
                       "file of its size. Fetch it again or write it again; if it is whole, free memory.",
                       path, limits->memory_mib);
    if (number == SIGXCPU)
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.trial.time",
                       "%s: reading it takes more than %ld s of CPU time; expected less for a file of its size. Its "
                       "structure leads in a circle or is damaged: fetch it again or write it again.",
                       path, limits->cpu_seconds);
    if (number == SIGKILL || number == SIGTERM || number == SIGINT || number == SIGHUP)
        return df_fail(err, DFLASH_ERR_IO, "oracle.trial.killed",
                       "%s: the process that tries an HDF5 file first was ended from outside, by signal %d (%s). "
                       "Nothing is known of the file; free memory, and start again.",
                       path, number, strsignal(number));
    char how[80];
    if (number > 0)
        snprintf(how, sizeof how, "crashed with signal %d (%.32s)", number, strsignal(number));
    else
        snprintf(how, sizeof how, "ended with code %d", code);
    return df_fail(err, DFLASH_ERR_REFUSED, "oracle.damaged",
                   "%s: damaged metadata: expected a file that libhdf5 %u.%u.%u reads to its end, and the process that "
                   "tried it %s. Fetch the file again or write it again.",
                   path, major, minor, release, how);
}

/* fork and exec at once: between the two the child calls only what may be called beside threads and a CUDA context, and
 * what runs after it shares nothing with this process. */
dflash_status dp_trial_within(const char *path, const dp_trial_limits *limits, dflash_error *err) {
    char seconds[24], mib[24];
    int code = 0;
    snprintf(seconds, sizeof seconds, "%ld", limits->cpu_seconds);
    snprintf(mib, sizeof mib, "%ld", limits->memory_mib);
    const dp_process self = {.argv = (const char *const[]){"/proc/self/exe", trial_word, path, seconds, mib, NULL}};
    TRY(dp_process_run(&self, &code, err));
    return judge(path, code, limits, err);
}

dflash_status dp_trial(const char *path, dflash_error *err) {
    enum { LEAST_SECONDS = 20, MIB_A_SECOND = 64, LEAST_MIB = 1024, COPIES = 3 };
    struct stat info;
    if (stat(path, &info) != 0) return DFLASH_OK; /* opening it says why not */
    if (is_known(&info)) return DFLASH_OK;
    const long mib = (long)(info.st_size / MIB);
    const dp_trial_limits limits = {LEAST_SECONDS + mib / MIB_A_SECOND, LEAST_MIB + COPIES * mib};
    TRY(dp_trial_within(path, &limits, err));
    dp_trial_vouch(&info);
    return DFLASH_OK;
}
