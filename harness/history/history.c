/* history.c - see history.h: the line of a run, and appending it. */
#include "history/history.h"

#include "base/atomic_file.h"
#include "common/error.h"
#include "base/json_number.h"
#include "base/json_text.h"
#include "common/regular_file.h"
#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The line ---- */

static const char *digest_of(const dp_result_case *item, const char *part, const char *key) {
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(item->object, part);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text != NULL ? text : "";
}

static void series_of(const dp_result_case *item, const char *filter, char out[DP_SERIES_TEXT]) {
    char hex[65];
    const dflash_device_facts *device = &item->result.device;
    const char *const part[] = {device->backend,
                                device->numeric_class,
                                device->products,
                                dflash_precision_name(item->options.precision),
                                digest_of(item, "oracle", "sha256"),
                                digest_of(item, "checkpoint", "tensors_sha256"),
                                filter != NULL ? filter : ""};
    dp_sha256 hash;
    dp_sha256_init(&hash);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        dp_sha256_update(&hash, part[i], strlen(part[i]));
        dp_sha256_update(&hash, "\n", 1);
    }
    dp_sha256_hex(&hash, hex);
    memcpy(out, hex, DP_SERIES_TEXT - 1);
    out[DP_SERIES_TEXT - 1] = '\0';
}

/* The share of its limit that a stage used; null when there is no such stage. */
static void add_used(cJSON *object, const char *key, const dp_stage_result *stage) {
    if (stage == NULL)
        cJSON_AddNullToObject(object, key);
    else
        dp_json_add_number(object, key, 1.0 - stage->headroom);
}

static cJSON *case_line(const dp_result_case *item, const char *filter) {
    char series[DP_SERIES_TEXT];
    const dp_result *r = &item->result;
    const dp_stage_result *least = dp_worst_stage(r), *final = dp_stage_named(r, "final");
    const bool stopped = dp_stopped(r);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "case", item->name);
    cJSON_AddStringToObject(object, "verdict", dp_verdict_name(r->verdict));
    cJSON_AddItemToObject(object, "code", stopped ? cJSON_CreateString(r->error.code) : cJSON_CreateNull());
    series_of(item, filter, series);
    cJSON_AddStringToObject(object, "series", series);
    cJSON_AddStringToObject(object, "backend", r->device.backend);
    cJSON_AddStringToObject(object, "class", r->device.numeric_class);
    cJSON_AddStringToObject(object, "products", r->device.products);
    cJSON_AddStringToObject(object, "precision", dflash_precision_name(item->options.precision));
    cJSON_AddItemToObject(object, "stage", least != NULL ? cJSON_CreateString(least->name) : cJSON_CreateNull());
    add_used(object, "used", least);
    add_used(object, "final", final);
    return object;
}

/* "\n" or "", the line, "\n"; NULL when out of memory. */
static char *line_of(const dp_result_file *file, bool after_torn, size_t *length) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "history", DP_HISTORY_VERSION);
    cJSON_AddStringToObject(object, "when", file->when);
    cJSON_AddStringToObject(object, "tool", file->tool);
    cJSON_AddStringToObject(object, "verdict", dp_verdict_name(file->verdict));
    cJSON_AddNumberToObject(object, "exit_code", dp_verdict_exit_code(file->verdict));
    cJSON_AddStringToObject(object, "commit", dp_result_fact(file, "commit"));
    cJSON_AddBoolToObject(object, "dirty", cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(file->environment, "dirty")));
    cJSON_AddStringToObject(object, "compiler", dp_result_fact(file, "compiler"));
    cJSON_AddStringToObject(object, "command", file->command);
    cJSON *cases = cJSON_AddArrayToObject(object, "cases");
    for (int i = 0; i < file->count; i++)
        cJSON_AddItemToArray(cases, case_line(&file->item[i], file->item[i].options.filter));
    char *text = cases != NULL && cJSON_GetArraySize(cases) == file->count ? dp_json_print(object, false) : NULL;
    cJSON_Delete(object);
    if (text == NULL) return NULL;
    const size_t size = strlen(text) + 3;
    char *line = malloc(size);
    if (line != NULL) *length = (size_t)snprintf(line, size, "%s%s\n", after_torn ? "\n" : "", text);
    cJSON_free(text);
    return line;
}

/* ---- Appending ---- */

static dflash_status fail(dflash_error *err, const char *code, const char *path, const char *what) {
    return df_fail(err, DFLASH_ERR_IO, code,
                   "The history %s cannot be %s: %s. The run is not on record; check the path, its permissions and the "
                   "room on its disk.",
                   path, what, strerror(errno));
}

/* Whether something stands at the end of the file without a newline after it. */
static dflash_status ends_torn(int fd, off_t size, const char *path, bool *torn, dflash_error *err) {
    char last = '\n';
    if (size > 0 && pread(fd, &last, 1, size - 1) != 1) return fail(err, "history.open", path, "read");
    *torn = last != '\n';
    return DFLASH_OK;
}

static dflash_status append_locked(int fd, const char *path, const dp_result_file *file, dflash_error *err) {
    struct stat info;
    bool torn = false;
    size_t length = 0;
    if (fstat(fd, &info) != 0) return fail(err, "history.open", path, "examined");
    TRY(ends_torn(fd, info.st_size, path, &torn, err));
    char *line = line_of(file, torn, &length);
    if (line == NULL) return df_fail_memory(err, "the history's line", 0);
    const ssize_t written = write(fd, line, length);
    free(line);
    if (written == (ssize_t)length) return DFLASH_OK;
    if (written >= 0) errno = ENOSPC; /* a short write says no more than that */
    const dflash_status status = fail(err, "history.write", path, "written");
    if (ftruncate(fd, info.st_size) != 0) return fail(err, "history.write", path, "restored after a part was written");
    return status;
}

dflash_status dp_history_append(const char *path, const dp_result_file *file, dflash_error *err) {
    const int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return fail(err, "history.open", path, "opened");
    dflash_status status = flock(fd, LOCK_EX) == 0 ? DFLASH_OK : fail(err, "history.lock", path, "locked");
    if (status == DFLASH_OK) status = append_locked(fd, path, file, err);
    if (close(fd) != 0 && status == DFLASH_OK) status = fail(err, "history.write", path, "closed");
    return status;
}

dflash_status dp_history_check(const char *path, dflash_error *err) {
    struct stat info;
    if (stat(path, &info) != 0) return dp_atomic_check(path, err);
    if (S_ISFIFO(info.st_mode))
        return df_fail(err, DFLASH_ERR_IO, "history.open",
                       "The history %s is %s; its lines are read back and added to, so it must be a regular file.",
                       path, df_file_kind(info.st_mode));
    const int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
    if (fd < 0) return fail(err, "history.open", path, "opened");
    close(fd);
    return DFLASH_OK;
}
