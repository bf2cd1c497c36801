/*
 * ladder.h - what each way of holding the weights and of rounding the operands of products costs: drift by layer and at
 * the end, and what it does to the drafted tokens.
 *
 * Every rung is one run on the oracle's inputs, compared with the oracle's float64 run of the weights as they are
 * stored. It is a measurement: drift is what the modes are for, so no limit is held against it, and a mode that the
 * checkpoint refuses is a rung that says so.
 */
#ifndef DP_LADDER_H
#define DP_LADDER_H

#include "judge/record_run.h"

enum { DP_LADDER_MOST = 32, DP_MODE_NAME = 24 };

/* "q8_0", or "stored+tf32": a precision mode, and how the operands of products are rounded when that is not float32. */
typedef struct dp_mode {
    dflash_precision precision;
    dflash_products products;
} dp_mode;
bool dp_mode_parse(const char *name, dp_mode *out);
const char *dp_mode_name(dp_mode mode, char name[DP_MODE_NAME]);

/* The default ladder: f32, bf16, q8_0, q4_0, mixed, fc, stored+tf32, stored+bf16. Returns how many. */
int dp_ladder_default(dp_mode mode[DP_LADDER_MOST]);

/* How many of a block's choices a mode changes. */
typedef struct dp_changes {
    bool known;         /* false: this model has no such choice, or the run ended before it */
    int changed, count; /* of the drafted slots */
    int first;          /* slot of the first that changes; -1 without one */
} dp_changes;

typedef struct dp_rung {
    dp_mode mode;
    dflash_error error;  /* status DFLASH_OK, or why there is no run */
    size_t weight_bytes; /* as held */
    double *layer;       /* owned, [layers]: relative L2 of layers.I.out */
    double final;        /* relative L2 */
    bool head;           /* the oracle ran an output head: what follows is there */
    double logits;       /* relative L2 */
    double logit_error;  /* largest |error| of a logit */
    dp_changes argmax;   /* of the logits */
    dp_changes token;    /* drafted: of the selector's path, the Markov walk, or the argmax itself */
    int endangered; /* slots whose margin is not more than twice the largest logit error of the slot; -1: unknown */
} dp_rung;

typedef struct dp_ladder {
    dflash_family family;
    int layers, slots;
    double least_margin; /* of the truth's logits, top-1 minus top-2; negative: the oracle stores samples of them */
    int least_slot;      /* where that is */
    dp_rung *rung;       /* owned, [count] */
    int count, ran;      /* ran: rungs with a run */
} dp_ladder;

/* The first largest of a row of logits; -1 where one is NaN: such a row chooses nothing. */
int32_t dp_ladder_argmax(const float *row, int n);

/* Whether an error as large as the row's largest, up on one logit and down on another, could change the choice that
 * leads by `margin`. A row with a value that is not finite is. */
bool dp_ladder_endangered(const float *row, const double *want, int n, double margin);

/*
 * Runs the modes. setup->precision and the engine's products are replaced by the mode's. Where the oracle stores
 * samples of the logits, the argmax is held against that of this program's run of the stored weights, and margins are
 * not known. Fails where no rung could be measured: codes of dp_preflight_run, "ladder.precision" (the oracle is not of
 * the stored weights), those of dp_provenance_check. Release *out whatever the outcome.
 */
dflash_status dp_ladder_run(const dp_run_setup *setup, const dp_mode *mode, int count, dp_ladder *out,
                            dflash_error *err);
void dp_ladder_release(dp_ladder *ladder);

#endif
