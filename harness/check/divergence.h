/* divergence.h - where a run first goes off. */
#ifndef DP_DIVERGENCE_H
#define DP_DIVERGENCE_H

#include "check/run_check.h"

typedef enum dp_divergence_by { DP_BY_ISOLATED = 0, DP_BY_CHAINED } dp_divergence_by;
const char *dp_divergence_name(dp_divergence_by by); /* "isolated", "chained" */

/* The first stage whose isolated run fails, which is where the error enters; when none does (or none was made) the
 * first outside its chained limit; NULL when there is none either. */
const dp_stage_result *dp_first_divergence(const dp_result *result, dp_divergence_by *by);

enum { DP_SENTENCE = 1024 };
/* What happened in one or two plain sentences: what failed, where it began, by how much; or the refusal's code; or what
 * the pass rests on. For the head of a report. */
const char *dp_result_sentence(const dp_result *result, char text[DP_SENTENCE]);

#endif
