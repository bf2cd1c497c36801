/*
 * config_limits.h - the largest values that a config may hold.
 *
 * No published drafter comes near one of these. They exist so that everything computed later from a config (tensor
 * shapes, byte counts, positions) stays far inside its integer type, and so that a corrupt number is refused where it
 * is read. The largest product, T H * H, stays under 2^46.
 */
#ifndef DF_CONFIG_LIMITS_H
#define DF_CONFIG_LIMITS_H

#include <stdint.h>

enum {
    DF_LIMIT_CONFIG_BYTES = 16 << 20, /* size of a config.json */
    DF_LIMIT_HIDDEN = 1 << 20,        /* hidden_size, conv_group_size */
    DF_LIMIT_HEADS = 4096,            /* num_attention_heads, num_key_value_heads */
    DF_LIMIT_HEAD_DIM = 4096,
    DF_LIMIT_INTERMEDIATE = 1 << 22,
    DF_LIMIT_BLOCK = 4096,
    DF_LIMIT_VOCAB = 1 << 24,      /* vocab_size, selector_vocab_size, mask_token_id */
    DF_LIMIT_TARGET_LAYERS = 4096, /* num_target_layers, target_layer_ids */
    DF_LIMIT_WINDOW = 1 << 30,     /* sliding_window: window + block stays an int32 */
    DF_LIMIT_POSITION = INT32_MAX, /* max_position_embeddings, original_max_position_embeddings */
    DF_LIMIT_CONV_KERNEL = 64,
    DF_LIMIT_RANK = 1 << 16, /* selector_rank, markov_rank */
    DF_LIMIT_TOP_K = 4096
};

#define DF_LIMIT_THETA 1e12      /* rope_theta; from just above 1 */
#define DF_LIMIT_ROPE_FACTOR 1e6 /* factor, attention_factor, mscale, betas, frequency factors */
#define DF_LIMIT_SCALE 1e9 /* |input_embedding_scale|, |output_multiplier|, softcap; the first two from 1 / this */

#endif
