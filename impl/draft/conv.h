/*
 * conv.h - the DFlash2 convolution round a sublayer, inside a forward.
 *
 * The public dflash_conv_prepare and dflash_conv_finish and the layer program of draft.c both come down to these two
 * functions.
 */
#ifndef DF_CONV_H
#define DF_CONV_H

#include "model/model.h"

/* Width of a row's dynamic kernels: 2 k G. */
static inline int df_conv_width(const dflash_config *config) {
    return 2 * config->conv_kernel * (config->hidden / config->conv_group);
}

static inline const df_conv_weights *df_conv_of(const dflash_draft *draft, int layer, dflash_sublayer sublayer) {
    const df_layer_weights *weights = &draft->weights.layer[layer];
    return sublayer == DFLASH_SUBLAYER_ATTENTION ? &weights->attn_conv : &weights->mlp_conv;
}

/* dyn[rows, 2, k, G] = kernel_projection(x[rows, H]). */
dflash_status df_conv_project(const dflash_draft *draft, const df_conv_weights *conv, const float *x, int rows,
                              float *dyn, dflash_error *err);

/* y[rows, H]: x convolved with half 0 or 1 of the base kernel and of dyn. */
dflash_status df_conv_apply(const dflash_draft *draft, const df_conv_weights *conv, int half, const float *x,
                            const float *dyn, int rows, float *y, dflash_error *err);

#endif
