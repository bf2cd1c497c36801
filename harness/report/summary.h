/*
 * summary.h - one case of a result in a few plain sentences: what failed, where it began, what carried it on, and
 * what it did to the tokens.
 *
 * Names stand in `ticks`, which Markdown understands and dp_html_marked sets as code. The page of a run and the
 * postmortem tell the same story with it.
 */
#ifndef DP_SUMMARY_H
#define DP_SUMMARY_H

#include "report/result_file.h"

#include <stdio.h>

/* One line without a name before it: "fails, first at `layers.1.attn.context`", "passes", "was refused: ...". */
void dp_summary_headline(FILE *to, const dp_result_case *item);

void dp_summary_begin(FILE *to, const dp_result_case *item); /* what failed, and where it began */
void dp_summary_growth(FILE *to,
                       const dp_result_case *item); /* what carried it on; nothing for a case without a divergence */
void dp_summary_tokens(FILE *to,
                       const dp_result_case *item); /* the effect on the drafted tokens; nothing without a head */

/* The stage to look at; "" when there is none. For a case whose rounds alone fail it is the first one they differ in.
 */
const char *dp_summary_stage(const dp_result_case *item);

#endif
