/* vectors_conv.c - see vectors.h: the convolutions on blocks of any length, and the frequency tables of YaRN. */
#include "vectors/vectors_parts.h"

#include "config/config.h"
#include "model/model.h"
#include "common/error.h"
#include "run/hosted.h"
#include "model/rope.h"

#include <limits.h>
#include <string.h>

enum { MOST_TERMS = 64 };

typedef struct conv {
    const df_conv_weights *weights;
    int rows, taps, groups, group, hidden;
} conv;

/* As evaluate_rows.c convolves, of kernels that have errors of their own. */
static dp_approx element(const conv *c, const dp_class_model *model, int half, const float *x, const dp_approx *dyn,
                         int row, int channel) {
    double a[MOST_TERMS], b[MOST_TERMS];
    dp_terms terms = {.a = a, .b = b};
    for (int o = 0; o < c->taps && o <= row; o++) {
        const double value = (double)x[(row - o) * c->hidden + channel];
        const dp_approx kernel = dyn[((row * 2 + half) * c->taps + o) * c->groups + channel / c->group];
        a[terms.n] = (double)c->weights->base[(half * c->taps + o) * c->hidden + channel];
        b[terms.n++] = value;
        a[terms.n] = kernel.value;
        b[terms.n++] = value;
        terms.slack += kernel.error * fabs(value);
        terms.variance += kernel.variance * value * value;
    }
    dp_class_model chain = *model;
    if (chain.segment > 0) chain.segment = INT_MAX; /* never cut */
    return dp_sum_products(&chain, &terms);
}

static dflash_status judge_half(dp_vectors_run *run, const conv *c, int half, const float *x, const dp_approx *dyn,
                                const dp_approx *their_dyn, const float *got, const char *name) {
    const int64_t dim[4] = {c->rows, c->hidden}, n = dim[0] * dim[1];
    dp_approx *want = dp_vector_take(run, n, sizeof *want), *their_want = dp_vector_take(run, n, sizeof *want);
    double *theirs;
    if (want == NULL || their_want == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_read_doubles(run, name, dim, &theirs));
    for (int64_t i = 0; i < n; i++) {
        const int row = (int)(i / c->hidden), channel = (int)(i % c->hidden);
        want[i] = element(c, &run->model, half, x, dyn, row, channel);
        their_want[i] = element(c, &run->reference, half, x, their_dyn, row, channel);
    }
    return dp_vector_judge(run,
                           &(dp_vector_value){.name = name,
                                              .bound = "sum |x| of the kernels' errors + ulp/2 of the partial sums",
                                              .dim = {c->rows, c->hidden},
                                              .got = got,
                                              .want = want,
                                              .their_want = their_want,
                                              .theirs = theirs});
}

/* The kernels that prepare projects, and what it makes of them. */
static dflash_status judge_prepare(dp_vectors_run *run, const conv *c, int layer, dflash_sublayer sublayer) {
    const int64_t in[4] = {c->rows, c->hidden}, wide[4] = {c->rows, 2, c->taps, c->groups};
    const int64_t n = in[0] * in[1], kernels = wide[0] * wide[1] * wide[2] * wide[3];
    const bool attention = sublayer == DFLASH_SUBLAYER_ATTENTION;
    float *x, *y = dp_vector_take(run, n, sizeof *y), *dyn = dp_vector_take(run, kernels, sizeof *dyn);
    double *theirs;
    dp_approx *want, *their_want;
    dp_stage_values values = {.item = NULL};
    if (y == NULL || dyn == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_read_floats(run, "prepare_x", in, &x));
    TRY(dp_vector_read_doubles(run, "prepare_dyn", wide, &theirs));
    TRY(dp_conv_prepare(run->draft, layer, sublayer, x, c->rows, y, dyn, run->err));
    dp_vector_formula formula = {
        .stage = attention ? DFLASH_STAGE_ATTN_CONV_DYN : DFLASH_STAGE_MLP_CONV_DYN, .layer = layer, .values = &values};
    memcpy(formula.dim, wide, sizeof wide);
    dflash_status status =
        dp_vector_give(run, attention ? DFLASH_STAGE_ATTN_NORM : DFLASH_STAGE_MLP_NORM, layer, n, x, &values);
    if (status == DFLASH_OK) status = dp_vector_evaluate(run, &formula, &want, &their_want);
    dp_stage_values_release(&values);
    if (status != DFLASH_OK) return status;
    dp_vector_value value = {.name = "prepare_dyn",
                             .bound = dp_bound_text(formula.stage, &run->model),
                             .got = dyn,
                             .want = want,
                             .their_want = their_want,
                             .theirs = theirs};
    memcpy(value.dim, wide, sizeof wide);
    TRY(dp_vector_judge(run, &value));
    return judge_half(run, c, 0, x, want, their_want, y, "prepare_y");
}

static dflash_status judge_finish(dp_vectors_run *run, const conv *c, int layer, dflash_sublayer sublayer) {
    const int64_t in[4] = {c->rows, c->hidden}, wide[4] = {c->rows, 2, c->taps, c->groups};
    const int64_t n = in[0] * in[1], kernels = wide[0] * wide[1] * wide[2] * wide[3];
    float *x, *dyn, *y = dp_vector_take(run, n, sizeof *y);
    dp_approx *exact = dp_vector_take(run, kernels, sizeof *exact);
    if (y == NULL || exact == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_read_floats(run, "finish_x", in, &x));
    TRY(dp_vector_read_floats(run, "finish_dyn", wide, &dyn));
    TRY(dp_conv_finish(run->draft, layer, sublayer, x, dyn, c->rows, y, run->err));
    for (int64_t i = 0; i < kernels; i++) exact[i] = dp_exactly((double)dyn[i]);
    return judge_half(run, c, 1, x, exact, exact, y, "finish_y");
}

dflash_status dp_vectors_conv(dp_vectors_run *run) {
    const char *word;
    int layer, kernel, group;
    int64_t dim[4];
    TRY(dp_vector_int(run->group, "layer", &layer, run->err));
    TRY(dp_vector_int(run->group, "kernel_size", &kernel, run->err));
    TRY(dp_vector_int(run->group, "group_size", &group, run->err));
    TRY(dp_vector_text(run->group, "sublayer", &word, run->err));
    TRY(dp_vector_shape(run->group, "prepare_x", dim, run->err));
    const dflash_sublayer sublayer = strcmp(word, "attention") == 0 ? DFLASH_SUBLAYER_ATTENTION : DFLASH_SUBLAYER_MLP;
    if (run->draft == NULL || layer < 0 || layer >= dflash_draft_config(run->draft)->n_layers ||
        dflash_draft_config(run->draft)->conv_kernel != kernel ||
        dflash_draft_config(run->draft)->conv_group != group || 2 * kernel > MOST_TERMS)
        return df_fail(
            run->err, DFLASH_ERR_REFUSED, "vectors.params",
            "%s is of layer %d with kernels of %d in groups of %d, which its checkpoint does not have. Write "
            "the vectors again.",
            run->group->path, layer, kernel, group);
    const dflash_config *config = dflash_draft_config(run->draft);
    const df_layer_weights *w = &run->host_copy->weights.layer[layer];
    const conv c = {.weights = sublayer == DFLASH_SUBLAYER_ATTENTION ? &w->attn_conv : &w->mlp_conv,
                    .rows = (int)dim[0],
                    .taps = kernel,
                    .groups = config->hidden / group,
                    .group = group,
                    .hidden = config->hidden};
    TRY(judge_prepare(run, &c, layer, sublayer));
    return judge_finish(run, &c, layer, sublayer);
}

/* ---- YaRN ---- */

/* The table has the bits of both generations of transformers, and the factor as float32 holds it those of the formula.
 */
dflash_status dp_vectors_yarn(dp_vectors_run *run) {
    dflash_config config;
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(run->group->params, "config"));
    if (text == NULL) return df_fail_memory(run->err, "a config", 0);
    const dflash_status parsed = df_config_parse(text, strlen(text), run->group->path, &config, run->err);
    cJSON_free(text);
    if (parsed != DFLASH_OK) return parsed;
    const int64_t half = config.rope.rotary_dim / 2, table[4] = {half}, one[4] = {1};
    float *theirs, *ours = dp_vector_take(run, half, sizeof *ours);
    double *precise, *factor;
    int32_t *bits = dp_vector_take(run, half, sizeof *bits), *their_bits = dp_vector_take(run, half, sizeof *bits);
    if (ours == NULL || bits == NULL || their_bits == NULL) return DFLASH_ERR_MEMORY;
    TRY(dp_vector_read_floats(run, "inv_freq", table, &theirs));
    TRY(dp_vector_read_doubles(run, "inv_freq_float64", table,
                               &precise)); /* theirs by their own formula: test_vectors.c */
    TRY(dp_vector_read_doubles(run, "attention_factor", one, &factor));
    df_rope_inv_freq(&config.rope, ours);
    memcpy(bits, ours, (size_t)half * sizeof *bits);
    memcpy(their_bits, theirs, (size_t)half * sizeof *bits);
    TRY(dp_vector_equal(run, "inv_freq.bits", table, bits, their_bits));
    const float scaling = (float)df_rope_attention_scaling(&config.rope), their_scaling = (float)*factor;
    memcpy(bits, &scaling, sizeof *bits);
    memcpy(their_bits, &their_scaling, sizeof *bits);
    return dp_vector_equal(run, "attention_factor.bits", one, bits, their_bits);
}
