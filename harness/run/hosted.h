/*
 * hosted.h - the drafter's calls over buffers in host memory, whatever memory the engine computes in.
 *
 * The comparisons of this program are made on the host. On the CPU these functions pass their arguments through; on a
 * device they copy inputs there and results back. Results are NaN before the call, wherever they are. Shapes, order and
 * errors are those of the functions of dflash.h that they are named after.
 */
#ifndef DP_HOSTED_H
#define DP_HOSTED_H

#include "dflash.h"

dflash_status dp_ctx_features(dflash_draft *draft, const float *taps, int t, float *features, dflash_error *err);
dflash_status dp_embed_block(dflash_draft *draft, const dflash_table *embedding, int32_t anchor, float *noise,
                             dflash_error *err);
dflash_status dp_forward_block(dflash_draft *draft, const float *features, const float *noise, const int32_t *pos,
                               int ctx, float *out, dflash_error *err);
dflash_status dp_forward(dflash_draft *draft, const float *taps, const float *noise, const int32_t *pos, int ctx,
                         float *out, dflash_error *err);
dflash_status dp_ingest_ctx(dflash_draft *draft, dflash_kv *kv, const float *features, const int32_t *pos, int t,
                            dflash_error *err);
dflash_status dp_ingest_taps(dflash_draft *draft, dflash_kv *kv, const float *taps, const int32_t *pos, int t,
                             dflash_error *err);
dflash_status dp_forward_round(dflash_draft *draft, dflash_kv *kv, const float *noise, const int32_t *pos, float *out,
                               dflash_error *err);
dflash_status dp_conv_prepare(dflash_draft *draft, int layer, dflash_sublayer sublayer, const float *x, int rows,
                              float *y, float *dyn, dflash_error *err);
dflash_status dp_conv_finish(dflash_draft *draft, int layer, dflash_sublayer sublayer, const float *x, const float *dyn,
                             int rows, float *y, dflash_error *err);
dflash_status dp_logits(dflash_draft *draft, const dflash_table *head, const float *rows, int n, float *logits,
                        dflash_error *err);
dflash_status dp_propose(dflash_draft *draft, const dflash_table *table, const float *logits, const float *rows, int n,
                         int vocab, int32_t anchor, const dflash_proposal_options *options, const dflash_proposal *out,
                         dflash_error *err);
dflash_status dp_confidence(dflash_draft *draft, const float *rows, const int32_t *prev, int n, float *raw,
                            dflash_error *err);

#endif
