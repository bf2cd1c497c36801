/*
 * spread.h - whether the spread that an oracle claims for the reference's float32 runs can be theirs.
 *
 * Limits are multiples of that spread, so who writes a larger one into the file widens them. What float32 costs follows
 * a course of its own: a stage inherits the errors of the stages that it is computed from and adds what its operations
 * round. Held against that course, and against the float32 run that the oracle stores, a claim has little room left.
 */
#ifndef DP_SPREAD_H
#define DP_SPREAD_H

#include "preflight/reference_spread.h"

/*
 * spread[stages->count], in the order of the stages. Refused ("oracle.bfloat16") is a stage of the bfloat16 run that is
 * lost (DP_RULE_BF16_LIMIT) where its operands are not, and ("oracle.spread") a claim that is
 * - smaller than the distance of the run that it includes, the reference's own,
 * - another than that distance at a table, which no order of sums changes,
 * - larger than what the stages before it and the stage's own operations explain (growth),
 * - larger against the own run than at the stages around it, and grown there (out of line), which tells little
 *   where one row decides,
 * - in the largest error larger than its relative L2 allows (uneven),
 * - four times the own run's distance at three of four stages (all over).
 * Both runs say how much a stage amplifies and how many rows decide; what that can excuse is limited (of attention by
 * the largest score that its operands allow). `path` names the oracle in messages.
 */
dflash_status dp_spread_check(const char *path, const dflash_config *config, const dp_stage_set *stages,
                              const dp_spread *spread, dflash_error *err);

/* Up to what distance the bfloat16 run counts at stage number `at`: DP_RULE_BF16_CEILING, or DP_RULE_BF16_LIMIT where
 * one of the stages that it is computed from, which `spread` knows already, is beyond the ceiling itself. */
double dp_spread_ceiling(const dflash_config *config, const dp_stage_set *stages, const dp_spread *spread, int at);

#endif
