/*
 * postmortem_recording.c - a recording among the runs of a postmortem: what it says of itself, and its judgement, by
 * the functions of `compare`, in the form of a result file.
 *
 * A recording has no name of a case. Beside results it is of the case whose checkpoint, precision and oracle are its
 * own; alone, the series has the oracle's name.
 */
#include "history/postmortem.h"

#include "bisect/compare_files.h"
#include "common/error.h"
#include "check/plot_collect.h"
#include "report/report.h"
#include "base/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- What it says of itself ---- */

static const cJSON *said(const cJSON *object, const char *key) { return cJSON_GetObjectItemCaseSensitive(object, key); }

/* "" when there is no such string. */
static const char *text_of(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(said(object, key));
    return text != NULL ? text : "";
}

/* What the engine says of build and machine; how it ran is told beside it, as in a result file. */
static dflash_status take_environment(dp_past_run *run, const cJSON *engine, dflash_error *err) {
    static const char *const how[] = {"backend", "class", "products", "isa", "threads"};
    dp_past_recording *recording = &run->recording;
    recording->engine = cJSON_Duplicate(engine, true);
    recording->environment = cJSON_Duplicate(engine, true);
    if (recording->engine == NULL || recording->environment == NULL)
        return df_fail_memory(err, "the engine's facts", 4096);
    for (size_t i = 0; i < sizeof how / sizeof *how; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(recording->environment, how[i]);
    run->environment = recording->environment;
    return DFLASH_OK;
}

static dflash_status take_facts(dp_past_run *run, const dp_oracle *file, dflash_error *err) {
    dp_past_recording *recording = &run->recording;
    const cJSON *provenance = dp_oracle_provenance(file);
    dp_run_facts facts = {.geometry = NULL};
    if (!dflash_precision_parse(dp_file_precision(file), &recording->precision))
        return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.precision",
                       "%s was recorded in the precision %.60s; expected stored, f32, bf16, q8_0, q4_0, mixed or fc, "
                       "so that its case can be found. Write the recording again with one of these.",
                       run->path, dp_file_precision(file));
    TRY(dp_facts_of_tensors(provenance, &facts, err));
    memcpy(recording->tensors_sha256, facts.tensors_sha256, sizeof recording->tensors_sha256);
    snprintf(recording->config_sha256, sizeof recording->config_sha256, "%s", text_of(provenance, "config_sha256"));
    return take_environment(run, said(provenance, "engine"), err);
}

dflash_status dp_past_open_recording(dp_past_run *run, dflash_error *err) {
    struct stat info;
    struct tm utc;
    dp_oracle *file = NULL;
    run->is_recording = true;
    TRY(dp_store_open(run->path, &file, err));
    dflash_status status = DFLASH_OK;
    if (dp_oracle_kind(file) == DP_KIND_ORACLE)
        status = df_fail(err, DFLASH_ERR_REFUSED, "postmortem.oracle",
                         "%s is an oracle, which is what runs are held against: expected results and recordings of "
                         "runs. Give it with --oracle if it is to judge recordings.",
                         run->path);
    if (status == DFLASH_OK) status = take_facts(run, file, err);
    dp_oracle_close(file);
    if (status != DFLASH_OK) return status;
    if (stat(run->path, &info) == 0 && gmtime_r(&info.st_mtime, &utc) != NULL)
        strftime(run->when, sizeof run->when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return DFLASH_OK;
}

void dp_past_recording_release(dp_past_recording *recording) {
    cJSON_Delete(recording->engine);
    cJSON_Delete(recording->environment);
    free(recording->stage);
}

/* ---- Its stages as those of a result ---- */

static void take_stage(const dp_file_stage *from, const char *reference, dp_stage_result *to) {
    *to = (dp_stage_result){.rank = from->spec.rank,
                            .exact = from->spec.exact,
                            .pass = from->pass,
                            .limit = from->limit,
                            .difference = from->difference,
                            .isolated = {.worst = -1}};
    snprintf(to->name, sizeof to->name, "%s", from->spec.name);
    memcpy(to->dim, from->spec.dim, sizeof to->dim);
    if (to->rank == 0) to->dim[to->rank++] = 1; /* a stage that the geometry does not have */
    to->headroom = from->barred ? from->headroom : from->pass ? 1.0 : -INFINITY;
    if (!from->barred) snprintf(to->limit.origin, sizeof to->limit.origin, "every bit as in %.100s", reference);
    if (from->measured) return;
    to->difference.count = from->pair.compared;
    to->difference.worst = from->pair.first;
    if (!from->spec.exact) return;
    to->difference.mismatches = from->pair.differing;
    to->difference.worst_want = (int32_t)from->pair.bits[0];
    to->difference.worst_got = (int32_t)from->pair.bits[1];
}

static dflash_status take_stages(const dp_file_comparison *c, dp_past_recording *recording, dp_result *out,
                                 dflash_error *err) {
    out->stage = calloc((size_t)c->count + 1, sizeof *out->stage);
    recording->stage = calloc((size_t)c->count + 1, sizeof *recording->stage);
    if (out->stage == NULL || recording->stage == NULL)
        return df_fail_memory(err, "the stages of a recording", (size_t)c->count * sizeof *out->stage);
    for (int i = 0; i < c->count; i++) {
        const dp_file_stage *from = &c->stage[i];
        dp_stage_result *to = &out->stage[out->stage_count++];
        dp_pair_stage *pair = &recording->stage[recording->stage_count++];
        take_stage(from, c->options->files.a, to);
        *pair = from->pair;
        pair->lacking = from->fault != DP_FAULT_NONE;
        memcpy(pair->name, to->name, sizeof pair->name);
        out->failed_stages += !to->pass;
        to->warn = to->pass && to->headroom < DP_WARN_HEADROOM;
        out->warnings += to->warn;
    }
    return DFLASH_OK;
}

/* The values of the recording that the pictures are made of. */
static dflash_status load_stages(const dp_oracle *file, const dp_result *result, dp_recording *out, dflash_error *err) {
    for (int i = 0; i < result->stage_count; i++) {
        const dp_stage_result *stage = &result->stage[i];
        dp_array array;
        dflash_stage_view view = {.rank = stage->rank};
        if (stage->difference.count == 0 || !dflash_stage_parse(stage->name, &view.stage, &view.layer)) continue;
        memcpy(view.dim, stage->dim, sizeof view.dim);
        TRY(dp_oracle_stage(file, DP_RUN_OWN, stage->name, &array, err));
        float *value = malloc((size_t)array.count * sizeof *value);
        int32_t *integer = malloc((size_t)array.count * sizeof *integer);
        for (int64_t k = 0; value != NULL && integer != NULL && k < array.count; k++) {
            value[k] = (float)array.value[k];
            if (stage->exact) integer[k] = (int32_t)array.value[k];
        }
        view.f32 = stage->exact ? NULL : value;
        view.i32 = stage->exact ? integer : NULL;
        if (value != NULL && integer != NULL) dp_recording_add(out, &view);
        out->out_of_memory = out->out_of_memory || value == NULL || integer == NULL;
        free(value);
        free(integer);
        dp_array_release(&array);
    }
    return dp_recording_status(out, err);
}

static dflash_status collect_plots(const dp_file_comparison *c, dp_result *result, dflash_error *err) {
    dp_recording values = {.stage = NULL};
    dflash_status status = load_stages(c->files.file[1], result, &values, err);
    if (status == DFLASH_OK) status = dp_plot_collect(c->files.file[0], &values, result, err);
    dp_recording_release(&values);
    return status;
}

/* ---- Its judgement ---- */

static dflash_status take_facts_of_pair(const dp_file_comparison *c, const dp_past_recording *recording,
                                        dp_run_facts *out, dflash_error *err) {
    const dp_preflight in = {.oracle = c->files.file[0], .config = c->files.config};
    TRY(dp_facts_of_preflight(&in, out, err));
    if (recording->by_bits) { /* the summary of a record that no oracle has */
        cJSON_Delete(out->provenance);
        out->provenance = NULL;
    }
    memcpy(out->config_sha256, recording->config_sha256, sizeof out->config_sha256);
    memcpy(out->tensors_sha256, recording->tensors_sha256, sizeof out->tensors_sha256);
    dp_file_digest(c->options->files.a, out->oracle_sha256);
    return DFLASH_OK;
}

static dflash_status fill(const dp_file_comparison *c, dp_past_run *run, dp_result *out, dflash_error *err) {
    const cJSON *engine = run->recording.engine, *threads = said(engine, "threads");
    out->verdict = c->verdict;
    out->family = c->files.config.family;
    out->context = c->files.context;
    out->block = c->files.config.block;
    out->stages_known = c->files.stages.count;
    out->isa = text_of(engine, "isa");
    out->threads = cJSON_IsNumber(threads) && threads->valuedouble > 0 ? (int)fmin(threads->valuedouble, INT32_MAX) : 0;
    out->device = (dflash_device_facts){.backend = text_of(engine, "backend"),
                                        .numeric_class = text_of(engine, "class"),
                                        .products = text_of(engine, "products")};
    TRY(take_stages(c, &run->recording, out, err));
    TRY(dp_growth(out, err));
    TRY(take_facts_of_pair(c, &run->recording, &out->facts, err));
    return collect_plots(c, out, err);
}

/* Words go into an argv, which nothing writes to; the cast is that interface's. */
static char *word(const char *text) { return (char *)(uintptr_t)text; }

/* What a reader of result files demands of an environment, where the engine does not say it. */
static cJSON *environment_of(const dp_past_run *run) {
    static const char *const demanded[] = {"version", "commit", "compiler"};
    cJSON *environment = cJSON_Duplicate(run->environment, true);
    for (size_t i = 0; i < sizeof demanded / sizeof *demanded; i++) {
        if (cJSON_IsString(said(environment, demanded[i]))) continue;
        cJSON_DeleteItemFromObjectCaseSensitive(environment, demanded[i]);
        cJSON_AddStringToObject(environment, demanded[i], DP_NOT_ON_RECORD);
    }
    if (cJSON_IsBool(said(environment, "dirty"))) return environment;
    cJSON_DeleteItemFromObjectCaseSensitive(environment, "dirty");
    cJSON_AddFalseToObject(environment, "dirty");
    return environment;
}

static dflash_status write_document(const char *name, const dp_result *result, dp_past_run *run, dflash_error *err) {
    char *argv[] = {word("compare"), word(run->recording.against), word(run->path)};
    char *command = dp_command_line(3, argv);
    cJSON *document = command != NULL ? dp_document_begin("check", command, NULL) : NULL;
    if (document != NULL) dp_document_add(document, name, result);
    cJSON *item = cJSON_GetArrayItem(said(document, "cases"), 0);
    const bool whole =
        cJSON_ReplaceItemInObjectCaseSensitive(document, "when", cJSON_CreateString(run->when)) &&
        cJSON_ReplaceItemInObjectCaseSensitive(document, "environment", environment_of(run)) &&
        cJSON_ReplaceItemInObjectCaseSensitive(item, "command", cJSON_CreateString(command != NULL ? command : ""));
    dp_document_end(document, result->verdict);
    free(command);
    if (!whole) {
        cJSON_Delete(document);
        return df_fail_memory(err, "the judgement of a recording", 1 << 16);
    }
    const dflash_status status = dp_result_parse(document, run->path, &run->file, err);
    run->file.owned = true;
    return status;
}

/* The recording that others are held against has to be whole and finite itself. */
static dflash_status check_reference(const dp_file_comparison *c, dflash_error *err) {
    const dp_file_stage *first = dp_first_divergent_file_stage(c);
    if (first == NULL) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.reference",
                   "%s is the first recording, which the others are to be held against, and its stage %s %s. Leave it "
                   "out, or give the oracle that judges all of them with --oracle.",
                   c->options->files.a, first->spec.name,
                   first->fault != DP_FAULT_NONE ? "is not there as the geometry demands it"
                                                 : "holds values that are not finite");
}

static dflash_status judge(const char *against, const char *oracle, const char *name, dp_past_run *run,
                           dflash_error *err) {
    const dp_compare_options how = {.files = {.a = against, .b = run->path}};
    const dp_check_options options = {.checkpoint = "", .oracle = against, .precision = run->recording.precision};
    dp_result result = {.options = &options};
    dp_file_comparison c;
    dflash_status status = DFLASH_OK;
    dp_compare_files(&how, &c);
    run->recording.against = against;
    run->recording.by_bits = c.files.limits == NULL;
    if (c.verdict == DP_REFUSED || c.verdict == DP_ERROR) {
        *err = c.error;
        status = c.error.status;
    } else if (oracle != NULL && run->recording.by_bits)
        status =
            df_fail(err, DFLASH_ERR_REFUSED, "postmortem.oracle",
                    "%s is a recording, which has no limits to judge by: expected an oracle after --oracle. Without "
                    "the option recordings are held against the first of them.",
                    oracle);
    else if (strcmp(against, run->path) == 0)
        status = check_reference(&c, err);
    if (status == DFLASH_OK) status = fill(&c, run, &result, err);
    if (status == DFLASH_OK) status = write_document(name, &result, run, err);
    dp_result_release(&result);
    dp_file_comparison_release(&c);
    return status;
}

/* ---- Its case ---- */

static bool of_checkpoint(const dp_result_case *item, const dp_past_recording *recording) {
    const dp_run_facts *facts = &item->result.facts;
    return strcmp(facts->config_sha256, recording->config_sha256) == 0 && facts->tensors_sha256[0] != '\0' &&
           strcmp(facts->tensors_sha256, recording->tensors_sha256) == 0 &&
           item->options.precision == recording->precision;
}

/* The case of a result that is of the recording's checkpoint and of this oracle. */
static dflash_status find_case(const dp_postmortem *summary, const dp_past_run *run, const char *oracle_sha256,
                               const char **name, dflash_error *err) {
    const dp_result_case *other = NULL;
    for (int r = 0; r < summary->run_count; r++) {
        const dp_result_file *file = &summary->run[r].file;
        for (int i = 0; !summary->run[r].is_recording && i < file->count; i++) {
            if (!of_checkpoint(&file->item[i], &run->recording)) continue;
            other = &file->item[i];
            *name = other->name;
            if (strcmp(other->result.facts.oracle_sha256, oracle_sha256) == 0) return DFLASH_OK;
        }
    }
    if (other == NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.case",
                       "The recording %s is of no case that the results hold: none has its config, weights and "
                       "precision (%s). Give results of the same checkpoint, or the recordings alone.",
                       run->path, dflash_precision_name(run->recording.precision));
    return df_fail(
        err, DFLASH_ERR_REFUSED, "postmortem.oracle",
        "The results judged %.60s, the case of the recording %s, by the oracle %s with SHA-256 %.12s, and %s "
        "has %.12s: one story needs one judge. Give the results' oracle with --oracle.",
        other->name, run->path, other->options.oracle, other->result.facts.oracle_sha256, summary->options.oracle,
        oracle_sha256);
}

/* The oracle's name without folder and ending. */
static dflash_status name_series(dp_postmortem *summary, const char *oracle, dflash_error *err) {
    const char *slash = strrchr(oracle, '/'), *from = slash != NULL ? slash + 1 : oracle, *dot = strrchr(from, '.');
    summary->series = strndup(from, dot != NULL && dot > from ? (size_t)(dot - from) : strlen(from));
    return summary->series != NULL ? DFLASH_OK : df_fail_memory(err, "the name of the series", strlen(oracle));
}

dflash_status dp_past_judge_recordings(dp_postmortem *summary, dflash_error *err) {
    const char *oracle = summary->options.oracle, *against = oracle;
    char sha256[DP_DIGEST_TEXT] = "";
    const char *mixed = NULL;
    int recordings = 0;
    for (int r = summary->run_count - 1; r >= 0; r--) {
        if (!summary->run[r].is_recording) mixed = summary->run[r].path;
        if (!summary->run[r].is_recording) continue;
        recordings++;
        if (oracle == NULL) against = summary->run[r].path;
    }
    if (recordings == 0 && oracle == NULL) return DFLASH_OK;
    if (recordings == 0)
        return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.oracle",
                       "--oracle %s judges recordings, and no recording was given: results were judged when they were "
                       "written. Leave the option out.",
                       oracle);
    if (mixed != NULL && oracle == NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, "postmortem.oracle",
                       "%s is a result and %s a recording, which holds no verdict: expected --oracle FILE with the "
                       "oracle of the results, so that both are held against the same limits.",
                       mixed, against);
    if (oracle != NULL) dp_file_digest(oracle, sha256);
    if (mixed == NULL) TRY(name_series(summary, oracle != NULL ? oracle : "recordings", err));
    for (int r = 0; r < summary->run_count; r++) {
        const char *name = summary->series;
        if (!summary->run[r].is_recording) continue;
        if (mixed != NULL) TRY(find_case(summary, &summary->run[r], sha256, &name, err));
        TRY(judge(against, oracle, name, &summary->run[r], err));
    }
    return DFLASH_OK;
}
