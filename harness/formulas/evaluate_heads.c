/* evaluate_heads.c - what follows `final`: logits, selector, Markov head, confidence, for evaluate.h. */
#include "formulas/evaluate_parts.h"

#include "common/error.h"

#include <math.h>
#include <stdlib.h>

/* Row of `final` that slot `slot` is drafted from. */
static const double *slot_row(const dp_job *job, const double *final, int64_t slot) {
    int first = 0, count = 0;
    dflash_harvest_rows(job->c, &first, &count);
    return final + (first + slot) * job->c->hidden;
}

/* The token before a slot: the anchor, then what was drafted. */
static int64_t previous(const dp_job *job, const double *token, int64_t slot) {
    return slot == 0 ? job->e->anchor : (int64_t)token[slot - 1];
}

/* ---- Logits and plain products ---- */

/* The product, times the multiplier, softcapped. */
static dp_approx logit_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const dp_class_model *m = job->m;
    const dflash_config *c = job->c;
    const int64_t slot = index / job->matrix->out, column = index % job->matrix->out;
    dp_approx y = dp_product(job, job->matrix, NULL, column, slot_row(job, job->in[0], slot), scratch);
    if (c->output_multiplier != 1.0) y = dp_scale(m, y, c->output_multiplier);
    if (!(c->logit_softcap > 0.0)) return y;
    const dp_approx cap = dp_constant(m, c->logit_softcap);
    return dp_mul(m, cap, dp_tanh(m, dp_div(m, y, cap)));
}

static dp_approx hidden_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const int64_t slot = index / job->matrix->out, column = index % job->matrix->out;
    return dp_product(job, job->matrix, NULL, column, slot_row(job, job->in[0], slot), scratch);
}

/* ---- Choices ---- */

/* Whether column a of a row comes before column b: the larger value, ties to the lower column. */
static bool precedes(const double *row, int64_t a, int64_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); }

static int64_t best_of(const double *row, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (precedes(row, i, best)) best = i;
    return best;
}

/* The c largest of a row of logits in order: scratch->weight holds the columns found so far, -1 where there is none. */
static dp_approx topk_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const int64_t slot = index / job->width, place = index % job->width, vocab = dflash_table_vocab(job->e->head);
    const double *row = job->in[0] + slot * vocab;
    if (scratch->row != slot) {
        for (int k = 0; k < job->width; k++) {
            int64_t best = -1;
            for (int64_t i = 0; i < vocab; i++)
                if ((k == 0 || (scratch->weight[k - 1] >= 0.0 && precedes(row, (int64_t)scratch->weight[k - 1], i))) &&
                    (best < 0 || precedes(row, i, best)))
                    best = i;
            scratch->weight[k] = (double)best;
        }
        scratch->row = slot;
    }
    const double column = scratch->weight[place];
    if (column < 0.0) return dp_exactly(NAN); /* a row with too few values that compare */
    return dp_exactly(job->spec->stage == DFLASH_STAGE_SELECT_TOPK_IDS ? column : row[(int64_t)column]);
}

static dp_approx path_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    (void)scratch;
    const int64_t at = index * job->width;
    return dp_exactly(job->in[1][at + best_of(job->in[0] + at, job->width)]);
}

static dp_approx token_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    (void)scratch;
    const int64_t vocab = dflash_table_vocab(job->e->head);
    return dp_exactly((double)best_of(job->in[0] + index * vocab, vocab));
}

/* ---- Selector ---- */

/* logit(b) + sum_j (pred[prev][j] h[j]) succ[b][j]. */
static dp_approx score_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const dp_class_model *m = job->m;
    const df_weights *w = &job->e->draft->weights;
    const int64_t slot = index / job->width;
    const int rank = (int)w->predecessor.in;
    const double *hidden = job->in[2] + slot * rank;
    dp_terms terms = {.a = scratch->weight, .b = scratch->extra, .n = rank};
    dp_matrix_row(&w->predecessor, previous(job, job->in[3], slot), scratch->weight);
    dp_matrix_row(&w->successor, (int64_t)job->in[1][index], scratch->extra);
    for (int j = 0; j < rank; j++) {
        const dp_approx t = dp_mul(m, dp_exactly(scratch->weight[j]), dp_exactly(hidden[j]));
        scratch->weight[j] = t.value;
        terms.slack += t.error * fabs(scratch->extra[j]);
        terms.variance += t.variance * scratch->extra[j] * scratch->extra[j];
    }
    return dp_add(m, dp_exactly(job->in[0][index]), dp_sum_products(m, &terms));
}

/* ---- Markov head ---- */

/* matrix[row] . x + bias for an x with errors; x_value [in] holds its values. */
static dp_approx approx_product(const dp_job *job, const df_matrix *matrix, const float *bias, int64_t row,
                                const dp_approx *x, double *x_value, dp_scratch *scratch) {
    dp_matrix_row(matrix, row, scratch->weight);
    dp_terms terms = {.a = scratch->weight, .b = x_value, .n = (int)matrix->in, .operands = &job->m->product};
    for (int64_t k = 0; k < matrix->in; k++) {
        const double w = scratch->weight[k];
        x_value[k] = x[k].value;
        terms.slack += fabs(w) * x[k].error;
        terms.variance += w * w * x[k].variance;
    }
    const dp_approx sum = dp_sum_products(job->m, &terms);
    return bias != NULL ? dp_add(job->m, sum, dp_exactly((double)bias[row])) : sum;
}

/* u = sigmoid(gate_proj [h ; e]) e. */
static void gate_slot(const dp_job *job, const double *row, const double *e, dp_approx *join, dp_approx *u,
                      dp_scratch *scratch) {
    const df_weights *w = &job->e->draft->weights;
    const int64_t rank = w->markov_w1.in, hidden = job->c->hidden;
    for (int64_t k = 0; k < hidden; k++) join[k] = dp_exactly(row[k]);
    for (int64_t k = 0; k < rank; k++) join[hidden + k] = dp_exactly(e[k]);
    for (int64_t j = 0; j < rank; j++) {
        const dp_approx g = approx_product(job, &w->markov_gate, w->markov_gate_bias, j, join, scratch->extra, scratch);
        u[j] = dp_mul(job->m, dp_logistic(job->m, dp_exactly(1.0), g), dp_exactly(e[j]));
    }
}

/* (a, c, o) = joint_proj [state ; e ; h]; state = sigmoid(a) state + (1 - sigmoid(a)) tanh(c), u = tanh(o). */
static void recur_slot(const dp_job *job, const double *row, const double *e, dp_approx *state, dp_approx *join,
                       dp_approx *u, dp_scratch *scratch) {
    const df_weights *w = &job->e->draft->weights;
    const dp_class_model *m = job->m;
    const int64_t rank = w->markov_w1.in, hidden = job->c->hidden;
    for (int64_t k = 0; k < rank; k++) join[k] = state[k];
    for (int64_t k = 0; k < rank; k++) join[rank + k] = dp_exactly(e[k]);
    for (int64_t k = 0; k < hidden; k++) join[2 * rank + k] = dp_exactly(row[k]);
    for (int64_t j = 0; j < rank; j++) {
        dp_approx third[3];
        for (int64_t t = 0; t < 3; t++)
            third[t] = approx_product(job, &w->markov_joint, w->markov_joint_bias, t * rank + j, join, scratch->extra,
                                      scratch);
        const dp_approx keep = dp_logistic(m, dp_exactly(1.0), third[0]);
        const dp_approx rest = dp_add(m, dp_exactly(1.0), (dp_approx){-keep.value, keep.error, keep.variance});
        state[j] = dp_fma(m, keep, state[j], dp_mul(m, rest, dp_tanh(m, third[1])));
        u[j] = dp_tanh(m, third[2]);
    }
}

/* job->state[slot][j] = u, slot by slot: the recurrent kind carries its state along. */
static dflash_status markov_inputs(dp_job *job, dp_scratch *scratch, dflash_error *err) {
    const df_matrix *w1 = &job->e->draft->weights.markov_w1;
    const int64_t slots = job->spec->dim[0], rank = w1->in, wide = 3 * rank + job->c->hidden;
    const size_t cells = (size_t)(slots * rank + rank + wide);
    job->state = calloc(cells, sizeof *job->state);
    double *e = calloc((size_t)rank, sizeof *e);
    if (job->state == NULL || e == NULL) {
        free(e);
        return df_fail_memory(err, "the Markov head's inputs", cells * sizeof *job->state);
    }
    dp_approx *carried = job->state + slots * rank, *join = carried + rank;
    for (int64_t slot = 0; slot < slots; slot++) {
        dp_approx *u = job->state + slot * rank;
        const double *row = slot_row(job, job->in[1], slot);
        dp_matrix_row(w1, previous(job, job->in[2], slot), e);
        for (int64_t j = 0; j < rank; j++) u[j] = dp_exactly(e[j]);
        if (job->c->markov == DFLASH_MARKOV_GATED) gate_slot(job, row, e, join, u, scratch);
        if (job->c->markov == DFLASH_MARKOV_RNN) recur_slot(job, row, e, carried, join, u, scratch);
    }
    free(e);
    return DFLASH_OK;
}

/* logits + W2 u. */
static dp_approx markov_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const df_matrix *w2 = &job->e->draft->weights.markov_w2;
    const int64_t slot = index / w2->out, column = index % w2->out;
    const dp_approx bias = approx_product(job, w2, NULL, column, job->state + slot * w2->in, scratch->extra, scratch);
    return dp_add(job->m, dp_exactly(job->in[0][index]), bias);
}

/* ---- Confidence ---- */

/* w [row ; e of the token before] + b. */
static dp_approx confidence_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const df_weights *w = &job->e->draft->weights;
    const double *row = slot_row(job, job->in[0], index);
    for (int k = 0; k < job->c->hidden; k++) scratch->extra[k] = row[k];
    if (job->c->confidence_with_markov)
        dp_matrix_row(&w->markov_w1, previous(job, job->in[1], index), scratch->extra + job->c->hidden);
    return dp_product(job, &w->confidence, w->confidence_bias, 0, scratch->extra, scratch);
}

/* Every id that a row is asked for by is one of the matrix: others were refused before (ids.h), and are no stage. */
static dflash_status check_rows(const dp_job *job, const df_matrix *matrix, const double *id, int64_t n,
                                dflash_error *err) {
    for (int64_t i = 0; i < n; i++)
        if (!(id[i] >= 0.0 && id[i] < (double)matrix->out))
            return df_fail(err, DFLASH_ERR_REFUSED, "evaluate.id",
                           "%s is evaluated from the row of the id %.0f, and the matrix has %lld. The ids it was given "
                           "are of another vocabulary; generate the oracle again.",
                           job->spec->name, id[i], (long long)matrix->out);
    return DFLASH_OK;
}

/* The anchor and the tokens before the last slot. */
static dflash_status check_previous(const dp_job *job, const df_matrix *matrix, const double *token,
                                    dflash_error *err) {
    const double anchor = (double)job->e->anchor;
    TRY(check_rows(job, matrix, &anchor, 1, err));
    return check_rows(job, matrix, token, job->spec->dim[0] - 1, err);
}

/* ---- Set-up ---- */

dflash_status dp_setup_head(dp_job *job, dp_scratch *scratch, dflash_error *err) {
    const df_weights *w = &job->e->draft->weights;
    job->width = job->c->selector_top_k;
    switch (job->spec->stage) {
    case DFLASH_STAGE_LOGITS:
        job->matrix = &job->e->head->matrix;
        job->element = logit_element;
        return DFLASH_OK;
    case DFLASH_STAGE_SELECT_HIDDEN:
        job->matrix = &w->selector_projection;
        job->element = hidden_element;
        return DFLASH_OK;
    case DFLASH_STAGE_SELECT_SCORES:
        job->element = score_element;
        TRY(check_previous(job, &w->predecessor, job->in[3], err));
        return check_rows(job, &w->successor, job->in[1], dp_dims_product(job->spec->rank, job->spec->dim), err);
    case DFLASH_STAGE_SELECT_PATH:
        job->element = path_element;
        return DFLASH_OK;
    case DFLASH_STAGE_MARKOV_TOKENS:
        job->element = token_element;
        return DFLASH_OK;
    case DFLASH_STAGE_MARKOV_LOGITS:
        job->element = markov_element;
        TRY(check_previous(job, &w->markov_w1, job->in[2], err));
        return markov_inputs(job, scratch, err);
    case DFLASH_STAGE_CONFIDENCE_RAW:
        job->element = confidence_element;
        return job->c->confidence_with_markov ? check_previous(job, &w->markov_w1, job->in[1], err) : DFLASH_OK;
    default: /* the two halves of the top-k */
        job->element = topk_element;
        return DFLASH_OK;
    }
}
