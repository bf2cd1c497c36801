/*
 * narrow_attention.c - see narrow_cause.h: a softmax attention computed again in float64 from the recorded queries,
 * keys and values, as it should be and under one fault after another.
 *
 * The bound that a hypothesis is held to: a score errs by at most gamma_hd sum |q||k| / sqrt(hd), which the exponential
 * turns into a relative error of each weight; numerator and denominator both carry it, and the sum over keys its gamma.
 */
#include "bisect/narrow_cause.h"

#include "common/canon.h"
#include "limits/chain.h"
#include "common/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PAIRS = 16 };

/* Roundings beyond the sums: scaling, the maximum's subtraction, the exponential (a few units), the division; twice. */
static const double other_roundings = 16.0;

typedef struct attention {
    const dflash_config *c;
    const dflash_layer_config *layer;
    dp_array q, k, v, positions;
    int64_t keys;
    double *score, *weight; /* [keys] */
    double *want, *bound;   /* [head_dim] */
} attention;

/* How one hypothesis differs from the attention of the config; -1 and false: not at all. */
typedef struct fault {
    dp_cause_kind kind;
    int64_t index; /* segment of absolute position, key row, head */
    bool causal;
    int32_t window;
    bool alive;
    const char *words;
} fault;

static bool sees(const attention *a, const fault *f, int64_t row, int64_t key) {
    const int64_t query = (int64_t)a->positions.value[a->keys - a->c->block + row];
    const int64_t at = (int64_t)a->positions.value[key];
    if (f->kind == DP_CAUSE_SEGMENT_MISSING && at / DF_SEGMENT == f->index) return false;
    if (f->kind == DP_CAUSE_CHANNEL_MISSING && key == f->index) return false;
    if (f->causal && at > query) return false;
    return f->window == 0 || (query - at < f->window && (f->causal || at - query < f->window));
}

/* False: no key is visible, so there is nothing to compare with. */
static bool attend(const attention *a, const fault *f, int64_t row, int64_t head) {
    const int64_t hd = a->c->head_dim, nkv = a->c->n_kv_heads;
    const int64_t kv = f->kind == DP_CAUSE_HEAD ? f->index : head / (a->c->n_heads / nkv);
    const double scale = f->kind == DP_CAUSE_SCALE ? 1.0 : 1.0 / sqrt((double)hd);
    const double *q = a->q.value + (row * a->c->n_heads + head) * hd;
    double top = -INFINITY, largest = 0.0, total = 0.0, seen = 0.0;
    for (int64_t j = 0; j < a->keys; j++) {
        if (!sees(a, f, row, j)) continue;
        const double *k = a->k.value + (j * nkv + kv) * hd;
        double dot = 0.0, size = 0.0;
        for (int64_t d = 0; d < hd; d++) {
            dot += q[d] * k[d];
            size += fabs(q[d] * k[d]);
        }
        a->score[j] = dot * scale;
        top = fmax(top, a->score[j]);
        largest = fmax(largest, size * scale);
        seen += 1.0;
    }
    if (seen == 0.0) return false;
    memset(a->want, 0, (size_t)hd * sizeof *a->want);
    memset(a->bound, 0, (size_t)hd * sizeof *a->bound);
    for (int64_t j = 0; j < a->keys; j++) {
        a->weight[j] = sees(a, f, row, j) ? exp(a->score[j] - top) : 0.0;
        total += a->weight[j];
    }
    const double unit = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32).unit;
    const double relative =
        2.0 * dp_gamma((double)hd + 2.0, unit) * largest + dp_gamma(seen, unit) + dp_gamma(other_roundings, unit);
    for (int64_t j = 0; j < a->keys; j++) {
        const double *v = a->v.value + (j * nkv + kv) * hd;
        for (int64_t d = 0; a->weight[j] > 0.0 && d < hd; d++) {
            a->want[d] += a->weight[j] / total * v[d];
            a->bound[d] += a->weight[j] / total * fabs(v[d]) * relative;
        }
    }
    return true;
}

static bool explains(const attention *a, const fault *f, const float *head_values, int64_t row, int64_t head) {
    if (!attend(a, f, row, head)) return false;
    for (int64_t d = 0; d < a->c->head_dim; d++)
        if (!(fabs((double)head_values[d] - a->want[d]) <= a->bound[d])) return false;
    return true;
}

/* ---- The hypotheses ---- */

/* The first is the config's own. */
static dflash_status list_faults(const attention *a, fault **list, int *count, dflash_error *err) {
    const int64_t most = 2 * a->keys + a->c->n_kv_heads + 8;
    *list = calloc((size_t)most, sizeof **list);
    *count = 0;
    if (*list == NULL) return df_fail_memory(err, "the hypotheses", (size_t)most * sizeof **list);
    const fault plain = {.kind = DP_CAUSE_INHERITED,
                         .index = -1,
                         .causal = a->layer->causal,
                         .window = a->layer->window,
                         .alive = true,
                         .words = "B's values follow from the queries, keys and values that B recorded, so the "
                                  "difference came in with them, or A is at fault"};
    fault f = plain;
    (*list)[(*count)++] = plain;
    f.kind = DP_CAUSE_SEGMENT_MISSING;
    f.words = "B leaves out the keys of one segment of 64 positions";
    for (int64_t j = 0; j < a->keys; j++) {
        const int64_t segment = (int64_t)a->positions.value[j] / DF_SEGMENT;
        if (segment == f.index) continue;
        f.index = segment;
        (*list)[(*count)++] = f;
    }
    f.kind = DP_CAUSE_CHANNEL_MISSING;
    f.words = "B leaves out one key";
    for (f.index = 0; f.index < a->keys; f.index++) (*list)[(*count)++] = f;
    f.kind = DP_CAUSE_HEAD;
    f.words = "B attends to another key/value head";
    for (f.index = 0; f.index < a->c->n_kv_heads; f.index++) (*list)[(*count)++] = f;
    f = plain;
    f.kind = DP_CAUSE_SCALE;
    f.words = "B does not scale its scores by 1 / sqrt(head_dim)";
    (*list)[(*count)++] = f;
    f = plain;
    f.kind = DP_CAUSE_MASK;
    f.causal = !plain.causal;
    f.words = plain.causal ? "B sees keys after the query, which the causal mask hides"
                           : "B hides keys after the query, where the layer is not causal";
    (*list)[(*count)++] = f;
    if (plain.window == 0) return DFLASH_OK;
    f.causal = plain.causal;
    static const char *const words[] = {"B's window is one position short", "B has no window",
                                        "B's window is one position long"};
    const int32_t windows[] = {plain.window - 1, 0, plain.window + 1};
    for (int i = 0; i < 3; i++) {
        f.window = windows[i];
        f.words = words[i];
        if (f.window > 0 || i == 1) (*list)[(*count)++] = f;
    }
    return DFLASH_OK;
}

static void put_verdict(const attention *a, const fault *list, int count, dp_cause *out) {
    const fault *found = NULL;
    out->kind = DP_CAUSE_NONE;
    for (int i = 0; i < count; i++) {
        if (!list[i].alive) continue;
        out->fits++;
        if (found == NULL) found = &list[i];
        if (i == 0) break; /* what needs no fault to be explained is no fault */
    }
    if (out->fits > 1) {
        out->kind = DP_CAUSE_AMBIGUOUS;
        snprintf(out->text, sizeof out->text, "%d hypotheses explain the %d heads examined; none is named", out->fits,
                 out->examined);
        return;
    }
    if (found == NULL) {
        snprintf(out->text, sizeof out->text,
                 "no pattern: no missing key or segment, no other mask, head or scale explains the %d heads examined",
                 out->examined);
        return;
    }
    char which[64] = "";
    out->kind = found->kind;
    out->index = found->index;
    if (found->kind == DP_CAUSE_SEGMENT_MISSING)
        snprintf(which, sizeof which, " (positions %lld..%lld)", (long long)found->index * DF_SEGMENT,
                 (long long)found->index * DF_SEGMENT + DF_SEGMENT - 1);
    else if (found->kind == DP_CAUSE_CHANNEL_MISSING)
        snprintf(which, sizeof which, " (row %lld, position %.0f)", (long long)found->index,
                 a->positions.value[found->index]);
    else if (found->kind == DP_CAUSE_HEAD)
        snprintf(which, sizeof which, " (%lld)", (long long)found->index);
    snprintf(out->text, sizeof out->text, "%s%s: so say all %d heads examined, within the error bound", found->words,
             which, out->examined);
}

/* ---- Inputs and the whole ---- */

static dflash_status read_stage(const dp_cause_source *source, dflash_stage stage, int layer, dp_array *out,
                                dflash_error *err) {
    char name[DFLASH_STAGE_NAME_MAX];
    return dp_oracle_stage(source->run, DP_RUN_OWN, dflash_stage_name(stage, layer, name), out, err);
}

static dflash_status prepare(const dp_cause_source *source, int layer, attention *a, dflash_error *err) {
    a->c = source->config;
    a->layer = &source->config->layer[layer];
    a->keys = (int64_t)source->context + a->c->block;
    TRY(read_stage(source, DFLASH_STAGE_ATTN_Q_ROPE, layer, &a->q, err));
    TRY(read_stage(source, DFLASH_STAGE_ATTN_K_ROPE, layer, &a->k, err));
    TRY(read_stage(source, DFLASH_STAGE_ATTN_V, layer, &a->v, err));
    TRY(dp_oracle_input(source->run, "positions", &a->positions, err));
    const int64_t hd = a->c->head_dim, key_values = a->keys * a->c->n_kv_heads * hd;
    if (a->q.total != (int64_t)a->c->block * a->c->n_heads * hd || a->k.total != key_values || a->v.total != key_values)
        return df_fail(err, DFLASH_ERR_REFUSED, "cause.input", "The queries, keys or values have another shape.");
    a->score = calloc((size_t)(2 * a->keys + 2 * hd), sizeof *a->score);
    if (a->score == NULL) return df_fail_memory(err, "an attention", (size_t)a->keys * sizeof *a->score);
    a->weight = a->score + a->keys;
    a->want = a->weight + a->keys;
    a->bound = a->want + hd;
    return DFLASH_OK;
}

/* Looks at heads of rows in which something differs, evenly spread when there are many. */
static void examine(const attention *a, const dp_stage_sides *sides, const bool *off, fault *list, int count,
                    dp_cause *out) {
    const int64_t hd = a->c->head_dim, pairs = sides->count / hd;
    int64_t hits = 0, seen = 0;
    for (int pass = 0; pass < 2; pass++) {
        const int64_t every = (hits + MOST_PAIRS - 1) / MOST_PAIRS;
        for (int64_t pair = 0; pair < pairs; pair++) {
            bool hit = false;
            for (int64_t d = 0; d < hd && !hit; d++) hit = off[pair * hd + d];
            if (!hit) continue;
            if (pass == 0) {
                hits++;
                continue;
            }
            if (seen++ % every != 0) continue;
            out->examined++;
            for (int i = 0; i < count; i++)
                list[i].alive = list[i].alive && explains(a, &list[i], sides->narrow[1] + pair * hd,
                                                          pair / a->c->n_heads, pair % a->c->n_heads);
        }
    }
}

dflash_status dp_cause_of_attention(const dp_cause_source *source, const dp_stage_sides *sides, const bool *off,
                                    dp_cause *out, dflash_error *err) {
    attention a = {.c = source->config};
    fault *list = NULL;
    int count = 0;
    *out = (dp_cause){.index = -1};
    if (sides->stride != 1 || sides->offset != 0) {
        snprintf(out->text, sizeof out->text, "not examined: A holds samples of the stage, and whole heads are needed");
        return DFLASH_OK;
    }
    dflash_status status = prepare(source, sides->spec.layer, &a, err);
    if (status == DFLASH_OK) status = list_faults(&a, &list, &count, err);
    if (status == DFLASH_OK) {
        examine(&a, sides, off, list, count, out);
        put_verdict(&a, list, count, out);
    } else if (status == DFLASH_ERR_REFUSED) {
        snprintf(out->text, sizeof out->text, "not examined: B does not hold the queries, keys and values");
        status = DFLASH_OK;
    }
    dp_array_release(&a.q);
    dp_array_release(&a.k);
    dp_array_release(&a.v);
    dp_array_release(&a.positions);
    free(a.score);
    free(list);
    return status;
}
