/*
 * bench_torch.c - times of PyTorch, taken in the same run by a script of oracles/: of the reference itself beside one
 * case, and of a plain model of the same layers beside the table.
 */
#include "bench/bench.h"
#include "bench/bench_table.h"

#include "common/error.h"
#include "base/process.h"
#include "base/text_file.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_OUTPUT = 1 << 20, NUMBER = 24 };

static dflash_status reference_failed(const char *script, const char *python, const char *what, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_IO, "bench.reference",
                   "PyTorch could not be timed: %.300s (%s %s). Expected an interpreter with the packages that the "
                   "script imports (`make oracles` builds one), and to run from the project's root; or leave --torch "
                   "out.",
                   what, python, script);
}

/* The last line of a text that says something; cuts the text there. */
static const char *last_line(char *text) {
    size_t length = strlen(text);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' ')) text[--length] = '\0';
    const char *line = strrchr(text, '\n');
    return line != NULL ? line + 1 : text;
}

/* Runs words[0] on the script words[1]; *out is the JSON object that it printed, which the caller deletes. */
static dflash_status run_script(const char *const *words, cJSON **out, dflash_error *err) {
    char folder[DP_FOLDER_PATH], printed[DP_FOLDER_PATH + 8], said[DP_FOLDER_PATH + 8];
    char *text = NULL, *complaint = NULL;
    int code = 0;
    *out = NULL;
    TRY(dp_scratch_make(folder, err));
    snprintf(printed, sizeof printed, "%s/out", folder);
    snprintf(said, sizeof said, "%s/err", folder);
    const dp_process process = {.argv = words, .out = printed, .err = said};
    dp_interruptions_begin();
    dflash_status status = dp_process_run(&process, &code, err);
    dp_interruptions_end();
    if (status == DFLASH_OK) status = dp_text_file_read(printed, MOST_OUTPUT, &text, err);
    if (status == DFLASH_OK && code == 0) *out = cJSON_Parse(text);
    if (status == DFLASH_OK && *out == NULL) {
        const bool told = code != 0 && dp_text_file_read(said, MOST_OUTPUT, &complaint, err) == DFLASH_OK;
        const char *what = told ? last_line(complaint) : "";
        if (what[0] == '\0') what = code == 0 ? "it printed no figures" : "it failed without a word";
        status = reference_failed(words[1], words[0], what, err);
    }
    free(text);
    free(complaint);
    dp_scratch_remove(folder);
    return status;
}

/* Seconds of a figure in milliseconds; 0 when it is null or absent. */
static double seconds_of(const cJSON *json, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNumber(value) && value->valuedouble > 0.0 ? 1e-3 * value->valuedouble : 0.0;
}

/* Runs one of the two scripts, which take the same words; `device` NULL: it has no choice of one. */
static dflash_status time_script(const char *python, const char *script, const char *checkpoint, long context,
                                 long threads, long repeat, const char *device, cJSON **json, dflash_error *err) {
    char rows[NUMBER], workers[NUMBER], times[NUMBER];
    snprintf(rows, sizeof rows, "%ld", context);
    snprintf(workers, sizeof workers, "%ld", threads);
    snprintf(times, sizeof times, "%ld", repeat);
    const char *words[13] = {python, script, "--checkpoint", checkpoint};
    const char *const more[] = {"--context", rows, "--threads", workers, "--repeat", times};
    size_t n = 4;
    if (device != NULL) {
        words[n++] = "--device";
        words[n++] = device;
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) words[n++] = more[i];
    return run_script(words, json, err);
}

dflash_status dp_bench_reference(dp_bench *b, dflash_error *err) {
    static const char script[] = "oracles/time_reference.py";
    cJSON *json = NULL;
    TRY(time_script(b->python, script, b->checkpoint, b->context, b->threads, b->repeat, NULL, &json, err));
    const char *version = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "torch"));
    b->torch_f32 = seconds_of(json, "float32_ms");
    b->torch_bf16 = seconds_of(json, "bfloat16_ms");
    const bool good = version != NULL && b->torch_f32 > 0.0 && b->torch_bf16 > 0.0;
    if (good) snprintf(b->torch_version, sizeof b->torch_version, "%s", version);
    cJSON_Delete(json);
    return good ? DFLASH_OK : reference_failed(script, b->python, "it printed no figures", err);
}

dflash_status dp_table_time_torch(const dp_table *t, dp_table_geometry *g, dflash_error *err) {
    static const char script[] = "oracles/time_plain.py";
    char checkpoint[DP_TABLE_PATH];
    cJSON *json = NULL;
    dflash_status status = dp_table_checkpoint(t, g->name, checkpoint, err);
    if (status == DFLASH_OK)
        status = time_script(t->python, script, checkpoint, t->context, t->threads, t->repeat,
                             dflash_backend_name(t->backend), &json, err);
    if (status == DFLASH_OK) {
        const char *version = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "torch"));
        const char *why = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "why"));
        g->torch = (dp_table_torch){.eager = seconds_of(json, "eager_ms"),
                                    .graph = seconds_of(json, "graph_ms"),
                                    .compiled = seconds_of(json, "compiled_ms")};
        snprintf(g->torch.version, sizeof g->torch.version, "%s", version != NULL ? version : "");
        snprintf(g->torch.why, sizeof g->torch.why, "%s", why != NULL ? why : "");
        if (g->torch.eager == 0.0) status = reference_failed(script, t->python, "it printed no figures", err);
    }
    cJSON_Delete(json);
    if (status != DFLASH_OK) {
        g->torch = (dp_table_torch){.eager = 0.0};
        snprintf(g->torch.why, sizeof g->torch.why, "not timed: %.480s", err->message);
    }
    return status;
}
