/* bounds.c - see bounds.h. */
#include "limits/bounds.h"

#include "common/canon.h"

#include <math.h>

typedef enum constant_index {
    FLOAT32_UNIT,
    FLOAT32_LEAST,
    FLOAT32_LARGEST,
    FLOAT64_UNIT,
    FLOAT64_LEAST,
    FLOAT64_LARGEST,
    SEGMENT,
    TF32_OPERAND,
    TF32_LEAST,
    BF16_OPERAND,
    BF16_LEAST,
    SPLIT_OPERAND,
    SPLIT_LEFT_OUT,
    SPLIT_PRODUCTS,
    PAIRED_PRODUCTS,
    TRUNCATED_UNIT,
    EXP_ULP,
    FAST_EXP_ULP,
    TANH_ULP,
    LIBRARY_ULP,
    FALSE_ALARM,
    CONSTANTS
} constant_index;

static const dp_bound_constant constants[CONSTANTS] = {
    /* table: every number with its reason */
    [FLOAT32_UNIT] = {"float32 unit roundoff", 0x1p-24, "half the spacing of float32 at 1 (Higham, section 2.1)"},
    [FLOAT32_LEAST] = {"float32 underflow", 0x1p-150,
                       "half the least subnormal of float32, 2^-149 (Higham, section 2.1)"},
    [FLOAT32_LARGEST] = {"float32 overflow", 0x1p128, "the power of two past the largest float32"},
    [FLOAT64_UNIT] = {"float64 unit roundoff", 0x1p-53, "half the spacing of float64 at 1 (Higham, section 2.1)"},
    [FLOAT64_LEAST] = {"float64 underflow", 0x1p-1074, "the least subnormal of float64; half of it has no float64"},
    [FLOAT64_LARGEST] = {"float64 overflow", 0x1.fffffffffffffp1023,
                         "the largest float64; results past it are infinite"},
    [SEGMENT] = {"segment of a canonical sum", DF_SEGMENT, "the exact class's order of summation, impl/common/canon.h"},
    [TF32_OPERAND] = {"tf32 operand", 0x1p-11, "11 significant bits, rounded to nearest"},
    [TF32_LEAST] = {"tf32 underflow", 0x1p-137, "half the least subnormal of tf32, 2^-126 over 2^10"},
    [BF16_OPERAND] = {"bf16 operand", 0x1p-8, "8 significant bits, rounded to nearest: half of 2^-7"},
    [BF16_LEAST] = {"bf16 underflow", 0x1p-134, "half the least subnormal of bf16, 2^-126 over 2^7"},
    [SPLIT_OPERAND] = {"bf16 pair operand", 0x1p-17,
                       "a value held as the sum of two bf16: what the first leaves is below 2^-8, so its leading bit "
                       "is worth 2^-9 at most, and the second rounds that to 8 bits"},
    [SPLIT_LEFT_OUT] =
        {"second times second of two bf16 pairs", 0x1p-16,
         "the fast attention leaves this product out (impl/cuda/persistent/attend_fast.cuh); each is 2^-8 of its "
         "value at most"},
    [SPLIT_PRODUCTS] = {"products of a bf16 pair", 2.125,
                        "each activation is multiplied twice, and a step of the tensor cores adds 16 products to one "
                        "accumulator, 17 terms: 2 x 17 / 16 roundings to a term"},
    [PAIRED_PRODUCTS] = {"products of two bf16 pairs", 3.1875,
                         "three of the four products of two pairs enter one accumulator, and a step of the tensor "
                         "cores adds 16 terms to it: 3 x 17 / 16 roundings to a term"},
    [TRUNCATED_UNIT] = {"tensor core accumulation", 0x1p-23,
                        "the accumulators are not promised to round to nearest; cutting "
                        "off loses up to a whole unit in the last place"},
    [EXP_ULP] = {"exp of the exact class", 1.05, "the largest error of df_exp in ulp, measured by the suite mathfn"},
    [FAST_EXP_ULP] =
        {"exp of the fast class", 106.0,
         "its attention's exponential errs by 2^-22 + 2^-23 |x| relative (impl/cuda/persistent/attend_fast.cuh), "
         "and |x| reaches 104, past which e^x is zero"},
    [TANH_ULP] = {"tanh of the exact class", 1.0, "the largest error of df_tanh in ulp, measured by the suite tanh"},
    [LIBRARY_ULP] = {"a library's functions", 4.0,
                     "exp, tanh, cosine and sine of the vector libraries behind the reference are "
                     "specified to at most this many ulp, in float64 and in float32"},
    [FALSE_ALARM] = {"chance of a false alarm of one stage", 0x1p-40,
                     "2^33 stages are a thousand gates a day for twelve "
                     "years; over all of them it stays under 1 %"},
    /* end of table */
};

static double constant(constant_index index) { return constants[index].value; }

const dp_bound_constant *dp_bound_constant_at(int index) {
    return index >= 0 && index < CONSTANTS ? &constants[index] : NULL;
}

static dp_operands operands_of(dflash_products products) {
    const bool tf32 = products == DFLASH_PRODUCTS_TF32;
    if (products == DFLASH_PRODUCTS_F32) return (dp_operands){.first = 0.0};
    const double relative = constant(tf32 ? TF32_OPERAND : BF16_OPERAND);
    return (dp_operands){relative, relative, .least = constant(tf32 ? TF32_LEAST : BF16_LEAST)};
}

dp_class_model dp_class_model_of(dflash_backend backend, dflash_class numeric_class, dflash_products products) {
    (void)backend; /* a class promises the same everywhere */
    dp_class_model model = {.name = "exact",
                            .unit = constant(FLOAT32_UNIT),
                            .least = constant(FLOAT32_LEAST),
                            .largest = constant(FLOAT32_LARGEST),
                            .segment = (int)constant(SEGMENT),
                            .chain = 1.0,
                            .attention_chain = 1.0,
                            .product = operands_of(products),
                            .exp_error = constant(EXP_ULP),
                            .tanh_error = constant(TANH_ULP),
                            .even = true,
                            .fused = true,
                            .float32 = true};
    if (numeric_class == DFLASH_CLASS_CUBLAS) {
        model.name = "cublas";
        model.segment = 0;
    }
    if (numeric_class == DFLASH_CLASS_FAST) {
        model.name = "fast";
        model.segment = 0;
        model.unit = constant(TRUNCATED_UNIT);
        model.even = false; /* what is cut off always lies on one side */
        model.chain = constant(SPLIT_PRODUCTS);
        model.attention_chain = constant(PAIRED_PRODUCTS);
        model.product = (dp_operands){.second = constant(SPLIT_OPERAND), .least = constant(BF16_LEAST)};
        model.attention = (dp_operands){.first = constant(SPLIT_OPERAND),
                                        .second = constant(SPLIT_OPERAND),
                                        .least = constant(BF16_LEAST),
                                        .left_out = constant(SPLIT_LEFT_OUT)};
        model.exp_error = constant(FAST_EXP_ULP);
    }
    return model;
}

double dp_class_coarseness(dflash_class numeric_class) {
    const dp_class_model model = dp_class_model_of(DFLASH_BACKEND_CPU, numeric_class, DFLASH_PRODUCTS_F32);
    return fmax(1.0, fmax(model.unit, fmax(model.product.first, model.product.second)) / constant(FLOAT32_UNIT));
}

dp_class_model dp_class_model_reference(void) {
    return (dp_class_model){.name = "float64",
                            .unit = constant(FLOAT64_UNIT),
                            .least = constant(FLOAT64_LEAST),
                            .largest = constant(FLOAT64_LARGEST),
                            .chain = 1.0,
                            .attention_chain = 1.0,
                            .exp_error = constant(LIBRARY_ULP),
                            .tanh_error = constant(LIBRARY_ULP)};
}

dp_class_model dp_class_model_any_order(void) {
    dp_class_model model = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    model.name = "any order";
    model.segment = 0;
    model.fused = false;
    model.exp_error = constant(LIBRARY_ULP);
    model.tanh_error = constant(LIBRARY_ULP);
    model.cos_error = constant(LIBRARY_ULP);
    return model;
}

/* ---- Limits ---- */

double dp_false_alarm(void) { return constant(FALSE_ALARM); }

/* 1 + t where G/2 (t - ln(1 + t)) = ln(1 / alpha). The left side grows with t, so halving finds it; the last step is on
 * the far side, which only widens the limit by the halving's end. */
double dp_noise_limit(int64_t groups) {
    if (groups < 1) return 0.0;
    const double wanted = -log(dp_false_alarm()) / (0.5 * (double)groups);
    double low = 0.0, high = 1.0;
    while (high - log1p(high) < wanted) high *= 2.0;
    for (double middle = 0.5 * (low + high); middle > low && middle < high; middle = 0.5 * (low + high)) {
        if (middle - log1p(middle) < wanted)
            low = middle;
        else
            high = middle;
    }
    return sqrt(1.0 + high);
}

double dp_peak_limit(int64_t elements) {
    return elements < 1 ? 0.0 : sqrt(2.0 * log(2.0 * (double)elements / dp_false_alarm()));
}

/* ---- Words ---- */

const char *dp_bound_text(dflash_stage stage, const dp_class_model *model) {
    switch (stage) {
    case DFLASH_STAGE_CTX_FEATURES:
    case DFLASH_STAGE_ATTN_NORM:
    case DFLASH_STAGE_ATTN_Q_NORM:
    case DFLASH_STAGE_ATTN_K_NORM:
    case DFLASH_STAGE_MLP_NORM:
    case DFLASH_STAGE_FINAL:
        return "|y| (half the relative error of mean(x^2) + eps, and 4 roundings)";
    case DFLASH_STAGE_ROPE_INV_FREQ:
        return "ln(theta) 2i/dim u for the float32 exponent, and its sequence of float32 roundings";
    case DFLASH_STAGE_ROPE_COS:
    case DFLASH_STAGE_ROPE_SIN:
        return "a rounding of the function, one of the factor, one of their product";
    case DFLASH_STAGE_INPUT:
        return "ulp/2 of the product with the scale, and the scale's own rounding; 0 where it is 1";
    case DFLASH_STAGE_ATTN_Q_ROPE:
    case DFLASH_STAGE_ATTN_K_ROPE:
        return "ulp/2 of the second product + ulp/2 of the result; 0 where nothing is rotated";
    case DFLASH_STAGE_ATTN_CONTEXT:
        return "sum dp |v - y| / sum p, dp of scores and exp, + running bounds of both sums + division";
    case DFLASH_STAGE_ATTN_CONV_IN:
    case DFLASH_STAGE_ATTN_CONV_OUT:
    case DFLASH_STAGE_MLP_CONV_IN:
    case DFLASH_STAGE_MLP_CONV_OUT:
        return model->segment > 0 ? "sum of ulp/2 of the 2k partial sums" : "gamma_2k sum |w||x|, any order";
    case DFLASH_STAGE_ATTN_RESIDUAL:
    case DFLASH_STAGE_LAYER_OUT:
        return "ulp/2 of the sum";
    case DFLASH_STAGE_MLP_ACT:
        return "exp, 1 + e, division and product, rounded in turn; |silu| where e^-x overflows";
    case DFLASH_STAGE_SELECT_TOPK_VALUES:
    case DFLASH_STAGE_SELECT_TOPK_IDS:
    case DFLASH_STAGE_SELECT_PATH:
    case DFLASH_STAGE_MARKOV_TOKENS:
        return "0: a choice among the values before it, exact";
    case DFLASH_STAGE_KV_K:
    case DFLASH_STAGE_KV_V:
        return "0: the same bits as the block computes";
    case DFLASH_STAGE_SELECT_SCORES:
        return "ulp/2 of each predecessor product, of the partial sums, of the sum with the logit";
    case DFLASH_STAGE_MARKOV_LOGITS:
        return "sum |w| du + ulp/2 of the partial sums and of the sum with the logit";
    default:
        if (model->product.second > 0.0)
            return model->segment > 0 ? "ulp/2 of the partial sums + rounded operands, sum |w||dx| + |dw||x|"
                                      : "(gamma_K + rounded operands) sum |w||x|, any order";
        return model->segment > 0 ? "sum of ulp/2 of the partial sums, canonical order"
                                  : "gamma_K sum |w||x|, any order";
    }
}
