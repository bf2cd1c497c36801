/* test_stage.c - the names of the stages: there and back for every stage and layer, and nothing else is a name. */
#include "support/op_case.h"

#include <stdio.h>

START_TEST(every_name_of_every_layer_is_read_back) {
    int per_layer = 0;
    for (int s = 0; s < DF_STAGE_COUNT; s++) {
        const df_stage stage = (df_stage)s;
        const int layers = df_stage_per_layer(stage) ? DF_MAX_LAYERS : 1;
        per_layer += df_stage_per_layer(stage);
        for (int layer = 0; layer < layers; layer++) {
            char name[DF_STAGE_NAME_MAX], prefix[20];
            df_stage read = DF_STAGE_COUNT;
            int read_layer = -2;
            ck_assert_ptr_eq(df_stage_name(stage, layer, name), name);
            snprintf(prefix, sizeof prefix, "layers.%d.", layer);
            ck_assert_int_eq(strncmp(name, prefix, strlen(prefix)) == 0, df_stage_per_layer(stage));
            ck_assert_msg(df_stage_parse(name, &read, &read_layer), "%s", name);
            ck_assert_int_eq((int)read, s);
            ck_assert_int_eq(read_layer, df_stage_per_layer(stage) ? layer : -1);
        }
    }
    ck_assert_int_eq(per_layer, DF_STAGE_LAYER_OUT - DF_STAGE_ATTN_NORM + 1);
}
END_TEST

START_TEST(names_are_all_different) {
    for (int a = 0; a < DF_STAGE_COUNT; a++)
        for (int b = 0; b < a; b++) {
            char first[DF_STAGE_NAME_MAX], second[DF_STAGE_NAME_MAX];
            ck_assert_str_ne(df_stage_name((df_stage)a, 3, first), df_stage_name((df_stage)b, 3, second));
        }
}
END_TEST

/* Spelled out: these names are a contract with files written elsewhere. */
START_TEST(names_are_those_of_the_public_vocabulary) {
    static const struct {
        df_stage stage;
        int layer;
        const char *name;
    } expected[] = {{DF_STAGE_CTX_FC, -1, "ctx.fc"},
                    {DF_STAGE_CTX_FEATURES, 5, "ctx.features"},
                    {DF_STAGE_ROPE_INV_FREQ, -1, "rope.inv_freq"},
                    {DF_STAGE_ROPE_COS, -1, "rope.cos"},
                    {DF_STAGE_ROPE_SIN, -1, "rope.sin"},
                    {DF_STAGE_INPUT, -1, "input"},
                    {DF_STAGE_ATTN_NORM, 0, "layers.0.attn.norm"},
                    {DF_STAGE_ATTN_CONV_DYN, 1, "layers.1.attn.conv_dyn"},
                    {DF_STAGE_ATTN_CONV_IN, 1, "layers.1.attn.conv_in"},
                    {DF_STAGE_ATTN_Q_PROJ, 2, "layers.2.attn.q_proj"},
                    {DF_STAGE_ATTN_K_PROJ, 3, "layers.3.attn.k_proj"},
                    {DF_STAGE_ATTN_V, 10, "layers.10.attn.v"},
                    {DF_STAGE_ATTN_Q_NORM, 0, "layers.0.attn.q_norm"},
                    {DF_STAGE_ATTN_K_NORM, 0, "layers.0.attn.k_norm"},
                    {DF_STAGE_ATTN_Q_ROPE, 0, "layers.0.attn.q_rope"},
                    {DF_STAGE_ATTN_K_ROPE, 0, "layers.0.attn.k_rope"},
                    {DF_STAGE_ATTN_CONTEXT, 0, "layers.0.attn.context"},
                    {DF_STAGE_ATTN_O_PROJ, 0, "layers.0.attn.o_proj"},
                    {DF_STAGE_ATTN_CONV_OUT, 0, "layers.0.attn.conv_out"},
                    {DF_STAGE_ATTN_RESIDUAL, 0, "layers.0.attn.residual"},
                    {DF_STAGE_MLP_NORM, 0, "layers.0.mlp.norm"},
                    {DF_STAGE_MLP_CONV_DYN, 0, "layers.0.mlp.conv_dyn"},
                    {DF_STAGE_MLP_CONV_IN, 0, "layers.0.mlp.conv_in"},
                    {DF_STAGE_MLP_GATE, 0, "layers.0.mlp.gate"},
                    {DF_STAGE_MLP_UP, 0, "layers.0.mlp.up"},
                    {DF_STAGE_MLP_ACT, 0, "layers.0.mlp.act"},
                    {DF_STAGE_MLP_DOWN, 0, "layers.0.mlp.down"},
                    {DF_STAGE_MLP_CONV_OUT, 0, "layers.0.mlp.conv_out"},
                    {DF_STAGE_LAYER_OUT, 127, "layers.127.out"},
                    {DF_STAGE_FINAL, -1, "final"},
                    {DF_STAGE_LOGITS, -1, "logits"},
                    {DF_STAGE_SELECT_TOPK_VALUES, -1, "select.topk_values"},
                    {DF_STAGE_SELECT_TOPK_IDS, -1, "select.topk_ids"},
                    {DF_STAGE_SELECT_HIDDEN, -1, "select.hidden"},
                    {DF_STAGE_SELECT_SCORES, -1, "select.scores"},
                    {DF_STAGE_SELECT_PATH, -1, "select.path"},
                    {DF_STAGE_MARKOV_LOGITS, -1, "markov.logits"},
                    {DF_STAGE_MARKOV_TOKENS, -1, "markov.tokens"},
                    {DF_STAGE_CONFIDENCE_RAW, -1, "confidence.raw"},
                    {DF_STAGE_CONFIDENCE_WINDOW, -1, "confidence.window"},
                    {DF_STAGE_KV_K, -1, "kv.k"},
                    {DF_STAGE_KV_V, -1, "kv.v"}};
    ck_assert_int_eq((int)(sizeof expected / sizeof *expected), DF_STAGE_COUNT);
    for (int i = 0; i < DF_STAGE_COUNT; i++) {
        char name[DF_STAGE_NAME_MAX];
        ck_assert_int_eq((int)expected[i].stage, i);
        ck_assert_str_eq(df_stage_name(expected[i].stage, expected[i].layer, name), expected[i].name);
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
        "layers.128.attn.norm", /* DF_MAX_LAYERS */
        "layers.1000000.attn.norm",
        "layers.4294967296.attn.norm", /* 0 in 32 bits */
        "layers.18446744073709551616.attn.norm",
        "layers.99999999999999999999999999999999999999999.attn.norm",
        "layer.0.attn.norm",
        "Layers.0.attn.norm",
        "layers.0.layers.0.attn.norm",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        df_stage stage = DF_STAGE_COUNT;
        int layer = -2;
        ck_assert_msg(!df_stage_parse(wrong[i], &stage, &layer), "\"%s\" was read as stage %d, layer %d", wrong[i],
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
