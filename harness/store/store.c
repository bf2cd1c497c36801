/*
 * store.c - see store.h.
 *
 * Opening describes and reads every dataset once, one at a time, and keeps only the descriptions; values are read
 * again, and their digests checked again, when they are asked for. What one dataset may look like is store_dataset.c's
 * business, the JSON records' form is store_record.c's.
 */
#include "store/store.h"

#include "common/error.h"
#include "store/store_h5.h"
#include "store/store_parts.h"
#include "store/store_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINK_LIMIT = 4096 }; /* more than 128 layers' worth of stages */

static const char *const run_name[DP_RUN_COUNT] = {"float64", "float32", "bfloat16"};
static const char *const kind_name[] = {[DP_KIND_ORACLE] = "oracle", [DP_KIND_RECORDING] = "recording"};
const char dp_recorded_run[] = "run";
const char *dp_run_name(dp_run run) { return run_name[run]; }
const char *dp_kind_name(dp_kind kind) { return kind_name[kind]; }

void dp_array_release(dp_array *array) {
    free(array->value);
    free(array->index);
    free(array->rms);
    *array = (dp_array){0};
}

/* ---- The file and its header ---- */

/* A recording of the first version is one of the second: what changed is how an oracle samples. */
static dflash_status check_version(const dp_oracle *oracle, int64_t version, dflash_error *err) {
    if (version == DP_SCHEMA_VERSION || (version == 1 && oracle->kind == DP_KIND_RECORDING)) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "oracle.schema.version",
        "%s: expected schema version %d, found %lld. Generate the oracle again with this version's generator, or "
        "use the release of dflash-parity that wrote it.",
        oracle->path, DP_SCHEMA_VERSION, (long long)version);
}

static dflash_status check_header(dp_oracle *oracle, bool any_kind, dflash_error *err) {
    char schema[64], kind[64];
    int64_t version = 0;
    dflash_status status = dp_h5_text_attribute(oracle->file, oracle->path, "schema", schema, sizeof schema, err);
    if (status != DFLASH_OK) return status;
    if (strcmp(schema, "dflash-parity") != 0)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.schema",
            "%s: expected the schema \"dflash-parity\", found \"%s\". The file is something else; give an oracle.",
            oracle->path, schema);
    status = dp_h5_int_attribute(oracle->file, oracle->path, "schema_version", &version, 1, NULL, err);
    if (status != DFLASH_OK) return status;
    status = dp_h5_text_attribute(oracle->file, oracle->path, "kind", kind, sizeof kind, err);
    if (status != DFLASH_OK) return status;
    oracle->kind = strcmp(kind, kind_name[DP_KIND_RECORDING]) == 0 ? DP_KIND_RECORDING : DP_KIND_ORACLE;
    const char *what = strcmp(kind, "vectors") == 0 ? "It holds isolated vectors, which the test suites read. " : "";
    if (strcmp(kind, kind_name[DP_KIND_ORACLE]) == 0 || (any_kind && oracle->kind == DP_KIND_RECORDING))
        return check_version(oracle, version, err);
    if (any_kind)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.kind",
            "%s: expected the kind \"oracle\" or \"recording\", found \"%s\". %sGive a file with the stages of "
            "a whole run.",
            oracle->path, kind, what);
    return df_fail(err, DFLASH_ERR_REFUSED, "oracle.kind",
                   "%s: expected the kind \"oracle\", found \"%s\". %sOnly a reference's runs can judge a drafter.",
                   oracle->path, kind, what);
}

static int run_count(const dp_oracle *oracle) { return oracle->kind == DP_KIND_ORACLE ? DP_RUN_COUNT : 1; }

/* The group that holds the stages of a run; `path` is given back. */
enum { RUN_PATH = 32 };
static const char *run_path(const dp_oracle *oracle, dp_run run, char path[RUN_PATH]) {
    snprintf(path, RUN_PATH, "/stages/%s", oracle->kind == DP_KIND_ORACLE ? run_name[run] : dp_recorded_run);
    return path;
}

dflash_status dp_store_check_closed(const dp_oracle *oracle, const char *path, const char *const *allowed, int count,
                                    dflash_error *err) {
    hid_t group = H5I_INVALID_HID;
    dp_h5_names names = {0};
    dflash_status status = dp_h5_open_group(oracle->file, oracle->path, path, &group, err);
    if (status == DFLASH_OK) status = dp_h5_list(group, oracle->path, LINK_LIMIT, &names, err);
    for (int i = 0; status == DFLASH_OK && i < names.count; i++) {
        bool known = false;
        for (int j = 0; j < count; j++) known = known || strcmp(names.name[i], allowed[j]) == 0;
        if (!known)
            status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.object.unknown",
                             "%s: %s holds \"%s\", which schema version %d does not know. Write the file again as "
                             "oracles/FORMAT.md says.",
                             oracle->path, path, names.name[i], DP_SCHEMA_VERSION);
    }
    dp_h5_names_release(&names);
    if (group >= 0) H5Gclose(group);
    return status;
}

/* ---- Datasets ---- */

static dflash_status read_any(hid_t dataset, const char *where, const dp_dataset_info *info, const dp_destination *to,
                              dflash_error *err) {
    void *bytes = NULL;
    const dflash_status status = dp_dataset_bytes(dataset, where, info, &bytes, err);
    for (int64_t i = 0; status == DFLASH_OK && to->value != NULL && i < info->count; i++)
        to->value[i] = dp_logical_widen(info->dtype, bytes, i);
    if (status == DFLASH_OK && to->bytes != NULL)
        *to->bytes = bytes;
    else
        free(bytes);
    return status;
}

dflash_status dp_store_visit(const dp_oracle *oracle, const char *parent, const char *name, dp_dataset_info *info,
                             const dp_destination *to, bool describe, dflash_error *err) {
    char path[128], where[640];
    hid_t dataset = H5I_INVALID_HID;
    snprintf(path, sizeof path, "%s/%s", parent, name);
    snprintf(where, sizeof where, "%s: %s", oracle->path, path);
    dflash_status status = dp_h5_open_dataset(oracle->file, oracle->path, path, &dataset, err);
    if (status == DFLASH_OK && describe) status = dp_dataset_describe(dataset, where, info, err);
    if (status == DFLASH_OK)
        status =
            to->any ? read_any(dataset, where, info, to, err) : dp_dataset_read(dataset, where, info, to->value, err);
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

dflash_status dp_store_fetch(const dp_oracle *oracle, const char *parent, const char *name, const dp_dataset_info *info,
                             bool any, dp_array *out, dflash_error *err) {
    dp_h5_quiet quiet;
    dp_dataset_info known = *info;
    *out = (dp_array){.rank = info->rank,
                      .total = info->total,
                      .stride = info->stride,
                      .offset = info->offset,
                      .count = info->count,
                      .integer = info->dtype == DP_LOGICAL_I32};
    memcpy(out->dim, info->dim, sizeof out->dim);
    out->value = malloc((size_t)info->count * sizeof *out->value);
    if (out->value == NULL) return df_fail_memory(err, name, (size_t)info->count * sizeof *out->value);
    dp_h5_quiet_begin(&quiet);
    const dp_destination to = {.value = out->value, .any = any};
    const dflash_status status = dp_store_visit(oracle, parent, name, &known, &to, false, err);
    dp_h5_quiet_end(&quiet);
    if (status != DFLASH_OK) dp_array_release(out);
    return status;
}

/* ---- Stages ---- */

static bool integer_stage(dflash_stage stage) {
    return stage == DFLASH_STAGE_SELECT_TOPK_IDS || stage == DFLASH_STAGE_SELECT_PATH ||
           stage == DFLASH_STAGE_MARKOV_TOKENS || stage == DFLASH_STAGE_CONFIDENCE_WINDOW;
}

/* Forward order: what comes before the layers, the layers one by one, what comes after them. */
static int compare_stages(const void *left, const void *right) {
    const dp_stage_entry *a = left, *b = right;
    const int part_a = dflash_stage_per_layer(a->stage) ? 1 : a->stage < DFLASH_STAGE_ATTN_NORM ? 0 : 2;
    const int part_b = dflash_stage_per_layer(b->stage) ? 1 : b->stage < DFLASH_STAGE_ATTN_NORM ? 0 : 2;
    if (part_a != part_b) return part_a - part_b;
    if (a->layer != b->layer) return a->layer - b->layer;
    return (int)a->stage - (int)b->stage;
}

static dflash_status list_run(const dp_oracle *oracle, dp_run run, dp_h5_names *names, dflash_error *err) {
    hid_t group = H5I_INVALID_HID;
    char path[RUN_PATH];
    dflash_status status = dp_h5_open_group(oracle->file, oracle->path, run_path(oracle, run, path), &group, err);
    if (status == DFLASH_OK) status = dp_h5_list(group, oracle->path, LINK_LIMIT, names, err);
    if (group >= 0) H5Gclose(group);
    return status;
}

/* Stage names have the one spelling that dflash_stage_name gives. */
static dflash_status check_vocabulary(const dp_oracle *oracle, dp_run run, const dp_h5_names *names,
                                      dflash_error *err) {
    for (int i = 0; i < names->count; i++) {
        dflash_stage stage = DFLASH_STAGE_COUNT;
        int layer = -1;
        char canonical[DFLASH_STAGE_NAME_MAX], path[RUN_PATH];
        if (!dflash_stage_parse(names->name[i], &stage, &layer) ||
            strcmp(dflash_stage_name(stage, layer, canonical), names->name[i]) != 0)
            return df_fail(err, DFLASH_ERR_REFUSED, "oracle.stage.unknown",
                           "%s: %s holds \"%s\", which is not a stage of the vocabulary. Write the file again with "
                           "the stage names of oracles/FORMAT.md.",
                           oracle->path, run_path(oracle, run, path), names->name[i]);
    }
    return DFLASH_OK;
}

/* What one run holds, every run holds. */
static dflash_status census(dp_oracle *oracle, const dp_h5_names names[DP_RUN_COUNT], dflash_error *err) {
    for (int run = 0; run < run_count(oracle); run++)
        for (int i = 0; i < names[run].count; i++)
            for (int other = 0; other < run_count(oracle); other++)
                if (!dp_h5_names_contain(&names[other], names[run].name[i]))
                    return df_fail(
                        err, DFLASH_ERR_REFUSED, "oracle.stage.missing",
                        "%s: the stage %s is in the run %s and not in the run %s; expected it in all three. Write "
                        "the file again.",
                        oracle->path, names[run].name[i], run_name[run], run_name[other]);
    if (names[0].count == 0)
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.stage.missing",
                       "%s: no stage at all under /stages. Nothing can be compared with it; write the file again.",
                       oracle->path);
    oracle->stage = calloc((size_t)names[0].count, sizeof *oracle->stage);
    if (oracle->stage == NULL) return df_fail_memory(err, "the list of stages", (size_t)names[0].count);
    oracle->count = names[0].count;
    for (int i = 0; i < oracle->count; i++) {
        dp_stage_entry *entry = &oracle->stage[i];
        dflash_stage_parse(names[0].name[i], &entry->stage, &entry->layer);
        dflash_stage_name(entry->stage, entry->layer, entry->name);
    }
    qsort(oracle->stage, (size_t)oracle->count, sizeof *oracle->stage, compare_stages);
    return DFLASH_OK;
}

static bool same_elements(const dp_dataset_info *a, const dp_dataset_info *b) {
    return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0 && a->stride == b->stride &&
           a->offset == b->offset;
}

static dflash_status load_stage(const dp_oracle *oracle, dp_stage_entry *entry, dflash_error *err) {
    const dp_destination to = {.any = oracle->kind == DP_KIND_RECORDING};
    for (int run = 0; run < run_count(oracle); run++) {
        char path[RUN_PATH];
        const char *parent = run_path(oracle, (dp_run)run, path);
        const dflash_status status = dp_store_visit(oracle, parent, entry->name, &entry->info[run], &to, true, err);
        if (status != DFLASH_OK) return status;
        if (to.any && entry->info[run].sampled)
            return df_fail(err, DFLASH_ERR_REFUSED, "recording.sampled",
                           "%s: %s/%s is sampled; a recording holds every element of its stages. Write the file again "
                           "as oracles/FORMAT.md says.",
                           oracle->path, parent, entry->name);
        const dp_dataset_info *info = &entry->info[run];
        if ((info->dtype == DP_LOGICAL_I32) != integer_stage(entry->stage))
            return df_fail(err, DFLASH_ERR_REFUSED, "oracle.dataset.type",
                           "%s: %s/%s is %s; this stage holds %s. Write the file again.", oracle->path, parent,
                           entry->name, dp_logical_name(info->dtype),
                           integer_stage(entry->stage) ? "int32" : "a floating type");
        if (info->sampled && integer_stage(entry->stage))
            return df_fail(err, DFLASH_ERR_REFUSED, "oracle.sampling",
                           "%s: %s/%s is sampled; ids and counts are stored whole, since no sketch can stand for them. "
                           "Write the file again.",
                           oracle->path, parent, entry->name);
        if (!same_elements(info, &entry->info[0]))
            return df_fail(
                err, DFLASH_ERR_REFUSED, "oracle.stage.shape",
                "%s: the stage %s has another shape or another sampling in the run %s than in the run float64; the "
                "two cannot be compared element by element. Write the file again.",
                oracle->path, entry->name, run_name[run]);
    }
    return DFLASH_OK;
}

static dflash_status load_stages(dp_oracle *oracle, dflash_error *err) {
    dp_h5_names names[DP_RUN_COUNT] = {{0}};
    static const char *const recorded[] = {dp_recorded_run};
    const int runs = run_count(oracle);
    dflash_status status =
        dp_store_check_closed(oracle, "/stages", oracle->kind == DP_KIND_ORACLE ? run_name : recorded, runs, err);
    for (int run = 0; status == DFLASH_OK && run < runs; run++)
        status = list_run(oracle, (dp_run)run, &names[run], err);
    for (int run = 0; status == DFLASH_OK && run < runs; run++)
        status = check_vocabulary(oracle, (dp_run)run, &names[run], err);
    if (status == DFLASH_OK) status = census(oracle, names, err);
    for (int i = 0; status == DFLASH_OK && i < oracle->count; i++) status = load_stage(oracle, &oracle->stage[i], err);
    for (int run = 0; run < DP_RUN_COUNT; run++) dp_h5_names_release(&names[run]);
    return status;
}

/* ---- The interface ---- */

static dflash_status load(dp_oracle *oracle, bool any_kind, dflash_error *err) {
    static const char *const root[] = {"geometry", "provenance", "inputs", "stages", "rows", "sketch"};
    const int common = 4; /* of both kinds */
    dflash_status status = dp_h5_open_file(oracle->path, &oracle->file, err);
    if (status == DFLASH_OK) status = check_header(oracle, any_kind, err);
    const int allowed = oracle->kind == DP_KIND_ORACLE ? (int)(sizeof root / sizeof root[0]) : common;
    if (status == DFLASH_OK) status = dp_store_check_closed(oracle, "/", root, allowed, err);
    if (status == DFLASH_OK) status = dp_record_read(oracle->file, oracle->path, "/geometry", &oracle->geometry, err);
    if (status == DFLASH_OK)
        status = dp_record_read(oracle->file, oracle->path, "/provenance", &oracle->provenance, err);
    if (status == DFLASH_OK) status = dp_record_check_provenance(oracle->provenance, oracle->kind, oracle->path, err);
    if (status == DFLASH_OK) status = dp_store_load_inputs(oracle, err);
    if (status == DFLASH_OK) status = load_stages(oracle, err);
    if (status == DFLASH_OK && oracle->kind == DP_KIND_ORACLE) status = dp_store_load_sketches(oracle, err);
    return status;
}

static dflash_status open_kind(const char *path, bool any_kind, dp_oracle **out, dflash_error *err) {
    dp_h5_quiet quiet;
    *out = NULL;
    dp_oracle *oracle = calloc(1, sizeof *oracle);
    if (oracle == NULL) return df_fail_memory(err, "an oracle", sizeof *oracle);
    oracle->file = H5I_INVALID_HID;
    oracle->path = strdup(path);
    if (oracle->path == NULL) {
        free(oracle);
        return df_fail_memory(err, "an oracle's path", strlen(path) + 1);
    }
    dp_h5_quiet_begin(&quiet);
    const dflash_status status = load(oracle, any_kind, err);
    dp_h5_quiet_end(&quiet);
    if (status == DFLASH_OK)
        *out = oracle;
    else
        dp_oracle_close(oracle);
    return status;
}

dflash_status dp_oracle_open(const char *path, dp_oracle **out, dflash_error *err) {
    return open_kind(path, false, out, err);
}
dflash_status dp_store_open(const char *path, dp_oracle **out, dflash_error *err) {
    return open_kind(path, true, out, err);
}

dp_kind dp_oracle_kind(const dp_oracle *oracle) { return oracle->kind; }

void dp_oracle_close(dp_oracle *oracle) {
    if (oracle == NULL) return;
    dp_h5_quiet quiet;
    dp_h5_quiet_begin(&quiet);
    if (oracle->file >= 0) H5Fclose(oracle->file);
    dp_h5_quiet_end(&quiet);
    cJSON_Delete(oracle->geometry);
    cJSON_Delete(oracle->provenance);
    for (int i = 0; i < oracle->count; i++) free(oracle->stage[i].row);
    free(oracle->stage);
    free(oracle->path);
    free(oracle);
}

const char *dp_oracle_path(const dp_oracle *oracle) { return oracle->path; }
const cJSON *dp_oracle_geometry(const dp_oracle *oracle) { return oracle->geometry; }
const cJSON *dp_oracle_provenance(const dp_oracle *oracle) { return oracle->provenance; }
int dp_oracle_stage_count(const dp_oracle *oracle) { return oracle->count; }
const char *dp_oracle_stage_name(const dp_oracle *oracle, int index) { return oracle->stage[index].name; }

const dp_stage_entry *dp_store_entry(const dp_oracle *oracle, const char *name) {
    for (int i = 0; i < oracle->count; i++)
        if (strcmp(oracle->stage[i].name, name) == 0) return &oracle->stage[i];
    return NULL;
}

const dp_dataset_info *dp_oracle_stage_info(const dp_oracle *oracle, dp_run run, const char *name) {
    const dp_stage_entry *entry = dp_store_entry(oracle, name);
    return entry != NULL && (int)run < run_count(oracle) ? &entry->info[run] : NULL;
}

bool dp_oracle_has_stage(const dp_oracle *oracle, dp_run run, const char *name) {
    return dp_oracle_stage_info(oracle, run, name) != NULL;
}

static dflash_status find_stage(const dp_oracle *oracle, dp_run run, const char *name, const dp_dataset_info **info,
                                dflash_error *err) {
    char path[RUN_PATH];
    *info = dp_oracle_stage_info(oracle, run, name);
    if (*info != NULL) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "oracle.stage.missing",
                   "%s: the stage \"%s\" is not in %s. Ask for one of the %d stages that inspect lists.", oracle->path,
                   name, run_path(oracle, run, path), oracle->count);
}

dflash_status dp_oracle_stage(const dp_oracle *oracle, dp_run run, const char *name, dp_array *out, dflash_error *err) {
    const dp_dataset_info *info = NULL;
    char path[RUN_PATH];
    *out = (dp_array){0};
    const dflash_status status = find_stage(oracle, run, name, &info, err);
    if (status != DFLASH_OK) return status;
    TRY(dp_store_fetch(oracle, run_path(oracle, run, path), name, info, oracle->kind == DP_KIND_RECORDING, out, err));
    return run == DP_RUN_F64 && info->sampled ? dp_store_fetch_rms(oracle, name, out, err) : DFLASH_OK;
}

dflash_status dp_oracle_stage_bytes(const dp_oracle *oracle, dp_run run, const char *name, void **bytes,
                                    dflash_error *err) {
    const dp_dataset_info *info = NULL;
    char path[RUN_PATH];
    *bytes = NULL;
    dflash_status status = find_stage(oracle, run, name, &info, err);
    if (status != DFLASH_OK) return status;
    dp_dataset_info known = *info;
    dp_h5_quiet quiet;
    dp_h5_quiet_begin(&quiet);
    status = dp_store_visit(oracle, run_path(oracle, run, path), name, &known,
                            &(dp_destination){.bytes = bytes, .any = true}, false, err);
    dp_h5_quiet_end(&quiet);
    return status;
}
