/*
 * evaluate_parts.h - what the files of evaluate.h share: one stage being evaluated, a worker's scratch, the weights.
 */
#ifndef DP_EVALUATE_PARTS_H
#define DP_EVALUATE_PARTS_H

#include "limits/chain.h"
#include "model/model.h"
#include "formulas/evaluate.h"
#include "weights/quant.h"
#include "heads/table.h"

/* What a stage of the cache comes from, in every layer. */
dflash_stage dp_cached_stage(dflash_stage stage);

/* One worker's memory. `row` is the row that `shared` and the buffers are of; -1: none yet. */
typedef struct dp_scratch {
    double *weight, *extra; /* [widest sum] */
    dp_approx *key;         /* [keys] */
    double *share;          /* [keys] */
    int64_t row;
    dp_approx shared[3];
} dp_scratch;

/* One stage being evaluated. */
typedef struct dp_job dp_job;
typedef dp_approx (*dp_element_fn)(const dp_job *job, int64_t index, dp_scratch *scratch);
struct dp_job {
    const dp_evaluation *e;
    const dp_class_model *m;
    const dflash_config *c;
    const dp_stage_spec *spec;
    dp_element_fn element;
    const double *in[DP_MOST_INPUTS]; /* in the order of dp_stage_inputs */
    const df_matrix *matrix;          /* of a product */
    const float *vector;              /* a bias, a norm's weight, a base kernel */
    int width;                        /* values of a row */
    dp_approx *state;                 /* owned, [n, r]: what the Markov head's last product is taken of */
};

/* Row `row` of a matrix as it is held, exact. A row that the matrix does not have is not read: false, and NaN, from
 * which nothing that passes can be made. */
bool dp_matrix_row(const df_matrix *matrix, int64_t row, double *out);

/* matrix[row] . x + bias[row], rounded as the class does it. x [matrix->in]. */
dp_approx dp_product(const dp_job *job, const df_matrix *matrix, const float *bias, int64_t row, const double *x,
                     dp_scratch *scratch);

/* The elements of the parts with files of their own. */
dp_approx dp_input_element(const dp_job *job, int64_t index, dp_scratch *scratch);
dp_approx dp_norm_element(const dp_job *job, int64_t index, dp_scratch *scratch);
dp_approx dp_conv_element(const dp_job *job, int64_t index, dp_scratch *scratch);
dp_approx dp_sum_element(const dp_job *job, int64_t index, dp_scratch *scratch); /* a residual */
dp_approx dp_act_element(const dp_job *job, int64_t index, dp_scratch *scratch);
dp_approx dp_inv_freq_element(const dp_job *job, int64_t index, dp_scratch *scratch);
dp_approx dp_rope_table_element(const dp_job *job, int64_t index, dp_scratch *scratch);
dp_approx dp_rotated_element(const dp_job *job, int64_t index, dp_scratch *scratch);
dp_approx dp_attention_element(const dp_job *job, int64_t index, dp_scratch *scratch);

/* Sets job->element, and what it needs, for a stage after `final`. */
dflash_status dp_setup_head(dp_job *job, dp_scratch *scratch, dflash_error *err);

#endif
