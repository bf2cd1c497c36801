/* result_file.c - see result_file.h. */
#include "report/result_file.h"

#include "check/seen.h"
#include "check/divergence.h"
#include "common/error.h"
#include "base/json_text.h"
#include "report/report.h"
#include "base/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CASES = 100000, MOST_STAGES = 1 << 16 };
static const size_t MOST_BYTES = (size_t)64 << 20;

static dp_verdict read_verdict(dp_json_reader *reader, const cJSON *object) {
    const char *name = dp_read_text(reader, object, "verdict");
    const int64_t code = dp_read_integer(reader, object, "exit_code", 0, 255);
    for (int v = DP_PASS; v <= DP_NOTHING; v++) {
        if (strcmp(name, dp_verdict_name((dp_verdict)v)) != 0) continue;
        if (code != dp_verdict_exit_code((dp_verdict)v)) dp_read_wrong(reader, "exit_code", "that of the verdict");
        return (dp_verdict)v;
    }
    dp_read_wrong(reader, "verdict", "PASS, FAIL, REFUSED, ERROR or NOTHING COMPARED");
    return DP_ERROR;
}

static void read_device(dp_json_reader *reader, const cJSON *object, dflash_device_facts *facts) {
    facts->backend = dp_read_text(reader, object, "backend");
    facts->numeric_class = dp_read_text(reader, object, "class");
    facts->products = dp_read_text(reader, object, "products");
    const cJSON *device = dp_read_object_or_null(reader, object, "device");
    if (device == NULL) return;
    snprintf(facts->device, sizeof facts->device, "%s", dp_read_text(reader, device, "name"));
    snprintf(facts->driver, sizeof facts->driver, "%s", dp_read_text(reader, device, "driver"));
    snprintf(facts->runtime, sizeof facts->runtime, "%s", dp_read_text(reader, device, "runtime"));
    facts->capability = (int)dp_read_integer(reader, device, "capability", 0, INT32_MAX);
    facts->multiprocessors = (int)dp_read_integer(reader, device, "multiprocessors", 0, INT32_MAX);
    facts->tf32 = dp_read_bool(reader, device, "tf32");
}

static void read_digest(dp_json_reader *reader, const cJSON *object, const char *key, char digest[DP_DIGEST_TEXT]) {
    const char *text = dp_read_text_or_null(reader, object, key);
    snprintf(digest, DP_DIGEST_TEXT, "%s", text != NULL ? text : "");
}

static void read_subject(dp_json_reader *reader, const cJSON *object, dp_result_case *out) {
    dp_result *const result = &out->result;
    const cJSON *checkpoint = out->checkpoint = dp_read_object(reader, object, "checkpoint");
    out->options.checkpoint = dp_read_text(reader, checkpoint, "path");
    read_digest(reader, checkpoint, "config_sha256", result->facts.config_sha256);
    read_digest(reader, checkpoint, "tensors_sha256", result->facts.tensors_sha256);
    out->accepted = dp_read_object_or_null(reader, checkpoint, "geometry") != NULL;
    const cJSON *oracle = out->oracle = dp_read_object(reader, object, "oracle");
    out->options.oracle = dp_read_text(reader, oracle, "path");
    read_digest(reader, oracle, "sha256", result->facts.oracle_sha256);
    dp_read_object_or_null(reader, oracle, "provenance");
    const char *family = dp_read_text_or_null(reader, object, "family");
    if ((family != NULL) != out->accepted) dp_read_wrong(reader, "family", "there exactly when the geometry is");
    if (family != NULL) {
        int f = DFLASH_FAMILY_DFLASH;
        while (f <= DFLASH_FAMILY_DFLASH2 && strcmp(family, dflash_family_name((dflash_family)f)) != 0) f++;
        if (f > DFLASH_FAMILY_DFLASH2) dp_read_wrong(reader, "family", "dflash, dspark, dflash2 or null");
        result->family = (dflash_family)f;
    }
    if (!dflash_precision_parse(dp_read_text(reader, object, "precision"), &out->options.precision))
        dp_read_wrong(reader, "precision", "the name of a precision mode");
    read_device(reader, object, &result->device);
    result->isa = dp_read_text_or_null(reader, object, "isa");
    if (result->isa == NULL) result->isa = "";
    result->threads = (int)dp_read_integer(reader, object, "threads", 0, INT32_MAX);
    result->context = (int)dp_read_integer(reader, object, "context_rows", 0, INT32_MAX);
    result->block = (int)dp_read_integer(reader, object, "block_rows", 0, INT32_MAX);
}

/* There when the head was not the checkpoint's own; its tensor null when none was loaded. */
static void read_output_head(dp_json_reader *reader, const cJSON *object, dp_result_case *out) {
    if (!cJSON_HasObjectItem(object, "head")) return;
    const cJSON *head = dp_read_object(reader, object, "head");
    out->options.head = dp_read_text(reader, head, "source");
    const char *tensor = dp_read_text_or_null(reader, head, "tensor");
    snprintf(out->result.head, sizeof out->result.head, "%s", tensor != NULL ? tensor : "");
}

static void read_error(dp_json_reader *reader, const cJSON *object, dp_result *result) {
    const cJSON *error = dp_read_object_or_null(reader, object, "error");
    if (error == NULL) return;
    result->error.status = result->verdict == DP_ERROR ? DFLASH_ERR_IO : DFLASH_ERR_REFUSED;
    snprintf(result->error.code, sizeof result->error.code, "%s", dp_read_text(reader, error, "code"));
    snprintf(result->error.message, sizeof result->error.message, "%s", dp_read_text(reader, error, "message"));
}

static void *allocate(dp_json_reader *reader, int count, size_t size) {
    void *memory = reader->status == DFLASH_OK ? calloc((size_t)(count > 0 ? count : 1), size) : NULL;
    if (memory == NULL && reader->status == DFLASH_OK)
        reader->status = df_fail_memory(reader->err, "the content of a result file", (size_t)count * size);
    return memory;
}

static void read_stages(dp_json_reader *reader, const cJSON *object, dp_result *result) {
    const cJSON *array = dp_read_array(reader, object, "stages"), *item;
    const int count = cJSON_GetArraySize(array);
    char outer[DP_WHERE_TEXT];
    memcpy(outer, reader->where, sizeof outer);
    if (count > MOST_STAGES) dp_read_wrong(reader, "stages", "an array of fewer entries");
    result->stage = allocate(reader, count, sizeof *result->stage);
    result->plot.stage = allocate(reader, count, sizeof *result->plot.stage);
    if (result->stage == NULL || result->plot.stage == NULL) return;
    cJSON_ArrayForEach(item, array) {
        dp_stage_result *const stage = &result->stage[result->stage_count];
        snprintf(reader->where, sizeof reader->where, "%.100s, stage %d", outer, result->stage_count + 1);
        dp_read_stage(reader, item, stage, &result->plot.stage[result->stage_count]);
        result->stage_count++;
        result->plot.stage_count++;
        result->failed_stages += !stage->pass;
        result->warnings += stage->warn;
        result->isolated_count += stage->isolated.judged;
        result->failed_isolated += dp_alone_failed(stage);
        if (reader->status != DFLASH_OK) return;
    }
    memcpy(reader->where, outer, sizeof outer);
}

static void read_variants(dp_json_reader *reader, const cJSON *object, dp_result *result) {
    const cJSON *array = dp_read_array(reader, object, "rounds"), *item;
    cJSON_ArrayForEach(item, array) {
        if (result->variant_count == DP_MOST_VARIANTS) {
            dp_read_wrong(reader, "rounds", "an array of at most 16 variants");
            return;
        }
        dp_variant_result *const variant = &result->variant[result->variant_count++];
        dp_read_variant(reader, item, variant);
        result->failed_variants += !variant->identical;
    }
}

static void read_layers(dp_json_reader *reader, const cJSON *object, dp_result *result) {
    const cJSON *array = dp_read_array(reader, object, "growth"), *item;
    const int count = cJSON_GetArraySize(array);
    if (count > DFLASH_MAX_LAYERS) dp_read_wrong(reader, "growth", "an array of at most 128 layers");
    result->layer = allocate(reader, count, sizeof *result->layer);
    if (result->layer == NULL) return;
    cJSON_ArrayForEach(item, array) dp_read_growth(reader, item, &result->layer[result->layer_count++]);
}

/* ---- Contradictions ---- */

static void check_count(dp_json_reader *reader, const cJSON *object, const char *key, int expected) {
    const int64_t found = dp_read_integer(reader, object, key, 0, INT32_MAX);
    if (reader->status != DFLASH_OK || found == expected) return;
    reader->status = df_fail(reader->err, DFLASH_ERR_REFUSED, "result.counts",
                             "%s, %s: \"%s\" is %lld, and its arrays hold %d. The file was changed after it was "
                             "written; write it again with --out.",
                             reader->file, reader->where, key, (long long)found, expected);
}

/* Not there in what earlier releases wrote. */
static void check_coverage(dp_json_reader *reader, const cJSON *object, const dp_result *r) {
    if (cJSON_GetObjectItemCaseSensitive(object, "coverage") == NULL) return;
    const dp_seen c = dp_seen_of(r);
    const cJSON *coverage = dp_read_object(reader, object, "coverage");
    check_count(reader, coverage, "stages_whole", c.whole);
    check_count(reader, coverage, "stages_sketched", c.sketched);
    check_count(reader, coverage, "stages_not_shown", c.unseen);
    check_count(reader, coverage, "alone_fed", c.fed);
    check_count(reader, coverage, "alone_fed_partly", c.fed_partly);
    check_count(reader, coverage, "alone_not_fed", c.unfed);
    dp_read_integer(reader, coverage, "sketched_values", c.values, c.values);
    dp_read_integer(reader, coverage, "sketched_values_compared", c.compared, c.compared);
    dp_read_integer(reader, coverage, "sketched_rows", c.rows, c.rows);
}

/* A pass needs something compared and nothing failed; a failure needs something that failed. */
static void check_verdict(dp_json_reader *reader, const dp_result *r) {
    const int compared = r->stage_count + r->variant_count,
              failed = r->failed_stages + r->failed_variants + r->failed_isolated;
    const bool fits = r->verdict == DP_PASS      ? compared > 0 && failed == 0
                      : r->verdict == DP_FAIL    ? failed > 0 || dp_stopped(r)
                      : r->verdict == DP_NOTHING ? compared == 0
                                                 : true;
    if (reader->status != DFLASH_OK || fits) return;
    reader->status =
        df_fail(reader->err, DFLASH_ERR_REFUSED, "result.counts",
                "%s, %s: the verdict is %s, and of %d comparisons %d failed. The file was changed after it "
                "was written; write it again with --out.",
                reader->file, reader->where, dp_verdict_name(r->verdict), compared, failed);
}

/* The stage that a file names and the one that its stages tell must be the same. */
static void check_divergence(dp_json_reader *reader, const cJSON *object, const dp_result *r) {
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(r, &by);
    const cJSON *named = dp_read_object_or_null(reader, object, "first_divergence");
    const char *stage = named != NULL ? dp_read_text(reader, named, "stage") : "none";
    const char *how = named != NULL ? dp_read_text(reader, named, "by") : "";
    const char *expected = first != NULL ? first->name : "none",
               *expected_how = first != NULL ? dp_divergence_name(by) : "";
    if (reader->status != DFLASH_OK || (strcmp(stage, expected) == 0 && strcmp(how, expected_how) == 0)) return;
    reader->status = df_fail(reader->err, DFLASH_ERR_REFUSED, "result.counts",
                             "%s, %s: \"first_divergence\" is %.60s %.20s, and by its stages it is %s %s. The file was "
                             "changed after it was written; write it again with --out.",
                             reader->file, reader->where, stage, how, expected, expected_how);
}

/* ---- Cases and document ---- */

static void read_case(dp_json_reader *reader, const cJSON *object, dp_result_case *out) {
    dp_result *const result = &out->result;
    out->object = object;
    out->name = dp_read_text(reader, object, "case");
    snprintf(reader->where + strlen(reader->where), sizeof reader->where - strlen(reader->where), " (%.60s)",
             out->name);
    result->verdict = read_verdict(reader, object);
    read_error(reader, object, result);
    out->command = dp_read_text(reader, object, "command");
    read_subject(reader, object, out);
    read_output_head(reader, object, out);
    result->stages_known = (int)dp_read_integer(reader, object, "stages_known", 0, MOST_STAGES);
    read_stages(reader, object, result);
    read_variants(reader, object, result);
    read_layers(reader, object, result);
    dp_read_plots(reader, dp_read_object(reader, object, "plots"), &result->plot);
    const cJSON *seconds = dp_read_object(reader, object, "seconds");
    result->load_seconds = dp_read_number(reader, seconds, "load");
    result->provenance_seconds = dp_read_number(reader, seconds, "provenance");
    result->forward_seconds = dp_read_number(reader, seconds, "forward");
    result->total_seconds = dp_read_number(reader, seconds, "total");
    check_count(reader, object, "stages_compared", result->stage_count);
    check_count(reader, object, "stages_failed", result->failed_stages);
    check_count(reader, object, "stages_isolated", result->isolated_count);
    check_count(reader, object, "isolated_failed", result->failed_isolated);
    check_count(reader, object, "rounds_compared", result->variant_count);
    check_count(reader, object, "rounds_failed", result->failed_variants);
    check_count(reader, object, "warnings", result->warnings);
    if ((result->error.status != DFLASH_OK) != dp_stopped(result))
        dp_read_wrong(reader, "error", "there exactly for REFUSED and ERROR, and for a FAIL with nothing compared");
    check_coverage(reader, object, result);
    check_verdict(reader, result);
    check_divergence(reader, object, result);
}

static void read_cases(dp_json_reader *reader, dp_result_file *out) {
    const cJSON *array = dp_read_array(reader, out->document, "cases"), *item;
    const int count = cJSON_GetArraySize(array);
    dp_verdict worst = count > 0 ? DP_PASS : DP_NOTHING;
    if (count > MOST_CASES) dp_read_wrong(reader, "cases", "an array of fewer cases");
    if (strcmp(out->tool, "check") == 0 && count != 1) dp_read_wrong(reader, "cases", "exactly one case of a check");
    out->item = allocate(reader, count, sizeof *out->item);
    if (out->item == NULL) return;
    cJSON_ArrayForEach(item, array) {
        dp_result_case *const one = &out->item[out->count++];
        snprintf(reader->where, sizeof reader->where, "case %d", out->count);
        one->options.filter = strcmp(out->tool, "check") == 0 ? out->filter : NULL;
        one->result.options = &one->options;
        read_case(reader, item, one);
        if (reader->status != DFLASH_OK) return;
        worst = dp_worse_verdict(worst, one->result.verdict);
    }
    snprintf(reader->where, sizeof reader->where, "its head");
    if (worst != out->verdict) dp_read_wrong(reader, "verdict", "that of the worst case");
}

static void read_head(dp_json_reader *reader, dp_result_file *out) {
    static const char *const demanded[] = {"version", "commit", "compiler"};
    snprintf(reader->where, sizeof reader->where, "its head");
    out->tool = dp_read_text(reader, out->document, "tool");
    if (strcmp(out->tool, "check") != 0 && strcmp(out->tool, "gate") != 0)
        dp_read_wrong(reader, "tool", "\"check\" or \"gate\"");
    out->verdict = read_verdict(reader, out->document);
    out->command = dp_read_text(reader, out->document, "command");
    out->when = dp_read_text(reader, out->document, "when");
    out->filter = dp_read_text_or_null(reader, out->document, "filter");
    out->seconds = dp_read_number(reader, out->document, "seconds");
    out->environment = dp_read_object(reader, out->document, "environment");
    for (size_t i = 0; i < sizeof demanded / sizeof *demanded; i++) dp_read_text(reader, out->environment, demanded[i]);
    dp_read_bool(reader, out->environment, "dirty");
}

/* What cannot be shown as it is stays as it is in the caller's document. */
static dflash_status take_printable(dp_result_file *out, dflash_error *err) {
    if (dp_json_is_printable(out->document)) return DFLASH_OK;
    cJSON *copy = cJSON_Duplicate(out->document, true);
    if (copy == NULL) return df_fail_memory(err, "a copy of the result", 0);
    out->document = copy;
    out->owned = true;
    return dp_json_make_printable(copy, err);
}

dflash_status dp_result_parse(cJSON *document, const char *path, dp_result_file *out, dflash_error *err) {
    *out = (dp_result_file){.path = path, .document = document};
    const char *schema = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(document, "schema"));
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(document, "schema_version");
    if (schema == NULL || strcmp(schema, DP_RESULT_SCHEMA) != 0)
        return df_fail(err, DFLASH_ERR_REFUSED, "result.schema",
                       "%s is no result file: expected \"schema\" to be \"%s\", found %.60s. Give a file that check or "
                       "gate wrote with --out.",
                       path, DP_RESULT_SCHEMA, schema != NULL ? schema : "no such string");
    if (!cJSON_IsNumber(version) || version->valuedouble != DP_RESULT_VERSION)
        return df_fail(err, DFLASH_ERR_REFUSED, "result.version",
                       "%s is a result file of version %g, and this program reads version %d. Render it with the "
                       "program that wrote it, or run the check again.",
                       path, cJSON_IsNumber(version) ? version->valuedouble : 0.0, DP_RESULT_VERSION);
    TRY(take_printable(out, err));
    dp_json_reader reader = {.file = path, .err = err};
    read_head(&reader, out);
    read_cases(&reader, out);
    return reader.status;
}

dflash_status dp_result_read(const char *path, dp_result_file *out, dflash_error *err) {
    char *text = NULL;
    *out = (dp_result_file){.path = path};
    if (dp_file_is_hdf5(path))
        return df_fail(err, DFLASH_ERR_REFUSED, "result.recording",
                       "%s is an HDF5 file, a recording or an oracle, which holds values and no verdict: expected a "
                       "result file, as `check --out` or `gate --out` writes it. Look at it with `inspect`, hold it "
                       "against another with `compare`, or give a recording to `postmortem`.",
                       path);
    TRY(dp_text_file_read(path, MOST_BYTES, &text, err));
    cJSON *document = cJSON_ParseWithOpts(text, NULL, true);
    free(text);
    if (document == NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, "result.json",
                       "%s is not JSON, or not all of it: expected one whole document. A file that was cut off cannot "
                       "be shown in part; write it again with --out.",
                       path);
    dflash_status status = dp_json_make_printable(document, err);
    if (status == DFLASH_OK) status = dp_result_parse(document, path, out, err);
    out->document = document;
    out->owned = true;
    return status;
}

void dp_result_file_release(dp_result_file *file) {
    for (int i = 0; i < file->count; i++) dp_result_release(&file->item[i].result);
    free(file->item);
    if (file->owned) cJSON_Delete(file->document);
    *file = (dp_result_file){.path = NULL};
}

const char *dp_result_fact(const dp_result_file *file, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(file->environment, name);
    if (cJSON_IsString(item)) return item->valuestring;
    if (cJSON_IsBool(item)) return cJSON_IsTrue(item) ? "yes" : "no";
    return "none";
}
