/*
 * sensitivity.h - does a case notice when the drafter reads one field of its config otherwise?
 *
 * Every field of dflash_config has a step: the nearest other value that it could be mistaken for. The drafter is loaded
 * with that one field changed and judged against the case's oracle, which stays as it is. A field whose change passes
 * everywhere is one that the stored cases do not check.
 */
#ifndef DP_SENSITIVITY_H
#define DP_SENSITIVITY_H

#include "store/cases.h"
#include "check/run_check.h"

/* What notices a change, from the weakest to the strongest. */
typedef enum dp_noticed {
    DP_NOTICED_NEVER = 0, /* no code computes with the field and no record states it */
    DP_NOTICED_GEOMETRY,  /* the oracle's geometry record alone: no value depends on it */
    DP_NOTICED_CENSUS,    /* the weights do not fit: the drafter cannot be loaded */
    DP_NOTICED_VALUES     /* a stage is outside its limit or its bound, or a run stops */
} dp_noticed;
const char *dp_noticed_name(dp_noticed noticed); /* "never", "geometry", "census", "values" */

/* A field with one of its steps. */
typedef struct dp_field {
    const char *name;    /* "rope.theta", "layer.window + 1" */
    dp_noticed expected; /* what must notice at least */
    /* Takes the step in a copy of the config; false: this config has no such field, or no such step. */
    bool (*step)(dflash_config *config, int part);
    int part; /* which of the fields that share `step` */
} dp_field;

int dp_field_count(void);
const dp_field *dp_field_at(int index);

typedef struct dp_sensitivity {
    dp_noticed noticed;
    char where[DP_RESULT_NAME + 8]; /* "layers.0.attn.norm", "rope.cos alone", or a refusal's code */
} dp_sensitivity;

/* Judges `item` with one field changed. *applies is false where the case has no such field; *out is empty then. */
dflash_status dp_sensitivity_of(const dp_case *item, const dp_field *field, bool *applies, dp_sensitivity *out,
                                dflash_error *err);

#endif
