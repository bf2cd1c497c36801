/*
 * bench_torch.c - the reference's time of the same block, taken in the same run by oracles/time_reference.py.
 */
#include "bench.h"

#include "error.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_SIZE = 4096 };

extern char **environ;

static df_status reference_failed(const dp_bench *b, const char *what, df_error *err) {
    return df_fail(
        err, DF_ERR_IO, "bench.reference",
        "The reference could not be timed: %s (%s oracles/time_reference.py). Build its environment with `make "
        "oracles`, run from the project's root, or leave --torch out.",
        what, b->python);
}

/* Starts the script with its standard output on `output`, which is closed here; its process id goes to *child. */
static df_status run_script(const dp_bench *b, int output, int *started, df_error *err) {
    char context[24], threads[24], repeat[24];
    snprintf(context, sizeof context, "%ld", b->context);
    snprintf(threads, sizeof threads, "%d", b->threads);
    snprintf(repeat, sizeof repeat, "%ld", b->repeat);
    const char *const words[] = {b->python,
                                 "oracles/time_reference.py",
                                 "--checkpoint",
                                 b->checkpoint,
                                 "--context",
                                 context,
                                 "--threads",
                                 threads,
                                 "--repeat",
                                 repeat,
                                 NULL};
    char *argv[sizeof words / sizeof *words] = {NULL};
    for (size_t i = 0; words[i] != NULL; i++)
        memcpy(&argv[i], &words[i], sizeof argv[i]); /* spawn does not write them */
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    const int failure = posix_spawnp(&child, b->python, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(output);
    if (failure != 0) return reference_failed(b, strerror(failure), err);
    *started = child;
    return DF_OK;
}

static size_t read_all(int from, char *text, size_t size) {
    size_t length = 0;
    ssize_t got = 1;
    while (length + 1 < size && got != 0) {
        got = read(from, text + length, size - 1 - length);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        length += (size_t)got;
    }
    text[length] = '\0';
    return length;
}

static df_status read_figures(dp_bench *b, const char *text, df_error *err) {
    cJSON *json = cJSON_Parse(text);
    const char *version = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "torch"));
    const cJSON *f32 = cJSON_GetObjectItemCaseSensitive(json, "float32_ms");
    const cJSON *bf16 = cJSON_GetObjectItemCaseSensitive(json, "bfloat16_ms");
    const bool good = version != NULL && cJSON_IsNumber(f32) && cJSON_IsNumber(bf16);
    if (good) {
        snprintf(b->torch_version, sizeof b->torch_version, "%s", version);
        b->torch_f32 = 1e-3 * f32->valuedouble;
        b->torch_bf16 = 1e-3 * bf16->valuedouble;
    }
    cJSON_Delete(json);
    return good ? DF_OK : reference_failed(b, "it printed no figures", err);
}

df_status dp_bench_reference(dp_bench *b, df_error *err) {
    char text[OUTPUT_SIZE];
    int ends[2], child = 0, state = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) return reference_failed(b, strerror(errno), err);
    df_status status = run_script(b, ends[1], &child, err);
    if (status == DF_OK) read_all(ends[0], text, sizeof text);
    close(ends[0]);
    if (status != DF_OK) return status;
    while (waitpid((pid_t)child, &state, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) return reference_failed(b, "it failed, as it says above", err);
    return read_figures(b, text, err);
}
