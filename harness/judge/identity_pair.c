/* identity_pair.c - see identity_pair.h. */
#include "judge/identity_pair.h"

#include "limits/compare.h"
#include "common/dtype.h"
#include "limits/envelope.h"
#include "common/error.h"
#include "judge/rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dp_bit_class_name(dp_bit_class reached) {
    static const char *const names[DP_BIT_CLASSES] = {"identical", "equal", "ulp", "inside envelope", "divergent"};
    return names[reached];
}

/* ---- One stage ---- */

static bool finite_bits(uint32_t bits) { return (bits >> 23 & 0xff) != 0xff; }

/* Neighbouring floats have neighbouring numbers; both zeros have the number 0. */
static int64_t number_of(uint32_t bits) {
    const int64_t magnitude = bits & 0x7fffffffu;
    return (bits >> 31) != 0 ? -magnitude : magnitude;
}

static uint32_t ulp_distance(uint32_t a, uint32_t b) {
    if (!finite_bits(a) || !finite_bits(b)) return a == b ? 0 : UINT32_MAX;
    const int64_t distance = number_of(a) - number_of(b);
    return (uint32_t)(distance < 0 ? -distance : distance);
}

static bool both_nan(uint32_t a, uint32_t b) {
    return !finite_bits(a) && !finite_bits(b) && (a & 0x7fffffu) != 0 && (b & 0x7fffffu) != 0;
}

static void note_difference(dp_pair_stage *stage, int64_t at, uint32_t a, uint32_t b) {
    if (stage->differing++ > 0) return;
    stage->first = at;
    stage->bits[0] = a;
    stage->bits[1] = b;
}

static void compare_floats(const float *a, const float *b, dp_pair_stage *stage) {
    for (int64_t i = 0; i < stage->compared; i++) {
        const uint32_t x = df_f32_to_bits(a[i]), y = df_f32_to_bits(b[i]);
        if (!finite_bits(x) || !finite_bits(y)) stage->nonfinite++;
        if (x == y) continue;
        note_difference(stage, i, x, y);
        const uint32_t distance = both_nan(x, y) ? 0 : ulp_distance(x, y);
        if (distance > stage->ulp) stage->ulp = distance;
    }
    stage->reached = stage->differing == 0       ? DP_BITS_IDENTICAL
                     : stage->ulp == 0           ? DP_BITS_EQUAL
                     : stage->ulp <= DP_ULP_MOST ? DP_BITS_ULP
                                                 : DP_BITS_DIVERGENT;
}

static void compare_integers(const int32_t *a, const int32_t *b, dp_pair_stage *stage) {
    for (int64_t i = 0; i < stage->compared; i++)
        if (a[i] != b[i]) note_difference(stage, i, (uint32_t)a[i], (uint32_t)b[i]);
    stage->reached = stage->differing == 0 ? DP_BITS_IDENTICAL : DP_BITS_DIVERGENT;
}

/* The limit of a stage from the case's oracle. */
static void limit_of(const dp_preflight *limits, const char *name, bool *known, dp_limit *limit) {
    const dp_stage_spec *spec = dp_stage_set_find(&limits->stages, name);
    *known = spec != NULL && !spec->exact;
    if (*known) *limit = dp_limit_chained(spec, &limits->reference_spread[spec - limits->stages.spec], 1.0);
}

/* Beyond DP_ULP_MOST: is the distance between the two sides what two float32 programs may lie apart? */
static dflash_status judge_by_envelope(dflash_stage kind, const float *a, const float *b, const dp_preflight *limits,
                                       dp_pair_stage *stage, dflash_error *err) {
    dp_limit limit;
    dp_difference difference;
    bool known;
    dflash_status status = DFLASH_OK;
    limit_of(limits, stage->name, &known, &limit);
    if (!known) return status;
    const size_t bytes = (size_t)stage->compared * sizeof(double);
    double *got = malloc(bytes), *want = malloc(bytes);
    if (got == NULL || want == NULL) {
        status = df_fail_memory(err, "a pair of stages", 2 * bytes);
    } else {
        for (int64_t i = 0; i < stage->compared; i++) got[i] = (double)b[i], want[i] = (double)a[i];
        const dp_array values = {.value = want, .count = stage->compared, .rank = stage->rank, .stride = 1};
        status = dp_compare(got, &values, dp_row_length(kind, stage->rank, stage->dim), &difference, err);
        if (status == DFLASH_OK && dp_headroom(&limit, &difference) >= 0.0) stage->reached = DP_BITS_ENVELOPE;
    }
    free(got);
    free(want);
    return status;
}

/* ---- The list ---- */

static void merge(dp_pair_stage *into, const dp_pair_stage *from) {
    if (from->differing > 0 && into->differing == 0) {
        into->first = from->first;
        into->rank = from->rank;
        memcpy(into->dim, from->dim, sizeof into->dim);
        memcpy(into->bits, from->bits, sizeof into->bits);
    }
    if (from->reached > into->reached) into->reached = from->reached;
    if (from->ulp > into->ulp) into->ulp = from->ulp;
    into->compared += from->compared;
    into->differing += from->differing;
    into->nonfinite += from->nonfinite;
    into->lacking = into->lacking || from->lacking;
}

static dflash_status add(dp_pair *pair, const dp_pair_stage *stage, dflash_error *err) {
    for (int i = 0; i < pair->count; i++)
        if (strcmp(pair->stage[i].name, stage->name) == 0) {
            merge(&pair->stage[i], stage);
            return DFLASH_OK;
        }
    if (pair->count == pair->capacity) {
        const int capacity = pair->capacity > 0 ? 2 * pair->capacity : 64;
        dp_pair_stage *grown = realloc(pair->stage, (size_t)capacity * sizeof *grown);
        if (grown == NULL) return df_fail_memory(err, "the compared stages", (size_t)capacity * sizeof *grown);
        pair->stage = grown;
        pair->capacity = capacity;
    }
    pair->stage[pair->count++] = *stage;
    return DFLASH_OK;
}

static dp_pair_stage begin(dflash_stage kind, int layer, int rank, const int64_t *dim) {
    dp_pair_stage stage = {.rank = rank, .first = -1};
    dflash_stage_name(kind, layer, stage.name);
    for (int i = 0; i < rank; i++) stage.dim[i] = dim[i];
    stage.compared = rank > 0 ? dp_dims_product(rank, dim) : 0;
    return stage;
}

dflash_status dp_pair_floats(dflash_stage kind, int layer, int rank, const int64_t *dim, const float *a, const float *b,
                             const dp_preflight *limits, dp_pair *pair, dflash_error *err) {
    dp_pair_stage stage = begin(kind, layer, rank, dim);
    compare_floats(a, b, &stage);
    dflash_status status = DFLASH_OK;
    if (stage.reached == DP_BITS_DIVERGENT && stage.nonfinite == 0 && limits != NULL && limits->oracle != NULL)
        status = judge_by_envelope(kind, a, b, limits, &stage, err);
    return status == DFLASH_OK ? add(pair, &stage, err) : status;
}

dflash_status dp_pair_integers(dflash_stage kind, int layer, int rank, const int64_t *dim, const int32_t *a,
                               const int32_t *b, dp_pair *pair, dflash_error *err) {
    dp_pair_stage stage = begin(kind, layer, rank, dim);
    compare_integers(a, b, &stage);
    return add(pair, &stage, err);
}

dflash_status dp_pair_lacking(dflash_stage kind, int layer, dp_pair *pair, dflash_error *err) {
    dp_pair_stage stage = begin(kind, layer, 0, NULL);
    stage.reached = DP_BITS_DIVERGENT;
    stage.lacking = true;
    return add(pair, &stage, err);
}

/* ---- Two recordings ---- */

/* Whole stages, or under the rule of a round the last rows of the first side's. */
static dflash_status compare_recorded(const dp_recorded *a, const dp_recorded *b, dp_pair_rule rule,
                                      const dp_preflight *limits, dp_pair *pair, dflash_error *err) {
    const bool tail = rule == DP_PAIR_ROUND && dp_stage_shows_context(a->stage);
    if (b == NULL || a->rank != b->rank || a->rank < 1 || (a->integer == NULL) != (b->integer == NULL) ||
        (tail ? b->dim[0] > a->dim[0] : b->dim[0] != a->dim[0]) ||
        !dp_dims_equal(a->rank - 1, a->dim + 1, b->rank - 1, b->dim + 1))
        return dp_pair_lacking(a->stage, a->layer, pair, err);
    const int64_t skip = (a->dim[0] - b->dim[0]) * dp_dims_product(a->rank - 1, a->dim + 1);
    if (a->integer != NULL)
        return dp_pair_integers(a->stage, a->layer, b->rank, b->dim, a->integer + skip, b->integer, pair, err);
    return dp_pair_floats(a->stage, a->layer, b->rank, b->dim, a->value + skip, b->value, limits, pair, err);
}

static bool is_context(const dp_recorded *entry) {
    return entry->stage == DFLASH_STAGE_CTX_FC || entry->stage == DFLASH_STAGE_CTX_FEATURES ||
           entry->stage == DFLASH_STAGE_INPUT;
}

static dflash_status compare_some(const dp_recording *a, const dp_recording *b, dp_pair_rule rule, bool cache,
                                  const dp_preflight *limits, dp_pair *pair, dflash_error *err) {
    dflash_status status = DFLASH_OK;
    for (int i = 0; status == DFLASH_OK && i < a->count; i++) {
        const dp_recorded *entry = &a->stage[i], *other = dp_recording_find(b, entry->stage, entry->layer);
        if (rule == DP_PAIR_ROUND && (is_context(entry) || dp_is_cache(entry->stage) != cache)) continue;
        if (rule == DP_PAIR_SHOWN && other == NULL) continue;
        status = compare_recorded(entry, other, rule, limits, pair, err);
    }
    return status;
}

dflash_status dp_pair_compare(const dp_recording *a, const dp_recording *b, dp_pair_rule rule,
                              const dp_preflight *limits, dp_pair *pair, dflash_error *err) {
    dflash_status status = DFLASH_OK;
    if (rule == DP_PAIR_ROUND) status = compare_some(a, b, rule, true, limits, pair, err);
    if (status == DFLASH_OK) status = compare_some(a, b, rule, false, limits, pair, err);
    for (int i = 0; status == DFLASH_OK && i < b->count; i++)
        if (dp_recording_find(a, b->stage[i].stage, b->stage[i].layer) == NULL)
            status = dp_pair_lacking(b->stage[i].stage, b->stage[i].layer, pair, err);
    return status;
}

void dp_pair_release(dp_pair *pair) {
    free(pair->stage);
    *pair = (dp_pair){.stage = NULL};
}

/* ---- What came of it ---- */

const dp_pair_stage *dp_pair_first(const dp_pair *pair) {
    for (int i = 0; i < pair->count; i++)
        if (pair->stage[i].reached != DP_BITS_IDENTICAL || pair->stage[i].nonfinite > 0) return &pair->stage[i];
    return NULL;
}

bool dp_pair_passes(const dp_pair *pair) { return dp_pair_first(pair) == NULL && dp_pair_compared(pair) > 0; }

dp_bit_class dp_pair_class(const dp_pair *pair) {
    dp_bit_class worst = DP_BITS_IDENTICAL;
    for (int i = 0; i < pair->count; i++)
        if (pair->stage[i].reached > worst) worst = pair->stage[i].reached;
    return worst;
}

int64_t dp_pair_compared(const dp_pair *pair) {
    int64_t total = 0;
    for (int i = 0; i < pair->count; i++) total += pair->stage[i].compared;
    return total;
}
