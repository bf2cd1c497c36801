/* identity_arms.c - see identity_arms.h. */
#include "identity/identity_arms.h"

#include "common/error.h"
#include "run/hosted.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

enum { AT_RANDOM = -1, BLOCKS_BEHIND = 4 }; /* room in a cache beyond the context, in blocks */

dp_round_input dp_reference_input(const dp_reference *reference) {
    const dp_admission *in = &reference->subject->in;
    return (dp_round_input){
        .features = reference->features, .noise = in->noise, .pos = in->pos, .context = in->context};
}

df_status dp_reference_run(dp_subject *subject, const df_engine_options *options, dp_reference *out, df_error *err) {
    const size_t values = (size_t)subject->in.context * (size_t)subject->in.config.hidden;
    *out = (dp_reference){.subject = subject, .options = *options};
    df_status status = dp_rig_open(subject, options, &out->rig, err);
    if (status != DF_OK) return status;
    subject->head_known = true;
    out->features = malloc((values + 1) * sizeof(float));
    if (out->features == NULL) return df_fail_memory(err, "the context's features", values * sizeof(float));
    status = dp_record_features(&out->rig, subject, out->features, &out->block, err);
    if (status != DF_OK) return status;
    subject->row_scale = dp_even_range(out->features, values);
    const dp_round_input input = dp_reference_input(out);
    return dp_record_block(&out->rig, subject, &input, input.context, &out->block, err);
}

void dp_reference_release(dp_reference *reference) {
    dp_recording_release(&reference->block);
    free(reference->features);
    dp_rig_release(&reference->rig);
    *reference = (dp_reference){.subject = NULL};
}

/* ---- Parts of arms
 * ---------------------------------------------------------------------------------------------------- */

static df_status compare(const dp_reference *r, const dp_recording *run, dp_pair_rule rule, dp_pair *pair,
                         df_error *err) {
    return dp_pair_compare(&r->block, run, rule, &r->subject->in, pair, err);
}

static df_status make_cache(const dp_reference *r, const dp_rig *rig, df_kv **kv, df_error *err) {
    const df_config *c = &r->subject->in.config;
    return df_kv_create(rig->draft, r->subject->in.context + BLOCKS_BEHIND * c->block, kv, err);
}

static df_status ingest(const dp_reference *r, const dp_rig *rig, df_kv *kv, int first, int rows, df_error *err) {
    const dp_admission *in = &r->subject->in;
    return dp_step_ingest(rig, r->subject, kv, r->features + (size_t)first * (size_t)in->config.hidden, in->pos + first,
                          rows, err);
}

static df_status compare_round(const dp_reference *r, const dp_rig *rig, df_kv *kv, dp_pair *pair, df_error *err) {
    const dp_admission *in = &r->subject->in;
    dp_recording round = {.stage = NULL};
    df_status status = dp_record_round(rig, r->subject, kv, in->noise, in->pos + in->context, &round, err);
    if (status == DF_OK) status = compare(r, &round, DP_PAIR_ROUND, pair, err);
    dp_recording_release(&round);
    return status;
}

/* Rows of NaN behind the `held` rows of the cache, which then are cut away again: all that fit beside a block, so that
 * some lie beyond the block that is drafted next. */
static df_status soil(const dp_reference *r, const dp_rig *rig, df_kv *kv, int held, df_error *err) {
    const df_config *c = &r->subject->in.config;
    const int rows = r->subject->in.context + (BLOCKS_BEHIND - 1) * c->block - held;
    const size_t bytes = (size_t)rows * (size_t)c->hidden * sizeof(float);
    float *values = malloc(bytes);
    int32_t *pos = malloc((size_t)rows * sizeof *pos);
    df_status status = values != NULL && pos != NULL ? DF_OK : df_fail_memory(err, "rows of NaN", bytes);
    if (status == DF_OK) {
        memset(values, 0xff, bytes);
        for (int i = 0; i < rows; i++) pos[i] = dp_subject_position(r->subject, held + i);
        status = dp_ingest_ctx(rig->draft, kv, values, pos, rows, err);
    }
    if (status == DF_OK) status = dp_step_truncate(r->subject, kv, rows, err);
    free(values);
    free(pos);
    return status;
}

df_status dp_arm_round_over(const dp_reference *r, const dp_rig *rig, bool dirty, dp_pair *pair, df_error *err) {
    const dp_admission *in = &r->subject->in;
    df_kv *kv = NULL;
    df_status status = make_cache(r, rig, &kv, err);
    if (status == DF_OK && dirty) status = soil(r, rig, kv, 0, err);
    if (status == DF_OK) status = ingest(r, rig, kv, 0, in->context, err);
    if (status == DF_OK && dirty) status = soil(r, rig, kv, in->context, err);
    if (status == DF_OK) status = compare_round(r, rig, kv, pair, err);
    df_kv_destroy(kv);
    return status;
}

/* Everything that the reference ran, and a round, on another drafter or once more on its own. */
static df_status compare_all(const dp_reference *r, const dp_rig *rig, dp_pair *pair, df_error *err) {
    dp_recording block = {.stage = NULL};
    const dp_round_input own = dp_reference_input(r);
    const size_t values = (size_t)own.context * (size_t)r->subject->in.config.hidden;
    float *features = malloc((values + 1) * sizeof *features);
    df_status status = features != NULL ? dp_record_features(rig, r->subject, features, &block, err)
                                        : df_fail_memory(err, "the context's features", values * sizeof *features);
    const dp_round_input input = {.features = features, .noise = own.noise, .pos = own.pos, .context = own.context};
    if (status == DF_OK) status = dp_record_block(rig, r->subject, &input, input.context, &block, err);
    if (status == DF_OK) status = compare(r, &block, DP_PAIR_WHOLE, pair, err);
    if (status == DF_OK) status = dp_arm_round_over(r, rig, false, pair, err);
    dp_recording_release(&block);
    free(features);
    return status;
}

static df_status compare_another(const dp_reference *r, const df_engine_options *options, dp_pair *pair,
                                 df_error *err) {
    dp_rig rig;
    df_status status = dp_rig_open(r->subject, options, &rig, err);
    if (status == DF_OK) status = compare_all(r, &rig, pair, err);
    dp_rig_release(&rig);
    return status;
}

/* ---- The arms
 * --------------------------------------------------------------------------------------------------------- */

/* The context in calls of `chunk` rows; 0: at once. */
static df_status run_ingest(const dp_reference *r, int chunk, dp_pair *pair, df_error *err) {
    const int context = r->subject->in.context;
    uint64_t random = r->subject->seed;
    df_kv *kv = NULL;
    df_status status = make_cache(r, &r->rig, &kv, err);
    for (int row = 0; status == DF_OK && row < context;) {
        const int wanted = chunk == AT_RANDOM ? 1 + dp_random_below(&random, 9) : chunk > 0 ? chunk : context;
        const int rows = wanted < context - row ? wanted : context - row;
        status = ingest(r, &r->rig, kv, row, rows, err);
        row += rows;
    }
    if (status == DF_OK) status = compare_round(r, &r->rig, kv, pair, err);
    df_kv_destroy(kv);
    return status;
}

static df_status run_threads(const dp_reference *r, int threads, dp_pair *pair, df_error *err) {
    df_engine_options options = r->options;
    options.threads = threads;
    return compare_another(r, &options, pair, err);
}

static df_status run_isa(const dp_reference *r, int isa, dp_pair *pair, df_error *err) {
    df_engine_options options = r->options;
    options.isa = (df_isa)isa;
    return compare_another(r, &options, pair, err);
}

/* The exact class is one program on both backends. */
static df_status run_backend(const dp_reference *r, int backend, dp_pair *pair, df_error *err) {
    df_engine_options options = r->options;
    options.backend = (df_backend)backend;
    options.device = 0; /* the CPU has no other, and a reference on the CPU names none */
    return compare_another(r, &options, pair, err);
}

static df_status run_poisoned(const dp_reference *r, int argument, dp_pair *pair, df_error *err) {
    df_engine_options options = r->options;
    (void)argument;
    options.poison_scratch = true;
    return compare_another(r, &options, pair, err);
}

static df_status run_fresh(const dp_reference *r, int argument, dp_pair *pair, df_error *err) {
    (void)argument;
    return compare_another(r, &r->options, pair, err);
}

/* The reference's own drafter once more, after calls of other sizes left their values in its memory. */
static df_status run_reused(const dp_reference *r, int argument, dp_pair *pair, df_error *err) {
    const dp_admission *in = &r->subject->in;
    const df_config *c = &in->config;
    const size_t values = (size_t)c->block * (size_t)c->hidden;
    float *out = malloc(values * sizeof *out);
    (void)argument;
    df_status status = out != NULL ? DF_OK : df_fail_memory(err, "a block's result", values * sizeof *out);
    if (status == DF_OK)
        status = dp_forward_block(r->rig.draft, r->features, in->noise, in->pos + in->context, 0, out, err);
    if (status == DF_OK) status = dp_ctx_features(r->rig.draft, in->taps, 1, out, err);
    if (status == DF_OK) status = compare_all(r, &r->rig, pair, err);
    free(out);
    return status;
}

/* Half of the context, a move through bytes, the rest, another move. */
static df_status run_moved(const dp_reference *r, int argument, dp_pair *pair, df_error *err) {
    const int context = r->subject->in.context, half = context / 2;
    df_kv *kv = NULL;
    (void)argument;
    df_status status = make_cache(r, &r->rig, &kv, err);
    if (status == DF_OK && half > 0) status = ingest(r, &r->rig, kv, 0, half, err);
    if (status == DF_OK) status = dp_step_move(&r->rig, r->subject, &kv, err);
    if (status == DF_OK) status = ingest(r, &r->rig, kv, half, context - half, err);
    if (status == DF_OK) status = dp_step_move(&r->rig, r->subject, &kv, err);
    if (status == DF_OK) status = compare_round(r, &r->rig, kv, pair, err);
    df_kv_destroy(kv);
    return status;
}

/* ---- Without an observer
 * ---------------------------------------------------------------------------------------------- */

/* One stage of the reference against what a caller received. */
static df_status compare_received(const dp_reference *r, df_stage stage, const float *f32, const int32_t *i32,
                                  dp_pair *pair, df_error *err) {
    const dp_recorded *seen = dp_recording_find(&r->block, stage, -1);
    if (seen == NULL) return DF_OK; /* a model without that stage */
    if (i32 != NULL) return dp_pair_integers(stage, -1, seen->rank, seen->dim, seen->integer, i32, pair, err);
    return dp_pair_floats(stage, -1, seen->rank, seen->dim, seen->value, f32, &r->subject->in, pair, err);
}

static df_status propose_unobserved(const dp_reference *r, const float *result, dp_pair *pair, df_error *err) {
    const dp_admission *in = &r->subject->in;
    const df_config *c = &in->config;
    const int vocab = df_table_vocab(r->rig.head);
    const df_proposal_options greedy = {.temperature = 0.0f};
    int first = 0, n = 0;
    df_harvest_rows(c, &first, &n);
    const float *rows = result + (size_t)first * (size_t)c->hidden;
    float *logits = malloc((size_t)n * (size_t)vocab * sizeof *logits), *raw = malloc((size_t)n * sizeof *raw);
    int32_t *token = malloc(((size_t)n + 1) * sizeof *token); /* the anchor, then what is drafted */
    df_status status = logits != NULL && raw != NULL && token != NULL ? DF_OK : df_fail_memory(err, "a proposal", 0);
    if (status == DF_OK) status = dp_logits(r->rig.draft, r->rig.head, rows, n, logits, err);
    if (status == DF_OK) status = compare_received(r, DF_STAGE_LOGITS, logits, NULL, pair, err);
    if (status == DF_OK) {
        token[0] = in->anchor;
        status = dp_propose(r->rig.draft, r->rig.head, logits, rows, n, vocab, in->anchor, &greedy,
                            &(df_proposal){.token = token + 1}, err);
    }
    if (status == DF_OK) status = compare_received(r, DF_STAGE_SELECT_PATH, NULL, token + 1, pair, err);
    if (status == DF_OK) status = compare_received(r, DF_STAGE_MARKOV_TOKENS, NULL, token + 1, pair, err);
    if (status == DF_OK && c->confidence) {
        status = dp_confidence(r->rig.draft, rows, token, n, raw, err);
        if (status == DF_OK) status = compare_received(r, DF_STAGE_CONFIDENCE_RAW, raw, NULL, pair, err);
    }
    free(logits);
    free(raw);
    free(token);
    return status;
}

/* What a caller receives from calls that nobody watches. */
static df_status run_unobserved(const dp_reference *r, int argument, dp_pair *pair, df_error *err) {
    const dp_admission *in = &r->subject->in;
    const size_t block = (size_t)in->config.block * (size_t)in->config.hidden,
                 context = (size_t)in->context * (size_t)in->config.hidden;
    float *features = malloc((context + 1) * sizeof *features), *result = malloc(block * sizeof *result);
    df_kv *kv = NULL;
    (void)argument;
    df_status status =
        features != NULL && result != NULL ? DF_OK : df_fail_memory(err, "a run's results", (context + block) * 4);
    if (status == DF_OK) status = dp_ctx_features(r->rig.draft, in->taps, in->context, features, err);
    if (status == DF_OK) status = compare_received(r, DF_STAGE_CTX_FEATURES, features, NULL, pair, err);
    if (status == DF_OK)
        status = dp_forward_block(r->rig.draft, features, in->noise, in->pos, in->context, result, err);
    if (status == DF_OK) status = compare_received(r, DF_STAGE_FINAL, result, NULL, pair, err);
    if (status == DF_OK && r->rig.head != NULL) status = propose_unobserved(r, result, pair, err);
    if (status == DF_OK) status = make_cache(r, &r->rig, &kv, err);
    if (status == DF_OK) status = ingest(r, &r->rig, kv, 0, in->context, err);
    if (status == DF_OK) status = dp_step_round(&r->rig, r->subject, kv, in->noise, in->pos + in->context, result, err);
    if (status == DF_OK) status = compare_received(r, DF_STAGE_FINAL, result, NULL, pair, err);
    df_kv_destroy(kv);
    free(features);
    free(result);
    return status;
}

/* The same round again and again, nobody watching: a race would show in some of them. */
static df_status run_repeated(const dp_reference *r, int times, dp_pair *pair, df_error *err) {
    const dp_admission *in = &r->subject->in;
    const size_t values = (size_t)in->config.block * (size_t)in->config.hidden;
    float *result = malloc(values * sizeof *result);
    df_kv *kv = NULL;
    df_status status = result != NULL ? DF_OK : df_fail_memory(err, "a round's result", values * sizeof *result);
    if (status == DF_OK) status = make_cache(r, &r->rig, &kv, err);
    if (status == DF_OK) status = ingest(r, &r->rig, kv, 0, in->context, err);
    for (int i = 0; status == DF_OK && i < times; i++) {
        memset(result, 0xff, values * sizeof *result);
        status = dp_step_round(&r->rig, r->subject, kv, in->noise, in->pos + in->context, result, err);
        if (status == DF_OK) status = compare_received(r, DF_STAGE_FINAL, result, NULL, pair, err);
    }
    df_kv_destroy(kv);
    free(result);
    return status;
}

static const dp_identity_arm arms[] = {
    {"round.all", run_ingest, 0, DP_ARM_ANYWHERE},
    {"ingest.chunk1", run_ingest, 1, DP_ARM_ANYWHERE},
    {"ingest.chunk7", run_ingest, 7, DP_ARM_ANYWHERE},
    {"ingest.random", run_ingest, AT_RANDOM, DP_ARM_ANYWHERE},
    {"threads.1", run_threads, 1, DP_ARM_ON_CPU},
    {"threads.2", run_threads, 2, DP_ARM_ON_CPU},
    {"threads.3", run_threads, 3, DP_ARM_ON_CPU},
    {"isa.generic", run_isa, DF_ISA_GENERIC, DP_ARM_ON_CPU},
    {"isa.avx2", run_isa, DF_ISA_AVX2, DP_ARM_ON_CPU},
    {"isa.avx512", run_isa, DF_ISA_AVX512, DP_ARM_ON_CPU},
    {"observer.off", run_unobserved, 0, DP_ARM_ANYWHERE},
    {"engine.fresh", run_fresh, 0, DP_ARM_ANYWHERE},
    {"engine.reused", run_reused, 0, DP_ARM_ANYWHERE},
    {"scratch.poisoned", run_poisoned, 0, DP_ARM_ANYWHERE},
    {"rows.permuted", dp_arm_rows_permuted, 0, DP_ARM_ANYWHERE},
    {"rows.nan", dp_arm_rows_beside_nan, 0, DP_ARM_ANYWHERE},
    {"cache.moved", run_moved, 0, DP_ARM_ANYWHERE},
    {"repeated.1000", run_repeated, 1000, DP_ARM_ON_DEVICE},
    {"backend.cuda", run_backend, DF_BACKEND_CUDA, DP_ARM_CPU_DEVICE},
    {"backend.cpu", run_backend, DF_BACKEND_CPU, DP_ARM_DEVICE_EXACT},
};

static bool has_device(void) {
    const df_engine_options options = {.backend = DF_BACKEND_CUDA};
    df_engine *engine = NULL;
    df_error err;
    const bool made = df_engine_create(&options, &engine, &err) == DF_OK;
    df_engine_destroy(engine);
    return made;
}

bool dp_identity_arm_applies(const dp_identity_arm *arm, const df_engine_options *reference) {
    const bool cpu = reference->backend == DF_BACKEND_CPU,
               exact = reference->numeric_class == DF_CLASS_EXACT && reference->products == DF_PRODUCTS_F32;
    switch (arm->scope) {
    case DP_ARM_ON_CPU:
        return cpu;
    case DP_ARM_ON_DEVICE:
        return !cpu;
    case DP_ARM_CPU_DEVICE:
        return cpu && exact && has_device();
    case DP_ARM_DEVICE_EXACT:
        return !cpu && exact;
    case DP_ARM_ANYWHERE:
        break;
    }
    return true;
}

int dp_identity_arm_count(void) { return (int)(sizeof arms / sizeof *arms); }
const dp_identity_arm *dp_identity_arm_at(int index) { return &arms[index]; }
