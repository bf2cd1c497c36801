/* evaluate_fed.c - see evaluate.h: whether a row of a stage is evaluated from given values alone. */
#include "formulas/evaluate_parts.h"

dflash_stage dp_cached_stage(dflash_stage stage) {
    return stage == DFLASH_STAGE_KV_K ? DFLASH_STAGE_ATTN_K_ROPE : DFLASH_STAGE_ATTN_V;
}

static bool is_input(const dp_reference *reference) { return (int)reference->stage >= DP_TAPS; }

bool dp_evaluate_inputs(const dp_evaluation *e, const dp_stage_spec *spec) {
    const dflash_config *c = dflash_draft_config(e->draft);
    for (int l = 0; dp_is_cache(spec->stage) && l < c->n_layers; l++)
        if (dp_stage_values_find(e->values, dp_cached_stage(spec->stage), l) == NULL) return false;
    const dp_references r = dp_stage_inputs(c, e->embedding != NULL, spec->stage, spec->layer);
    for (int i = 0; i < r.count; i++)
        if (!is_input(&r.item[i]) && dp_stage_values_find(e->values, r.item[i].stage, r.item[i].layer) == NULL)
            return false;
    return true;
}

/* Rows [first, end) of an input. */
typedef struct span {
    int64_t first, end;
} span;

static span one(int64_t row) { return (span){row, row + 1}; }

/* The rows of input `i` that row `row` of the stage is made of; `rows`: how many the input has. */
static span rows_of(const dp_evaluation *e, const dp_stage_spec *spec, int i, dflash_stage input, int64_t row,
                    int64_t rows) {
    const dflash_config *c = dflash_draft_config(e->draft);
    const int64_t context = e->context, harvested = row + c->block - spec->dim[0];
    const span all = {0, rows}, none = {0, 0};
    switch (spec->stage) {
    case DFLASH_STAGE_ATTN_K_PROJ:
    case DFLASH_STAGE_ATTN_V:
        if (input == DFLASH_STAGE_CTX_FEATURES) return row < context ? one(row) : none;
        return row < context ? none : one(row - context);
    case DFLASH_STAGE_ATTN_Q_ROPE:
        return input == DFLASH_STAGE_ATTN_Q_NORM ? one(row) : one(context + row);
    case DFLASH_STAGE_ATTN_CONTEXT: /* every key may be seen */
        return input == DFLASH_STAGE_ATTN_Q_ROPE ? one(row) : all;
    case DFLASH_STAGE_ATTN_CONV_IN:
    case DFLASH_STAGE_ATTN_CONV_OUT:
    case DFLASH_STAGE_MLP_CONV_IN:
    case DFLASH_STAGE_MLP_CONV_OUT:
        return i == 0 ? (span){row + 1 > c->conv_kernel ? row + 1 - c->conv_kernel : 0, row + 1} : one(row);
    case DFLASH_STAGE_LOGITS:
    case DFLASH_STAGE_SELECT_HIDDEN:
        return one(harvested);
    case DFLASH_STAGE_ROPE_COS: /* from every frequency, each of which is a row */
    case DFLASH_STAGE_ROPE_SIN:
    case DFLASH_STAGE_SELECT_SCORES: /* slots follow one another */
    case DFLASH_STAGE_SELECT_PATH:
    case DFLASH_STAGE_CONFIDENCE_RAW:
        return all;
    case DFLASH_STAGE_MARKOV_LOGITS:
        return input == DFLASH_STAGE_LOGITS ? one(row) : all;
    default:
        return one(row);
    }
}

static bool given(const dp_stage_value *value, span rows) {
    if (value == NULL) return false;
    if (value->row_fed == NULL) return value->fed;
    for (int64_t r = rows.first; r < rows.end; r++)
        if (!value->row_fed[r]) return false;
    return true;
}

bool dp_evaluate_fed(const dp_evaluation *e, const dp_stage_spec *spec, int64_t row) {
    if (dp_is_cache(spec->stage))
        return given(dp_stage_values_find(e->values, dp_cached_stage(spec->stage), (int)(row / e->context)),
                     one(row % e->context));
    const dp_references r =
        dp_stage_inputs(dflash_draft_config(e->draft), e->embedding != NULL, spec->stage, spec->layer);
    for (int i = 0; i < r.count; i++) {
        if (is_input(&r.item[i])) continue;
        const dp_stage_value *value = dp_stage_values_find(e->values, r.item[i].stage, r.item[i].layer);
        const int64_t rows = value != NULL ? value->rows : 0;
        if (!given(value, rows_of(e, spec, i, r.item[i].stage, row, rows))) return false;
    }
    return true;
}
