/*
 * seen.h - what of the stages a verdict rests on: how many were seen value by value, how many by their sketches,
 * and how many ran alone on the oracle's own inputs.
 */
#ifndef DP_SEEN_H
#define DP_SEEN_H

#include "check/run_check.h"

typedef struct dp_seen {
    int whole, sketched;      /* stages compared value by value; by samples, whole rows and a sketch of every row */
    int unseen;               /* stages that the implementation did not show */
    int64_t values, compared; /* values of the sketched stages, and how many of them were compared one by one */
    int64_t rows;             /* that the sketches see */
    int fed, fed_partly;      /* stages run alone on the oracle's own inputs: every value judged, or some of them */
    int unfed;                /* run alone on values of the run */
} dp_seen;

dp_seen dp_seen_of(const dp_result *result);
/* What one more result rests on, for a run over many cases. */
void dp_seen_add(dp_seen *seen, const dp_result *result);

/* Two sentences without a full stop, joined by a semicolon. */
enum { DP_SEEN_TEXT = 256 };
const char *dp_seen_text(const dp_seen *seen, char text[DP_SEEN_TEXT]);

#endif
