/* store_sketch.c - the companions of a sampled stage: the sketches of its runs and the whole rows of its float64 run.
 * Here is their form; whether they agree with one another is sketch_check.c's business. */
#include "store/store_sketch.h"

#include "common/error.h"
#include "store/store_h5.h"
#include "store/store_parts.h"
#include "store/stage_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MOST = 4096 };
static const char rows_path[] = "/rows/float64";

static int64_t row_length(const dp_stage_entry *entry) {
    return dp_row_length(entry->stage, entry->info[DP_RUN_F64].rank, entry->info[DP_RUN_F64].dim);
}

static int64_t row_count(const dp_stage_entry *entry) { return entry->info[DP_RUN_F64].total / row_length(entry); }

static const char *sketch_path(dp_run run, char path[32]) {
    snprintf(path, 32, "/sketch/%s", dp_run_name(run));
    return path;
}

static bool exists(const dp_oracle *oracle, const char *parent, const char *name) {
    char path[128], group[32];
    if (H5Lexists(oracle->file, strncmp(parent, "/rows", 5) == 0 ? "/rows" : "/sketch", H5P_DEFAULT) <= 0) return false;
    snprintf(group, sizeof group, "%s", parent);
    if (H5Lexists(oracle->file, group, H5P_DEFAULT) <= 0) return false;
    snprintf(path, sizeof path, "%s/%s", parent, name);
    return H5Lexists(oracle->file, path, H5P_DEFAULT) > 0;
}

/* Whatever lies in the group is the companion of a sampled stage. */
static dflash_status check_links(const dp_oracle *oracle, const char *path, dflash_error *err) {
    hid_t group = H5I_INVALID_HID;
    dp_h5_names names = {0};
    dflash_status status = dp_h5_open_group(oracle->file, oracle->path, path, &group, err);
    if (status == DFLASH_OK) status = dp_h5_list(group, oracle->path, oracle->count, &names, err);
    for (int i = 0; status == DFLASH_OK && i < names.count; i++) {
        const dp_stage_entry *entry = dp_store_entry(oracle, names.name[i]);
        if (entry == NULL || !entry->info[DP_RUN_F64].sampled)
            status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.object.unknown",
                             "%s: %s holds \"%s\", which is no sampled stage of this file. Generate the oracle again.",
                             oracle->path, path, names.name[i]);
    }
    dp_h5_names_release(&names);
    if (group >= 0) H5Gclose(group);
    return status;
}

static dflash_status check_groups(dp_oracle *oracle, dflash_error *err) {
    static const char *const rows[] = {"float64"};
    const char *runs[DP_RUN_COUNT];
    char path[32];
    for (int run = 0; run < DP_RUN_COUNT; run++) runs[run] = dp_run_name((dp_run)run);
    if (H5Lexists(oracle->file, "/rows", H5P_DEFAULT) > 0) {
        TRY(dp_store_check_closed(oracle, "/rows", rows, 1, err));
        TRY(check_links(oracle, rows_path, err));
    }
    if (H5Lexists(oracle->file, "/sketch", H5P_DEFAULT) <= 0) return DFLASH_OK;
    TRY(dp_store_check_closed(oracle, "/sketch", runs, DP_RUN_COUNT, err));
    for (int run = 0; run < DP_RUN_COUNT; run++) TRY(check_links(oracle, sketch_path((dp_run)run, path), err));
    hid_t group = H5I_INVALID_HID;
    TRY(dp_h5_open_group(oracle->file, oracle->path, "/sketch", &group, err));
    const dflash_status status = dp_h5_int_attribute(group, oracle->path, "seed", &oracle->seed, 1, NULL, err);
    H5Gclose(group);
    return status;
}

static dflash_status load_sketch(const dp_oracle *oracle, dp_stage_entry *entry, dflash_error *err) {
    char path[32];
    for (int run = 0; run < DP_RUN_COUNT; run++) {
        dp_dataset_info *info = &entry->sketch[run];
        const char *parent = sketch_path((dp_run)run, path);
        if (!exists(oracle, parent, entry->name))
            return df_fail(err, DFLASH_ERR_REFUSED, "oracle.sketch.missing",
                           "%s: the stage %s is sampled and has no %s/%s: expected a sketch of every row, so that no "
                           "row and no column escapes. Generate the oracle again.",
                           oracle->path, entry->name, parent, entry->name);
        TRY(dp_store_visit(oracle, parent, entry->name, info, &(dp_destination){.any = false}, true, err));
        const int64_t most = DP_SKETCH_PROJECTIONS_MOST + 1;
        if (info->rank != 2 || info->sampled || info->dim[0] != row_count(entry) || info->dim[1] < 2 ||
            info->dim[1] > most || info->dim[1] != entry->sketch[DP_RUN_F64].dim[1] ||
            (info->dtype != DP_LOGICAL_F64 && info->dtype != DP_LOGICAL_F32))
            return df_fail(err, DFLASH_ERR_REFUSED, "oracle.sketch",
                           "%s: %s/%s has rank %d, %lld rows of %lld values in %s; expected %lld rows, one for each of "
                           "the stage's, of 1 to %d projections and the rms, as many in every run, in float64 or "
                           "float32. Generate the oracle again.",
                           oracle->path, parent, entry->name, info->rank, (long long)info->dim[0],
                           (long long)info->dim[1], dp_logical_name(info->dtype), (long long)row_count(entry),
                           DP_SKETCH_PROJECTIONS_MOST);
    }
    return DFLASH_OK;
}

/* The dimensions of n rows: a row's own after the first, which counts rows. */
static bool rows_fit(const dp_stage_entry *entry, const dp_dataset_info *info) {
    const dp_dataset_info *whole = &entry->info[DP_RUN_F64];
    const int before = dp_is_cache(entry->stage) ? 2 : 1;
    bool fit = info->dtype == DP_LOGICAL_F64 && !info->sampled && info->rank == whole->rank - before + 1;
    for (int i = 1; fit && i < info->rank; i++) fit = info->dim[i] == whole->dim[i + before - 1];
    return fit;
}

static dflash_status read_list(const dp_oracle *oracle, const char *path, int64_t list[ROWS_MOST], int *count,
                               dflash_error *err) {
    hid_t dataset = H5I_INVALID_HID;
    dflash_status status = dp_h5_open_dataset(oracle->file, oracle->path, path, &dataset, err);
    if (status == DFLASH_OK) status = dp_h5_int_attribute(dataset, path, "rows", list, ROWS_MOST, count, err);
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

static dflash_status load_rows(const dp_oracle *oracle, dp_stage_entry *entry, dflash_error *err) {
    char path[128];
    int64_t list[ROWS_MOST];
    int count = 0;
    if (!exists(oracle, rows_path, entry->name)) return DFLASH_OK;
    TRY(dp_store_visit(oracle, rows_path, entry->name, &entry->rows, &(dp_destination){.any = false}, true, err));
    snprintf(path, sizeof path, "%s/%s", rows_path, entry->name);
    TRY(read_list(oracle, path, list, &count, err));
    bool good = rows_fit(entry, &entry->rows) && count == entry->rows.dim[0];
    for (int i = 0; good && i < count; i++) good = list[i] > (i > 0 ? list[i - 1] : -1) && list[i] < row_count(entry);
    if (!good)
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.rows",
                       "%s: %s: expected whole rows of the stage in float64 and an attribute \"rows\" that names each "
                       "of them, in ascending order, below %lld. Generate the oracle again.",
                       oracle->path, path, (long long)row_count(entry));
    entry->row = malloc((size_t)count * sizeof *entry->row);
    if (entry->row == NULL) return df_fail_memory(err, path, (size_t)count * sizeof *entry->row);
    memcpy(entry->row, list, (size_t)count * sizeof *entry->row);
    return DFLASH_OK;
}

dflash_status dp_store_load_sketches(dp_oracle *oracle, dflash_error *err) {
    TRY(check_groups(oracle, err));
    for (int i = 0; i < oracle->count; i++) {
        if (!oracle->stage[i].info[DP_RUN_F64].sampled) continue;
        TRY(load_sketch(oracle, &oracle->stage[i], err));
        TRY(load_rows(oracle, &oracle->stage[i], err));
    }
    return DFLASH_OK;
}

/* ---- Values ---- */

dflash_status dp_oracle_sketch(const dp_oracle *oracle, dp_run run, const char *name, dp_sketch *out,
                               dflash_error *err) {
    const dp_stage_entry *entry = dp_store_entry(oracle, name);
    char path[32];
    *out = (dp_sketch){.value = NULL};
    if (entry == NULL || !entry->info[DP_RUN_F64].sampled || oracle->kind != DP_KIND_ORACLE) return DFLASH_OK;
    dp_array array = {.value = NULL};
    TRY(dp_store_fetch(oracle, sketch_path(run, path), name, &entry->sketch[run], false, &array, err));
    *out = (dp_sketch){.rows = array.dim[0],
                       .width = row_length(entry),
                       .projections = (int)array.dim[1] - 1,
                       .key = dp_sketch_key(oracle->seed, name),
                       .value = array.value};
    array.value = NULL;
    dp_array_release(&array);
    return DFLASH_OK;
}

const int64_t *dp_oracle_row_list(const dp_oracle *oracle, const char *name, int *count) {
    const dp_stage_entry *entry = dp_store_entry(oracle, name);
    *count = entry != NULL && entry->row != NULL ? (int)entry->rows.dim[0] : 0;
    return *count > 0 ? entry->row : NULL;
}

dp_stage_companions dp_oracle_companions(const dp_oracle *oracle, const char *name) {
    dp_stage_companions out = {.rows = 0};
    out.row = dp_oracle_row_list(oracle, name, &out.rows);
    const dp_stage_entry *entry = dp_store_entry(oracle, name);
    if (entry == NULL || entry->sketch[DP_RUN_F64].rank == 0) return out;
    out.sketch_rows = entry->sketch[DP_RUN_F64].dim[0];
    out.projections = (int)entry->sketch[DP_RUN_F64].dim[1] - 1;
    return out;
}

dflash_status dp_oracle_rows(const dp_oracle *oracle, const char *name, dp_array *out, dflash_error *err) {
    const dp_stage_entry *entry = dp_store_entry(oracle, name);
    *out = (dp_array){.value = NULL};
    if (entry == NULL || entry->row == NULL) return DFLASH_OK;
    TRY(dp_store_fetch(oracle, rows_path, name, &entry->rows, false, out, err));
    const dp_dataset_info *whole = &entry->info[DP_RUN_F64];
    const int64_t width = row_length(entry);
    out->rank = whole->rank;
    memcpy(out->dim, whole->dim, sizeof out->dim);
    out->total = whole->total;
    out->index = malloc((size_t)out->count * sizeof *out->index);
    if (out->index == NULL) {
        const dflash_status status = df_fail_memory(err, name, (size_t)out->count * sizeof *out->index);
        dp_array_release(out);
        return status;
    }
    for (int64_t i = 0; i < out->count; i++) out->index[i] = entry->row[i / width] * width + i % width;
    return DFLASH_OK;
}

/* Merges the whole rows into the samples, ascending and each element once. */
static dflash_status merge(dp_array *samples, const dp_array *rows, dflash_error *err) {
    const size_t most = (size_t)(samples->count + rows->count);
    double *value = malloc(most * sizeof *value);
    int64_t *index = malloc(most * sizeof *index), count = 0;
    if (value == NULL || index == NULL) {
        free(value);
        free(index);
        return df_fail_memory(err, "the elements of a stage", most * (sizeof *value + sizeof *index));
    }
    for (int64_t a = 0, b = 0; a < samples->count || b < rows->count; count++) {
        const int64_t at_a = a < samples->count ? dp_array_at(samples, a) : INT64_MAX;
        const int64_t at_b = b < rows->count ? dp_array_at(rows, b) : INT64_MAX;
        index[count] = at_b <= at_a ? at_b : at_a;
        value[count] = at_b <= at_a ? rows->value[b] : samples->value[a];
        if (at_a <= at_b) a++;
        if (at_b <= at_a) b++;
    }
    free(samples->value);
    samples->value = value;
    samples->index = index;
    samples->count = count;
    return DFLASH_OK;
}

dflash_status dp_oracle_known(const dp_oracle *oracle, const char *name, dp_array *out, dflash_error *err) {
    dp_array rows = {.value = NULL};
    dflash_status status = dp_oracle_stage(oracle, DP_RUN_F64, name, out, err);
    if (status == DFLASH_OK) status = dp_oracle_rows(oracle, name, &rows, err);
    if (status == DFLASH_OK && rows.count > 0) status = merge(out, &rows, err);
    dp_array_release(&rows);
    if (status != DFLASH_OK) dp_array_release(out);
    return status;
}

dflash_status dp_store_fetch_rms(const dp_oracle *oracle, const char *name, dp_array *array, dflash_error *err) {
    dp_sketch sketch = {.value = NULL};
    dflash_status status = dp_oracle_sketch(oracle, DP_RUN_F64, name, &sketch, err);
    if (status == DFLASH_OK && sketch.value != NULL) {
        array->rms = malloc((size_t)sketch.rows * sizeof *array->rms);
        if (array->rms == NULL) status = df_fail_memory(err, name, (size_t)sketch.rows * sizeof *array->rms);
        for (int64_t i = 0; status == DFLASH_OK && i < sketch.rows; i++)
            array->rms[i] = sketch.value[i * (sketch.projections + 1) + sketch.projections];
    }
    dp_sketch_release(&sketch);
    if (status != DFLASH_OK) dp_array_release(array);
    return status;
}
