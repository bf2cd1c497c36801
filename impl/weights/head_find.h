/*
 * head_find.h - which tensor of a target's file is its output head.
 *
 * Files say it in many ways: under its own name, behind the prefix of a multimodal model, or not at all, when the
 * embedding is used twice. The order is stated, and where it leaves two readings open the file is refused, because a
 * head of another part of the model gives logits that look like any others. oracles/head.py has the same rules.
 */
#ifndef DF_HEAD_FIND_H
#define DF_HEAD_FIND_H

#include "weights/safetensors.h"

/*
 * Takes, in this order: lm_head.weight; lm_head.weight behind a known prefix; the embedding (embed_tokens.weight, bare
 * or behind a known prefix) of a file that is whole and holds no other head. Codes: "table.tensor.missing",
 * "table.head.ambiguous" (two of one step, or an embedding beside a head that is not known), "table.head.shard" (an
 * embedding in one of several files, another of which may hold the head).
 */
dflash_status df_head_find(const df_safetensors *file, const df_tensor **out, dflash_error *err);

/* A head with a bias, NAME.bias beside NAME.weight, adds something that no table here has: "table.head.bias". */
dflash_status df_head_check_bias(const df_safetensors *file, const df_tensor *head, dflash_error *err);

#endif
