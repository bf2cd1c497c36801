/*
 * weights_census.h - which tensors a config calls for, and where in df_weights each belongs.
 *
 * Private to weights.c, which holds the list against a file.
 */
#ifndef DF_WEIGHTS_CENSUS_H
#define DF_WEIGHTS_CENSUS_H

#include "weights/weights.h"

enum { DF_SLOT_NAME_MAX = 96 };

/* One tensor that the model consumes. Exactly one of matrix and vector is set. */
typedef struct df_slot {
    char name[DF_SLOT_NAME_MAX];  /* the usual spelling */
    char other[DF_SLOT_NAME_MAX]; /* the other spelling that exports use, or "" */
    int rank;
    int64_t dim[DF_MAX_RANK];
    bool optional;
    df_matrix *matrix;    /* kept in the file's width */
    const float **vector; /* widened to float32 */
} df_slot;

/* Lists the tensors of `config`. Slots point into *weights and weights->layer, which must hold n_layers entries and
 * stay where they are. The caller frees *slots. */
dflash_status df_census_list(const dflash_config *config, df_weights *weights, df_slot **slots, int *count,
                             dflash_error *err);

/* True for names that every export may carry and no drafter reads: the target's tables and derived frequencies. */
bool df_census_ignored(const char *name);

#endif
