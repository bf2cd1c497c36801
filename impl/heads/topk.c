/* topk.c - see topk.h. */
#include "heads/topk.h"

#include "common/error.h"

#include <math.h>

enum { CHUNK = 64 }; /* values tested together: nearly all of a long row is below the k-th so far */

/* True when a value of the chunk is above `limit`, or NaN. */
static bool chunk_matters(const float *x, float limit) {
    int any = 0;
    for (int i = 0; i < CHUNK; i++) any |= !(x[i] <= limit);
    return any != 0;
}

dflash_status df_topk_refuse(float x, const char *what, int slot, int at, dflash_error *err) {
    if (isnan(x))
        return df_fail(
            err, DFLASH_ERR_REFUSED, "proposal.nan",
            "Slot %d: value %d of %s is NaN. A NaN never wins and is never passed over, because whatever made "
            "it may have spoilt the others too; find the first stage that is not finite.",
            slot, at, what);
    return df_fail(err, DFLASH_ERR_REFUSED, "proposal.infinite",
                   "Slot %d: value %d of %s is +infinity, so it has overflowed and no choice among such values means "
                   "anything. Find the first stage that is not finite.",
                   slot, at, what);
}

dflash_status df_topk(const float *row, int n, int k, const char *what, int slot, float *value, int32_t *index,
                      int *found, dflash_error *err) {
    int count = 0;
    float limit = -INFINITY; /* what a value must exceed: ties with the k-th lose to it, whose index is lower */
    for (int first = 0; first < n; first += CHUNK) {
        const int end = n - first < CHUNK ? n : first + CHUNK;
        if (end - first == CHUNK && !chunk_matters(row + first, limit)) continue;
        for (int i = first; i < end; i++) {
            const float x = row[i];
            if (x <= limit) continue;
            if (!(x < INFINITY)) return df_topk_refuse(x, what, slot, i, err);
            int at = count < k ? count++ : k - 1;
            for (; at > 0 && value[at - 1] < x; at--) {
                value[at] = value[at - 1];
                index[at] = index[at - 1];
            }
            value[at] = x;
            index[at] = i;
            if (count == k) limit = value[k - 1];
        }
    }
    *found = count;
    return DFLASH_OK;
}
