/* pick.c - see pick.h. */
#include "heads/pick.h"

#include "common/canon.h"
#include "common/error.h"
#include "common/mathfn.h"
#include "heads/topk.h"

dflash_status df_pick_refuse_nofinite(int n, const char *what, int slot, dflash_error *err) {
    return df_fail(
        err, DFLASH_ERR_REFUSED, "proposal.nofinite",
        "Slot %d: none of the %d values of %s is finite, so there is no best one. No token is made up for such "
        "a row; find out what masked or lost its values.",
        slot, n, what);
}

/* The largest value of the row and where it first stands. */
static dflash_status largest(const float *row, int n, const char *what, int slot, float *value, int32_t *index,
                             dflash_error *err) {
    int found = 0;
    const dflash_status status = df_topk(row, n, 1, what, slot, value, index, &found, err);
    if (status != DFLASH_OK || found == 1) return status;
    return df_pick_refuse_nofinite(n, what, slot, err);
}

dflash_status df_pick_argmax(const float *row, int n, const char *what, int slot, int32_t *index, dflash_error *err) {
    float value;
    return largest(row, n, what, slot, &value, index, err);
}

dflash_status df_pick_softmax(const float *row, int n, float temperature, float *probability, const char *what,
                              int slot, dflash_error *err) {
    if (!(temperature > 0.0f && temperature < INFINITY))
        return df_fail(err, DFLASH_ERR_ARGUMENT, "proposal.temperature",
                       "The temperature of a distribution must be positive and finite: found %g.", (double)temperature);
    float max;
    int32_t at;
    const dflash_status status = largest(row, n, what, slot, &max, &at, err);
    if (status != DFLASH_OK) return status;
    df_sum sum;
    df_tree_reset(&sum.tree);
    for (int first = 0; first < n; first += DF_SEGMENT) {
        const int end = n - first < DF_SEGMENT ? n : first + DF_SEGMENT;
        float segment = 0.0f;
        for (int i = first; i < end; i++) {
            probability[i] = df_exp((row[i] - max) / temperature);
            segment += probability[i];
        }
        df_sum_push(&sum, (unsigned)(first / DF_SEGMENT), segment);
    }
    const float total = df_sum_total(&sum); /* at least 1: the largest value's own share */
    for (int i = 0; i < n; i++) probability[i] /= total;
    return DFLASH_OK;
}
