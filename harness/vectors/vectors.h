/*
 * vectors.h - judges the parts of the drafter that no whole run shows, on stored inputs of their own (oracles/
 * FORMAT.md, "Vectors"): convolutions of odd lengths, walks whose predecessor decides, sampled proposals, reduced
 * vocabularies, windows, residuals, draws.
 *
 * The result is that of a check whose stages are the values of the groups ("markov/tiny-dspark.plain/logits"). A float
 * value is held against the reference's, element by element, within what its operands allow the class and the reference
 * to err; alone, against the formula evaluated here. Ids and counts are equal or not.
 */
#ifndef DP_VECTORS_H
#define DP_VECTORS_H

#include "check/run_check.h"

/* options->oracle is the file. Never fails: what goes wrong is in the result. A part or a dataset that nothing here
 * judges is a refusal ("vectors.part", "vectors.untaken"), and so is another tensor than the reference's
 * ("vectors.tensor"). */
void dp_vectors_check(const dp_check_options *options, dp_result *out);

#endif
