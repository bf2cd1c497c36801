/* soak.c - see soak.h. */
#include "check/soak.h"

#include "engine/engine.h"
#include "common/error.h"
#include "run/head_source.h"
#include "formulas/evaluate.h"
#include "base/random.h"
#include "run/proposal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 4096 };

typedef enum profile { ORDINARY, LARGE, TINY, CANCELLING, SUBNORMAL, ZEROS, MIXTURE, PROFILES } profile;

const char *dp_soak_profile(int index) {
    static const char *const names[PROFILES] = {"ordinary",  "large (1e4)",  "tiny (1e-30)", "cancelling",
                                                "subnormal", "signed zeros", "mixture"};
    return index >= 0 && index < PROFILES ? names[index] : NULL;
}

/* Every second round of the profiles is one of float32 products. */
static dflash_products products_of(int number) {
    static const dflash_products round[] = {DFLASH_PRODUCTS_F32, DFLASH_PRODUCTS_TF32, DFLASH_PRODUCTS_F32,
                                            DFLASH_PRODUCTS_BF16};
    return round[(size_t)(number / PROFILES) % (sizeof round / sizeof *round)];
}

/* One run in progress. */
typedef struct soak {
    dflash_engine *engine;
    dflash_draft *draft;
    dflash_table *head; /* NULL without one */
    const dflash_config *config;
    dp_stage_set stages;
    profile profile;
    dflash_products products;
    uint64_t random;
    float *taps, *noise;
    double *taps_wide, *noise_wide;
    int32_t *pos;
    int context; /* rows */
    dp_recording computed;
    dp_stage_values given;
    dflash_status status; /* of the hooks */
    dflash_error *err;
} soak;

/* ---- Values ---- */

static float made(soak *s, profile p, float before) {
    const float even = (float)(dp_random_next(&s->random) >> 40) * 0x1p-23f - 1.0f;
    switch (p) {
    case LARGE:
        return even * 1e4f;
    case TINY:
        return even * 1e-30f;
    case CANCELLING: /* each second value nearly undoes the one before */
        return dp_random_below(&s->random, 2) == 0 ? even : -before * (1.0f + even * 0x1p-20f);
    case SUBNORMAL:
        return even * 0x1p-130f;
    case ZEROS:
        return dp_random_below(&s->random, 4) == 0 ? even : copysignf(0.0f, even);
    case MIXTURE:
        return made(s, (profile)dp_random_below(&s->random, MIXTURE), before);
    default:
        return even;
    }
}

static void fill(soak *s, float *value, int64_t n) {
    for (int64_t i = 0; i < n; i++) value[i] = made(s, s->profile, i > 0 ? value[i - 1] : 1.0f);
}

/* Columns of padding in the head: the selector refuses them, so no candidate may come from there. */
static void mask_padding(const soak *s, float *logits, int64_t count) {
    const int vocab = dflash_table_vocab(s->head);
    const int bound = s->config->selector_vocab != 0 ? s->config->selector_vocab : s->config->vocab;
    if (s->config->family != DFLASH_FAMILY_DFLASH2) return;
    for (int64_t i = 0; i < count; i++)
        if (i % vocab >= bound) logits[i] = -FLT_MAX;
}

static bool replace(void *user, const dflash_stage_view *view, float *value) {
    soak *s = user;
    const int64_t count = dp_dims_product(view->rank, view->dim);
    /* Tables of angles stay what they are: any others would be no rotation. */
    if (view->stage != DFLASH_STAGE_ROPE_COS && view->stage != DFLASH_STAGE_ROPE_SIN) fill(s, value, count);
    if (view->stage == DFLASH_STAGE_LOGITS) mask_padding(s, value, count);
    dp_recorded given = {.stage = view->stage, .layer = view->layer, .rank = view->rank, .value = value};
    memcpy(given.dim, view->dim, sizeof given.dim);
    if (s->status == DFLASH_OK) s->status = dp_stage_values_record(&s->given, &given, s->err);
    return true;
}

/* ---- A run ---- */

static dflash_status open_run(soak *s, const char *dir, dflash_precision precision) {
    TRY(dflash_engine_create(&(dflash_engine_options){.products = s->products, .threads = 2, .poison_scratch = true},
                             &s->engine, s->err));
    TRY(dflash_draft_load_as(s->engine, dir, precision, &s->draft, s->err));
    s->config = dflash_draft_config(s->draft);
    TRY(dp_head_open(s->engine, dir, NULL, &s->head, s->err));
    const int vocab = s->head != NULL ? dflash_table_vocab(s->head) : 0;
    return dp_stage_set_create(s->config, &(dp_stage_input){.context = s->context, .vocab = vocab}, &s->stages, s->err);
}

/* One context in eight is long: several segments and tiles of keys, more than any window of the stored cases. Not where
 * every value is so small that epsilon alone makes a norm's factor: it then rounds alike in all rows, and the limit of
 * the noise (bounds.h) counts on rows that round on their own. */
static int draw_context(soak *s) {
    const bool alike = s->profile == TINY || s->profile == SUBNORMAL || s->profile == ZEROS;
    const bool is_long = dp_random_below(&s->random, 8) == 0;
    return 1 + dp_random_below(&s->random, is_long && !alike ? 400 : 32);
}

/* Positions with gaps, now and then wide ones, that end where models do or float32 stops counting. */
static void make_positions(soak *s, int rows) {
    static const int32_t ends[] = {0, 5000, 1 << 18, 1 << 20, 1 << 24};
    const int32_t end = ends[dp_random_below(&s->random, sizeof ends / sizeof *ends)];
    int32_t at = dp_random_below(&s->random, 4);
    for (int i = 0; i < rows; i++) {
        s->pos[i] = at;
        at += 1 + dp_random_below(&s->random, dp_random_below(&s->random, 16) == 0 ? 200 : 3);
    }
    const int32_t shift = end > at ? end - at : 0;
    for (int i = 0; i < rows; i++) s->pos[i] += shift;
}

static dflash_status make_inputs(soak *s) {
    const size_t taps = (size_t)s->context * (size_t)s->config->n_taps * (size_t)s->config->hidden;
    const size_t noise = (size_t)s->config->block * (size_t)s->config->hidden;
    const int rows = s->context + s->config->block;
    s->taps = malloc(taps * sizeof *s->taps);
    s->noise = malloc(noise * sizeof *s->noise);
    s->taps_wide = malloc(taps * sizeof *s->taps_wide);
    s->noise_wide = malloc(noise * sizeof *s->noise_wide);
    s->pos = malloc((size_t)rows * sizeof *s->pos);
    if (s->taps == NULL || s->noise == NULL || s->taps_wide == NULL || s->noise_wide == NULL || s->pos == NULL)
        return df_fail_memory(s->err, "the inputs", taps * sizeof(double));
    fill(s, s->taps, (int64_t)taps);
    fill(s, s->noise, (int64_t)noise);
    for (size_t i = 0; i < taps; i++) s->taps_wide[i] = (double)s->taps[i];
    for (size_t i = 0; i < noise; i++) s->noise_wide[i] = (double)s->noise[i];
    make_positions(s, rows);
    return DFLASH_OK;
}

static dflash_status run_forward(soak *s) {
    const size_t hidden = (size_t)s->config->hidden;
    float *features = malloc((size_t)s->context * hidden * sizeof *features);
    float *result = malloc((size_t)s->config->block * hidden * sizeof *result);
    dflash_status status =
        features != NULL && result != NULL ? DFLASH_OK : df_fail_memory(s->err, "the outputs", hidden);
    dflash_draft_replace(s->draft, replace, s);
    dflash_draft_observe(s->draft, dp_recording_observe, &s->computed);
    if (status == DFLASH_OK) status = dflash_ctx_features(s->draft, s->taps, s->context, features, s->err);
    if (status == DFLASH_OK)
        status = dflash_forward_block(s->draft, features, s->noise, s->pos, s->context, result, s->err);
    if (status == DFLASH_OK && s->head != NULL)
        status = dp_run_proposal(s->draft, s->head, result, 0, &s->computed, s->err);
    dflash_draft_observe(s->draft, NULL, NULL);
    dflash_draft_replace(s->draft, NULL, NULL);
    free(features);
    free(result);
    if (status == DFLASH_OK) status = s->status;
    return status == DFLASH_OK ? dp_recording_status(&s->computed, s->err) : status;
}

/* Stages that are only observed were the inputs of what follows as they are. */
static dflash_status collect_given(soak *s) {
    for (int i = 0; i < s->computed.count; i++) {
        const dp_recorded *stage = &s->computed.stage[i];
        if (dp_stage_values_find(&s->given, stage->stage, stage->layer) == NULL)
            TRY(dp_stage_values_record(&s->given, stage, s->err));
    }
    return DFLASH_OK;
}

static dflash_status judge(soak *s, const dp_stage_spec *spec, const dp_recorded *recorded, const char *dir, int number,
                           dp_soak *total) {
    const dp_evaluation e = {.model = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, s->products),
                             .draft = s->draft,
                             .head = s->head,
                             .taps = s->taps_wide,
                             .noise = s->noise_wide,
                             .pos = s->pos,
                             .context = s->context,
                             .values = &s->given};
    const int64_t count = dp_dims_product(spec->rank, spec->dim);
    dp_array array = {.rank = spec->rank, .total = count, .stride = 1, .count = count};
    memcpy(array.dim, spec->dim, sizeof array.dim);
    dp_isolated out = {.judged = false};
    double *got = malloc((size_t)count * sizeof *got);
    dp_approx *want = malloc((size_t)count * sizeof *want);
    dflash_status status =
        got != NULL && want != NULL ? DFLASH_OK : df_fail_memory(s->err, "a stage", (size_t)count * 32);
    if (status == DFLASH_OK)
        status = dp_evaluate(&e, spec, &(dp_selection){.stride = 1, .count = count}, s->engine->pool, want, s->err);
    if (status == DFLASH_OK) {
        for (int64_t i = 0; i < count; i++)
            got[i] = recorded->integer != NULL ? (double)recorded->integer[i] : (double)recorded->value[i];
        status = dp_isolated_judge(&e.model, got, want, &array, dp_row_length(spec->stage, spec->rank, spec->dim),
                                   dp_evaluate_group(&e.model, s->config, spec), &out, s->err);
    }
    free(got);
    free(want);
    if (status != DFLASH_OK) return status;
    total->stages++;
    total->elements += count;
    if (out.tightness > 0.0 && s->profile == ORDINARY && s->products == DFLASH_PRODUCTS_F32) {
        total->tightness[spec->stage] += out.tightness;
        total->judged[spec->stage]++;
    }
    if (!out.pass && total->alarms++ == 0)
        snprintf(total->first, sizeof total->first,
                 "run %d, %s, %s, %s products, %s: share %g, noise %g of %g, peak %g of %g, not finite %lld, got %.9g "
                 "for %.9g",
                 number, dir, dp_soak_profile((int)s->profile), dflash_products_name(s->products), spec->name,
                 out.share, out.noise, out.noise_limit, out.peak, out.peak_limit, (long long)out.difference.nonfinite,
                 out.worst_got, out.worst_want);
    return DFLASH_OK;
}

static dflash_status judge_all(soak *s, const char *dir, int number, dp_soak *total) {
    for (int i = 0; i < s->stages.count; i++) {
        const dp_stage_spec *spec = &s->stages.spec[i];
        const dp_recorded *recorded = dp_recording_find(&s->computed, spec->stage, spec->layer);
        if (recorded == NULL || !dp_evaluable(spec->stage)) continue; /* the cache is not filled here */
        TRY(judge(s, spec, recorded, dir, number, total));
    }
    return DFLASH_OK;
}

dflash_status dp_soak_run(const char *dir, dflash_precision precision, uint64_t seed, int number, dp_soak *total,
                          dflash_error *err) {
    soak s = {.profile = (profile)(number % PROFILES), .products = products_of(number), .err = err};
    s.random = dp_random_state(seed, 0, (uint64_t)number);
    s.context = draw_context(&s);
    dflash_status status = open_run(&s, dir, precision);
    if (status == DFLASH_OK) status = make_inputs(&s);
    if (status == DFLASH_OK) status = run_forward(&s);
    if (status == DFLASH_OK) status = collect_given(&s);
    if (status == DFLASH_OK) status = judge_all(&s, dir, number, total);
    if (status == DFLASH_OK) total->runs++;
    dp_recording_release(&s.computed);
    dp_stage_values_release(&s.given);
    dp_stage_set_release(&s.stages);
    free(s.taps);
    free(s.noise);
    free(s.taps_wide);
    free(s.noise_wide);
    free(s.pos);
    dflash_table_destroy(s.head);
    dflash_draft_destroy(s.draft);
    dflash_engine_destroy(s.engine);
    return status;
}
