/*
 * growth.h - where the error of a chained run comes from: what each stage adds, what it inherits, and by how much a
 * layer lets the error of its input grow.
 */
#ifndef DP_GROWTH_H
#define DP_GROWTH_H

#include "dflash.h"

/* Of one stage, as relative L2 of its values. */
typedef struct dp_share {
    bool known;   /* false: there was no isolated run to tell the two apart */
    double added; /* the error of the stage alone, run on given inputs */
    double
        inherited; /* of the chained error, what the stage alone does not explain: sqrt(max(0, chained^2 - added^2)) */
} dp_share;

/* Of one layer. */
typedef struct dp_layer_growth {
    int layer;
    double in, out; /* relative L2 of the residual stream's chained error before and after the layer */
    double factor;  /* out / in; 0 when there was no error before it (the first layer starts from exact inputs) */
    char
        source[DF_STAGE_NAME_MAX]; /* the stage of the layer that added most, in units of its expected noise or bound */
    double source_share;           /* how many times its bar that stage added: isolated share of the bound */
} dp_layer_growth;

#endif
