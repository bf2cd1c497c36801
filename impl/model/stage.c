/* stage.c - the names of the stages: one table, the same for observers, oracles, filters and reports. */
#include "dflash.h"

#include <stdio.h>
#include <string.h>

/* The longest name: "layers.2147483647.attn.conv_dyn". */
static const char *const short_names[DFLASH_STAGE_COUNT] = {
    [DFLASH_STAGE_CTX_FC] = "ctx.fc",
    [DFLASH_STAGE_CTX_FEATURES] = "ctx.features",
    [DFLASH_STAGE_ROPE_INV_FREQ] = "rope.inv_freq",
    [DFLASH_STAGE_ROPE_COS] = "rope.cos",
    [DFLASH_STAGE_ROPE_SIN] = "rope.sin",
    [DFLASH_STAGE_INPUT] = "input",
    [DFLASH_STAGE_ATTN_NORM] = "attn.norm",
    [DFLASH_STAGE_ATTN_CONV_DYN] = "attn.conv_dyn",
    [DFLASH_STAGE_ATTN_CONV_IN] = "attn.conv_in",
    [DFLASH_STAGE_ATTN_Q_PROJ] = "attn.q_proj",
    [DFLASH_STAGE_ATTN_K_PROJ] = "attn.k_proj",
    [DFLASH_STAGE_ATTN_V] = "attn.v",
    [DFLASH_STAGE_ATTN_Q_NORM] = "attn.q_norm",
    [DFLASH_STAGE_ATTN_K_NORM] = "attn.k_norm",
    [DFLASH_STAGE_ATTN_Q_ROPE] = "attn.q_rope",
    [DFLASH_STAGE_ATTN_K_ROPE] = "attn.k_rope",
    [DFLASH_STAGE_ATTN_CONTEXT] = "attn.context",
    [DFLASH_STAGE_ATTN_O_PROJ] = "attn.o_proj",
    [DFLASH_STAGE_ATTN_CONV_OUT] = "attn.conv_out",
    [DFLASH_STAGE_ATTN_RESIDUAL] = "attn.residual",
    [DFLASH_STAGE_MLP_NORM] = "mlp.norm",
    [DFLASH_STAGE_MLP_CONV_DYN] = "mlp.conv_dyn",
    [DFLASH_STAGE_MLP_CONV_IN] = "mlp.conv_in",
    [DFLASH_STAGE_MLP_GATE] = "mlp.gate",
    [DFLASH_STAGE_MLP_UP] = "mlp.up",
    [DFLASH_STAGE_MLP_ACT] = "mlp.act",
    [DFLASH_STAGE_MLP_DOWN] = "mlp.down",
    [DFLASH_STAGE_MLP_CONV_OUT] = "mlp.conv_out",
    [DFLASH_STAGE_LAYER_OUT] = "out",
    [DFLASH_STAGE_FINAL] = "final",
    [DFLASH_STAGE_LOGITS] = "logits",
    [DFLASH_STAGE_SELECT_TOPK_VALUES] = "select.topk_values",
    [DFLASH_STAGE_SELECT_TOPK_IDS] = "select.topk_ids",
    [DFLASH_STAGE_SELECT_HIDDEN] = "select.hidden",
    [DFLASH_STAGE_SELECT_SCORES] = "select.scores",
    [DFLASH_STAGE_SELECT_PATH] = "select.path",
    [DFLASH_STAGE_MARKOV_LOGITS] = "markov.logits",
    [DFLASH_STAGE_MARKOV_TOKENS] = "markov.tokens",
    [DFLASH_STAGE_CONFIDENCE_RAW] = "confidence.raw",
    [DFLASH_STAGE_CONFIDENCE_WINDOW] = "confidence.window",
    [DFLASH_STAGE_KV_K] = "kv.k",
    [DFLASH_STAGE_KV_V] = "kv.v",
};

bool dflash_stage_per_layer(dflash_stage stage) {
    return stage >= DFLASH_STAGE_ATTN_NORM && stage <= DFLASH_STAGE_LAYER_OUT;
}

const char *dflash_stage_name(dflash_stage stage, int layer, char name[DFLASH_STAGE_NAME_MAX]) {
    if (dflash_stage_per_layer(stage))
        snprintf(name, DFLASH_STAGE_NAME_MAX, "layers.%d.%s", layer, short_names[stage]);
    else
        snprintf(name, DFLASH_STAGE_NAME_MAX, "%s", short_names[stage]);
    return name;
}

bool dflash_stage_parse(const char *name, dflash_stage *stage, int *layer) {
    const char *rest = name;
    int number = -1;
    if (strncmp(name, "layers.", 7) == 0) {
        rest = name + 7;
        number = 0;
        if (*rest == '0' && rest[1] != '.') return false; /* one spelling for each layer */
        const char *digits = rest;
        for (; *rest >= '0' && *rest <= '9'; rest++) {
            if (number >= DFLASH_MAX_LAYERS) return false;
            number = number * 10 + (*rest - '0');
        }
        if (rest == digits || *rest != '.' || number >= DFLASH_MAX_LAYERS) return false;
        rest++;
    }
    for (int s = 0; s < DFLASH_STAGE_COUNT; s++)
        if (strcmp(rest, short_names[s]) == 0 && dflash_stage_per_layer((dflash_stage)s) == (number >= 0)) {
            *stage = (dflash_stage)s;
            *layer = number;
            return true;
        }
    return false;
}
