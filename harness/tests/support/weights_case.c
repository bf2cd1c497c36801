/*
 * weights_case.c - see weights_case.h. The lists of tensors are written out from the published layouts with literal
 * sizes, not taken from the code under test.
 */
#include "support/weights_case.h"

#include <stdio.h>
#include <string.h>

char ws_path[TF_PATH_MAX + 32];
tf_file *ws_file;
dflash_config ws_config;

static char dir[TF_PATH_MAX];

typedef struct expected_tensor {
    const char *name;
    int rank;
    int64_t dim[3];
} expected_tensor;

static const expected_tensor OUTSIDE[] = {
    {"fc.weight", 2, {12, 36}}, {"hidden_norm.weight", 1, {12}}, {"norm.weight", 1, {12}}};
static const expected_tensor LAYER[] = {
    {"input_layernorm.weight", 1, {12}},      {"post_attention_layernorm.weight", 1, {12}},
    {"self_attn.q_proj.weight", 2, {30, 12}}, {"self_attn.k_proj.weight", 2, {10, 12}},
    {"self_attn.v_proj.weight", 2, {10, 12}}, {"self_attn.o_proj.weight", 2, {12, 30}},
    {"self_attn.q_norm.weight", 1, {5}},      {"self_attn.k_norm.weight", 1, {5}},
    {"mlp.gate_proj.weight", 2, {21, 12}},    {"mlp.up_proj.weight", 2, {21, 12}},
    {"mlp.down_proj.weight", 2, {12, 21}}};
static const expected_tensor LAYER_BIAS[] = {{"self_attn.q_proj.bias", 1, {30}},
                                             {"self_attn.k_proj.bias", 1, {10}},
                                             {"self_attn.v_proj.bias", 1, {10}},
                                             {"self_attn.o_proj.bias", 1, {12}}};
static const expected_tensor LAYER_CONV[] = {{"attention_conv.base_kernel", 3, {2, 3, 12}},
                                             {"attention_conv.kernel_projection.weight", 2, {18, 12}},
                                             {"mlp_conv.base_kernel", 3, {2, 3, 12}},
                                             {"mlp_conv.kernel_projection.weight", 2, {18, 12}}};
static const expected_tensor SELECTOR[] = {{"candidate_selector.hidden_projection.weight", 2, {7, 12}},
                                           {"candidate_selector.predecessor_codebook", 2, {17, 7}},
                                           {"candidate_selector.successor_codebook", 2, {17, 7}}};
static const expected_tensor MARKOV[] = {{"markov_head.markov_w1.weight", 2, {17, 7}},
                                         {"markov_head.markov_w2.weight", 2, {17, 7}}};
static const expected_tensor GATED[] = {{"markov_head.gate_proj.weight", 2, {7, 19}},
                                        {"markov_head.gate_proj.bias", 1, {7}}};
static const expected_tensor RNN[] = {{"markov_head.joint_proj.weight", 2, {21, 26}},
                                      {"markov_head.joint_proj.bias", 1, {21}}};
static const expected_tensor CONFIDENCE[] = {{"confidence_head.proj.weight", 2, {1, 12}},
                                             {"confidence_head.proj.bias", 1, {1}}};
static const expected_tensor CONFIDENCE_MARKOV[] = {{"confidence_head.proj.weight", 2, {1, 19}},
                                                    {"confidence_head.proj.bias", 1, {1}}};

#define ADD_ALL(list, prefix) add_all(list, sizeof(list) / sizeof *(list), prefix)

static void add_all(const expected_tensor *list, size_t count, const char *prefix) {
    for (size_t i = 0; i < count; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", prefix, list[i].name);
        tf_add(ws_file, name, "BF16", list[i].rank, list[i].dim, NULL);
    }
}

static void setup(void) {
    tf_make_dir(dir);
    snprintf(ws_path, sizeof ws_path, "%s/model.safetensors", dir);
}

static void teardown(void) {
    tf_free(ws_file);
    ws_file = NULL;
    tf_remove_dir(dir);
}

/* Sets ws_config to the family and ws_file to exactly the tensors that it calls for. */
static void make(dflash_family family, bool bias, dflash_markov_kind markov, bool confidence, bool with_markov) {
    ws_config = (dflash_config){.family = family,
                                .hidden = WS_H,
                                .n_heads = WS_NH,
                                .n_kv_heads = WS_NKV,
                                .head_dim = WS_HD,
                                .intermediate = WS_F,
                                .n_layers = WS_L,
                                .n_taps = WS_T,
                                .vocab = WS_V,
                                .attention_bias = bias,
                                .markov = markov,
                                .confidence = confidence,
                                .confidence_with_markov = with_markov};
    if (family == DFLASH_FAMILY_DFLASH2) {
        ws_config.conv_kernel = WS_K;
        ws_config.conv_group = WS_GROUP;
        ws_config.selector_rank = WS_R;
        ws_config.selector_vocab = WS_V - 2; /* bounds the candidates, not the codebooks */
    }
    if (family == DFLASH_FAMILY_DSPARK) ws_config.markov_rank = WS_R;
    tf_free(ws_file);
    ws_file = tf_new();
    ADD_ALL(OUTSIDE, "");
    for (int i = 0; i < WS_L; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%d.", i);
        ADD_ALL(LAYER, prefix);
        if (bias) ADD_ALL(LAYER_BIAS, prefix);
        if (family == DFLASH_FAMILY_DFLASH2) ADD_ALL(LAYER_CONV, prefix);
    }
    if (family == DFLASH_FAMILY_DFLASH2) ADD_ALL(SELECTOR, "");
    if (markov != DFLASH_MARKOV_NONE) ADD_ALL(MARKOV, "");
    if (markov == DFLASH_MARKOV_GATED) ADD_ALL(GATED, "");
    if (markov == DFLASH_MARKOV_RNN) ADD_ALL(RNN, "");
    if (confidence && with_markov) ADD_ALL(CONFIDENCE_MARKOV, "");
    if (confidence && !with_markov) ADD_ALL(CONFIDENCE, "");
}

void ws_make_variant(int variant) {
    static const struct {
        dflash_family family;
        bool bias;
        dflash_markov_kind markov;
        bool confidence, with_markov;
    } variants[WS_VARIANTS] = {[WS_DFLASH] = {DFLASH_FAMILY_DFLASH, false, DFLASH_MARKOV_NONE, false, false},
                               [WS_DFLASH_BIAS] = {DFLASH_FAMILY_DFLASH, true, DFLASH_MARKOV_NONE, false, false},
                               [WS_DFLASH2] = {DFLASH_FAMILY_DFLASH2, false, DFLASH_MARKOV_NONE, false, false},
                               [WS_DSPARK_VANILLA] = {DFLASH_FAMILY_DSPARK, false, DFLASH_MARKOV_VANILLA, true, true},
                               [WS_DSPARK_GATED] = {DFLASH_FAMILY_DSPARK, false, DFLASH_MARKOV_GATED, true, false},
                               [WS_DSPARK_RNN] = {DFLASH_FAMILY_DSPARK, true, DFLASH_MARKOV_RNN, false, false},
                               [WS_DSPARK_BARE] = {DFLASH_FAMILY_DSPARK, false, DFLASH_MARKOV_NONE, true, false}};
    make(variants[variant].family, variants[variant].bias, variants[variant].markov, variants[variant].confidence,
         variants[variant].with_markov);
}

void ws_refuse(const char *code, const char *word) {
    tf_write(ws_file, ws_path);
    df_weights weights;
    memset(&weights, 0x5a, sizeof weights);
    dflash_error err = {.status = DFLASH_OK};
    const dflash_status status = df_weights_load(ws_path, &ws_config, &weights, &err);
    ck_assert_msg(status == DFLASH_ERR_REFUSED && err.status == status && strcmp(err.code, code) == 0,
                  "expected a refusal %s, got %d %s: %s", code, (int)status, err.code, err.message);
    ck_assert_msg(strstr(err.message, word) != NULL, "no \"%s\" in: %s", word, err.message);
    ck_assert_msg(strstr(err.message, ws_path) != NULL, "the message does not name the file: %s", err.message);
    ck_assert(weights.file == NULL && weights.vectors == NULL && weights.layer == NULL && weights.used == NULL);
}

df_weights ws_load(void) {
    tf_write(ws_file, ws_path);
    df_weights weights;
    dflash_error err = {.status = DFLASH_OK};
    ck_assert_msg(df_weights_load(ws_path, &ws_config, &weights, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
    return weights;
}

void ws_add_case(Suite *suite, const char *name, void (*add)(TCase *tests)) {
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    add(tests);
    suite_add_tcase(suite, tests);
}
