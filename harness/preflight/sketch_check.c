/* sketch_check.c - see sketch_check.h. */
#include "preflight/sketch_check.h"

#include "preflight/reference_spread.h"
#include "common/error.h"
#include "store/store_sketch.h"

#include <math.h>
#include <stdio.h>

static const double unit = 0x1p-53;       /* of float64 */
static const double written = 1.0 + 1e-5; /* the record holds six digits */

static dflash_status disagree(const dp_oracle *oracle, const dp_stage_spec *spec, int64_t row, const char *what,
                              double found, double expected, dflash_error *err) {
    return df_fail(
        err, DFLASH_ERR_REFUSED, "oracle.sketch",
        "Stage %s of %s, row %lld of the float64 run: %s is %.17g, expected %.17g by the sketch. The samples, "
        "the whole rows and the sketch are not of one run. Generate the oracle again.",
        spec->name, dp_oracle_path(oracle), (long long)row, what, found, expected);
}

/* One whole row against the sketch. Either side added its terms in an order of its own. */
static dflash_status check_row(const dp_oracle *oracle, const dp_stage_spec *spec, const dp_sketch *sketch, int64_t row,
                               const double *value, dflash_error *err) {
    double own[DP_SKETCH_PROJECTIONS_MOST + 1], size = 0.0;
    const double terms = 2.0 * (double)sketch->width * unit;
    const double *stored = sketch->value + row * (sketch->projections + 1);
    dp_sketch_row(sketch, row, value, own);
    for (int64_t i = 0; i < sketch->width; i++) size += fabs(value[i]);
    for (int k = 0; k <= sketch->projections; k++) {
        const bool rms = k == sketch->projections;
        const double allowed = rms ? (terms + 4.0 * unit) * own[k] : terms * size;
        if (!(fabs(own[k] - stored[k]) <= allowed))
            return disagree(oracle, spec, row, rms ? "the rms of the row stored whole" : "a projection of it", own[k],
                            stored[k], err);
    }
    return DFLASH_OK;
}

static dflash_status check_rows(const dp_oracle *oracle, const dp_stage_spec *spec, const dp_sketch *sketch,
                                const dp_array *rows, dflash_error *err) {
    for (int64_t at = 0; at < rows->count; at += sketch->width)
        TRY(check_row(oracle, spec, sketch, rows->index[at] / sketch->width, rows->value + at, err));
    return DFLASH_OK;
}

/* Samples that lie in a whole row are its values, and the samples of a row have at most the row's square sum. */
static dflash_status check_samples(const dp_oracle *oracle, const dp_stage_spec *spec, const dp_sketch *sketch,
                                   const dp_array *rows, const dp_array *samples, dflash_error *err) {
    int64_t at = 0, before = -1;
    double squares = 0.0;
    for (int64_t i = 0; i < samples->count; i++) {
        const int64_t index = dp_array_at(samples, i), row = index / sketch->width;
        while (at < rows->count && rows->index[at] < index) at++;
        if (at < rows->count && rows->index[at] == index && rows->value[at] != samples->value[i])
            return disagree(oracle, spec, row, "a sample", samples->value[i], rows->value[at], err);
        squares = (row == before ? squares : 0.0) + samples->value[i] * samples->value[i];
        before = row;
        const double size = sketch->value[row * (sketch->projections + 1) + sketch->projections];
        const double most = size * size * (double)sketch->width * (1.0 + 4.0 * (double)sketch->width * unit);
        if (!(squares <= most))
            return disagree(oracle, spec, row, "the norm of its samples", sqrt(squares), sqrt(most), err);
    }
    return DFLASH_OK;
}

dflash_status dp_sketch_check(const dp_oracle *oracle, const dp_stage_spec *spec, dflash_error *err) {
    dp_sketch sketch = {.value = NULL};
    dp_array rows = {.value = NULL}, samples = {.value = NULL};
    dflash_status status = dp_oracle_sketch(oracle, DP_RUN_F64, spec->name, &sketch, err);
    if (status == DFLASH_OK && sketch.value != NULL) {
        status = dp_oracle_rows(oracle, spec->name, &rows, err);
        if (status == DFLASH_OK) status = dp_oracle_stage(oracle, DP_RUN_F64, spec->name, &samples, err);
        if (status == DFLASH_OK) status = check_rows(oracle, spec, &sketch, &rows, err);
        if (status == DFLASH_OK) status = check_samples(oracle, spec, &sketch, &rows, &samples, err);
    }
    dp_sketch_release(&sketch);
    dp_array_release(&rows);
    dp_array_release(&samples);
    return status;
}

dflash_status dp_sketch_reference_spreads(const dp_oracle *oracle, const dp_stage_spec *spec, dp_difference *fine,
                                          dp_difference *coarse, double *own, dflash_error *err) {
    dp_sketch sketch[DP_RUN_COUNT] = {{.value = NULL}};
    dflash_status status = DFLASH_OK;
    *fine = *coarse = (dp_difference){.count = 0};
    for (int run = 0; status == DFLASH_OK && run < DP_RUN_COUNT; run++)
        status = dp_oracle_sketch(oracle, (dp_run)run, spec->name, &sketch[run], err);
    if (status == DFLASH_OK && sketch[DP_RUN_F64].value != NULL) {
        char label[DFLASH_STAGE_NAME_MAX + 8];
        double recorded[2];
        dp_sketch_compare(&sketch[DP_RUN_F32], &sketch[DP_RUN_F64], fine);
        *own = fine->l2_rel;
        dp_sketch_compare(&sketch[DP_RUN_BF16], &sketch[DP_RUN_F64], coarse);
        snprintf(label, sizeof label, "%s#sketch", spec->name);
        status = dp_reference_spread_recorded(oracle, label, recorded, err);
        if (status == DFLASH_OK && !(fine->l2_rel <= recorded[0] * written && fine->max_rel <= recorded[1] * written))
            status = df_fail(err, DFLASH_ERR_REFUSED, "provenance.orders",
                             "%s of %s: the float32 run is %.6g (relative L2) and %.6g (largest) from float64, and "
                             "float32_orders, which counts that run too, says at most %.6g and %.6g. Generate the "
                             "oracle again.",
                             label, dp_oracle_path(oracle), fine->l2_rel, fine->max_rel, recorded[0], recorded[1]);
        fine->l2_rel = fmax(fine->l2_rel, recorded[0]);
        fine->max_rel = fmax(fine->max_rel, recorded[1]);
    }
    for (int run = 0; run < DP_RUN_COUNT; run++) dp_sketch_release(&sketch[run]);
    return status;
}

dflash_status dp_sketch_judge(const dp_oracle *oracle, const dp_stage_spec *spec, const float *full,
                              const dp_difference *reference_spread, double coarseness, dp_sketch_result *out,
                              dflash_error *err) {
    dp_sketch got = {.value = NULL}, want = {.value = NULL};
    *out = (dp_sketch_result){.judged = false};
    dflash_status status = dp_oracle_sketch(oracle, DP_RUN_F64, spec->name, &want, err);
    if (status == DFLASH_OK && want.value != NULL) status = dp_sketch_of(full, &want, &got, err);
    if (status == DFLASH_OK && want.value != NULL) {
        dp_difference d;
        const dp_limit limit = dp_limit_chained(spec, reference_spread, coarseness);
        const int each = want.projections + 1;
        dp_sketch_compare(&got, &want, &d);
        *out = (dp_sketch_result){.judged = true,
                                  .rows = want.rows,
                                  .projections = want.projections,
                                  .l2_rel = d.l2_rel,
                                  .max_rel = d.max_rel,
                                  .l2_limit = limit.l2_rel,
                                  .max_limit = limit.max_rel,
                                  .headroom = dp_headroom(&limit, &d),
                                  .nonfinite = d.nonfinite,
                                  .row = d.worst / each,
                                  .projection = (int)(d.worst % each),
                                  .got = d.worst_got,
                                  .want = d.worst_want};
        out->pass = dp_headroom_passes(out->headroom);
    }
    dp_sketch_release(&got);
    dp_sketch_release(&want);
    return status;
}

const char *dp_sketch_text(const dp_sketch_result *r, char text[DP_SKETCH_TEXT]) {
    char what[32];
    snprintf(what, sizeof what, r->projection < r->projections ? "projection %d" : "norm", r->projection);
    if (r->nonfinite > 0)
        snprintf(text, DP_SKETCH_TEXT, "sketch: row %lld holds values that are not finite (%lld of %lld numbers)",
                 (long long)r->row, (long long)r->nonfinite, (long long)(r->rows * (r->projections + 1)));
    else
        snprintf(
            text, DP_SKETCH_TEXT,
            "sketch of %lld rows: L2 %.3g (at most %.3g), largest %.3g of the row's norm (at most %.3g) at row %lld, "
            "%s: got %.9g, reference %.9g",
            (long long)r->rows, r->l2_rel, r->l2_limit, r->max_rel, r->max_limit, (long long)r->row, what, r->got,
            r->want);
    return text;
}
