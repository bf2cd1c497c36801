/* test_stage.c - the names of the stages: there and back for every stage and layer, and nothing else is a name. */
#include "support/op_case.h"

#include <stdio.h>

START_TEST(every_name_of_every_layer_is_read_back) {
    int per_layer = 0;
    for (int s = 0; s < DFLASH_STAGE_COUNT; s++) {
        const dflash_stage stage = (dflash_stage)s;
        const int layers = dflash_stage_per_layer(stage) ? DFLASH_MAX_LAYERS : 1;
        per_layer += dflash_stage_per_layer(stage);
        for (int layer = 0; layer < layers; layer++) {
            char name[DFLASH_STAGE_NAME_MAX], prefix[20];
            dflash_stage read = DFLASH_STAGE_COUNT;
            int read_layer = -2;
            ck_assert_ptr_eq(dflash_stage_name(stage, layer, name), name);
            snprintf(prefix, sizeof prefix, "layers.%d.", layer);
            ck_assert_int_eq(strncmp(name, prefix, strlen(prefix)) == 0, dflash_stage_per_layer(stage));
            ck_assert_msg(dflash_stage_parse(name, &read, &read_layer), "%s", name);
            ck_assert_int_eq((int)read, s);
            ck_assert_int_eq(read_layer, dflash_stage_per_layer(stage) ? layer : -1);
        }
    }
    ck_assert_int_eq(per_layer, DFLASH_STAGE_LAYER_OUT - DFLASH_STAGE_ATTN_NORM + 1);
}
END_TEST

START_TEST(names_are_all_different) {
    for (int a = 0; a < DFLASH_STAGE_COUNT; a++)
        for (int b = 0; b < a; b++) {
            char first[DFLASH_STAGE_NAME_MAX], second[DFLASH_STAGE_NAME_MAX];
            ck_assert_str_ne(dflash_stage_name((dflash_stage)a, 3, first),
                             dflash_stage_name((dflash_stage)b, 3, second));
        }
}
END_TEST

/* Spelled out: these names are a contract with files written elsewhere. */
START_TEST(names_are_those_of_the_public_vocabulary) {
    static const struct {
        dflash_stage stage;
        int layer;
        const char *name;
    } expected[] = {{DFLASH_STAGE_CTX_FC, -1, "ctx.fc"},
                    {DFLASH_STAGE_CTX_FEATURES, 5, "ctx.features"},
                    {DFLASH_STAGE_ROPE_INV_FREQ, -1, "rope.inv_freq"},
                    {DFLASH_STAGE_ROPE_COS, -1, "rope.cos"},
                    {DFLASH_STAGE_ROPE_SIN, -1, "rope.sin"},
                    {DFLASH_STAGE_INPUT, -1, "input"},
                    {DFLASH_STAGE_ATTN_NORM, 0, "layers.0.attn.norm"},
                    {DFLASH_STAGE_ATTN_CONV_DYN, 1, "layers.1.attn.conv_dyn"},
                    {DFLASH_STAGE_ATTN_CONV_IN, 1, "layers.1.attn.conv_in"},
                    {DFLASH_STAGE_ATTN_Q_PROJ, 2, "layers.2.attn.q_proj"},
                    {DFLASH_STAGE_ATTN_K_PROJ, 3, "layers.3.attn.k_proj"},
                    {DFLASH_STAGE_ATTN_V, 10, "layers.10.attn.v"},
                    {DFLASH_STAGE_ATTN_Q_NORM, 0, "layers.0.attn.q_norm"},
                    {DFLASH_STAGE_ATTN_K_NORM, 0, "layers.0.attn.k_norm"},
                    {DFLASH_STAGE_ATTN_Q_ROPE, 0, "layers.0.attn.q_rope"},
                    {DFLASH_STAGE_ATTN_K_ROPE, 0, "layers.0.attn.k_rope"},
                    {DFLASH_STAGE_ATTN_CONTEXT, 0, "layers.0.attn.context"},
                    {DFLASH_STAGE_ATTN_O_PROJ, 0, "layers.0.attn.o_proj"},
                    {DFLASH_STAGE_ATTN_CONV_OUT, 0, "layers.0.attn.conv_out"},
                    {DFLASH_STAGE_ATTN_RESIDUAL, 0, "layers.0.attn.residual"},
                    {DFLASH_STAGE_MLP_NORM, 0, "layers.0.mlp.norm"},
                    {DFLASH_STAGE_MLP_CONV_DYN, 0, "layers.0.mlp.conv_dyn"},
                    {DFLASH_STAGE_MLP_CONV_IN, 0, "layers.0.mlp.conv_in"},
                    {DFLASH_STAGE_MLP_GATE, 0, "layers.0.mlp.gate"},
                    {DFLASH_STAGE_MLP_UP, 0, "layers.0.mlp.up"},
                    {DFLASH_STAGE_MLP_ACT, 0, "layers.0.mlp.act"},
                    {DFLASH_STAGE_MLP_DOWN, 0, "layers.0.mlp.down"},
                    {DFLASH_STAGE_MLP_CONV_OUT, 0, "layers.0.mlp.conv_out"},
                    {DFLASH_STAGE_LAYER_OUT, 127, "layers.127.out"},
                    {DFLASH_STAGE_FINAL, -1, "final"},
                    {DFLASH_STAGE_LOGITS, -1, "logits"},
                    {DFLASH_STAGE_SELECT_TOPK_VALUES, -1, "select.topk_values"},
                    {DFLASH_STAGE_SELECT_TOPK_IDS, -1, "select.topk_ids"},
                    {DFLASH_STAGE_SELECT_HIDDEN, -1, "select.hidden"},
                    {DFLASH_STAGE_SELECT_SCORES, -1, "select.scores"},
                    {DFLASH_STAGE_SELECT_PATH, -1, "select.path"},
                    {DFLASH_STAGE_MARKOV_LOGITS, -1, "markov.logits"},
                    {DFLASH_STAGE_MARKOV_TOKENS, -1, "markov.tokens"},
                    {DFLASH_STAGE_CONFIDENCE_RAW, -1, "confidence.raw"},
                    {DFLASH_STAGE_CONFIDENCE_WINDOW, -1, "confidence.window"},
                    {DFLASH_STAGE_KV_K, -1, "kv.k"},
                    {DFLASH_STAGE_KV_V, -1, "kv.v"}};
    ck_assert_int_eq((int)(sizeof expected / sizeof *expected), DFLASH_STAGE_COUNT);
    for (int i = 0; i < DFLASH_STAGE_COUNT; i++) {
        char name[DFLASH_STAGE_NAME_MAX];
        ck_assert_int_eq((int)expected[i].stage, i);
        ck_assert_str_eq(dflash_stage_name(expected[i].stage, expected[i].layer, name), expected[i].name);
    }
}
END_TEST

START_TEST(anything_else_is_not_a_name) {
    static const char *const wrong[] = {
        "",
        "ctx",
        "ctx.",
        "ctx.fc ",
        " ctx.fc",
        "CTX.FC",
        "ctx.fc.x",
        "attn.norm", /* needs a layer */
        "out",
        "layers",
        "layers.",
        "layers..out",
        "layers.0",
        "layers.0.",
        "layers.0out",
        "layers.0.ctx.fc", /* has no layer */
        "layers.0.final",
        "layers.0.attn",
        "layers.0.attn.norm.",
        "layers.0.attn.norm ",
        "layers.00.attn.norm", /* one spelling a layer */
        "layers.01.attn.norm",
        "layers.-1.attn.norm",
        "layers.+1.attn.norm",
        "layers. 1.attn.norm",
        "layers.1e0.attn.norm",
        "layers.x.attn.norm",
        "layers.128.attn.norm", /* DFLASH_MAX_LAYERS */
        "layers.1000000.attn.norm",
        "layers.4294967296.attn.norm", /* 0 in 32 bits */
        "layers.18446744073709551616.attn.norm",
        "layers.99999999999999999999999999999999999999999.attn.norm",
        "layer.0.attn.norm",
        "Layers.0.attn.norm",
        "layers.0.layers.0.attn.norm",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dflash_stage stage = DFLASH_STAGE_COUNT;
        int layer = -2;
        ck_assert_msg(!dflash_stage_parse(wrong[i], &stage, &layer), "\"%s\" was read as stage %d, layer %d", wrong[i],
                      (int)stage, layer);
    }
}
END_TEST

TCase *tcase_stage_names(void) {
    TCase *tcase = tcase_create("stage names");
    tcase_add_test(tcase, every_name_of_every_layer_is_read_back);
    tcase_add_test(tcase, names_are_all_different);
    tcase_add_test(tcase, names_are_those_of_the_public_vocabulary);
    tcase_add_test(tcase, anything_else_is_not_a_name);
    return tcase;
}
