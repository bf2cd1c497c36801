/* evaluate.c - see evaluate.h. Here: which stages a stage comes from, and which element of a product is whose. */
#include "formulas/evaluate_parts.h"

#include "common/error.h"

#include <limits.h>
#include <stdlib.h>

/* ---- What a stage comes from ---- */

static void refer(dp_references *r, int stage, int layer) {
    r->item[r->count++] = (dp_reference){(dflash_stage)stage, layer};
}

/* The residual stream before layer `layer`. */
static void refer_stream(dp_references *r, bool embedded, int layer) {
    if (layer == 0)
        refer(r, embedded ? DFLASH_STAGE_INPUT : DP_NOISE, -1);
    else
        refer(r, DFLASH_STAGE_LAYER_OUT, layer - 1);
}

dp_references dp_stage_inputs(const dflash_config *c, bool embedded, dflash_stage stage, int l) {
    const bool convolved = c->family == DFLASH_FAMILY_DFLASH2;
    const int n = convolved ? DFLASH_STAGE_ATTN_CONV_IN : DFLASH_STAGE_ATTN_NORM;
    const int m = convolved ? DFLASH_STAGE_MLP_CONV_IN : DFLASH_STAGE_MLP_NORM;
    dp_references r = {.count = 0};
    switch (stage) {
    case DFLASH_STAGE_CTX_FC:
        refer(&r, DP_TAPS, -1);
        break;
    case DFLASH_STAGE_CTX_FEATURES:
        refer(&r, DFLASH_STAGE_CTX_FC, -1);
        break;
    case DFLASH_STAGE_ROPE_COS:
    case DFLASH_STAGE_ROPE_SIN:
        refer(&r, DFLASH_STAGE_ROPE_INV_FREQ, -1);
        break;
    case DFLASH_STAGE_ATTN_NORM:
        refer_stream(&r, embedded, l);
        break;
    case DFLASH_STAGE_ATTN_CONV_DYN:
        refer(&r, DFLASH_STAGE_ATTN_NORM, l);
        break;
    case DFLASH_STAGE_ATTN_CONV_IN:
        refer(&r, DFLASH_STAGE_ATTN_NORM, l);
        refer(&r, DFLASH_STAGE_ATTN_CONV_DYN, l);
        break;
    case DFLASH_STAGE_ATTN_Q_PROJ:
        refer(&r, n, l);
        break;
    case DFLASH_STAGE_ATTN_K_PROJ:
    case DFLASH_STAGE_ATTN_V:
        refer(&r, n, l);
        refer(&r, DFLASH_STAGE_CTX_FEATURES, -1);
        break;
    case DFLASH_STAGE_ATTN_Q_NORM:
        refer(&r, DFLASH_STAGE_ATTN_Q_PROJ, l);
        break;
    case DFLASH_STAGE_ATTN_K_NORM:
        refer(&r, DFLASH_STAGE_ATTN_K_PROJ, l);
        break;
    case DFLASH_STAGE_ATTN_Q_ROPE:
    case DFLASH_STAGE_ATTN_K_ROPE:
        refer(&r, stage == DFLASH_STAGE_ATTN_Q_ROPE ? DFLASH_STAGE_ATTN_Q_NORM : DFLASH_STAGE_ATTN_K_NORM, l);
        refer(&r, DFLASH_STAGE_ROPE_COS, -1);
        refer(&r, DFLASH_STAGE_ROPE_SIN, -1);
        break;
    case DFLASH_STAGE_ATTN_CONTEXT:
        refer(&r, DFLASH_STAGE_ATTN_Q_ROPE, l);
        refer(&r, DFLASH_STAGE_ATTN_K_ROPE, l);
        refer(&r, DFLASH_STAGE_ATTN_V, l);
        break;
    case DFLASH_STAGE_ATTN_O_PROJ:
        refer(&r, DFLASH_STAGE_ATTN_CONTEXT, l);
        break;
    case DFLASH_STAGE_ATTN_CONV_OUT:
        refer(&r, DFLASH_STAGE_ATTN_O_PROJ, l);
        refer(&r, DFLASH_STAGE_ATTN_CONV_DYN, l);
        break;
    case DFLASH_STAGE_ATTN_RESIDUAL:
        refer_stream(&r, embedded, l);
        refer(&r, convolved ? DFLASH_STAGE_ATTN_CONV_OUT : DFLASH_STAGE_ATTN_O_PROJ, l);
        break;
    case DFLASH_STAGE_MLP_NORM:
        refer(&r, DFLASH_STAGE_ATTN_RESIDUAL, l);
        break;
    case DFLASH_STAGE_MLP_CONV_DYN:
        refer(&r, DFLASH_STAGE_MLP_NORM, l);
        break;
    case DFLASH_STAGE_MLP_CONV_IN:
        refer(&r, DFLASH_STAGE_MLP_NORM, l);
        refer(&r, DFLASH_STAGE_MLP_CONV_DYN, l);
        break;
    case DFLASH_STAGE_MLP_GATE:
    case DFLASH_STAGE_MLP_UP:
        refer(&r, m, l);
        break;
    case DFLASH_STAGE_MLP_ACT:
        refer(&r, DFLASH_STAGE_MLP_GATE, l);
        refer(&r, DFLASH_STAGE_MLP_UP, l);
        break;
    case DFLASH_STAGE_MLP_DOWN:
        refer(&r, DFLASH_STAGE_MLP_ACT, l);
        break;
    case DFLASH_STAGE_MLP_CONV_OUT:
        refer(&r, DFLASH_STAGE_MLP_DOWN, l);
        refer(&r, DFLASH_STAGE_MLP_CONV_DYN, l);
        break;
    case DFLASH_STAGE_LAYER_OUT:
        refer(&r, DFLASH_STAGE_ATTN_RESIDUAL, l);
        refer(&r, convolved ? DFLASH_STAGE_MLP_CONV_OUT : DFLASH_STAGE_MLP_DOWN, l);
        break;
    case DFLASH_STAGE_FINAL:
        refer(&r, DFLASH_STAGE_LAYER_OUT, c->n_layers - 1);
        break;
    case DFLASH_STAGE_LOGITS:
    case DFLASH_STAGE_SELECT_HIDDEN:
        refer(&r, DFLASH_STAGE_FINAL, -1);
        break;
    case DFLASH_STAGE_SELECT_TOPK_VALUES:
    case DFLASH_STAGE_SELECT_TOPK_IDS:
        refer(&r, DFLASH_STAGE_LOGITS, -1);
        break;
    case DFLASH_STAGE_SELECT_SCORES:
        refer(&r, DFLASH_STAGE_SELECT_TOPK_VALUES, -1);
        refer(&r, DFLASH_STAGE_SELECT_TOPK_IDS, -1);
        refer(&r, DFLASH_STAGE_SELECT_HIDDEN, -1);
        refer(&r, DFLASH_STAGE_SELECT_PATH, -1);
        break;
    case DFLASH_STAGE_SELECT_PATH:
        refer(&r, DFLASH_STAGE_SELECT_SCORES, -1);
        refer(&r, DFLASH_STAGE_SELECT_TOPK_IDS, -1);
        break;
    case DFLASH_STAGE_MARKOV_LOGITS:
        refer(&r, DFLASH_STAGE_LOGITS, -1);
        refer(&r, DFLASH_STAGE_FINAL, -1);
        refer(&r, DFLASH_STAGE_MARKOV_TOKENS, -1);
        break;
    case DFLASH_STAGE_MARKOV_TOKENS:
        refer(&r, DFLASH_STAGE_MARKOV_LOGITS, -1);
        break;
    case DFLASH_STAGE_CONFIDENCE_RAW:
        refer(&r, DFLASH_STAGE_FINAL, -1);
        if (c->confidence_with_markov) refer(&r, DFLASH_STAGE_MARKOV_TOKENS, -1);
        break;
    default:
        break; /* the frequencies come from the config alone, the block from the table */
    }
    return r;
}

bool dp_evaluable(dflash_stage stage) { return stage != DFLASH_STAGE_CONFIDENCE_WINDOW; }

static dflash_status find_inputs(dp_job *job, dflash_error *err) {
    const dp_references r = dp_stage_inputs(job->c, job->e->embedding != NULL, job->spec->stage, job->spec->layer);
    for (int i = 0; i < r.count; i++) {
        const int stage = (int)r.item[i].stage;
        if (stage >= DP_TAPS) {
            job->in[i] = stage == DP_TAPS ? job->e->taps : job->e->noise;
            continue;
        }
        const dp_stage_value *value = dp_stage_values_find(job->e->values, r.item[i].stage, r.item[i].layer);
        char name[DFLASH_STAGE_NAME_MAX];
        if (value == NULL)
            return df_fail(err, DFLASH_ERR_ARGUMENT, "evaluate.input",
                           "%s is evaluated from %s, whose values are not there. Give the stages before it.",
                           job->spec->name, dflash_stage_name(r.item[i].stage, r.item[i].layer, name));
        job->in[i] = value->value;
    }
    return DFLASH_OK;
}

/* A rounded weight is shared by all rows, a rounded activation by all columns. */
static int64_t operand_group(const dp_operands *operands, const dp_stage_spec *spec) {
    if (operands->first > 0.0) return dp_dims_product(spec->rank, spec->dim);
    return operands->second > 0.0 ? dp_dims_product(spec->rank, spec->dim) / spec->dim[0] : 1;
}

int64_t dp_evaluate_group(const dp_class_model *m, const dflash_config *c, const dp_stage_spec *spec) {
    const int64_t product = operand_group(&m->product, spec), attention = operand_group(&m->attention, spec);
    switch (spec->stage) {
    case DFLASH_STAGE_ATTN_Q_NORM:
    case DFLASH_STAGE_ATTN_K_NORM:
        return c->head_dim;
    case DFLASH_STAGE_ATTN_CONTEXT:
        return attention > c->head_dim ? attention : c->head_dim;
    case DFLASH_STAGE_CTX_FEATURES:
    case DFLASH_STAGE_INPUT: /* the scale as it is held */
    case DFLASH_STAGE_ATTN_NORM:
    case DFLASH_STAGE_MLP_NORM:
    case DFLASH_STAGE_FINAL:
        return c->hidden;
    case DFLASH_STAGE_ROPE_INV_FREQ:
    case DFLASH_STAGE_SELECT_SCORES:
        return spec->dim[spec->rank - 1];
    case DFLASH_STAGE_MARKOV_LOGITS:
        return c->markov == DFLASH_MARKOV_VANILLA || product > 1 ? product : spec->dim[spec->rank - 1];
    case DFLASH_STAGE_CTX_FC:
    case DFLASH_STAGE_ATTN_CONV_DYN:
    case DFLASH_STAGE_ATTN_Q_PROJ:
    case DFLASH_STAGE_ATTN_K_PROJ:
    case DFLASH_STAGE_ATTN_V:
    case DFLASH_STAGE_ATTN_O_PROJ:
    case DFLASH_STAGE_MLP_CONV_DYN:
    case DFLASH_STAGE_MLP_GATE:
    case DFLASH_STAGE_MLP_UP:
    case DFLASH_STAGE_MLP_DOWN:
    case DFLASH_STAGE_LOGITS:
    case DFLASH_STAGE_SELECT_HIDDEN:
    case DFLASH_STAGE_CONFIDENCE_RAW:
        return product;
    default:
        return 1;
    }
}

/* ---- Products ---- */

static dp_approx product_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const int64_t row = index / job->matrix->out, column = index % job->matrix->out;
    return dp_product(job, job->matrix, job->vector, column, job->in[0] + row * job->matrix->in, scratch);
}

/* k_proj and v: the context's rows come from its features, the block's from the layer's input. */
static dp_approx key_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    const int64_t row = index / job->matrix->out, column = index % job->matrix->out, context = job->e->context;
    const double *x =
        row < context ? job->in[1] + row * job->matrix->in : job->in[0] + (row - context) * job->matrix->in;
    return dp_product(job, job->matrix, job->vector, column, x, scratch);
}

/* The cache holds the context's rows of each layer, bit for bit. */
static dp_approx cache_element(const dp_job *job, int64_t index, dp_scratch *scratch) {
    (void)scratch;
    const int64_t layer = (int64_t)job->e->context * job->c->n_kv_heads * job->c->head_dim;
    return dp_exactly(dp_stage_values_find(job->e->values, dp_cached_stage(job->spec->stage), (int)(index / layer))
                          ->value[index % layer]);
}

/* ---- Set-up ---- */

static void set_product(dp_job *job, dp_element_fn element, const df_matrix *matrix, const float *bias) {
    job->element = element;
    job->matrix = matrix;
    job->vector = bias;
}

static void set_norm(dp_job *job, const float *weight, int width) {
    job->element = dp_norm_element;
    job->vector = weight;
    job->width = width;
}

static void set_conv(dp_job *job, const df_conv_weights *conv, dflash_stage dyn) {
    if (job->spec->stage == dyn) {
        set_product(job, product_element, &conv->projection, NULL);
        return;
    }
    job->element = dp_conv_element;
    job->vector = conv->base;
}

static void set_layer(dp_job *job) {
    const df_layer_weights *w = &job->e->draft->weights.layer[job->spec->layer];
    switch (job->spec->stage) {
    case DFLASH_STAGE_ATTN_NORM:
        set_norm(job, w->input_norm, job->c->hidden);
        break;
    case DFLASH_STAGE_ATTN_CONV_DYN:
    case DFLASH_STAGE_ATTN_CONV_IN:
    case DFLASH_STAGE_ATTN_CONV_OUT:
        set_conv(job, &w->attn_conv, DFLASH_STAGE_ATTN_CONV_DYN);
        break;
    case DFLASH_STAGE_ATTN_Q_PROJ:
        set_product(job, product_element, &w->q, w->q_bias);
        break;
    case DFLASH_STAGE_ATTN_K_PROJ:
        set_product(job, key_element, &w->k, w->k_bias);
        break;
    case DFLASH_STAGE_ATTN_V:
        set_product(job, key_element, &w->v, w->v_bias);
        break;
    case DFLASH_STAGE_ATTN_Q_NORM:
        set_norm(job, w->q_norm, job->c->head_dim);
        break;
    case DFLASH_STAGE_ATTN_K_NORM:
        set_norm(job, w->k_norm, job->c->head_dim);
        break;
    case DFLASH_STAGE_ATTN_Q_ROPE:
    case DFLASH_STAGE_ATTN_K_ROPE:
        job->element = dp_rotated_element;
        break;
    case DFLASH_STAGE_ATTN_CONTEXT:
        job->element = dp_attention_element;
        break;
    case DFLASH_STAGE_ATTN_O_PROJ:
        set_product(job, product_element, &w->o, w->o_bias);
        break;
    case DFLASH_STAGE_MLP_NORM:
        set_norm(job, w->post_norm, job->c->hidden);
        break;
    case DFLASH_STAGE_MLP_CONV_DYN:
    case DFLASH_STAGE_MLP_CONV_IN:
    case DFLASH_STAGE_MLP_CONV_OUT:
        set_conv(job, &w->mlp_conv, DFLASH_STAGE_MLP_CONV_DYN);
        break;
    case DFLASH_STAGE_MLP_GATE:
        set_product(job, product_element, &w->gate, NULL);
        break;
    case DFLASH_STAGE_MLP_UP:
        set_product(job, product_element, &w->up, NULL);
        break;
    case DFLASH_STAGE_MLP_ACT:
        job->element = dp_act_element;
        break;
    case DFLASH_STAGE_MLP_DOWN:
        set_product(job, product_element, &w->down, NULL);
        break;
    default: /* the two residual sums */
        job->element = dp_sum_element;
        break;
    }
}

static dflash_status set_up(dp_job *job, dp_scratch *scratch, dflash_error *err) {
    const df_weights *w = &job->e->draft->weights;
    switch (job->spec->stage) {
    case DFLASH_STAGE_CTX_FC:
        set_product(job, product_element, &w->fc, NULL);
        return DFLASH_OK;
    case DFLASH_STAGE_CTX_FEATURES:
        set_norm(job, w->hidden_norm, job->c->hidden);
        return DFLASH_OK;
    case DFLASH_STAGE_ROPE_INV_FREQ:
        job->element = dp_inv_freq_element;
        return DFLASH_OK;
    case DFLASH_STAGE_ROPE_COS:
    case DFLASH_STAGE_ROPE_SIN:
        job->element = dp_rope_table_element;
        return DFLASH_OK;
    case DFLASH_STAGE_INPUT:
        set_product(job, dp_input_element, &job->e->embedding->matrix, NULL);
        return DFLASH_OK;
    case DFLASH_STAGE_FINAL:
        set_norm(job, w->norm, job->c->hidden);
        return DFLASH_OK;
    case DFLASH_STAGE_KV_K:
    case DFLASH_STAGE_KV_V:
        job->element = cache_element;
        return DFLASH_OK;
    default:
        if (!dflash_stage_per_layer(job->spec->stage)) return dp_setup_head(job, scratch, err);
        set_layer(job);
        return DFLASH_OK;
    }
}

/* ---- The whole ---- */

enum { ELEMENTS_PER_TASK = 64 }; /* a few rows of the small stages, and enough tasks of the large ones */

typedef struct work {
    const dp_job *job;
    const dp_selection *selection;
    dp_scratch *scratch; /* per worker */
    dp_approx *out;
} work;

static void task(void *context, int number, int worker) {
    const work *w = context;
    for (int64_t i = (int64_t)number * ELEMENTS_PER_TASK; i < w->selection->count && i / ELEMENTS_PER_TASK == number;
         i++)
        w->out[i] = w->job->element(w->job, dp_selected(w->selection, i), &w->scratch[worker]);
}

static size_t largest(size_t a, size_t b) { return a > b ? a : b; }

/* The longest sum of any stage, and the longest list that is kept of a row. */
static size_t widest(const dp_evaluation *e, const dflash_config *c) {
    const df_weights *w = &e->draft->weights;
    const size_t hidden = (size_t)c->hidden, rank = (size_t)w->markov_w1.in;
    size_t n = largest(hidden * (size_t)c->n_taps, (size_t)c->intermediate);
    n = largest(n, (size_t)c->n_heads * (size_t)c->head_dim);
    n = largest(n, hidden + 3 * rank);
    n = largest(n, 2 * (size_t)c->conv_kernel);
    return largest(n, largest((size_t)c->selector_rank, (size_t)c->selector_top_k));
}

static dflash_status take_scratch(const dp_evaluation *e, const dflash_config *c, int workers, dp_scratch **out,
                                  double **memory, dflash_error *err) {
    const size_t wide = widest(e, c), keys = (size_t)e->context + (size_t)c->block;
    const size_t each = 2 * wide + keys + 3 * keys; /* a dp_approx is three doubles */
    _Static_assert(sizeof(dp_approx) == 3 * sizeof(double), "keys lie among the doubles of a worker's memory");
    *out = calloc((size_t)workers, sizeof **out);
    *memory = calloc((size_t)workers * each, sizeof **memory);
    if (*out == NULL || *memory == NULL)
        return df_fail_memory(err, "the evaluation of a stage", (size_t)workers * each * sizeof **memory);
    for (int i = 0; i < workers; i++) {
        double *at = *memory + (size_t)i * each;
        (*out)[i] = (dp_scratch){.row = -1, .weight = at, .extra = at + wide, .share = at + 2 * wide};
        (*out)[i].key = (dp_approx *)(void *)(at + 2 * wide + keys);
    }
    return DFLASH_OK;
}

dflash_status dp_evaluate(const dp_evaluation *e, const dp_stage_spec *spec, const dp_selection *selection,
                          df_pool *pool, dp_approx *out, dflash_error *err) {
    dp_job job = {.e = e, .m = &e->model, .c = dflash_draft_config(e->draft), .spec = spec};
    dp_scratch *scratch = NULL;
    double *memory = NULL;
    if (!dp_evaluable(spec->stage))
        return df_fail(err, DFLASH_ERR_ARGUMENT, "evaluate.stage",
                       "%s is a decision about values, not a formula: there is nothing to evaluate.", spec->name);
    if (dp_is_cache(spec->stage) && !dp_evaluate_inputs(e, spec))
        return df_fail(err, DFLASH_ERR_ARGUMENT, "evaluate.input",
                       "%s is evaluated from every layer's keys or values, and one is not there.", spec->name);
    dflash_status status = find_inputs(&job, err);
    if (status == DFLASH_OK) status = take_scratch(e, job.c, df_pool_threads(pool), &scratch, &memory, err);
    if (status == DFLASH_OK) status = set_up(&job, scratch, err);
    if (status == DFLASH_OK) {
        work w = {.job = &job, .selection = selection, .scratch = scratch, .out = out};
        df_pool_run(pool, task, &w, (int)((selection->count + ELEMENTS_PER_TASK - 1) / ELEMENTS_PER_TASK));
    }
    free(job.state);
    free(scratch);
    free(memory);
    return status;
}
