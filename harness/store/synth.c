/*
 * synth.c - see synth.h.
 *
 * The data is made in pieces: threads fill the next piece while the last one is written, so memory stays small however
 * large the checkpoint is.
 */
#include "store/synth.h"

#include "base/atomic_file.h"
#include "config/config.h"
#include "config/config_limits.h"
#include "common/error.h"
#include "base/progress.h"
#include "common/regular_file.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    PIECE_VALUES = 4 << 20,
    HEADER_ENTRY = 256, /* bytes of one tensor in the header, at most: name, three dimensions, two offsets */
    HEADER_FIXED = 512
};

typedef struct text {
    char *data; /* owned */
    size_t length;
} text;

/* ---- config.json ---- */

static dflash_status read_config(const char *path, text *out, dflash_error *err) {
    dflash_status status = DFLASH_OK;
    struct stat info;
    const char *kind;
    const int fd = df_open_regular(path, &info, &kind);
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (file == NULL) {
        const char *found = kind != NULL ? kind : strerror(errno);
        if (fd >= 0) close(fd);
        return df_fail(
            err, DFLASH_ERR_IO, "synth.config",
            "Cannot open %s: expected a readable config.json, found \"%s\". Check the path given to --config.", path,
            found);
    }
    /* One byte more than a config may have, so that df_config_parse sees, and refuses, a larger one. */
    const size_t room = DF_LIMIT_CONFIG_BYTES + 1;
    out->data = malloc(room);
    if (out->data == NULL) {
        status = df_fail_memory(err, "config.json", room);
        goto cleanup;
    }
    out->length = fread(out->data, 1, room, file);
    if (ferror(file)) {
        status = df_fail(err, DFLASH_ERR_IO, "synth.config",
                         "Cannot read %s: expected a config.json, found \"%s\". Check that it is a file you may read.",
                         path, strerror(errno));
    }
cleanup:
    fclose(file);
    return status;
}

/* True when the file at `path` can be read and holds exactly these bytes. */
static bool holds(const char *path, const text *bytes) {
    text found = {0};
    const bool same = read_config(path, &found, NULL) == DFLASH_OK && found.length == bytes->length &&
                      memcmp(found.data, bytes->data, bytes->length) == 0;
    free(found.data);
    return same;
}

/* ---- The folder ---- */

static dflash_status join(const char *dir, const char *name, char path[PATH_BYTES], dflash_error *err) {
    const int n = snprintf(path, PATH_BYTES, "%s/%s", dir, name);
    if (n > 0 && n < PATH_BYTES) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_IO, "synth.path",
                   "The path of %s in the output folder is too long: expected under %d bytes, found %d. Use a shorter "
                   "--out.",
                   name, PATH_BYTES, n);
}

/* Length of the longest leading part of `dir` that exists; 0 when that is the current directory. */
static size_t existing_length(const char *dir) {
    char path[PATH_BYTES];
    size_t length = strlen(dir);
    struct stat info;
    while (length > 0) {
        memcpy(path, dir, length);
        path[length] = '\0';
        if (stat(path, &info) == 0) break;
        while (length > 0 && path[length - 1] == '/') length--;
        while (length > 0 && path[length - 1] != '/') length--;
    }
    return length;
}

/* A file system that cannot tell is no reason to refuse. */
static dflash_status check_space(const char *dir, size_t existing, uint64_t needed, dflash_error *err) {
    char path[PATH_BYTES] = ".";
    if (existing > 0) {
        memcpy(path, dir, existing);
        path[existing] = '\0';
    }
    struct statvfs info;
    if (statvfs(path, &info) != 0) return DFLASH_OK;
    const uint64_t free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    if (free_bytes >= needed) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_IO, "synth.space",
                   "Not enough space for %s/model.safetensors: expected %llu bytes free on that disk, found %llu. Free "
                   "space, or choose another disk with --out; nothing was written.",
                   dir, (unsigned long long)needed, (unsigned long long)free_bytes);
}

/* Removes the folders of `dir` below its first `keep` characters, deepest first, as far as they are empty. */
static void remove_folders(const char *dir, size_t keep) {
    char path[PATH_BYTES];
    size_t length = strlen(dir);
    memcpy(path, dir, length + 1);
    while (length > keep && (rmdir(path) == 0 || errno == ENOENT)) {
        while (length > keep && path[length - 1] == '/') path[--length] = '\0';
        while (length > keep && path[length - 1] != '/') path[--length] = '\0';
    }
}

static dflash_status make_folders(const char *dir, size_t existing, dflash_error *err) {
    char path[PATH_BYTES];
    const size_t length = strlen(dir);
    memcpy(path, dir, length + 1);
    for (size_t end = existing + 1; end <= length; end++) {
        if (end < length && dir[end] != '/') continue;
        path[end] = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            const int cause = errno;
            remove_folders(dir, existing);
            return df_fail(err, DFLASH_ERR_IO, "synth.folder",
                           "Cannot make the folder %s: expected to be able to create it, found \"%s\". Check the path "
                           "given to --out and that you may write there.",
                           path, strerror(cause));
        }
        path[end] = dir[end];
    }
    struct stat info;
    if (stat(dir, &info) == 0 && S_ISDIR(info.st_mode)) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_IO, "synth.folder",
                   "Cannot write into %s: expected a folder, found something else at that name. Choose another --out.",
                   dir);
}

/* ---- model.safetensors ---- */

/* Length prefix, JSON, spaces up to a multiple of 8. The metadata's "format" is what Hugging Face's loader asks for. */
static dflash_status make_header(const dp_synth_plan *plan, const dp_synth_options *options, text *out,
                                 dflash_error *err) {
    const size_t room = HEADER_FIXED + HEADER_ENTRY * (size_t)plan->count;
    const long long width = (long long)df_dtype_size(options->dtype);
    out->data = malloc(room);
    if (out->data == NULL) return df_fail_memory(err, "the safetensors header", room);
    size_t at = 8;
    at +=
        (size_t)snprintf(out->data + at, room - at,
                         "{\"__metadata__\":{\"format\":\"pt\",\"generator\":\"dflash-parity synth\",\"seed\":\"%llu\","
                         "\"profile\":\"%s\"}",
                         (unsigned long long)options->seed, dp_synth_profile_name(options->profile));
    for (int t = 0; t < plan->count; t++) {
        const dp_synth_tensor *tensor = &plan->tensor[t];
        at += (size_t)snprintf(out->data + at, room - at, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensor->name,
                               df_dtype_name(options->dtype));
        for (int d = 0; d < tensor->rank; d++) {
            at += (size_t)snprintf(out->data + at, room - at, d == 0 ? "%lld" : ",%lld", (long long)tensor->dim[d]);
        }
        at += (size_t)snprintf(out->data + at, room - at, "],\"data_offsets\":[%lld,%lld]}",
                               (long long)tensor->first * width, (long long)(tensor->first + tensor->count) * width);
    }
    out->data[at++] = '}';
    while (at % 8 != 0) out->data[at++] = ' ';
    for (int i = 0; i < 8; i++) out->data[i] = (char)((uint64_t)(at - 8) >> 8 * i & 0xff);
    out->length = at;
    return DFLASH_OK;
}

typedef struct worker {
    pthread_t thread;
    const dp_synth_plan *plan;
    df_dtype dtype;
    int64_t first, count;
    char *out;
} worker;

static void *fill(void *argument) {
    const worker *w = argument;
    dp_synth_plan_fill(w->plan, w->first, w->count, w->dtype, w->out);
    return NULL;
}

/* A piece of the data and the threads that fill it. */
typedef struct piece {
    char *data; /* owned */
    int64_t first, count;
    int running;
    worker worker[DP_SYNTH_MAX_THREADS];
} piece;

static void finish_piece(piece *p) {
    while (p->running > 0) pthread_join(p->worker[--p->running].thread, NULL);
}

static dflash_status start_piece(piece *p, const dp_synth_plan *plan, const dp_synth_options *options, int64_t first,
                                 dflash_error *err) {
    const int64_t left = plan->values - first;
    p->first = first;
    p->count = left < PIECE_VALUES ? left : PIECE_VALUES;
    for (int i = 0; i < options->threads; i++) {
        const int64_t from = p->count * i / options->threads, to = p->count * (i + 1) / options->threads;
        worker *w = &p->worker[i];
        w->plan = plan;
        w->dtype = options->dtype;
        w->first = first + from;
        w->count = to - from;
        w->out = p->data + (size_t)from * df_dtype_size(options->dtype);
        const int cause = pthread_create(&w->thread, NULL, fill, w);
        if (cause != 0) {
            finish_piece(p);
            return df_fail(err, DFLASH_ERR_MEMORY, "synth.thread",
                           "Cannot start thread %d of %d: expected the system to allow it, found \"%s\". Use fewer "
                           "--threads.",
                           i + 1, options->threads, strerror(cause));
        }
        p->running++;
    }
    return DFLASH_OK;
}

static dflash_status write_data(dp_atomic_file *file, const dp_synth_plan *plan, const dp_synth_options *options,
                                dflash_error *err) {
    const size_t width = df_dtype_size(options->dtype);
    const size_t bytes = width * (size_t)(plan->values < PIECE_VALUES ? plan->values : PIECE_VALUES);
    dp_progress progress;
    dp_progress_begin(&progress, "synth", NULL, (double)width * (double)plan->values);
    dflash_status status = DFLASH_OK;
    piece *pieces = calloc(2, sizeof *pieces);
    if (pieces == NULL) return df_fail_memory(err, "the pieces of the checkpoint", 2 * sizeof *pieces);
    for (int i = 0; i < 2; i++) {
        pieces[i].data = malloc(bytes);
        if (pieces[i].data == NULL) {
            status = df_fail_memory(err, "a piece of the checkpoint", bytes);
            goto cleanup;
        }
    }
    piece *ready = &pieces[0], *next = &pieces[1];
    status = start_piece(ready, plan, options, 0, err);
    for (int64_t done = 0; status == DFLASH_OK && done < plan->values;) {
        finish_piece(ready);
        done = ready->first + ready->count;
        if (done < plan->values) status = start_piece(next, plan, options, done, err);
        if (status == DFLASH_OK) status = dp_atomic_write(file, ready->data, width * (size_t)ready->count, err);
        dp_progress_update(&progress, (double)width * (double)done, NULL);
        piece *written = ready;
        ready = next;
        next = written;
    }
cleanup:
    dp_progress_end(&progress);
    for (int i = 0; i < 2; i++) {
        finish_piece(&pieces[i]);
        free(pieces[i].data);
    }
    free(pieces);
    return status;
}

/* Writes all of `bytes` to a new file at `path`. */
static dflash_status write_text(const char *path, const text *bytes, dflash_error *err) {
    dp_atomic_file *file = NULL;
    dflash_status status = dp_atomic_open(path, &file, err);
    if (status != DFLASH_OK) return status;
    status = dp_atomic_write(file, bytes->data, bytes->length, err);
    if (status == DFLASH_OK) return dp_atomic_commit(file, err);
    dp_atomic_discard(file);
    return status;
}

static dflash_status write_files(const char *dir, const text *config, const text *header, const dp_synth_plan *plan,
                                 const dp_synth_options *options, dflash_error *err) {
    char config_path[PATH_BYTES], model_path[PATH_BYTES];
    dp_atomic_file *model = NULL;
    dflash_status status = join(dir, "config.json", config_path, err);
    if (status == DFLASH_OK) status = join(dir, "model.safetensors", model_path, err);
    if (status == DFLASH_OK) status = dp_atomic_open(model_path, &model, err);
    if (status == DFLASH_OK) status = dp_atomic_write(model, header->data, header->length, err);
    if (status == DFLASH_OK) status = write_data(model, plan, options, err);
    if (status == DFLASH_OK && !holds(config_path, config)) {
        /* Weights of another config must not stand beside the new one, not even for the moment between two renames. */
        unlink(model_path);
        status = write_text(config_path, config, err);
    }
    if (status == DFLASH_OK) return dp_atomic_commit(model, err);
    dp_atomic_discard(model);
    return status;
}

dflash_status dp_synth_write(const char *config_path, const char *dir, const dp_synth_options *options,
                             dp_synth_result *result, dflash_error *err) {
    text config_text = {0}, header = {0};
    dp_synth_plan plan = {0};
    dflash_config *config = calloc(1, sizeof *config);
    dflash_status status = DFLASH_OK;
    if (config == NULL) return df_fail_memory(err, "the config", sizeof *config);
    if (options->threads < 1 || options->threads > DP_SYNTH_MAX_THREADS) {
        status =
            df_fail(err, DFLASH_ERR_ARGUMENT, "synth.thread", "Expected 1 to %d threads, found %d. Change --threads.",
                    DP_SYNTH_MAX_THREADS, options->threads);
        goto cleanup;
    }
    if (dir[0] == '\0' || strlen(dir) >= PATH_BYTES) {
        status = df_fail(err, DFLASH_ERR_IO, "synth.path",
                         "The output folder's name is empty or too long: expected 1 to %d bytes, found %zu. Change "
                         "--out.",
                         PATH_BYTES - 1, strlen(dir));
        goto cleanup;
    }
    if ((status = read_config(config_path, &config_text, err)) != DFLASH_OK) goto cleanup;
    if ((status = df_config_parse(config_text.data, config_text.length, config_path, config, err)) != DFLASH_OK)
        goto cleanup;
    if ((status = dp_synth_plan_make(config, options->seed, options->profile, options->extras, &plan, err)) !=
        DFLASH_OK)
        goto cleanup;
    if ((status = make_header(&plan, options, &header, err)) != DFLASH_OK) goto cleanup;

    const size_t existing = existing_length(dir);
    const uint64_t bytes = header.length + df_dtype_size(options->dtype) * (uint64_t)plan.values;
    if ((status = check_space(dir, existing, bytes + config_text.length, err)) != DFLASH_OK) goto cleanup;
    if ((status = make_folders(dir, existing, err)) != DFLASH_OK) goto cleanup;
    status = write_files(dir, &config_text, &header, &plan, options, err);
    if (status != DFLASH_OK) {
        remove_folders(dir, existing);
    } else if (result != NULL) {
        *result = (dp_synth_result){.tensors = plan.count, .parameters = plan.values, .bytes = bytes};
    }
cleanup:
    dp_synth_plan_release(&plan);
    free(header.data);
    free(config_text.data);
    free(config);
    return status;
}

double dp_synth_bytes(const char *config_path, const dp_synth_options *options) {
    dp_synth_plan plan = {0};
    text config_text = {0};
    dflash_config *config = calloc(1, sizeof *config);
    dflash_status status = config != NULL ? read_config(config_path, &config_text, NULL) : DFLASH_ERR_MEMORY;
    if (status == DFLASH_OK) status = df_config_parse(config_text.data, config_text.length, config_path, config, NULL);
    if (status == DFLASH_OK)
        status = dp_synth_plan_make(config, options->seed, options->profile, options->extras, &plan, NULL);
    const double bytes = status == DFLASH_OK ? (double)df_dtype_size(options->dtype) * (double)plan.values : 0.0;
    dp_synth_plan_release(&plan);
    free(config_text.data);
    free(config);
    return bytes;
}

bool dp_synth_parse_dtype(const char *word, df_dtype *out) {
    if (strcmp(word, "bf16") == 0) return *out = DF_BF16, true;
    if (strcmp(word, "f16") == 0) return *out = DF_F16, true;
    if (strcmp(word, "f32") == 0) return *out = DF_F32, true;
    return false;
}

bool dp_synth_parse_profile(const char *word, dp_synth_profile *out) {
    for (int i = DP_SYNTH_UNIT; i <= DP_SYNTH_SHARP; i++) {
        *out = (dp_synth_profile)i;
        if (strcmp(word, dp_synth_profile_name(*out)) == 0) return true;
    }
    return false;
}
