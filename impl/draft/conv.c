/* conv.c - see conv.h; here too are the public functions, which check their arguments and leave the arithmetic to it.
 */
#include "draft/conv.h"

#include "common/error.h"

dflash_status df_conv_project(const dflash_draft *draft, const df_conv_weights *conv, const float *x, int rows,
                              float *dyn, dflash_error *err) {
    return draft->engine->ops->matmul(draft->engine, &conv->projection, NULL, x, rows, dyn, err);
}

dflash_status df_conv_apply(const dflash_draft *draft, const df_conv_weights *conv, int half, const float *x,
                            const float *dyn, int rows, float *y, dflash_error *err) {
    const dflash_config *c = &draft->config;
    const size_t width = (size_t)df_conv_width(c);
    const df_conv_args args = {.x = x,
                               .base = conv->base + (size_t)half * (size_t)c->conv_kernel * (size_t)c->hidden,
                               .dyn = dyn + (size_t)half * width / 2,
                               .dyn_stride = width,
                               .rows = rows,
                               .hidden = c->hidden,
                               .kernel = c->conv_kernel,
                               .group = c->conv_group,
                               .y = y};
    return draft->engine->ops->conv(draft->engine, &args, err);
}

static dflash_status check(const dflash_draft *draft, int layer, dflash_sublayer sublayer, int rows,
                           dflash_error *err) {
    const dflash_config *c = &draft->config;
    if (c->family != DFLASH_FAMILY_DFLASH2)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "conv.family",
            "The checkpoint is of family %s, which has no convolutions: only dflash2 does. Nothing is passed "
            "through unconvolved instead.",
            dflash_family_name(c->family));
    if (layer < 0 || layer >= c->n_layers)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "conv.layer", "Layer %d does not exist: the model has layers 0..%d.",
                       layer, c->n_layers - 1);
    if (sublayer != DFLASH_SUBLAYER_ATTENTION && sublayer != DFLASH_SUBLAYER_MLP)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "conv.sublayer",
                       "There is no sublayer %d: a layer has an attention sublayer (0) and an MLP (1).", (int)sublayer);
    if (rows < 1)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "conv.rows",
                       "A convolution runs over the rows of one block, at least one: found %d.", rows);
    return DFLASH_OK;
}

dflash_status dflash_conv_prepare(dflash_draft *draft, int layer, dflash_sublayer sublayer, const float *x, int rows,
                                  float *y, float *dyn, dflash_error *err) {
    dflash_status status = check(draft, layer, sublayer, rows, err);
    if (status == DFLASH_OK) status = df_arena_reset(&draft->engine->arena, err);
    if (status != DFLASH_OK) return status;
    const df_conv_weights *conv = df_conv_of(draft, layer, sublayer);
    status = df_conv_project(draft, conv, x, rows, dyn, err);
    return status == DFLASH_OK ? df_conv_apply(draft, conv, 0, x, dyn, rows, y, err) : status;
}

dflash_status dflash_conv_finish(dflash_draft *draft, int layer, dflash_sublayer sublayer, const float *x,
                                 const float *dyn, int rows, float *y, dflash_error *err) {
    const dflash_status status = check(draft, layer, sublayer, rows, err);
    return status == DFLASH_OK ? df_conv_apply(draft, df_conv_of(draft, layer, sublayer), 1, x, dyn, rows, y, err)
                               : status;
}
