/* stage.c - the names of the stages: one table, the same for observers, oracles, filters and reports. */
#include "dflash.h"

#include <stdio.h>
#include <string.h>

/* The longest name: "layers.2147483647.attn.conv_dyn". */
static const char *const short_names[DF_STAGE_COUNT] = {
    [DF_STAGE_CTX_FC] = "ctx.fc",
    [DF_STAGE_CTX_FEATURES] = "ctx.features",
    [DF_STAGE_ROPE_INV_FREQ] = "rope.inv_freq",
    [DF_STAGE_ROPE_COS] = "rope.cos",
    [DF_STAGE_ROPE_SIN] = "rope.sin",
    [DF_STAGE_INPUT] = "input",
    [DF_STAGE_ATTN_NORM] = "attn.norm",
    [DF_STAGE_ATTN_CONV_DYN] = "attn.conv_dyn",
    [DF_STAGE_ATTN_CONV_IN] = "attn.conv_in",
    [DF_STAGE_ATTN_Q_PROJ] = "attn.q_proj",
    [DF_STAGE_ATTN_K_PROJ] = "attn.k_proj",
    [DF_STAGE_ATTN_V] = "attn.v",
    [DF_STAGE_ATTN_Q_NORM] = "attn.q_norm",
    [DF_STAGE_ATTN_K_NORM] = "attn.k_norm",
    [DF_STAGE_ATTN_Q_ROPE] = "attn.q_rope",
    [DF_STAGE_ATTN_K_ROPE] = "attn.k_rope",
    [DF_STAGE_ATTN_CONTEXT] = "attn.context",
    [DF_STAGE_ATTN_O_PROJ] = "attn.o_proj",
    [DF_STAGE_ATTN_CONV_OUT] = "attn.conv_out",
    [DF_STAGE_ATTN_RESIDUAL] = "attn.residual",
    [DF_STAGE_MLP_NORM] = "mlp.norm",
    [DF_STAGE_MLP_CONV_DYN] = "mlp.conv_dyn",
    [DF_STAGE_MLP_CONV_IN] = "mlp.conv_in",
    [DF_STAGE_MLP_GATE] = "mlp.gate",
    [DF_STAGE_MLP_UP] = "mlp.up",
    [DF_STAGE_MLP_ACT] = "mlp.act",
    [DF_STAGE_MLP_DOWN] = "mlp.down",
    [DF_STAGE_MLP_CONV_OUT] = "mlp.conv_out",
    [DF_STAGE_LAYER_OUT] = "out",
    [DF_STAGE_FINAL] = "final",
    [DF_STAGE_LOGITS] = "logits",
    [DF_STAGE_SELECT_TOPK_VALUES] = "select.topk_values",
    [DF_STAGE_SELECT_TOPK_IDS] = "select.topk_ids",
    [DF_STAGE_SELECT_HIDDEN] = "select.hidden",
    [DF_STAGE_SELECT_SCORES] = "select.scores",
    [DF_STAGE_SELECT_PATH] = "select.path",
    [DF_STAGE_MARKOV_LOGITS] = "markov.logits",
    [DF_STAGE_MARKOV_TOKENS] = "markov.tokens",
    [DF_STAGE_CONFIDENCE_RAW] = "confidence.raw",
    [DF_STAGE_CONFIDENCE_WINDOW] = "confidence.window",
    [DF_STAGE_KV_K] = "kv.k",
    [DF_STAGE_KV_V] = "kv.v",
};

bool df_stage_per_layer(df_stage stage) { return stage >= DF_STAGE_ATTN_NORM && stage <= DF_STAGE_LAYER_OUT; }

const char *df_stage_name(df_stage stage, int layer, char name[DF_STAGE_NAME_MAX]) {
    if (df_stage_per_layer(stage))
        snprintf(name, DF_STAGE_NAME_MAX, "layers.%d.%s", layer, short_names[stage]);
    else
        snprintf(name, DF_STAGE_NAME_MAX, "%s", short_names[stage]);
    return name;
}

bool df_stage_parse(const char *name, df_stage *stage, int *layer) {
    const char *rest = name;
    int number = -1;
    if (strncmp(name, "layers.", 7) == 0) {
        rest = name + 7;
        number = 0;
        if (*rest == '0' && rest[1] != '.') return false; /* one spelling for each layer */
        const char *digits = rest;
        for (; *rest >= '0' && *rest <= '9'; rest++) {
            if (number >= DF_MAX_LAYERS) return false;
            number = number * 10 + (*rest - '0');
        }
        if (rest == digits || *rest != '.' || number >= DF_MAX_LAYERS) return false;
        rest++;
    }
    for (int s = 0; s < DF_STAGE_COUNT; s++)
        if (strcmp(rest, short_names[s]) == 0 && df_stage_per_layer((df_stage)s) == (number >= 0)) {
            *stage = (df_stage)s;
            *layer = number;
            return true;
        }
    return false;
}
