/* proposal.c - see proposal.h. */
#include "run/proposal.h"

#include "common/error.h"
#include "run/head_source.h"
#include "run/hosted.h"
#include "store/stage_set.h"

#include <stdlib.h>
#include <string.h>

static const float window_threshold = 0.5f; /* the policy's default */

/* A matrix of the target, as an oracle speaks of it. */
typedef struct claim {
    const char *key;             /* in the provenance record */
    const char *what, *input;    /* the matrix in words; the input that says that it took part */
    const char *missing, *other; /* codes */
    const char *advice;
} claim;

static const claim head_claim = {"head",
                                 "output head",
                                 "anchor",
                                 "provenance.head.missing",
                                 "provenance.head.differs",
                                 ", by name where a file holds several: --lm-head FILE:TENSOR"};
static const claim embedding_claim = {
    "embedding", "embedding table", "block_ids", "provenance.embedding.missing", "provenance.embedding.differs", ""};

static dflash_status differs(const claim *c, const dp_oracle *oracle, const char *tensor, const char *field,
                             const char *ours, const char *theirs, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_REFUSED, c->other,
                   "%s: the %s of the %s differs: %s has %s, the oracle was computed with %s. Give the %s of the "
                   "oracle's target%s.",
                   dp_oracle_path(oracle), field, c->what, tensor, ours, theirs, c->key, c->advice);
}

static const char *claimed(const claim *c, const dp_oracle *oracle, const char *fact) {
    const cJSON *record = cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(oracle), c->key);
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, fact));
}

/* All but the digest. The tensor's name may be another than the oracle's: one head has several in the files of one
 * target. */
static dflash_status check_form(const claim *c, const dflash_table *table, const dp_oracle *oracle, dflash_error *err) {
    const dflash_tensor_view view = dflash_table_view(table);
    const cJSON *record = cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(oracle), c->key);
    const char *dtype = claimed(c, oracle, "dtype"), *sha256 = claimed(c, oracle, "sha256");
    if (dtype == NULL || sha256 == NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, c->missing,
                       "%s: the oracle holds the input %s, so its reference ran an %s, but its provenance "
                       "record has no %s {tensor, dtype, shape, sha256}. Write it again as oracles/FORMAT.md says.",
                       dp_oracle_path(oracle), c->input, c->what, c->key);
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(record, "shape");
    for (int i = 0; i < view.rank; i++) {
        char ours[DP_DIMS_TEXT];
        const cJSON *dim = cJSON_GetArrayItem(shape, i);
        if (cJSON_GetArraySize(shape) == view.rank && cJSON_IsNumber(dim) && dim->valuedouble == (double)view.dim[i])
            continue;
        char *theirs = cJSON_PrintUnformatted(shape);
        const dflash_status status = differs(c, oracle, view.name, "shape", dp_dims_text(view.rank, view.dim, ours),
                                             theirs != NULL ? theirs : "no array", err);
        cJSON_free(theirs);
        return status;
    }
    return strcmp(dtype, view.dtype) == 0 ? DFLASH_OK : differs(c, oracle, view.name, "dtype", view.dtype, dtype, err);
}

static void digest_of(const dflash_table *table, char digest[DP_DIGEST_TEXT]) {
    const dflash_tensor_view view = dflash_table_view(table);
    dp_sha256_of(view.data, view.bytes, digest);
}

static dflash_status check_digest(const claim *c, const dflash_table *table, const dp_oracle *oracle,
                                  const char *digest, dflash_error *err) {
    const char *sha256 = claimed(c, oracle, "sha256");
    return strcmp(digest, sha256) == 0
               ? DFLASH_OK
               : differs(c, oracle, dflash_table_view(table).name, "SHA-256", digest, sha256, err);
}

dflash_status dp_embedding_check(const dflash_table *embedding, const dp_oracle *oracle, dflash_error *err) {
    char digest[DP_DIGEST_TEXT];
    TRY(check_form(&embedding_claim, embedding, oracle, err));
    digest_of(embedding, digest);
    return check_digest(&embedding_claim, embedding, oracle, digest, err);
}

static void *take_digest(void *argument) {
    dp_head_loading *loading = argument;
    digest_of(loading->table, loading->digest);
    return NULL;
}

void dp_head_begin(dflash_engine *engine, const char *checkpoint, const char *head, const dp_oracle *oracle,
                   dp_head_loading *out) {
    *out = (dp_head_loading){.oracle = oracle};
    out->status = dp_head_open(engine, checkpoint, head, &out->table, &out->error);
    if (out->status == DFLASH_OK && out->table == NULL)
        out->status = df_fail(&out->error, DFLASH_ERR_REFUSED, "table.tensor.missing",
                              "%s/model.safetensors holds no tensor \"lm_head.weight\", and the reference of %s ran an "
                              "output head. Give the target's with --lm-head FILE[:TENSOR].",
                              checkpoint, dp_oracle_path(oracle));
    if (out->status == DFLASH_OK) out->status = check_form(&head_claim, out->table, oracle, &out->error);
    if (out->status != DFLASH_OK) return;
    out->beside = dflash_engine_threads(engine) > 1 && pthread_create(&out->thread, NULL, take_digest, out) == 0;
    if (!out->beside) take_digest(out);
}

dflash_status dp_head_end(dp_head_loading *loading, dflash_table **out, dflash_error *err) {
    if (loading->beside) pthread_join(loading->thread, NULL);
    if (loading->status == DFLASH_OK)
        loading->status = check_digest(&head_claim, loading->table, loading->oracle, loading->digest, &loading->error);
    *out = loading->table;
    if (loading->status == DFLASH_OK) return DFLASH_OK;
    dflash_table_destroy(loading->table);
    *out = NULL;
    if (err != NULL) *err = loading->error;
    return loading->status;
}

dflash_status dp_head_load(dflash_engine *engine, const char *checkpoint, const char *head, const dp_oracle *oracle,
                           dflash_table **out, dflash_error *err) {
    dp_head_loading loading;
    dp_head_begin(engine, checkpoint, head, oracle, &loading);
    return dp_head_end(&loading, out, err);
}

/* The token before each slot: the anchor, then what was drafted. */
static void previous_tokens(int32_t anchor, const int32_t *token, int n, int32_t *prev) {
    for (int i = 0; i < n; i++) prev[i] = i == 0 ? anchor : token[i - 1];
}

static dflash_status run_confidence(dflash_draft *draft, const float *rows, const int32_t *prev, int n, float *raw,
                                    dp_recording *recording, dflash_error *err) {
    const dflash_window_options options = {.policy = DFLASH_WINDOW_SURVIVAL,
                                           .threshold = window_threshold,
                                           .cap = dflash_draft_config(draft)->block + 1,
                                           .accepted = -1};
    int window = 0;
    dflash_status status = dp_confidence(draft, rows, prev, n, raw, err);
    if (status == DFLASH_OK) status = dflash_verify_window(&options, raw, n, &window, err);
    if (status != DFLASH_OK) return status;
    const int32_t shown = window;
    const dflash_stage_view view = {
        .stage = DFLASH_STAGE_CONFIDENCE_WINDOW, .layer = -1, .rank = 1, .dim = {1}, .i32 = &shown};
    dp_recording_add(recording, &view);
    return DFLASH_OK;
}

dflash_status dp_run_proposal(dflash_draft *draft, const dflash_table *head, const float *final, int32_t anchor,
                              dp_recording *recording, dflash_error *err) {
    const dflash_config *c = dflash_draft_config(draft);
    int first = 0, n = 0;
    dflash_harvest_rows(c, &first, &n);
    const int vocab = dflash_table_vocab(head);
    const float *rows = final + (size_t)first * (size_t)c->hidden;
    const size_t bytes = (size_t)n * (size_t)vocab * sizeof(float);
    float *logits = malloc(bytes), *raw = malloc((size_t)n * sizeof *raw);
    int32_t *token = malloc((size_t)n * sizeof *token), *prev = malloc((size_t)n * sizeof *prev);
    const dflash_proposal_options greedy = {.temperature = 0.0f};
    dflash_status status = DFLASH_OK;
    if (logits == NULL || raw == NULL || token == NULL || prev == NULL)
        status = df_fail_memory(err, "the logits of a block", bytes);
    dflash_draft_observe(draft, dp_recording_observe, recording);
    if (status == DFLASH_OK) status = dp_logits(draft, head, rows, n, logits, err);
    if (status == DFLASH_OK)
        status =
            dp_propose(draft, head, logits, rows, n, vocab, anchor, &greedy, &(dflash_proposal){.token = token}, err);
    if (status == DFLASH_OK && c->confidence) {
        previous_tokens(anchor, token, n, prev);
        status = run_confidence(draft, rows, prev, n, raw, recording, err);
    }
    dflash_draft_observe(draft, NULL, NULL);
    free(logits);
    free(raw);
    free(token);
    free(prev);
    return status == DFLASH_OK ? dp_recording_status(recording, err) : status;
}

dflash_status dp_run_judged_proposal(dflash_draft *draft, const dflash_table *head, const float *final, int32_t anchor,
                                     dp_recording *recording, dflash_error *err) {
    static const char *const codes[] = {"proposal.nan", "proposal.infinite", "proposal.nofinite"};
    const dflash_status status = dp_run_proposal(draft, head, final, anchor, recording, err);
    for (size_t i = 0; status == DFLASH_ERR_REFUSED && i < sizeof codes / sizeof *codes; i++)
        if (strcmp(err->code, codes[i]) == 0) return dp_recording_status(recording, err);
    return status;
}
