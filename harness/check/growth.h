/*
 * growth.h - where the error of a chained run comes from: what each stage adds, what it inherits, and by how much a
 * layer lets the error of its input grow.
 *
 * A stage run alone (isolated.h) shows what it adds; the chained run shows what it adds and what it was given. Rounding
 * errors of different stages are independent, so their squares add: inherited = sqrt(chained^2 - added^2), and 0 where
 * the stage's own rounding explains everything.
 */
#ifndef DP_GROWTH_H
#define DP_GROWTH_H

#include "dflash.h"

/* Of one stage, as relative L2 of its values. */
typedef struct dp_share {
    bool known;       /* false: there was no isolated run to tell the two apart */
    double added;     /* the error of the stage alone, run on given inputs; NaN when a value of it is not finite */
    double inherited; /* of the chained error, what the stage alone does not explain: sqrt(max(0, chained^2 - added^2));
                         NaN when a value of either run is not finite */
} dp_share;

/* Of one layer. */
typedef struct dp_layer_growth {
    int layer;
    double in, out; /* relative L2 of the residual stream's chained error before and after the layer; NaN
                       where a value is not finite, for what is left of such a stage has no distance */
    double factor; /* out / in; 0 when there was no error before it (the first layer starts from exact inputs), NaN when
                      either is */
    char source[DFLASH_STAGE_NAME_MAX]; /* the stage of the layer that added most, in units of its bound; "" when none
                                       of them was run alone */
    double source_share;                /* how many times what it may that stage added */
} dp_layer_growth;

struct dp_result;
struct dp_stage_result;

/* What a stage added and inherited. */
dp_share dp_share_of(const struct dp_stage_result *stage);

/* Fills the shares of the compared stages, and the layers whose output and whose input were both compared. Needs the
 * chained results, and the isolated ones as far as there are any. */
dflash_status dp_growth(struct dp_result *result, dflash_error *err);

/* How many times what it may a stage adds: its worst element over the bound where that is more than 1, else its noise
 * over the noise limit (isolated.h). Infinite when a value is not finite, 0 when it was not run alone. */
double dp_added_share(const struct dp_stage_result *stage);

/* Geometric mean of the layers' factors; 0 when no layer has one. */
double dp_mean_growth(const struct dp_result *result);

/* One or two sentences for the report: which stage adds the error, and what the layers after it do with it. "" when
 * nothing was compared. */
enum { DP_GROWTH_TEXT = 480 };
const char *dp_growth_text(const struct dp_result *result, char text[DP_GROWTH_TEXT]);

#endif
