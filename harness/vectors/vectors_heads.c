/* vectors_heads.c - see vectors.h: logits, the selector's walk, the Markov heads, the confidence head. */
#include "vectors/vectors_parts.h"

#include "model/model.h"
#include "formulas/evaluate_parts.h"
#include "common/error.h"
#include "run/hosted.h"

#include <stdlib.h>
#include <string.h>

static const dflash_proposal_options greedy = {.temperature = 0.0f};

/* Rows, logits and the anchor of a group. */
typedef struct head {
    const dflash_config *c;
    int n;
    float *rows, *logits;
    int32_t anchor;
} head;

static dflash_status read_rows(dp_vectors_run *run, head *h) {
    int64_t dim[4];
    if (run->draft == NULL)
        return df_fail(run->err, DFLASH_ERR_REFUSED, "vectors.params",
                       "The params of %s name no checkpoint. Write the vectors again.", run->group->path);
    h->c = dflash_draft_config(run->draft);
    TRY(dp_vector_shape(run->group, "rows", dim, run->err));
    h->n = (int)dim[0];
    return dp_vector_read_floats(run, "rows", (const int64_t[4]){h->n, h->c->hidden}, &h->rows);
}

static dflash_status read_head(dp_vectors_run *run, head *h) {
    int32_t *anchor;
    TRY(read_rows(run, h));
    TRY(dp_vector_read_floats(run, "logits", (const int64_t[4]){h->n, h->c->vocab}, &h->logits));
    TRY(dp_vector_read_ints(run, "anchor", (const int64_t[4]){1}, &anchor));
    h->anchor = *anchor;
    return DFLASH_OK;
}

/* A greedy proposal with its stages, and its tokens. */
static dflash_status observe(dp_vectors_run *run, const head *h, int32_t *token, dp_recording *seen) {
    dflash_draft_observe(run->draft, dp_recording_observe, seen);
    const dflash_status status = dp_propose(run->draft, NULL, h->logits, h->rows, h->n, h->c->vocab, h->anchor, &greedy,
                                            &(dflash_proposal){.token = token}, run->err);
    dflash_draft_observe(run->draft, NULL, NULL);
    return status == DFLASH_OK ? dp_recording_status(seen, run->err) : status;
}

/* The stage, which must be there with `count` values. */
static dflash_status shown(dp_vectors_run *run, const dp_recording *seen, dflash_stage stage, int64_t count,
                           const dp_recorded **out) {
    char name[DFLASH_STAGE_NAME_MAX];
    *out = dp_recording_find(seen, stage, -1);
    if (*out != NULL && dp_dims_product((*out)->rank, (*out)->dim) == count) return DFLASH_OK;
    return df_fail(run->err, DFLASH_ERR_DEVICE, "vectors.stage",
                   "%s: the drafter did not show the stage %s with %lld values. Look at its observer.",
                   run->group->path, dflash_stage_name(stage, -1, name), (long long)count);
}

/* ---- Logits ---- */

dflash_status dp_vectors_logits(dp_vectors_run *run) {
    head h = {.n = 0};
    int64_t dim[4];
    float *matrix;
    double *theirs;
    dp_approx *want, *their_want;
    dflash_table *table = NULL, *host_copy = NULL;
    dp_stage_values values = {.item = NULL};
    TRY(read_rows(run, &h));
    TRY(dp_vector_shape(run->group, "head", dim, run->err));
    const int vocab = (int)dim[0];
    dp_vector_formula formula = {.stage = DFLASH_STAGE_LOGITS, .layer = -1, .dim = {h.n, vocab}, .values = &values};
    float *got = dp_vector_take(run, (int64_t)h.n * vocab, sizeof *got);
    if (got == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_read_floats(run, "head", (const int64_t[4]){vocab, h.c->hidden}, &matrix));
    TRY(dp_vector_read_doubles(run, "logits", formula.dim, &theirs));
    dflash_status status = dflash_table_create(run->engine, "F32", vocab, h.c->hidden, matrix, &table, run->err);
    if (status == DFLASH_OK)
        status = dflash_table_create(dflash_draft_engine(run->host_copy), "F32", vocab, h.c->hidden, matrix, &host_copy,
                                     run->err);
    if (status == DFLASH_OK) status = dp_logits(run->draft, table, h.rows, h.n, got, run->err);
    if (status == DFLASH_OK) status = dp_vector_final(run, h.rows, h.n, &values);
    formula.head = host_copy;
    if (status == DFLASH_OK) status = dp_vector_evaluate(run, &formula, &want, &their_want);
    if (status == DFLASH_OK)
        status = dp_vector_judge(run, &(dp_vector_value){.name = "logits",
                                                         .bound = dp_bound_text(DFLASH_STAGE_LOGITS, &run->model),
                                                         .dim = {h.n, vocab},
                                                         .got = got,
                                                         .want = want,
                                                         .their_want = their_want,
                                                         .theirs = theirs});
    dp_stage_values_release(&values);
    dflash_table_destroy(table);
    dflash_table_destroy(host_copy);
    return status;
}

/* ---- Selector ---- */

dflash_status dp_vector_scores(dp_vectors_run *run, const dp_class_model *model, const dp_approx *hidden,
                               const float *logits, const int32_t *id, const int32_t *token, int32_t anchor, int n,
                               dp_approx **out) {
    const df_weights *w = &run->host_copy->weights;
    const int k = dflash_draft_config(run->draft)->selector_top_k, rank = (int)w->predecessor.in;
    double *before = dp_vector_take(run, rank, sizeof *before), *after = dp_vector_take(run, rank, sizeof *after);
    *out = dp_vector_take(run, (int64_t)n * k, sizeof **out);
    if (before == NULL || after == NULL || *out == NULL) return DFLASH_ERR_MEMORY;
    for (int64_t i = 0; i < (int64_t)n * k; i++) {
        const int64_t slot = i / k;
        dp_terms terms = {.a = before, .b = after, .n = rank};
        dp_matrix_row(&w->predecessor, slot == 0 ? anchor : token[slot - 1], before);
        dp_matrix_row(&w->successor, id[i], after);
        for (int j = 0; j < rank; j++) {
            const dp_approx product = dp_mul(model, dp_exactly(before[j]), hidden[slot * rank + j]);
            before[j] = product.value;
            terms.slack += product.error * fabs(after[j]);
            terms.variance += product.variance * after[j] * after[j];
        }
        (*out)[i] = dp_add(model, dp_exactly((double)logits[i]), dp_sum_products(model, &terms));
    }
    return DFLASH_OK;
}

typedef struct walk {
    head h;
    double *hidden, *values, *scores; /* the reference's */
    int32_t *ids, *path;
    dp_approx *want, *their_want; /* of hidden */
} walk;

static dflash_status judge_walk(dp_vectors_run *run, const walk *w, const dp_recording *seen, const int32_t *token) {
    const int n = w->h.n, k = w->h.c->selector_top_k, rank = w->h.c->selector_rank;
    const int64_t wide[4] = {n, k}, count = (int64_t)n * k;
    const dp_recorded *hidden, *values, *ids, *scores;
    dp_approx *want, *their_want, *exact = dp_vector_take(run, count, sizeof *exact);
    float *logit = dp_vector_take(run, count, sizeof *logit);
    if (exact == NULL || logit == NULL) return DFLASH_ERR_MEMORY;
    TRY(shown(run, seen, DFLASH_STAGE_SELECT_HIDDEN, (int64_t)n * rank, &hidden));
    TRY(shown(run, seen, DFLASH_STAGE_SELECT_TOPK_VALUES, count, &values));
    TRY(shown(run, seen, DFLASH_STAGE_SELECT_TOPK_IDS, count, &ids));
    TRY(shown(run, seen, DFLASH_STAGE_SELECT_SCORES, count, &scores));
    for (int64_t i = 0; i < count; i++) {
        logit[i] = w->h.logits[(i / k) * w->h.c->vocab + w->ids[i]];
        exact[i] = dp_exactly(w->values[i]);
    }
    TRY(dp_vector_scores(run, &run->model, w->want, logit, w->ids, w->path, w->h.anchor, n, &want));
    TRY(dp_vector_scores(run, &run->reference, w->their_want, logit, w->ids, w->path, w->h.anchor, n, &their_want));
    TRY(dp_vector_judge(run, &(dp_vector_value){"hidden",
                                                dp_bound_text(DFLASH_STAGE_SELECT_HIDDEN, &run->model),
                                                {n, rank},
                                                hidden->value,
                                                w->want,
                                                w->their_want,
                                                w->hidden}));
    TRY(dp_vector_judge(run, &(dp_vector_value){"topk_values",
                                                dp_bound_text(DFLASH_STAGE_SELECT_TOPK_VALUES, &run->model),
                                                {n, k},
                                                values->value,
                                                exact,
                                                exact,
                                                w->values}));
    TRY(dp_vector_judge(run, &(dp_vector_value){"scores",
                                                "hidden's error by |pred||succ|, and the sums' own",
                                                {n, k},
                                                scores->value,
                                                want,
                                                their_want,
                                                w->scores}));
    TRY(dp_vector_equal(run, "topk_ids", wide, ids->integer, w->ids));
    return dp_vector_equal(run, "path", (const int64_t[4]){n}, token, w->path);
}

dflash_status dp_vectors_selector(dp_vectors_run *run) {
    walk w = {.hidden = NULL};
    dp_recording seen = {.stage = NULL};
    dp_stage_values values = {.item = NULL};
    TRY(read_head(run, &w.h));
    const int n = w.h.n, k = w.h.c->selector_top_k;
    const int64_t wide[4] = {n, k};
    int32_t *token = dp_vector_take(run, n, sizeof *token);
    if (token == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_read_doubles(run, "hidden", (const int64_t[4]){n, w.h.c->selector_rank}, &w.hidden));
    TRY(dp_vector_read_doubles(run, "topk_values", wide, &w.values));
    TRY(dp_vector_read_doubles(run, "scores", wide, &w.scores));
    TRY(dp_vector_read_ints(run, "topk_ids", wide, &w.ids));
    TRY(dp_vector_read_ints(run, "path", (const int64_t[4]){n}, &w.path));
    const dp_vector_formula formula = {
        .stage = DFLASH_STAGE_SELECT_HIDDEN, .layer = -1, .dim = {n, w.h.c->selector_rank}, .values = &values};
    dflash_status status = dp_vector_final(run, w.h.rows, n, &values);
    if (status == DFLASH_OK) status = dp_vector_evaluate(run, &formula, &w.want, &w.their_want);
    if (status == DFLASH_OK) status = observe(run, &w.h, token, &seen);
    if (status == DFLASH_OK) status = judge_walk(run, &w, &seen, token);
    dp_stage_values_release(&values);
    dp_recording_release(&seen);
    return status;
}

/* ---- Markov ---- */

dflash_status dp_vectors_markov(dp_vectors_run *run) {
    head h = {.n = 0};
    dp_recording seen = {.stage = NULL};
    dp_stage_values values = {.item = NULL};
    double *theirs;
    int32_t *token;
    dp_approx *want, *their_want;
    const dp_recorded *logits;
    TRY(read_head(run, &h));
    const int64_t count = (int64_t)h.n * h.c->vocab;
    int32_t *drafted = dp_vector_take(run, h.n, sizeof *drafted);
    if (drafted == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_read_doubles(run, "markov_logits", (const int64_t[4]){h.n, h.c->vocab}, &theirs));
    TRY(dp_vector_read_ints(run, "tokens", (const int64_t[4]){h.n}, &token));
    const dp_vector_formula formula = {.stage = DFLASH_STAGE_MARKOV_LOGITS,
                                       .layer = -1,
                                       .dim = {h.n, h.c->vocab},
                                       .values = &values,
                                       .anchor = h.anchor};
    dflash_status status = dp_vector_final(run, h.rows, h.n, &values);
    if (status == DFLASH_OK) status = dp_vector_give(run, DFLASH_STAGE_LOGITS, -1, count, h.logits, &values);
    if (status == DFLASH_OK) status = dp_vector_give_ints(run, DFLASH_STAGE_MARKOV_TOKENS, h.n, token, &values);
    if (status == DFLASH_OK) status = dp_vector_evaluate(run, &formula, &want, &their_want);
    if (status == DFLASH_OK) status = observe(run, &h, drafted, &seen);
    if (status == DFLASH_OK) status = shown(run, &seen, DFLASH_STAGE_MARKOV_LOGITS, count, &logits);
    if (status == DFLASH_OK)
        status = dp_vector_judge(run, &(dp_vector_value){"markov_logits",
                                                         dp_bound_text(DFLASH_STAGE_MARKOV_LOGITS, &run->model),
                                                         {h.n, h.c->vocab},
                                                         logits->value,
                                                         want,
                                                         their_want,
                                                         theirs});
    if (status == DFLASH_OK) status = dp_vector_equal(run, "tokens", (const int64_t[4]){h.n}, drafted, token);
    dp_stage_values_release(&values);
    dp_recording_release(&seen);
    return status;
}

/* ---- Confidence ---- */

static dflash_status judge_windows(dp_vectors_run *run, const float *raw, int n) {
    const cJSON *policies = cJSON_GetObjectItemCaseSensitive(run->group->params, "windows"), *policy;
    const int64_t dim[4] = {cJSON_GetArraySize(policies)};
    int32_t *theirs, *ours = dp_vector_take(run, dim[0], sizeof *ours);
    int cap, at = 0;
    if (ours == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_int(run->group, "cap", &cap, run->err));
    TRY(dp_vector_read_ints(run, "window", dim, &theirs));
    cJSON_ArrayForEach(policy, policies) {
        const dflash_window_options options = {
            .policy = DFLASH_WINDOW_SURVIVAL,
            .threshold = (float)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(policy, "threshold")),
            .cap = cap,
            .accepted = -1};
        int window = 0;
        TRY(dflash_verify_window(&options, raw, n, &window, run->err));
        ours[at++] = window;
    }
    return dp_vector_equal(run, "window", dim, ours, theirs);
}

dflash_status dp_vectors_confidence(dp_vectors_run *run) {
    head h = {.n = 0};
    dp_stage_values values = {.item = NULL};
    double *theirs;
    int32_t *previous;
    dp_approx *want, *their_want;
    TRY(read_rows(run, &h));
    float *raw = dp_vector_take(run, h.n, sizeof *raw);
    if (raw == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_read_doubles(run, "raw", (const int64_t[4]){h.n}, &theirs));
    TRY(dp_vector_read_ints(run, "previous", (const int64_t[4]){h.n}, &previous));
    const dp_vector_formula formula = {
        .stage = DFLASH_STAGE_CONFIDENCE_RAW, .layer = -1, .dim = {h.n}, .values = &values, .anchor = previous[0]};
    dflash_status status = dp_vector_final(run, h.rows, h.n, &values);
    if (status == DFLASH_OK)
        status = dp_vector_give_ints(run, DFLASH_STAGE_MARKOV_TOKENS, h.n - 1, previous + 1, &values);
    if (status == DFLASH_OK) status = dp_vector_evaluate(run, &formula, &want, &their_want);
    dp_stage_values_release(&values);
    if (status == DFLASH_OK) status = dp_confidence(run->draft, h.rows, previous, h.n, raw, run->err);
    if (status == DFLASH_OK)
        status = dp_vector_judge(
            run,
            &(dp_vector_value){
                "raw", dp_bound_text(DFLASH_STAGE_CONFIDENCE_RAW, &run->model), {h.n}, raw, want, their_want, theirs});
    return status == DFLASH_OK ? judge_windows(run, raw, h.n) : status;
}
