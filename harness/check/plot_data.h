/*
 * plot_data.h - what pictures of a run are made of, in bounded space, taken while its recording is still in memory.
 *
 * reports/RESULT.md says what each member means in a result file; this is the same in memory, for the collection
 * (plot_collect.c), the writer and the reader. Drawing is left to the plots.
 */
#ifndef DP_PLOT_DATA_H
#define DP_PLOT_DATA_H

#include "dflash.h"

enum {
    DP_ROWS_MOST = 256,     /* most entries of a stage's row errors */
    DP_SCATTER_MOST = 1000, /* most points of the scatter */
    DP_MARGIN_STAGES = 3,   /* logits, markov.logits, select.scores */
    DP_ULP_LOWEST = -8,     /* the binary exponent where the bins begin */
    DP_ULP_OCTAVES = 32,
    DP_ULP_BINS = DP_ULP_OCTAVES + 4 /* zero, below the lowest, the octaves, above, not finite */
};

/* Parallel to the stages of the result. */
typedef struct dp_stage_plot {
    double *row; /* owned, [rows]: relative L2 error; negative: no element of the row is stored; NULL: none */
    int rows;
    int64_t row_group; /* rows of the stage that an entry stands for */
    int64_t ulp[DP_ULP_BINS];
} dp_stage_plot;

typedef struct dp_scatter {
    char stage[DFLASH_STAGE_NAME_MAX]; /* "" when there is none */
    int64_t of;                        /* elements compared */
    int count;
    int64_t *index;             /* owned, like the rest: flat index in the full tensor */
    double *got, *want, *error; /* [count] */
} dp_scatter;

typedef struct dp_rope_plot {
    int count; /* frequencies; 0: none */
    double *got, *want, *relative;
} dp_rope_plot;

typedef struct dp_margins {
    char stage[DFLASH_STAGE_NAME_MAX];
    bool reference; /* the margins and `want` are the reference's; false: the margins are the run's, want is NULL */
    int rows;
    double *margin, *error; /* [rows] */
    int32_t *got, *want;    /* [rows] position of the largest */
} dp_margins;

typedef struct dp_tokens {
    char stage[DFLASH_STAGE_NAME_MAX]; /* "" when there are none */
    int count;
    int32_t *got, *want; /* [count]; want may be NULL */
} dp_tokens;

typedef struct dp_plot_data {
    dp_stage_plot *stage; /* owned; NULL when nothing was collected */
    int stage_count;
    dp_scatter scatter;
    dp_rope_plot rope;
    dp_margins margins[DP_MARGIN_STAGES];
    int margins_count;
    dp_tokens tokens;
} dp_plot_data;

void dp_plot_data_release(dp_plot_data *data);

/* The bin of an error given in units of the last place. */
int dp_ulp_bin(double ulps);

#endif
