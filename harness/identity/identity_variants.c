/* identity_variants.c - see identity_variants.h. */
#include "identity/identity_variants.h"

#include "common/error.h"
#include "run/hosted.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

enum { AT_RANDOM = -1, BLOCKS_BEHIND = 4 }; /* room in a cache beyond the context, in blocks */
static const double MOST_PLAIN_PRODUCTS = 2e8;

dp_round_input dp_reference_input(const dp_reference *reference) {
    const dp_preflight *in = &reference->subject->in;
    return (dp_round_input){
        .features = reference->features, .noise = in->noise, .pos = in->pos, .context = in->context};
}

dflash_status dp_reference_run(dp_subject *subject, const dflash_engine_options *options, dp_reference *out,
                               dflash_error *err) {
    const size_t values = (size_t)subject->in.context * (size_t)subject->in.config.hidden;
    *out = (dp_reference){.subject = subject, .options = *options};
    dflash_status status = dp_rig_open(subject, options, &out->rig, err);
    if (status != DFLASH_OK) return status;
    subject->head_known = true;
    out->features = malloc((values + 1) * sizeof(float));
    if (out->features == NULL) return df_fail_memory(err, "the context's features", values * sizeof(float));
    status = dp_record_features(&out->rig, subject, out->features, &out->block, err);
    if (status != DFLASH_OK) return status;
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

/* ---- Parts of variants ---- */

static dflash_status compare(const dp_reference *r, const dp_recording *run, dp_pair_rule rule, dp_pair *pair,
                             dflash_error *err) {
    return dp_pair_compare(&r->block, run, rule, &r->subject->in, pair, err);
}

static dflash_status make_cache(const dp_reference *r, const dp_rig *rig, dflash_kv **kv, dflash_error *err) {
    const dflash_config *c = &r->subject->in.config;
    return dflash_kv_create(rig->draft, r->subject->in.context + BLOCKS_BEHIND * c->block, kv, err);
}

static dflash_status ingest(const dp_reference *r, const dp_rig *rig, dflash_kv *kv, int first, int rows,
                            dflash_error *err) {
    const dp_preflight *in = &r->subject->in;
    return dp_step_ingest(rig, r->subject, kv, r->features + (size_t)first * (size_t)in->config.hidden, in->pos + first,
                          rows, err);
}

static dflash_status compare_round(const dp_reference *r, const dp_rig *rig, dflash_kv *kv, dp_pair *pair,
                                   dflash_error *err) {
    const dp_preflight *in = &r->subject->in;
    dp_recording round = {.stage = NULL};
    dflash_status status = dp_record_round(rig, r->subject, kv, in->noise, in->pos + in->context, &round, err);
    if (status == DFLASH_OK) status = compare(r, &round, DP_PAIR_ROUND, pair, err);
    dp_recording_release(&round);
    return status;
}

/* Rows of NaN behind the `held` rows of the cache, which then are cut away again: all that fit beside a block, so that
 * some lie beyond the block that is drafted next. */
static dflash_status soil(const dp_reference *r, const dp_rig *rig, dflash_kv *kv, int held, dflash_error *err) {
    const dflash_config *c = &r->subject->in.config;
    const int rows = r->subject->in.context + (BLOCKS_BEHIND - 1) * c->block - held;
    const size_t bytes = (size_t)rows * (size_t)c->hidden * sizeof(float);
    float *values = malloc(bytes);
    int32_t *pos = malloc((size_t)rows * sizeof *pos);
    dflash_status status = values != NULL && pos != NULL ? DFLASH_OK : df_fail_memory(err, "rows of NaN", bytes);
    if (status == DFLASH_OK) {
        memset(values, 0xff, bytes);
        for (int i = 0; i < rows; i++) pos[i] = dp_subject_position(r->subject, held + i);
        status = dp_ingest_ctx(rig->draft, kv, values, pos, rows, err);
    }
    if (status == DFLASH_OK) status = dp_step_truncate(r->subject, kv, rows, err);
    free(values);
    free(pos);
    return status;
}

dflash_status dp_variant_round_over(const dp_reference *r, const dp_rig *rig, bool dirty, dp_pair *pair,
                                    dflash_error *err) {
    const dp_preflight *in = &r->subject->in;
    dflash_kv *kv = NULL;
    dflash_status status = make_cache(r, rig, &kv, err);
    if (status == DFLASH_OK && dirty) status = soil(r, rig, kv, 0, err);
    if (status == DFLASH_OK) status = ingest(r, rig, kv, 0, in->context, err);
    if (status == DFLASH_OK && dirty) status = soil(r, rig, kv, in->context, err);
    if (status == DFLASH_OK) status = compare_round(r, rig, kv, pair, err);
    dflash_kv_destroy(kv);
    return status;
}

/* Everything that the reference ran, and a round, on another drafter or once more on its own. */
static dflash_status compare_all(const dp_reference *r, const dp_rig *rig, dp_pair *pair, dflash_error *err) {
    dp_recording block = {.stage = NULL};
    const dp_round_input own = dp_reference_input(r);
    const size_t values = (size_t)own.context * (size_t)r->subject->in.config.hidden;
    float *features = malloc((values + 1) * sizeof *features);
    dflash_status status = features != NULL ? dp_record_features(rig, r->subject, features, &block, err)
                                            : df_fail_memory(err, "the context's features", values * sizeof *features);
    const dp_round_input input = {.features = features, .noise = own.noise, .pos = own.pos, .context = own.context};
    if (status == DFLASH_OK) status = dp_record_block(rig, r->subject, &input, input.context, &block, err);
    if (status == DFLASH_OK) status = compare(r, &block, DP_PAIR_WHOLE, pair, err);
    if (status == DFLASH_OK) status = dp_variant_round_over(r, rig, false, pair, err);
    dp_recording_release(&block);
    free(features);
    return status;
}

static dflash_status compare_another(const dp_reference *r, const dflash_engine_options *options, dp_pair *pair,
                                     dflash_error *err) {
    dp_rig rig;
    dflash_status status = dp_rig_open(r->subject, options, &rig, err);
    if (status == DFLASH_OK) status = compare_all(r, &rig, pair, err);
    dp_rig_release(&rig);
    return status;
}

/* ---- The variants ---- */

/* The context in calls of `chunk` rows; 0: at once. */
static dflash_status run_ingest(const dp_reference *r, int chunk, dp_pair *pair, dflash_error *err) {
    const int context = r->subject->in.context;
    uint64_t random = r->subject->seed;
    dflash_kv *kv = NULL;
    dflash_status status = make_cache(r, &r->rig, &kv, err);
    for (int row = 0; status == DFLASH_OK && row < context;) {
        const int wanted = chunk == AT_RANDOM ? 1 + dp_random_below(&random, 9) : chunk > 0 ? chunk : context;
        const int rows = wanted < context - row ? wanted : context - row;
        status = ingest(r, &r->rig, kv, row, rows, err);
        row += rows;
    }
    if (status == DFLASH_OK) status = compare_round(r, &r->rig, kv, pair, err);
    dflash_kv_destroy(kv);
    return status;
}

static dflash_status run_threads(const dp_reference *r, int threads, dp_pair *pair, dflash_error *err) {
    dflash_engine_options options = r->options;
    options.threads = threads;
    return compare_another(r, &options, pair, err);
}

static dflash_status run_isa(const dp_reference *r, int isa, dp_pair *pair, dflash_error *err) {
    dflash_engine_options options = r->options;
    options.isa = (dflash_isa)isa;
    return compare_another(r, &options, pair, err);
}

/* The plain code that all backends of the exact class must have the bits of. It takes a weight and a row in a
 * nanosecond or two, so that only models of up to a hundred million products are run on it here. */
static dflash_status run_reference(const dp_reference *r, int isa, dp_pair *pair, dflash_error *err) {
    const double rows = 2.0 * dflash_draft_config(r->rig.draft)->block + r->subject->in.context,
                 products = rows * (double)dflash_draft_weight_bytes(r->rig.draft) / 2.0;
    if (products > MOST_PLAIN_PRODUCTS)
        return df_fail(err, DFLASH_ERR_DEVICE, "engine.isa",
                       "The reference backend is plain code: %.3g products would take minutes; at most %.3g are run. "
                       "`check --isa reference` runs them all the same.",
                       products, MOST_PLAIN_PRODUCTS);
    return run_isa(r, isa, pair, err);
}

/* The exact class is one program on both backends. */
static dflash_status run_backend(const dp_reference *r, int backend, dp_pair *pair, dflash_error *err) {
    dflash_engine_options options = r->options;
    options.backend = (dflash_backend)backend;
    options.device = 0; /* the CPU has no other, and a reference on the CPU names none */
    return compare_another(r, &options, pair, err);
}

static dflash_status run_poisoned(const dp_reference *r, int argument, dp_pair *pair, dflash_error *err) {
    dflash_engine_options options = r->options;
    (void)argument;
    options.poison_scratch = true;
    return compare_another(r, &options, pair, err);
}

static dflash_status run_fresh(const dp_reference *r, int argument, dp_pair *pair, dflash_error *err) {
    (void)argument;
    return compare_another(r, &r->options, pair, err);
}

/* The reference's own drafter once more, after calls of other sizes left their values in its memory. */
static dflash_status run_reused(const dp_reference *r, int argument, dp_pair *pair, dflash_error *err) {
    const dp_preflight *in = &r->subject->in;
    const dflash_config *c = &in->config;
    const size_t values = (size_t)c->block * (size_t)c->hidden;
    float *out = malloc(values * sizeof *out);
    (void)argument;
    dflash_status status = out != NULL ? DFLASH_OK : df_fail_memory(err, "a block's result", values * sizeof *out);
    if (status == DFLASH_OK)
        status = dp_forward_block(r->rig.draft, r->features, in->noise, in->pos + in->context, 0, out, err);
    if (status == DFLASH_OK) status = dp_ctx_features(r->rig.draft, in->taps, 1, out, err);
    if (status == DFLASH_OK) status = compare_all(r, &r->rig, pair, err);
    free(out);
    return status;
}

/* Half of the context, a move through bytes, the rest, another move. */
static dflash_status run_moved(const dp_reference *r, int argument, dp_pair *pair, dflash_error *err) {
    const int context = r->subject->in.context, half = context / 2;
    dflash_kv *kv = NULL;
    (void)argument;
    dflash_status status = make_cache(r, &r->rig, &kv, err);
    if (status == DFLASH_OK && half > 0) status = ingest(r, &r->rig, kv, 0, half, err);
    if (status == DFLASH_OK) status = dp_step_move(&r->rig, r->subject, &kv, err);
    if (status == DFLASH_OK) status = ingest(r, &r->rig, kv, half, context - half, err);
    if (status == DFLASH_OK) status = dp_step_move(&r->rig, r->subject, &kv, err);
    if (status == DFLASH_OK) status = compare_round(r, &r->rig, kv, pair, err);
    dflash_kv_destroy(kv);
    return status;
}

/* ---- Without an observer ---- */

/* One stage of the reference against what a caller received. */
static dflash_status compare_received(const dp_reference *r, dflash_stage stage, const float *f32, const int32_t *i32,
                                      dp_pair *pair, dflash_error *err) {
    const dp_recorded *seen = dp_recording_find(&r->block, stage, -1);
    if (seen == NULL) return DFLASH_OK; /* a model without that stage */
    if (i32 != NULL) return dp_pair_integers(stage, -1, seen->rank, seen->dim, seen->integer, i32, pair, err);
    return dp_pair_floats(stage, -1, seen->rank, seen->dim, seen->value, f32, &r->subject->in, pair, err);
}

static dflash_status propose_unobserved(const dp_reference *r, const float *result, dp_pair *pair, dflash_error *err) {
    const dp_preflight *in = &r->subject->in;
    const dflash_config *c = &in->config;
    const int vocab = dflash_table_vocab(r->rig.head);
    const dflash_proposal_options greedy = {.temperature = 0.0f};
    int first = 0, n = 0;
    dflash_harvest_rows(c, &first, &n);
    const float *rows = result + (size_t)first * (size_t)c->hidden;
    float *logits = malloc((size_t)n * (size_t)vocab * sizeof *logits), *raw = malloc((size_t)n * sizeof *raw);
    int32_t *token = malloc(((size_t)n + 1) * sizeof *token); /* the anchor, then what is drafted */
    dflash_status status =
        logits != NULL && raw != NULL && token != NULL ? DFLASH_OK : df_fail_memory(err, "a proposal", 0);
    if (status == DFLASH_OK) status = dp_logits(r->rig.draft, r->rig.head, rows, n, logits, err);
    if (status == DFLASH_OK) status = compare_received(r, DFLASH_STAGE_LOGITS, logits, NULL, pair, err);
    if (status == DFLASH_OK) {
        token[0] = in->anchor;
        status = dp_propose(r->rig.draft, r->rig.head, logits, rows, n, vocab, in->anchor, &greedy,
                            &(dflash_proposal){.token = token + 1}, err);
    }
    if (status == DFLASH_OK) status = compare_received(r, DFLASH_STAGE_SELECT_PATH, NULL, token + 1, pair, err);
    if (status == DFLASH_OK) status = compare_received(r, DFLASH_STAGE_MARKOV_TOKENS, NULL, token + 1, pair, err);
    if (status == DFLASH_OK && c->confidence) {
        status = dp_confidence(r->rig.draft, rows, token, n, raw, err);
        if (status == DFLASH_OK) status = compare_received(r, DFLASH_STAGE_CONFIDENCE_RAW, raw, NULL, pair, err);
    }
    free(logits);
    free(raw);
    free(token);
    return status;
}

/* What a caller receives from calls that nobody watches. */
static dflash_status run_unobserved(const dp_reference *r, int argument, dp_pair *pair, dflash_error *err) {
    const dp_preflight *in = &r->subject->in;
    const size_t block = (size_t)in->config.block * (size_t)in->config.hidden,
                 context = (size_t)in->context * (size_t)in->config.hidden;
    float *features = malloc((context + 1) * sizeof *features), *result = malloc(block * sizeof *result);
    dflash_kv *kv = NULL;
    (void)argument;
    dflash_status status =
        features != NULL && result != NULL ? DFLASH_OK : df_fail_memory(err, "a run's results", (context + block) * 4);
    if (status == DFLASH_OK) status = dp_ctx_features(r->rig.draft, in->taps, in->context, features, err);
    if (status == DFLASH_OK) status = compare_received(r, DFLASH_STAGE_CTX_FEATURES, features, NULL, pair, err);
    if (status == DFLASH_OK)
        status = dp_forward_block(r->rig.draft, features, in->noise, in->pos, in->context, result, err);
    if (status == DFLASH_OK) status = compare_received(r, DFLASH_STAGE_FINAL, result, NULL, pair, err);
    if (status == DFLASH_OK && r->rig.head != NULL) status = propose_unobserved(r, result, pair, err);
    if (status == DFLASH_OK) status = make_cache(r, &r->rig, &kv, err);
    if (status == DFLASH_OK) status = ingest(r, &r->rig, kv, 0, in->context, err);
    if (status == DFLASH_OK)
        status = dp_step_round(&r->rig, r->subject, kv, in->noise, in->pos + in->context, result, err);
    if (status == DFLASH_OK) status = compare_received(r, DFLASH_STAGE_FINAL, result, NULL, pair, err);
    dflash_kv_destroy(kv);
    free(features);
    free(result);
    return status;
}

/* The same round again and again, nobody watching: a race would show in some of them. */
static dflash_status run_repeated(const dp_reference *r, int times, dp_pair *pair, dflash_error *err) {
    const dp_preflight *in = &r->subject->in;
    const size_t values = (size_t)in->config.block * (size_t)in->config.hidden;
    float *result = malloc(values * sizeof *result);
    dflash_kv *kv = NULL;
    dflash_status status =
        result != NULL ? DFLASH_OK : df_fail_memory(err, "a round's result", values * sizeof *result);
    if (status == DFLASH_OK) status = make_cache(r, &r->rig, &kv, err);
    if (status == DFLASH_OK) status = ingest(r, &r->rig, kv, 0, in->context, err);
    for (int i = 0; status == DFLASH_OK && i < times; i++) {
        memset(result, 0xff, values * sizeof *result);
        status = dp_step_round(&r->rig, r->subject, kv, in->noise, in->pos + in->context, result, err);
        if (status == DFLASH_OK) status = compare_received(r, DFLASH_STAGE_FINAL, result, NULL, pair, err);
    }
    dflash_kv_destroy(kv);
    free(result);
    return status;
}

static const dp_identity_variant variants[] = {
    {"round.all", run_ingest, 0, DP_VARIANT_ANYWHERE},
    {"ingest.chunk1", run_ingest, 1, DP_VARIANT_ANYWHERE},
    {"ingest.chunk7", run_ingest, 7, DP_VARIANT_ANYWHERE},
    {"ingest.random", run_ingest, AT_RANDOM, DP_VARIANT_ANYWHERE},
    {"threads.1", run_threads, 1, DP_VARIANT_ON_CPU},
    {"threads.2", run_threads, 2, DP_VARIANT_ON_CPU},
    {"threads.3", run_threads, 3, DP_VARIANT_ON_CPU},
    {"isa.reference", run_reference, DFLASH_ISA_REFERENCE, DP_VARIANT_ON_CPU},
    {"isa.generic", run_isa, DFLASH_ISA_GENERIC, DP_VARIANT_ON_CPU},
    {"isa.avx2", run_isa, DFLASH_ISA_AVX2, DP_VARIANT_ON_CPU},
    {"isa.avx512", run_isa, DFLASH_ISA_AVX512, DP_VARIANT_ON_CPU},
    {"observer.off", run_unobserved, 0, DP_VARIANT_ANYWHERE},
    {"engine.fresh", run_fresh, 0, DP_VARIANT_ANYWHERE},
    {"engine.reused", run_reused, 0, DP_VARIANT_ANYWHERE},
    {"scratch.poisoned", run_poisoned, 0, DP_VARIANT_ANYWHERE},
    {"rows.permuted", dp_variant_rows_permuted, 0, DP_VARIANT_ANYWHERE},
    {"rows.nan", dp_variant_rows_beside_nan, 0, DP_VARIANT_ANYWHERE},
    {"cache.moved", run_moved, 0, DP_VARIANT_ANYWHERE},
    {"repeated.1000", run_repeated, 1000, DP_VARIANT_ON_DEVICE},
    {"backend.cuda", run_backend, DFLASH_BACKEND_CUDA, DP_VARIANT_CPU_DEVICE},
    {"backend.cpu", run_backend, DFLASH_BACKEND_CPU, DP_VARIANT_DEVICE_EXACT},
};

static bool has_device(void) {
    const dflash_engine_options options = {.backend = DFLASH_BACKEND_CUDA};
    dflash_engine *engine = NULL;
    dflash_error err;
    const bool made = dflash_engine_create(&options, &engine, &err) == DFLASH_OK;
    dflash_engine_destroy(engine);
    return made;
}

bool dp_identity_variant_applies(const dp_identity_variant *variant, const dflash_engine_options *reference) {
    const bool cpu = reference->backend == DFLASH_BACKEND_CPU,
               exact = reference->numeric_class == DFLASH_CLASS_EXACT && reference->products == DFLASH_PRODUCTS_F32;
    switch (variant->scope) {
    case DP_VARIANT_ON_CPU:
        return cpu;
    case DP_VARIANT_ON_DEVICE:
        return !cpu;
    case DP_VARIANT_CPU_DEVICE:
        return cpu && exact && has_device();
    case DP_VARIANT_DEVICE_EXACT:
        return !cpu && exact;
    case DP_VARIANT_ANYWHERE:
        break;
    }
    return true;
}

int dp_identity_variant_count(void) { return (int)(sizeof variants / sizeof *variants); }
const dp_identity_variant *dp_identity_variant_at(int index) { return &variants[index]; }
