/* evaluate_rows.c - see evaluate.h: rows of weights and products with them, the block's embedding, norms, convolutions,
 * residuals and the activation. */
#include "formulas/evaluate_parts.h"

#include <limits.h>
#include <math.h>

bool dp_matrix_row(const df_matrix *matrix, int64_t row, double *out) {
    if (row < 0 || row >= matrix->out) {
        for (int64_t k = 0; k < matrix->in; k++) out[k] = NAN;
        return false;
    }
    const unsigned char *from =
        (const unsigned char *)matrix->data + (size_t)row * df_row_bytes(matrix->dtype, matrix->in);
    if (df_dtype_is_block(matrix->dtype)) {
        const bool q8 = matrix->dtype == DF_Q8_0;
        for (int64_t k = 0; k < matrix->in; k += DF_QUANT_BLOCK) {
            float block[DF_QUANT_BLOCK];
            if (q8)
                df_q8_0_decode(from + (size_t)(k / DF_QUANT_BLOCK) * DF_Q8_0_BYTES, block);
            else
                df_q4_0_decode(from + (size_t)(k / DF_QUANT_BLOCK) * DF_Q4_0_BYTES, block);
            for (int i = 0; i < DF_QUANT_BLOCK; i++) out[k + i] = (double)block[i];
        }
        return true;
    }
    for (int64_t k = 0; k < matrix->in; k++) {
        uint32_t wide = 0;
        uint16_t narrow = 0;
        if (matrix->dtype == DF_F32)
            memcpy(&wide, from + (size_t)k * sizeof wide, sizeof wide);
        else
            memcpy(&narrow, from + (size_t)k * sizeof narrow, sizeof narrow);
        out[k] = (double)(matrix->dtype == DF_F32   ? df_bits_to_f32(wide)
                          : matrix->dtype == DF_F16 ? df_f16_to_f32(narrow)
                                                    : df_bf16_to_f32(narrow));
    }
    return true;
}

dp_approx dp_product(const dp_job *job, const df_matrix *matrix, const float *bias, int64_t row, const double *x,
                     dp_scratch *scratch) {
    dp_matrix_row(matrix, row, scratch->weight);
    const dp_terms terms = {.a = scratch->weight, .b = x, .n = (int)matrix->in, .operands = &job->m->product};
    const dp_approx sum = dp_sum_products(job->m, &terms);
    return bias != NULL ? dp_add(job->m, sum, dp_exactly((double)bias[row])) : sum;
}

/* A row of the table times the scale; exact where that is 1. */
dp_approx dp_input_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const int64_t row = index / job->c->hidden;
    if (scratch->row != row) {
        dp_matrix_row(job->matrix, job->e->ids[row], scratch->weight);
        scratch->row = row;
    }
    const dp_approx value = dp_exactly(scratch->weight[index % job->c->hidden]);
    return dp_scale(job->m, value, job->c->input_embedding_scale);
}

/* w (x r), r = 1 / sqrt(mean(x^2) + eps). */
dp_approx dp_norm_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const int64_t row = index / job->width;
    const double *x = job->in[0] + row * job->width;
    const dp_class_model *m = job->m;
    if (scratch->row != row) {
        const dp_terms squares = {.a = x, .b = x, .n = job->width};
        const dp_approx quotient = dp_div(m, dp_sum_products(m, &squares), dp_exactly(job->width));
        const dp_approx mean = dp_perhaps_rounded(m, quotient); /* the sum times 1 / n */
        const dp_approx root = dp_sqrt(m, dp_add(m, mean, dp_constant(m, job->c->rms_eps)));
        scratch->shared[0] = dp_div(m, dp_exactly(1.0), root);
        scratch->row = row;
    }
    const dp_approx scaled = dp_mul(m, dp_exactly(x[index % job->width]), scratch->shared[0]);
    return dp_scale(m, scaled, (double)job->vector[index % job->width]);
}

/* Over the taps o that the block has: base[o][c] x[p - o][c], then dyn[p][o][c / group] x[p - o][c]; one chain. In an
 * order that is not known the bound is gamma_n of n = 2k terms, which also holds for (base + dyn) x: each of its terms
 * goes through a sum, a product and k - 1 additions, k + 1 <= 2k roundings. */
dp_approx dp_conv_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const dflash_config *c = job->c;
    const int64_t row = index / c->hidden, channel = index % c->hidden, groups = c->hidden / c->conv_group;
    const bool second = job->spec->stage == DFLASH_STAGE_ATTN_CONV_OUT || job->spec->stage == DFLASH_STAGE_MLP_CONV_OUT;
    const double *dyn = job->in[1] + ((row * 2 + second) * c->conv_kernel) * groups;
    const float *base = job->vector + (int64_t)second * c->conv_kernel * c->hidden;
    int n = 0;
    for (int64_t o = 0; o < c->conv_kernel && o <= row; o++) {
        const double x = job->in[0][(row - o) * c->hidden + channel];
        scratch->weight[n] = (double)base[o * c->hidden + channel];
        scratch->extra[n++] = x;
        scratch->weight[n] = dyn[o * groups + channel / c->conv_group];
        scratch->extra[n++] = x;
    }
    dp_class_model chain = *job->m;
    if (chain.segment > 0) chain.segment = INT_MAX; /* never cut */
    return dp_sum_products(&chain, &(dp_terms){.a = scratch->weight, .b = scratch->extra, .n = n});
}

dp_approx dp_sum_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    (void)scratch;
    return dp_add(job->m, dp_exactly(job->in[0][index]), dp_exactly(job->in[1][index]));
}

dp_approx dp_act_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    (void)scratch;
    const dp_approx gate = dp_exactly(job->in[0][index]);
    const dp_approx silu = dp_perhaps_rounded(job->m, dp_logistic(job->m, gate, gate)); /* gate sigmoid(gate) */
    return dp_mul(job->m, silu, dp_exactly(job->in[1][index]));
}
