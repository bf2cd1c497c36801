/* reference_spread.c - see reference_spread.h. */
#include "preflight/reference_spread.h"

#include "common/error.h"
#include "formulas/evaluate.h"

#include <math.h>

/* Number `index` of the pair that the record holds for a stage; NAN when there is none. */
static double recorded(const cJSON *pair, int index) {
    const cJSON *value = cJSON_GetArraySize(pair) == 2 ? cJSON_GetArrayItem(pair, index) : NULL;
    return cJSON_IsNumber(value) ? value->valuedouble : NAN;
}

dflash_status dp_reference_spread_recorded(const dp_oracle *oracle, const char *label, double out[2],
                                           dflash_error *err) {
    const cJSON *record = cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(oracle), "float32_orders");
    const cJSON *largest = cJSON_GetObjectItemCaseSensitive(record, "largest");
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(largest, label);
    const double orders = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(record, "orders"));
    for (int i = 0; i < 2; i++) out[i] = recorded(pair, i);
    if (!(orders >= 2.0) || !(out[0] >= 0.0) || !(out[1] >= 0.0) || !isfinite(out[0]) || !isfinite(out[1]))
        return df_fail(
            err, DFLASH_ERR_REFUSED, "provenance.orders",
            "The provenance of %s does not say how far stage %s came from float64 in several float32 orders: "
            "expected float32_orders {orders: at least 2, largest: {\"%s\": [relative L2, max over rms]}}. A "
            "limit made of one float32 run can be too narrow by luck. Generate the oracle again.",
            dp_oracle_path(oracle), label, label);
    return DFLASH_OK;
}

dflash_status dp_reference_spread_measure(const dp_oracle *oracle, const dp_stage_spec *spec, const dp_array *truth,
                                          dp_difference *out, dp_spread *spread, dflash_error *err) {
    double largest[2];
    TRY(dp_reference_spread_recorded(oracle, spec->name, largest, err));
    dp_array f32 = {.value = NULL};
    const int64_t row = dp_row_length(spec->stage, spec->rank, spec->dim);
    dflash_status status = dp_oracle_stage(oracle, DP_RUN_F32, spec->name, &f32, err);
    if (status == DFLASH_OK) status = dp_compare(f32.value, truth, row, out, err);
    if (status == DFLASH_OK) {
        *spread = (dp_spread){.own = {out->l2_rel, out->max_rel},
                              .claimed = {largest[0], largest[1]},
                              .own_rows = out->rows,
                              .row = dp_largest_row(truth, row),
                              .whole = truth->count == truth->total,
                              .measured = true};
        out->l2_rel = fmax(out->l2_rel, largest[0]);
        out->max_rel = fmax(out->max_rel, largest[1]);
    }
    dp_array_release(&f32);
    return status;
}

dflash_status dp_reference_spread_frequencies(const dp_oracle *oracle, const dflash_rope_config *rope,
                                              const dp_stage_spec *spec, const dp_array *truth, dflash_error *err) {
    static const dp_run runs[] = {DP_RUN_F32, DP_RUN_BF16};
    dflash_status status = DFLASH_OK;
    for (size_t run = 0; status == DFLASH_OK && run < sizeof runs / sizeof *runs; run++) {
        dp_array table = {.value = NULL};
        status = dp_oracle_stage(oracle, runs[run], spec->name, &table, err);
        for (int64_t i = 0; status == DFLASH_OK && i < table.count; i++) {
            const int64_t at = table.offset + i * table.stride;
            const double off = fabs(table.value[i] - truth->value[i]), bound = dp_frequency(rope, (int)at).error;
            if (!(off <= bound))
                status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.frequencies",
                                 "Stage %s of %s: frequency %lld is %.9g in the reference's %s run and %.9g in its "
                                 "float64 run, %.3g apart: expected at most %.3g, what the float32 operations of this "
                                 "scaling can be off by. One of the two tables is of another config. Generate the "
                                 "oracle again.",
                                 spec->name, dp_oracle_path(oracle), (long long)at, table.value[i],
                                 dp_run_name(runs[run]), truth->value[i], off, bound);
        }
        dp_array_release(&table);
    }
    return status;
}
