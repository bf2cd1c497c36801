/* vectors_proposal.c - see vectors.h: greedy and sampled proposals of the three families, over the whole vocabulary and
 * over a table that holds a part of it. */
#include "vectors/vectors_parts.h"

#include "model/model.h"
#include "common/error.h"
#include "run/hosted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct proposal_case {
    const dflash_config *c;
    int n, columns, width; /* slots; columns of the logits; candidates a slot */
    float temperature;
    float *rows, *logits, *uniform;              /* uniform NULL: greedy */
    float *head;                                 /* NULL: no table */
    int32_t *offset, anchor, *token, *candidate; /* candidate[n, width], the reference's */
    dflash_table *table, *host_copy;             /* owned */
    dp_stage_values values;                      /* owned */
} proposal_case;

/* candidate[n, width]; where it is the same in every slot the file holds it once. */
static dflash_status read_candidates(dp_vectors_run *run, proposal_case *p) {
    const int64_t n = p->n, width = p->width;
    if (p->c->family == DFLASH_FAMILY_DFLASH2)
        return dp_vector_read_ints(run, "candidate", (const int64_t[4]){n, width}, &p->candidate);
    int32_t *once;
    TRY(dp_vector_read_ints(run, "candidate", (const int64_t[4]){width}, &once));
    p->candidate = dp_vector_take(run, n * width, sizeof *p->candidate);
    if (p->candidate == NULL) return DFLASH_ERR_MEMORY;
    for (int64_t i = 0; i < n * width; i++) p->candidate[i] = once[i % width];
    return DFLASH_OK;
}

static dflash_status make_tables(dp_vectors_run *run, proposal_case *p) {
    int target;
    TRY(dp_vector_int(run->group, "target_vocab", &target, run->err));
    TRY(dp_vector_read_floats(run, "head", (const int64_t[4]){p->columns, p->c->hidden}, &p->head));
    TRY(dp_vector_read_ints(run, "offset", (const int64_t[4]){p->columns}, &p->offset));
    TRY(dflash_table_create(run->engine, "F32", p->columns, p->c->hidden, p->head, &p->table, run->err));
    TRY(dflash_table_create(dflash_draft_engine(run->host_copy), "F32", p->columns, p->c->hidden, p->head,
                            &p->host_copy, run->err));
    return dflash_table_set_offsets(p->table, p->offset, target, run->err);
}

static dflash_status read_case(dp_vectors_run *run, proposal_case *p) {
    int64_t dim[4];
    int32_t *anchor;
    const cJSON *temperature = cJSON_GetObjectItemCaseSensitive(run->group->params, "temperature");
    if (run->draft == NULL || !cJSON_IsNumber(temperature))
        return df_fail(run->err, DFLASH_ERR_REFUSED, "vectors.params",
                       "The params of %s lack a checkpoint or a temperature. Write the vectors again.",
                       run->group->path);
    p->c = dflash_draft_config(run->draft);
    p->temperature = (float)temperature->valuedouble;
    TRY(dp_vector_shape(run->group, "logits", dim, run->err));
    p->n = (int)dim[0];
    p->columns = (int)dim[1];
    p->width = dflash_proposal_width(run->draft, p->columns);
    TRY(dp_vector_read_floats(run, "logits", dim, &p->logits));
    TRY(dp_vector_read_floats(run, "rows", (const int64_t[4]){p->n, p->c->hidden}, &p->rows));
    TRY(dp_vector_read_ints(run, "anchor", (const int64_t[4]){1}, &anchor));
    TRY(dp_vector_read_ints(run, "token", (const int64_t[4]){p->n}, &p->token));
    p->anchor = *anchor;
    if (p->temperature > 0.0f) TRY(dp_vector_read_floats(run, "uniform", (const int64_t[4]){p->n}, &p->uniform));
    TRY(read_candidates(run, p));
    return dp_vector_has(run->group, "head") ? make_tables(run, p) : DFLASH_OK;
}

/* ---- What the choices are made from ---- */

/* The column of a candidate. */
static int column_of(const proposal_case *p, int32_t id) {
    for (int i = 0; p->offset != NULL && i < p->columns; i++)
        if (i + p->offset[i] == id) return i;
    return id;
}

static dflash_status selector_scores(dp_vectors_run *run, proposal_case *p, dp_approx **want, dp_approx **their_want) {
    dp_approx *hidden, *their_hidden;
    const dp_vector_formula formula = {
        .stage = DFLASH_STAGE_SELECT_HIDDEN, .layer = -1, .dim = {p->n, p->c->selector_rank}, .values = &p->values};
    float *logit = dp_vector_take(run, (int64_t)p->n * p->width, sizeof *logit);
    if (logit == NULL) return DFLASH_ERR_MEMORY;
    for (int i = 0; i < p->n * p->width; i++)
        logit[i] = p->logits[(size_t)(i / p->width) * (size_t)p->columns + (size_t)column_of(p, p->candidate[i])];
    TRY(dp_vector_evaluate(run, &formula, &hidden, &their_hidden));
    TRY(dp_vector_scores(run, &run->model, hidden, logit, p->candidate, p->token, p->anchor, p->n, want));
    return dp_vector_scores(run, &run->reference, their_hidden, logit, p->candidate, p->token, p->anchor, p->n,
                            their_want);
}

/* The scores that a slot's distribution is made of: [n, width]. */
static dflash_status scores_of(dp_vectors_run *run, proposal_case *p, dp_approx **want, dp_approx **their_want) {
    const int64_t count = (int64_t)p->n * p->columns;
    if (p->c->family == DFLASH_FAMILY_DFLASH2) return selector_scores(run, p, want, their_want);
    if (p->c->markov != DFLASH_MARKOV_NONE) {
        const dp_vector_formula formula = {.stage = DFLASH_STAGE_MARKOV_LOGITS,
                                           .layer = -1,
                                           .dim = {p->n, p->columns},
                                           .values = &p->values,
                                           .anchor = p->anchor};
        TRY(dp_vector_give(run, DFLASH_STAGE_LOGITS, -1, count, p->logits, &p->values));
        TRY(dp_vector_give_ints(run, DFLASH_STAGE_MARKOV_TOKENS, p->n, p->token, &p->values));
        return dp_vector_evaluate(run, &formula, want, their_want);
    }
    *want = *their_want = dp_vector_take(run, count, sizeof **want);
    if (*want == NULL) return DFLASH_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) (*want)[i] = dp_exactly((double)p->logits[i]);
    return DFLASH_OK;
}

/* out[n] = exp((x - max) / temperature) / sum, as pick.h says. */
static dflash_status softmax(dp_vectors_run *run, const dp_class_model *m, const dp_approx *x, int n,
                             double temperature, dp_approx *out) {
    double *term = dp_vector_take(run, n, sizeof *term);
    int best = 0;
    if (term == NULL) return DFLASH_ERR_MEMORY;
    for (int i = 1; i < n; i++)
        if (x[i].value > x[best].value) best = i;
    dp_terms terms = {.a = term, .n = n};
    for (int i = 0; i < n; i++) {
        const dp_approx below = {-x[best].value, x[best].error, x[best].variance};
        const dp_approx apart = i == best ? dp_exactly(0.0) : dp_add(m, x[i], below);
        out[i] = dp_exp(m, dp_div(m, apart, dp_constant(m, temperature)));
        term[i] = out[i].value;
        terms.slack += out[i].error;
        terms.variance += out[i].variance;
    }
    const dp_approx sum = dp_sum_products(m, &terms);
    for (int i = 0; i < n; i++) out[i] = dp_div(m, out[i], sum);
    return DFLASH_OK;
}

/* ---- Judging ---- */

/* What is drawn from, and the share of what was chosen; a greedy choice has all of the distribution. */
static dflash_status distributions(dp_vectors_run *run, const proposal_case *p, const dp_class_model *m,
                                   const dp_approx *score, dp_approx **probability, dp_approx **share) {
    const double temperature =
        p->uniform != NULL ? cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(run->group->params, "temperature"))
                           : 1.0;
    *probability = dp_vector_take(run, (int64_t)p->n * p->width, sizeof **probability);
    *share = dp_vector_take(run, p->n, sizeof **share);
    if (*probability == NULL || *share == NULL) return DFLASH_ERR_MEMORY;
    for (int slot = 0; slot < p->n; slot++) {
        dp_approx *row = *probability + (size_t)slot * (size_t)p->width;
        const int32_t *id = p->candidate + (size_t)slot * (size_t)p->width;
        TRY(softmax(run, m, score + (size_t)slot * (size_t)p->width, p->width, temperature, row));
        for (int i = 0; i < p->width; i++)
            if (id[i] == p->token[slot]) (*share)[slot] = row[i];
        for (int i = 0; p->uniform == NULL && i < p->width; i++)
            row[i] = dp_exactly(id[i] == p->token[slot] ? 1.0 : 0.0);
    }
    return DFLASH_OK;
}

static dflash_status judge_proposal(dp_vectors_run *run, proposal_case *p) {
    static const char bound[] = "the scores' errors through exp, sum and division, rounded in turn";
    const int64_t wide[4] = {p->n, p->width}, slots[4] = {p->n}, count = wide[0] * wide[1];
    dflash_proposal ours = {.token = dp_vector_take(run, p->n, sizeof *ours.token),
                            .share = dp_vector_take(run, p->n, sizeof *ours.share),
                            .candidate = dp_vector_take(run, count, sizeof *ours.candidate),
                            .probability = dp_vector_take(run, count, sizeof *ours.probability)};
    const dflash_proposal_options options = {.temperature = p->temperature, .uniform = p->uniform};
    dp_approx *score, *their_score, *probability, *their_probability, *share, *their_share;
    double *theirs, *their_shares;
    if (ours.token == NULL || ours.share == NULL || ours.candidate == NULL || ours.probability == NULL)
        return DFLASH_ERR_MEMORY;
    TRY(dp_vector_read_doubles(run, "probability", wide, &theirs));
    TRY(dp_vector_read_doubles(run, "share", slots, &their_shares));
    TRY(dp_propose(run->draft, p->table, p->logits, p->rows, p->n, p->columns, p->anchor, &options, &ours, run->err));
    TRY(scores_of(run, p, &score, &their_score));
    TRY(distributions(run, p, &run->model, score, &probability, &share));
    TRY(distributions(run, p, &run->reference, their_score, &their_probability, &their_share));
    TRY(dp_vector_equal(run, "token", slots, ours.token, p->token));
    TRY(dp_vector_equal(run, "candidate", wide, ours.candidate, p->candidate));
    TRY(dp_vector_judge(run, &(dp_vector_value){"share", bound, {p->n}, ours.share, share, their_share, their_shares}));
    return dp_vector_judge(
        run, &(dp_vector_value){
                 "probability", bound, {p->n, p->width}, ours.probability, probability, their_probability, theirs});
}

/* From rows to logits over the table, and from those, as they came out, to the same tokens. */
static dflash_status judge_table(dp_vectors_run *run, proposal_case *p) {
    const int64_t wide[4] = {p->n, p->columns}, slots[4] = {p->n};
    const dp_vector_formula formula = {.stage = DFLASH_STAGE_LOGITS,
                                       .layer = -1,
                                       .dim = {p->n, p->columns},
                                       .values = &p->values,
                                       .head = p->host_copy};
    const dflash_proposal_options options = {.temperature = p->temperature, .uniform = p->uniform};
    float *logits = dp_vector_take(run, wide[0] * wide[1], sizeof *logits);
    int32_t *token = dp_vector_take(run, p->n, sizeof *token);
    dp_approx *want, *their_want;
    double *theirs;
    if (logits == NULL || token == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_read_doubles(run, "logits_float64", wide, &theirs));
    TRY(dp_logits(run->draft, p->table, p->rows, p->n, logits, run->err));
    TRY(dp_vector_evaluate(run, &formula, &want, &their_want));
    TRY(dp_vector_judge(run, &(dp_vector_value){"logits",
                                                dp_bound_text(DFLASH_STAGE_LOGITS, &run->model),
                                                {p->n, p->columns},
                                                logits,
                                                want,
                                                their_want,
                                                theirs}));
    TRY(dp_propose(run->draft, p->table, logits, p->rows, p->n, p->columns, p->anchor, &options,
                   &(dflash_proposal){.token = token}, run->err));
    return dp_vector_equal(run, "chain", slots, token, p->token);
}

dflash_status dp_vectors_proposal(dp_vectors_run *run) {
    proposal_case p = {.n = 0};
    dflash_status status = read_case(run, &p);
    if (status == DFLASH_OK) status = dp_vector_final(run, p.rows, p.n, &p.values);
    if (status == DFLASH_OK) status = judge_proposal(run, &p);
    if (status == DFLASH_OK && p.table != NULL) status = judge_table(run, &p);
    dp_stage_values_release(&p.values);
    dflash_table_destroy(p.table);
    dflash_table_destroy(p.host_copy);
    return status;
}
