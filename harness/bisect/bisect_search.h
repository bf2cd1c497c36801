/*
 * bisect_search.h - the search for the first bad of a row of candidates, some of which cannot be tried. Nothing here
 * knows what a candidate is.
 *
 * Candidates are in order; before the first is one that is known to be good, and the last is known to be bad. Once one
 * is bad, all after it are taken to be.
 */
#ifndef DP_BISECT_SEARCH_H
#define DP_BISECT_SEARCH_H

#include "dflash.h"

typedef enum dp_trial { DP_TRIAL_NONE = 0, DP_TRIAL_GOOD, DP_TRIAL_BAD, DP_TRIAL_SKIPPED } dp_trial;

typedef struct dp_search {
    dp_trial *state; /* owned, [count] */
    int count;
} dp_search;

/* `count` at least 1; the last is set to bad. */
dflash_status dp_search_begin(int count, dp_search *out, dflash_error *err);
void dp_search_release(dp_search *search);

/* The candidate to try next: the untried one nearest to the middle of what is left. -1: there is none. */
int dp_search_next(const dp_search *search);

/* Tries that are still needed at most, if none is skipped. */
int dp_search_steps(const dp_search *search);

/* The first bad is one of [*first, *last]; the two are equal unless candidates between them were skipped or are
 * untried.
 */
void dp_search_suspects(const dp_search *search, int *first, int *last);

#endif
