/* stage_words.c - see stage_words.h. */
#include "report/stage_words.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *words;
} table[] = {
    {"ctx.fc", "the projection of the target's concatenated hidden states"},
    {"ctx.features", "the normed context features that every layer projects"},
    {"rope.inv_freq", "the table of rotary frequencies"},
    {"rope.cos", "the cosines of the rotary angles"},
    {"rope.sin", "the sines of the rotary angles"},
    {"input", "the block's embedding, scaled"},
    {"attn.norm", "the norm before the attention"},
    {"attn.conv_dyn", "the dynamic kernels of the attention's convolutions"},
    {"attn.conv_in", "the convolved input of the attention"},
    {"attn.q_proj", "the query projection"},
    {"attn.k_proj", "the key projection"},
    {"attn.v", "the value projection"},
    {"attn.q_norm", "the norm over each query head"},
    {"attn.k_norm", "the norm over each key head"},
    {"attn.q_rope", "the rotation of the queries"},
    {"attn.k_rope", "the rotation of the keys"},
    {"attn.context", "the softmax-weighted values over the visible keys"},
    {"attn.o_proj", "the output projection of the attention"},
    {"attn.conv_out", "the convolved output of the attention"},
    {"attn.residual", "the residual stream after the attention"},
    {"mlp.norm", "the norm before the MLP"},
    {"mlp.conv_dyn", "the dynamic kernels of the MLP's convolutions"},
    {"mlp.conv_in", "the convolved input of the MLP"},
    {"mlp.gate", "the gate projection of the MLP"},
    {"mlp.up", "the up projection of the MLP"},
    {"mlp.act", "the activation of the MLP, silu(gate) times up"},
    {"mlp.down", "the down projection of the MLP"},
    {"mlp.conv_out", "the convolved output of the MLP"},
    {"out", "the residual stream after the layer"},
    {"final", "the final norm"},
    {"logits", "the output head"},
    {"select.topk_values", "the largest logits of each row"},
    {"select.topk_ids", "the candidates of each row"},
    {"select.hidden", "the selector's hidden projection"},
    {"select.scores", "the selector's scores"},
    {"select.path", "the drafted tokens"},
    {"markov.logits", "the logits with the bias of the token before"},
    {"markov.tokens", "the drafted tokens"},
    {"confidence.raw", "the confidence before its sigmoid"},
    {"confidence.window", "the number of tokens to verify"},
    {"kv.k", "the rotated keys in the draft cache"},
    {"kv.v", "the values in the draft cache"},
};

const char *dp_stage_words(const char *name) {
    if (strncmp(name, "layers.", 7) == 0) {
        char *end = NULL;
        strtol(name + 7, &end, 10);
        name = *end == '.' ? end + 1 : end;
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0) return table[i].words;
    return "";
}
