/* narrow_cause.c - see narrow_cause.h: products. Attention is narrow_attention.c's. */
#include "bisect/narrow_cause.h"

#include "common/canon.h"
#include "limits/chain.h"
#include "common/dtype.h"
#include "common/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EXAMINED = 64, NAME = 96 };

/* ---- What a product is made of ---- */

typedef struct product {
    const dp_cause_source *source;
    char weight[NAME], bias[NAME]; /* tensor names; bias "" when there is none */
    dflash_stage input[2]; /* stages (DFLASH_STAGE_COUNT: the input target_hidden); the context's rows, the block's */
    int layer, skip;       /* of the inputs; rows of the input before the first that is used */
    int64_t rows, width, outputs;
    float *x;              /* [rows, width], owned */
    dflash_tensor_view w;  /* [outputs, width] */
    dflash_tensor_view wb; /* [outputs]; data NULL without a bias */
} product;

static dflash_stage normed(const dflash_config *c, dflash_stage plain, dflash_stage convolved) {
    return c->family == DFLASH_FAMILY_DFLASH2 ? convolved : plain;
}

static void self_attn(product *p, const char *which, bool biased) {
    snprintf(p->weight, NAME, "layers.%d.self_attn.%s_proj.weight", p->layer, which);
    if (biased) snprintf(p->bias, NAME, "layers.%d.self_attn.%s_proj.bias", p->layer, which);
}

static void one_input(product *p, dflash_stage input) { p->input[0] = p->input[1] = input; }

/* False: the stage is no product. */
static bool describe(const dflash_config *c, const dp_stage_spec *spec, product *p) {
    const dflash_stage n = normed(c, DFLASH_STAGE_ATTN_NORM, DFLASH_STAGE_ATTN_CONV_IN),
                       m = normed(c, DFLASH_STAGE_MLP_NORM, DFLASH_STAGE_MLP_CONV_IN);
    int harvested = 0;
    p->layer = spec->layer;
    one_input(p, n);
    switch (spec->stage) {
    case DFLASH_STAGE_CTX_FC:
        one_input(p, DFLASH_STAGE_COUNT);
        snprintf(p->weight, NAME, "fc.weight");
        return true;
    case DFLASH_STAGE_ATTN_Q_PROJ:
        self_attn(p, "q", c->attention_bias);
        return true;
    case DFLASH_STAGE_ATTN_K_PROJ:
    case DFLASH_STAGE_ATTN_V:
        p->input[0] = DFLASH_STAGE_CTX_FEATURES;
        self_attn(p, spec->stage == DFLASH_STAGE_ATTN_V ? "v" : "k", c->attention_bias);
        return true;
    case DFLASH_STAGE_ATTN_O_PROJ:
        one_input(p, DFLASH_STAGE_ATTN_CONTEXT);
        self_attn(p, "o", c->attention_bias);
        return true;
    case DFLASH_STAGE_ATTN_CONV_DYN:
        one_input(p, DFLASH_STAGE_ATTN_NORM);
        snprintf(p->weight, NAME, "layers.%d.attention_conv.kernel_projection.weight", p->layer);
        return true;
    case DFLASH_STAGE_MLP_CONV_DYN:
        one_input(p, DFLASH_STAGE_MLP_NORM);
        snprintf(p->weight, NAME, "layers.%d.mlp_conv.kernel_projection.weight", p->layer);
        return true;
    case DFLASH_STAGE_MLP_GATE:
    case DFLASH_STAGE_MLP_UP:
        one_input(p, m);
        snprintf(p->weight, NAME, "layers.%d.mlp.%s_proj.weight", p->layer,
                 spec->stage == DFLASH_STAGE_MLP_UP ? "up" : "gate");
        return true;
    case DFLASH_STAGE_MLP_DOWN:
        one_input(p, DFLASH_STAGE_MLP_ACT);
        snprintf(p->weight, NAME, "layers.%d.mlp.down_proj.weight", p->layer);
        return true;
    case DFLASH_STAGE_LOGITS:
    case DFLASH_STAGE_SELECT_HIDDEN:
        one_input(p, DFLASH_STAGE_FINAL);
        dflash_harvest_rows(c, &p->skip, &harvested);
        snprintf(p->weight, NAME, "%s",
                 spec->stage == DFLASH_STAGE_LOGITS ? "lm_head.weight" : "candidate_selector.hidden_projection.weight");
        /* A multiplier or a softcap lies between this product and what the stage shows. */
        return spec->stage != DFLASH_STAGE_LOGITS || (c->output_multiplier == 1.0 && c->logit_softcap == 0.0);
    default:
        return false;
    }
}

static bool find_tensor(const dflash_draft *draft, const char *name, dflash_tensor_view *out) {
    for (int i = 0; i < dflash_draft_tensor_count(draft); i++) {
        *out = dflash_draft_tensor(draft, i);
        /* An output head that is not this run's may have any dtype. */
        df_dtype held = DF_F32;
        while (held <= DF_BF16 && strcmp(out->dtype, df_dtype_name(held)) != 0) held++;
        if (strcmp(out->name, name) == 0) return held <= DF_BF16;
    }
    *out = (dflash_tensor_view){.name = NULL};
    return false;
}

static float element(const dflash_tensor_view *t, int64_t index) {
    uint16_t half;
    float value;
    if (strcmp(t->dtype, "F32") == 0) {
        memcpy(&value, (const char *)t->data + (size_t)index * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, (const char *)t->data + (size_t)index * sizeof half, sizeof half);
    return strcmp(t->dtype, "BF16") == 0 ? df_bf16_to_f32(half) : df_f16_to_f32(half);
}

/* Rows [skip, skip + count) of one recorded input, at row `to` of p->x. */
static dflash_status copy_rows(product *p, dflash_stage input, int64_t skip, int64_t count, int64_t to,
                               dflash_error *err) {
    dp_array array = {.value = NULL};
    char name[DFLASH_STAGE_NAME_MAX];
    dflash_status status =
        input == DFLASH_STAGE_COUNT
            ? dp_oracle_input(p->source->run, "target_hidden", &array, err)
            : dp_oracle_stage(p->source->run, DP_RUN_OWN, dflash_stage_name(input, p->layer, name), &array, err);
    if (status == DFLASH_OK && (array.stride != 1 || (skip + count) * p->width > array.total))
        status = df_fail(err, DFLASH_ERR_REFUSED, "cause.input", "The input is not whole, or has another shape.");
    for (int64_t i = 0; status == DFLASH_OK && i < count * p->width; i++)
        p->x[to * p->width + i] = (float)array.value[skip * p->width + i];
    dp_array_release(&array);
    return status;
}

static dflash_status read_inputs(product *p, const dp_stage_spec *spec, dflash_error *err) {
    p->rows = spec->dim[0];
    p->x = malloc((size_t)(p->rows * p->width) * sizeof *p->x);
    if (p->x == NULL) return df_fail_memory(err, "a product's input", (size_t)(p->rows * p->width) * sizeof *p->x);
    const int64_t context = p->input[0] == p->input[1] ? 0 : p->source->context;
    if (context > 0) TRY(copy_rows(p, p->input[0], 0, context, 0, err));
    return copy_rows(p, p->input[1], p->skip, p->rows - context, context, err);
}

/* ---- Hypotheses ---- */

/* Every hypothesis that still explains all values looked at. Segments and channels count from 0. */
typedef struct standing {
    int64_t segments, width;
    bool plain, bias_missing, bias_twice;
    bool *segment_missing, *segment_twice; /* [segments] */
    bool *channel_missing, *channel_twice; /* [width] */
    bool *memory;                          /* owned, all of the above */
} standing;

static dflash_status stand(const product *p, bool twice, standing *s, dflash_error *err) {
    s->segments = (p->width + DF_SEGMENT - 1) / DF_SEGMENT;
    s->width = p->width;
    const size_t n = 2 * (size_t)(s->segments + s->width);
    s->memory = malloc(n);
    if (s->memory == NULL) return df_fail_memory(err, "the hypotheses", n);
    memset(s->memory, 1, n);
    s->segment_missing = s->memory;
    s->segment_twice = s->segment_missing + s->segments;
    s->channel_missing = s->segment_twice + s->segments;
    s->channel_twice = s->channel_missing + s->width;
    if (!twice) {
        memset(s->segment_twice, 0, (size_t)s->segments);
        memset(s->channel_twice, 0, (size_t)s->width);
    }
    s->plain = true;
    s->bias_missing = p->wb.data != NULL;
    s->bias_twice = twice && p->wb.data != NULL;
    return DFLASH_OK;
}

/* One product of two rows, in the canonical order, with one channel or one segment left out (-1: none). */
static float segment_sum(const float *w, const float *x, int64_t first, int64_t end, int64_t without) {
    float sum = 0.0f;
    for (int64_t k = first; k < end; k++)
        if (k != without) sum = fmaf(w[k], x[k], sum);
    return sum;
}

static float tree_total(const float *sums, int64_t segments, int64_t replaced, float by) {
    df_sum sum = {.tree = {.depth = 0}};
    for (int64_t i = 0; i < segments; i++) df_sum_push(&sum, (unsigned)i, i == replaced ? by : sums[i]);
    return df_sum_total(&sum);
}

static bool same_bits(float a, float b) { return df_f32_to_bits(a) == df_f32_to_bits(b); }

static void look_bitwise(const float *w, const float *x, float *sums, float bias, bool biased, float y, standing *s) {
    for (int64_t i = 0; i < s->segments; i++) {
        const int64_t end = (i + 1) * DF_SEGMENT < s->width ? (i + 1) * DF_SEGMENT : s->width;
        sums[i] = segment_sum(w, x, i * DF_SEGMENT, end, -1);
    }
    const float whole = tree_total(sums, s->segments, -1, 0.0f);
    s->plain = s->plain && same_bits(y, biased ? whole + bias : whole);
    s->bias_missing = s->bias_missing && same_bits(y, whole);
    for (int64_t i = 0; i < s->segments; i++) {
        const float less = tree_total(sums, s->segments, i, 0.0f);
        s->segment_missing[i] = s->segment_missing[i] && same_bits(y, biased ? less + bias : less);
    }
    for (int64_t k = 0; k < s->width; k++) {
        if (!s->channel_missing[k]) continue;
        const int64_t i = k / DF_SEGMENT;
        const int64_t end = (i + 1) * DF_SEGMENT < s->width ? (i + 1) * DF_SEGMENT : s->width;
        const float less = tree_total(sums, s->segments, i, segment_sum(w, x, i * DF_SEGMENT, end, k));
        s->channel_missing[k] = same_bits(y, biased ? less + bias : less);
    }
}

static void look_within_bound(const float *w, const float *x, float bias, float y, standing *s) {
    double sum = (double)bias, size = fabs((double)bias);
    for (int64_t k = 0; k < s->width; k++) {
        const double term = (double)w[k] * (double)x[k];
        sum += term;
        size += fabs(term);
    }
    const double unit = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32).unit;
    const double bound = dp_gamma((double)s->width + 2.0, unit) * size, residual = (double)y - sum;
    s->plain = s->plain && fabs(residual) <= bound;
    s->bias_missing = s->bias_missing && fabs(residual + (double)bias) <= bound;
    s->bias_twice = s->bias_twice && fabs(residual - (double)bias) <= bound;
    for (int64_t i = 0; i < s->segments; i++) {
        double part = 0.0;
        const int64_t end = (i + 1) * DF_SEGMENT < s->width ? (i + 1) * DF_SEGMENT : s->width;
        for (int64_t k = i * DF_SEGMENT; k < end; k++) {
            const double term = (double)w[k] * (double)x[k];
            part += term;
            s->channel_missing[k] = s->channel_missing[k] && fabs(residual + term) <= bound;
            s->channel_twice[k] = s->channel_twice[k] && fabs(residual - term) <= bound;
        }
        s->segment_missing[i] = s->segment_missing[i] && fabs(residual + part) <= bound;
        s->segment_twice[i] = s->segment_twice[i] && fabs(residual - part) <= bound;
    }
}

static dflash_status examine(const product *p, const dp_stage_sides *sides, const bool *off, bool bitwise, standing *s,
                             int *examined, dflash_error *err) {
    const int64_t width = p->width;
    float *w = malloc((size_t)(width + s->segments) * sizeof *w);
    if (w == NULL) return df_fail_memory(err, "a row of weights", (size_t)width * sizeof *w);
    int64_t hits = 0, seen = 0;
    for (int64_t i = 0; i < sides->count; i++) hits += off[i];
    const int64_t every = (hits + MOST_EXAMINED - 1) / MOST_EXAMINED;
    *examined = 0;
    for (int64_t i = 0; i < sides->count; i++) {
        if (!off[i] || seen++ % every != 0) continue;
        const int64_t flat = sides->offset + i * sides->stride, row = flat / p->outputs, output = flat % p->outputs;
        const float bias = p->wb.data != NULL ? element(&p->wb, output) : 0.0f;
        for (int64_t k = 0; k < width; k++) w[k] = element(&p->w, output * width + k);
        if (bitwise)
            look_bitwise(w, p->x + row * width, w + width, bias, p->wb.data != NULL, sides->narrow[1][i], s);
        else
            look_within_bound(w, p->x + row * width, bias, sides->narrow[1][i], s);
        ++*examined;
    }
    free(w);
    return DFLASH_OK;
}

/* ---- The verdict ---- */

static void consider(const bool *alive, int64_t count, dp_cause_kind kind, dp_cause *out) {
    for (int64_t i = 0; i < count; i++) {
        if (!alive[i]) continue;
        out->fits++;
        out->kind = kind;
        out->index = i;
    }
}

static void count_fits(const standing *s, dp_cause *out) {
    out->fits = 0;
    out->kind = DP_CAUSE_NONE;
    out->index = -1;
    consider(s->channel_missing, s->width, DP_CAUSE_CHANNEL_MISSING, out);
    consider(s->channel_twice, s->width, DP_CAUSE_CHANNEL_TWICE, out);
    consider(s->segment_missing, s->segments, DP_CAUSE_SEGMENT_MISSING, out);
    consider(s->segment_twice, s->segments, DP_CAUSE_SEGMENT_TWICE, out);
    consider(&s->bias_missing, 1, DP_CAUSE_BIAS_MISSING, out);
    consider(&s->bias_twice, 1, DP_CAUSE_BIAS_TWICE, out);
    if (out->kind == DP_CAUSE_BIAS_MISSING || out->kind == DP_CAUSE_BIAS_TWICE) out->index = -1;
    if (out->fits > 1) out->kind = DP_CAUSE_AMBIGUOUS, out->index = -1;
    /* What needs no fault to be explained is no fault. */
    if (s->plain) out->fits = 1, out->kind = DP_CAUSE_INHERITED, out->index = -1;
}

static void put_words(const standing *s, dp_cause *out) {
    const char *how = out->bitwise ? "bit by bit" : "within the error bound of the sum";
    const long long first = out->index * DF_SEGMENT, index = out->index;
    const long long last = first + DF_SEGMENT < s->width ? first + DF_SEGMENT - 1 : s->width - 1;
    char what[DP_CAUSE_TEXT - 80] = "";
    switch (out->kind) {
    case DP_CAUSE_SEGMENT_MISSING:
    case DP_CAUSE_SEGMENT_TWICE:
        snprintf(what, sizeof what, "B %s input channels %lld..%lld (segment %lld of %lld)",
                 out->kind == DP_CAUSE_SEGMENT_MISSING ? "lacks the contribution of" : "adds twice the contribution of",
                 first, last, index, (long long)s->segments);
        break;
    case DP_CAUSE_CHANNEL_MISSING:
    case DP_CAUSE_CHANNEL_TWICE:
        snprintf(what, sizeof what, "B %s input channel %lld of %lld",
                 out->kind == DP_CAUSE_CHANNEL_MISSING ? "lacks the contribution of" : "adds twice the contribution of",
                 index, (long long)s->width);
        break;
    case DP_CAUSE_BIAS_MISSING:
        snprintf(what, sizeof what, "B lacks the bias");
        break;
    case DP_CAUSE_BIAS_TWICE:
        snprintf(what, sizeof what, "B adds the bias twice");
        break;
    case DP_CAUSE_INHERITED:
        snprintf(
            what, sizeof what,
            "B's values follow from the inputs that B recorded, so the difference came in with them, or A is at fault");
        break;
    default:
        break;
    }
    if (out->kind == DP_CAUSE_AMBIGUOUS)
        snprintf(out->text, sizeof out->text, "%d hypotheses explain the %d values examined; none is named", out->fits,
                 out->examined);
    else if (out->kind == DP_CAUSE_NONE)
        snprintf(out->text, sizeof out->text,
                 "no pattern: no missing or doubled segment, channel or bias explains the %d values examined",
                 out->examined);
    else
        snprintf(out->text, sizeof out->text, "%s: so say all %d values examined, %s", what, out->examined, how);
}

/* Bit by bit first; an engine that sums in another order gets the bound. */
static dflash_status judge(const product *p, const dp_stage_sides *sides, const bool *off, dp_cause *out,
                           dflash_error *err) {
    dflash_status status = DFLASH_OK;
    for (int pass = 0; status == DFLASH_OK && pass < 2; pass++) {
        standing s = {.memory = NULL};
        out->bitwise = pass == 0;
        status = stand(p, !out->bitwise, &s, err);
        if (status == DFLASH_OK) status = examine(p, sides, off, out->bitwise, &s, &out->examined, err);
        if (status == DFLASH_OK) count_fits(&s, out);
        if (status == DFLASH_OK) put_words(&s, out);
        free(s.memory);
        if (out->fits > 0) break;
    }
    return status;
}

static dflash_status unexamined(dp_cause *out, const char *why) {
    *out = (dp_cause){.kind = DP_CAUSE_UNEXAMINED, .index = -1};
    snprintf(out->text, sizeof out->text, "not examined: %s", why);
    return DFLASH_OK;
}

dflash_status dp_narrow_cause(const dp_cause_source *source, const dp_stage_sides *sides, const bool *off,
                              dp_cause *out, dflash_error *err) {
    product p = {.source = source};
    *out = (dp_cause){.index = -1};
    if (dp_oracle_kind(source->run) != DP_KIND_RECORDING)
        return unexamined(out, "B is an oracle, and a reference is not what is at fault");
    if (sides->spec.stage == DFLASH_STAGE_ATTN_CONTEXT) return dp_cause_of_attention(source, sides, off, out, err);
    if (!describe(source->config, &sides->spec, &p))
        return unexamined(out,
                          "the stage is no product and no attention; the pattern of its values says what there is");
    if (source->draft == NULL) return unexamined(out, "give --checkpoint, and the product is computed again");
    const char *precision = dp_file_precision(source->run);
    if (strcmp(precision, "stored") != 0 && strcmp(precision, "f32") != 0)
        return unexamined(out, "the run held its matrices in another precision than the file's");
    const cJSON *engine = cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(source->run), "engine");
    const char *products = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(engine, "products"));
    if (products != NULL && strcmp(products, dflash_products_name(DFLASH_PRODUCTS_F32)) != 0)
        return unexamined(out, "the run rounded the operands of its products");
    if (!find_tensor(source->draft, p.weight, &p.w) || p.w.rank != 2 ||
        (p.bias[0] != '\0' && !find_tensor(source->draft, p.bias, &p.wb)))
        return unexamined(out, "the checkpoint does not hold the product's matrix");
    p.outputs = p.w.dim[0];
    p.width = p.w.dim[1];
    if (dp_dims_product(sides->spec.rank - 1, sides->spec.dim + 1) != p.outputs)
        return unexamined(out, "the matrix has another shape than the stage");
    dflash_status status = read_inputs(&p, &sides->spec, err);
    if (status == DFLASH_OK)
        status = judge(&p, sides, off, out, err);
    else if (status == DFLASH_ERR_REFUSED)
        status = unexamined(out, "B does not hold the product's inputs");
    free(p.x);
    return status;
}
