/*
 * plot_collect.c - see plot_collect.h.
 *
 * Only stages that were compared are looked at, and of those only the elements that the oracle stores, so that a
 * picture shows what the verdict rests on.
 */
#include "check/plot_collect.h"

#include "check/divergence.h"
#include "common/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a stage is looked at with. */
typedef struct view {
    const dp_stage_result *stage;
    const dp_recorded *run;
    dp_array want; /* the reference in float64 */
    double *got;   /* [want.count], NULL for integers */
} view;

static void *allocate(int64_t count, size_t size) { return calloc((size_t)(count > 0 ? count : 1), size); }

static dflash_status view_open(const dp_oracle *oracle, const dp_recording *run, const dp_stage_result *stage,
                               view *out, dflash_error *err) {
    dflash_stage id;
    int layer;
    *out = (view){.stage = stage};
    if (!dflash_stage_parse(stage->name, &id, &layer)) return DFLASH_OK;
    out->run = dp_recording_find(run, id, layer);
    TRY(dp_oracle_stage(oracle, DP_RUN_F64, stage->name, &out->want, err));
    if (out->run == NULL || out->run->value == NULL) return DFLASH_OK;
    return dp_gather(out->run->value, &out->want, &out->got, err);
}

static void view_close(view *v) {
    dp_array_release(&v->want);
    free(v->got);
}

/* ---- Row errors and ULPs ---- */

/* Relative L2 of one row; NaN and infinity stay what they are. */
static double row_error(double error_square, double want_square) {
    if (error_square == 0.0) return 0.0;
    return want_square > 0.0 ? sqrt(error_square / want_square) : isnan(error_square) ? NAN : INFINITY;
}

static bool worse(double a, double b) { return isnan(a) || (!isnan(b) && a > b); }

static dflash_status collect_stage(const view *v, dp_stage_plot *out, dflash_error *err) {
    dflash_stage id;
    int layer;
    dflash_stage_parse(v->stage->name, &id, &layer);
    const int64_t length = dp_row_length(id, v->stage->rank, v->stage->dim), rows = v->want.total / length;
    out->row_group = (rows + DP_ROWS_MOST - 1) / DP_ROWS_MOST;
    out->rows = (int)((rows + out->row_group - 1) / out->row_group);
    out->row = allocate(out->rows, sizeof *out->row);
    if (out->row == NULL) return df_fail_memory(err, "the row errors", (size_t)out->rows * sizeof *out->row);
    for (int i = 0; i < out->rows; i++) out->row[i] = -1.0;
    for (int64_t i = 0; i < v->want.count;) {
        const int64_t row = (v->want.offset + i * v->want.stride) / length;
        double error_square = 0.0, want_square = 0.0;
        for (; i < v->want.count && (v->want.offset + i * v->want.stride) / length == row; i++) {
            const double want = v->want.value[i], error = v->got[i] - want;
            error_square += error * error;
            want_square += want * want;
            out->ulp[dp_ulp_bin(isfinite(v->got[i]) ? fabs(error) / dp_float32_ulp(want) : INFINITY)]++;
        }
        double *const entry = &out->row[row / out->row_group];
        const double found = row_error(error_square, want_square);
        if (worse(found, *entry)) *entry = found;
    }
    return DFLASH_OK;
}

/* ---- Scatter ---- */

static dflash_status collect_scatter(const view *v, dp_scatter *out, dflash_error *err) {
    const int64_t step = (v->want.count + DP_SCATTER_MOST - 2) / (DP_SCATTER_MOST - 1); /* one is kept for the worst */
    const int64_t worst = (v->stage->difference.worst - v->want.offset) / v->want.stride;
    out->index = allocate(DP_SCATTER_MOST, sizeof *out->index);
    out->got = allocate(DP_SCATTER_MOST, sizeof *out->got);
    out->want = allocate(DP_SCATTER_MOST, sizeof *out->want);
    out->error = allocate(DP_SCATTER_MOST, sizeof *out->error);
    if (out->index == NULL || out->got == NULL || out->want == NULL || out->error == NULL)
        return df_fail_memory(err, "the scatter's points", 4 * DP_SCATTER_MOST * sizeof *out->got);
    memcpy(out->stage, v->stage->name, sizeof out->stage);
    out->of = v->want.count;
    for (int64_t i = 0; i < v->want.count; i++) {
        if (i % step != 0 && i != worst) continue;
        out->index[out->count] = v->want.offset + i * v->want.stride;
        out->got[out->count] = v->got[i];
        out->want[out->count] = v->want.value[i];
        out->error[out->count++] = v->got[i] - v->want.value[i];
    }
    return DFLASH_OK;
}

/* The stage that the scatter shows: the diverging one, or the one with the least headroom; NULL when it has no values
 * to plot. */
static const dp_stage_result *scatter_stage(const dp_result *result) {
    dp_divergence_by by;
    const dp_stage_result *stage = dp_first_divergence(result, &by);
    if (stage == NULL) stage = dp_worst_stage(result);
    return stage != NULL && !stage->exact && stage->difference.count > 0 ? stage : NULL;
}

/* ---- Frequencies, margins, tokens ---- */

static dflash_status collect_rope(const view *v, dp_rope_plot *out, dflash_error *err) {
    out->got = allocate(v->want.count, sizeof *out->got);
    out->want = allocate(v->want.count, sizeof *out->want);
    out->relative = allocate(v->want.count, sizeof *out->relative);
    if (out->got == NULL || out->want == NULL || out->relative == NULL)
        return df_fail_memory(err, "the frequency table", 3 * (size_t)v->want.count * sizeof *out->got);
    out->count = (int)v->want.count;
    for (int i = 0; i < out->count; i++) {
        out->got[i] = v->got[i];
        out->want[i] = v->want.value[i];
        out->relative[i] = (v->got[i] - v->want.value[i]) / v->want.value[i];
    }
    return DFLASH_OK;
}

/* The largest of a row and how far it lies above the next. A NaN is never the largest. */
static double margin_of(const double *row, int64_t count, int32_t *largest) {
    double second = -INFINITY;
    int64_t first = 0;
    for (int64_t i = 1; i < count; i++) {
        if (row[i] > row[first] || isnan(row[first])) {
            second = row[first];
            first = i;
        } else if (row[i] > second)
            second = row[i];
    }
    *largest = (int32_t)first;
    return row[first] - second;
}

static dflash_status collect_margins(const view *v, dp_margins *out, dflash_error *err) {
    const int64_t rows = v->stage->dim[0], width = v->stage->dim[1];
    const bool whole = v->want.count == v->want.total;
    double *const got = allocate(width, sizeof *got);
    out->margin = allocate(rows, sizeof *out->margin);
    out->error = allocate(rows, sizeof *out->error);
    out->got = allocate(rows, sizeof *out->got);
    out->want = whole ? allocate(rows, sizeof *out->want) : NULL;
    if (got == NULL || out->margin == NULL || out->error == NULL || out->got == NULL || (whole && out->want == NULL)) {
        free(got);
        return df_fail_memory(err, "the margins", (size_t)(rows + width) * 2 * sizeof *got);
    }
    memcpy(out->stage, v->stage->name, sizeof out->stage);
    out->rows = (int)rows;
    out->reference = whole;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < width; i++) got[i] = (double)v->run->value[r * width + i];
        out->margin[r] = margin_of(got, width, &out->got[r]);
        if (whole) out->margin[r] = margin_of(v->want.value + r * width, width, &out->want[r]);
    }
    for (int64_t i = 0; i < v->want.count; i++) {
        double *const entry = &out->error[(v->want.offset + i * v->want.stride) / width];
        const double error = fabs(v->got[i] - v->want.value[i]);
        if (worse(error, *entry)) *entry = error;
    }
    free(got);
    return DFLASH_OK;
}

static dflash_status collect_tokens(const view *v, dp_tokens *out, dflash_error *err) {
    out->got = allocate(v->want.count, sizeof *out->got);
    out->want = allocate(v->want.count, sizeof *out->want);
    if (out->got == NULL || out->want == NULL)
        return df_fail_memory(err, "the tokens", 2 * (size_t)v->want.count * sizeof *out->got);
    memcpy(out->stage, v->stage->name, sizeof out->stage);
    out->count = (int)v->want.count;
    for (int i = 0; i < out->count; i++) {
        out->got[i] = v->run->integer[v->want.offset + i * v->want.stride];
        out->want[i] = (int32_t)v->want.value[i];
    }
    return DFLASH_OK;
}

/* Where no selector and no Markov head chooses, the tokens are the largest logits; of logits that are not finite
 * nothing is drafted. */
static dflash_status tokens_of_logits(dp_result *result, dflash_error *err) {
    dp_plot_data *const data = &result->plot;
    const dp_margins *m = &data->margins[0];
    dp_tokens *const out = &data->tokens;
    if (result->family != DFLASH_FAMILY_DFLASH && result->options->filter != NULL)
        return DFLASH_OK; /* something else may choose */
    if (out->stage[0] != '\0' || data->margins_count != 1 || strcmp(m->stage, "logits") != 0) return DFLASH_OK;
    if (dp_stage_named(result, "select.path") != NULL || dp_stage_named(result, "markov.tokens") != NULL)
        return DFLASH_OK; /* it was not shown */
    for (int i = 0; i < m->rows; i++)
        if (!isfinite(m->margin[i]) || !isfinite(m->error[i])) return DFLASH_OK;
    const size_t bytes = (size_t)m->rows * sizeof *out->got;
    out->got = allocate(m->rows, sizeof *out->got);
    out->want = m->want != NULL ? allocate(m->rows, sizeof *out->want) : NULL;
    if (out->got == NULL || (m->want != NULL && out->want == NULL)) return df_fail_memory(err, "the tokens", bytes);
    memcpy(out->stage, m->stage, sizeof out->stage);
    out->count = m->rows;
    memcpy(out->got, m->got, bytes);
    if (m->want != NULL) memcpy(out->want, m->want, bytes);
    return DFLASH_OK;
}

/* ---- The whole ---- */

static bool named(const dp_stage_result *stage, const char *a, const char *b, const char *c) {
    return strcmp(stage->name, a) == 0 || (b != NULL && strcmp(stage->name, b) == 0) ||
           (c != NULL && strcmp(stage->name, c) == 0);
}

static dflash_status collect_view(const view *v, dp_result *result, dp_stage_plot *plot, dflash_error *err) {
    dp_plot_data *const data = &result->plot;
    if (named(v->stage, "select.path", "markov.tokens", NULL)) return collect_tokens(v, &data->tokens, err);
    if (v->got == NULL) return DFLASH_OK;
    TRY(collect_stage(v, plot, err));
    if (v->stage == scatter_stage(result)) TRY(collect_scatter(v, &data->scatter, err));
    if (named(v->stage, "rope.inv_freq", NULL, NULL)) TRY(collect_rope(v, &data->rope, err));
    if (named(v->stage, "logits", "markov.logits", "select.scores") && v->stage->dim[1] > 1)
        TRY(collect_margins(v, &data->margins[data->margins_count++], err));
    return DFLASH_OK;
}

dflash_status dp_plot_collect(const dp_oracle *oracle, const dp_recording *run, dp_result *result, dflash_error *err) {
    dp_plot_data *const data = &result->plot;
    data->stage = allocate(result->stage_count, sizeof *data->stage);
    if (data->stage == NULL) return df_fail_memory(err, "the plot data", sizeof *data->stage);
    data->stage_count = result->stage_count;
    for (int i = 0; i < result->stage_count; i++) {
        view v;
        if (result->stage[i].difference.count == 0) continue; /* not shown, or in another shape */
        dflash_status status = view_open(oracle, run, &result->stage[i], &v, err);
        if (status == DFLASH_OK && v.run != NULL) status = collect_view(&v, result, &data->stage[i], err);
        view_close(&v);
        if (status != DFLASH_OK) return status;
    }
    return tokens_of_logits(result, err);
}
