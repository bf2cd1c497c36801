/* ids.c - see ids.h. */
#include "preflight/ids.h"

#include "common/error.h"
#include "store/store_dataset.h"

#include <stdio.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Ids that the config has rows for, and may come before a token, are below this. */
static int64_t known_ids(const dp_ids_subject *s) {
    const dflash_config *c = s->config;
    const int64_t vocab = c->vocab > 0 ? c->vocab : s->vocab;
    return c->family == DFLASH_FAMILY_DFLASH2 && c->selector_vocab > 0 ? least(vocab, c->selector_vocab) : vocab;
}

/* Ids that a run may choose are below this. */
static int64_t choosable_ids(const dp_ids_subject *s, dp_run run) {
    const int64_t known = run == DP_RUN_BF16 && s->config->vocab > 0 ? s->config->vocab : known_ids(s);
    return least(known, s->vocab);
}

/* The name of a run, for messages. */
static const char *run_text(const dp_oracle *file, dp_run run) {
    return dp_oracle_kind(file) == DP_KIND_ORACLE ? dp_run_name(run) : dp_recorded_run;
}

/* ---- Ranges ---- */

static dflash_status check_range(const dp_ids_subject *s, const char *what, const dp_array *array, int64_t low,
                                 int64_t high, dflash_error *err) {
    for (int64_t i = 0; i < array->count; i++) {
        if (array->value[i] >= (double)low && array->value[i] <= (double)high) continue;
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.ids.range",
            "%s of %s: element %lld is %.0f: expected %lld to %lld, which is what this drafter has. The file is "
            "damaged or of another model; write it again.",
            what, dp_oracle_path(s->file), (long long)(array->offset + i * array->stride), array->value[i],
            (long long)low, (long long)high);
    }
    return DFLASH_OK;
}

dflash_status dp_ids_check_anchor(const dp_ids_subject *subject, dflash_error *err) {
    dp_array array = {.value = NULL};
    if (dp_oracle_input_info(subject->file, "anchor") == NULL) return DFLASH_OK;
    dflash_status status = dp_oracle_input(subject->file, "anchor", &array, err);
    if (status == DFLASH_OK) status = check_range(subject, "Input anchor", &array, 0, known_ids(subject) - 1, err);
    dp_array_release(&array);
    return status;
}

/* ---- Candidates ---- */

/* Reads another stage of the run, where it is there as it should be and whole; otherwise out->value is NULL. */
static dflash_status read_whole(const dp_ids_subject *s, dp_run run, dflash_stage stage, dp_array *out,
                                dflash_error *err) {
    char name[DFLASH_STAGE_NAME_MAX];
    *out = (dp_array){.value = NULL};
    const dp_stage_spec *spec = dp_stage_set_find(s->stages, dflash_stage_name(stage, -1, name));
    const dp_dataset_info *info = dp_oracle_stage_info(s->file, run, name);
    if (spec == NULL || info == NULL || info->count != info->total ||
        !dp_dims_equal(info->rank, info->dim, spec->rank, spec->dim))
        return DFLASH_OK;
    return dp_oracle_stage(s->file, run, name, out, err);
}

static dflash_status misordered(const dp_ids_subject *s, dp_run run, const dp_array *ids, int64_t first, int64_t second,
                                const char *how, dflash_error *err) {
    return df_fail(
        err, DFLASH_ERR_REFUSED, "oracle.ids.order",
        "Stage select.topk_ids of %s, run %s: slot %lld has the id %.0f and then %.0f %s: expected different "
        "candidates, by descending value and then ascending id. Write the file again.",
        dp_oracle_path(s->file), run_text(s->file, run), (long long)(first / ids->dim[1]), ids->value[first],
        ids->value[second], how);
}

/* A NaN among the values, which a recording may hold, is before and after nothing. */
static dflash_status check_candidates(const dp_ids_subject *s, dp_run run, const dp_array *ids, dflash_error *err) {
    dp_array values;
    const int64_t k = ids->dim[1];
    if (ids->count != ids->total) return DFLASH_OK;
    dflash_status status = read_whole(s, run, DFLASH_STAGE_SELECT_TOPK_VALUES, &values, err);
    for (int64_t i = 0; status == DFLASH_OK && i < ids->count; i++) {
        for (int64_t j = i - i % k; status == DFLASH_OK && j < i; j++)
            if (ids->value[j] == ids->value[i]) status = misordered(s, run, ids, j, i, "again", err);
        if (status != DFLASH_OK || i % k == 0 || values.value == NULL) continue;
        const double before = values.value[i - 1], value = values.value[i];
        if (before < value || (before == value && ids->value[i - 1] > ids->value[i]))
            status = misordered(s, run, ids, i - 1, i, before < value ? "of a larger value" : "of the same value", err);
    }
    dp_array_release(&values);
    return status;
}

/* ---- The whole ---- */

dflash_status dp_ids_check_stage(const dp_ids_subject *subject, dp_run run, const dp_stage_spec *spec,
                                 dflash_error *err) {
    const bool counts = spec->stage == DFLASH_STAGE_CONFIDENCE_WINDOW;
    const dp_dataset_info *info = dp_oracle_stage_info(subject->file, run, spec->name);
    dp_array array;
    char what[96];
    if (info == NULL || !dp_dims_equal(info->rank, info->dim, spec->rank, spec->dim)) return DFLASH_OK;
    TRY(dp_oracle_stage(subject->file, run, spec->name, &array, err));
    snprintf(what, sizeof what, "Stage %s, run %s,", spec->name, run_text(subject->file, run));
    dflash_status status = check_range(subject, what, &array, counts ? 2 : 0,
                                       counts ? subject->config->block + 1 : choosable_ids(subject, run) - 1, err);
    if (status == DFLASH_OK && spec->stage == DFLASH_STAGE_SELECT_TOPK_IDS)
        status = check_candidates(subject, run, &array, err);
    dp_array_release(&array);
    return status;
}

dflash_status dp_ids_check(const dp_ids_subject *subject, dflash_error *err) {
    const int runs = dp_oracle_kind(subject->file) == DP_KIND_ORACLE ? DP_RUN_COUNT : 0;
    TRY(dp_ids_check_anchor(subject, err));
    for (int i = 0; i < subject->stages->count; i++)
        for (int run = 0; subject->stages->spec[i].exact && run < runs; run++)
            TRY(dp_ids_check_stage(subject, (dp_run)run, &subject->stages->spec[i], err));
    return DFLASH_OK;
}
