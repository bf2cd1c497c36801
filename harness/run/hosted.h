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

df_status dp_ctx_features(df_draft *draft, const float *taps, int t, float *features, df_error *err);
df_status dp_embed_block(df_draft *draft, const df_table *embedding, int32_t anchor, float *noise, df_error *err);
df_status dp_forward_block(df_draft *draft, const float *features, const float *noise, const int32_t *pos, int ctx,
                           float *out, df_error *err);
df_status dp_forward(df_draft *draft, const float *taps, const float *noise, const int32_t *pos, int ctx, float *out,
                     df_error *err);
df_status dp_ingest_ctx(df_draft *draft, df_kv *kv, const float *features, const int32_t *pos, int t, df_error *err);
df_status dp_ingest_taps(df_draft *draft, df_kv *kv, const float *taps, const int32_t *pos, int t, df_error *err);
df_status dp_forward_round(df_draft *draft, df_kv *kv, const float *noise, const int32_t *pos, float *out,
                           df_error *err);
df_status dp_conv_prepare(df_draft *draft, int layer, df_sublayer sublayer, const float *x, int rows, float *y,
                          float *dyn, df_error *err);
df_status dp_conv_finish(df_draft *draft, int layer, df_sublayer sublayer, const float *x, const float *dyn, int rows,
                         float *y, df_error *err);
df_status dp_logits(df_draft *draft, const df_table *head, const float *rows, int n, float *logits, df_error *err);
df_status dp_propose(df_draft *draft, const df_table *table, const float *logits, const float *rows, int n, int vocab,
                     int32_t anchor, const df_proposal_options *options, const df_proposal *out, df_error *err);
df_status dp_confidence(df_draft *draft, const float *rows, const int32_t *prev, int n, float *raw, df_error *err);

#endif
