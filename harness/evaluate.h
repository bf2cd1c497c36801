/*
 * evaluate.h - what a stage is by its formula, in float64, from given inputs, with the bound of a class's arithmetic.
 *
 * It is a second implementation: it shares with impl/ the weights as they are held and the exact decoding of their
 * formats, and no arithmetic. Any stage can be evaluated at any of its elements, without the rest. The formulas are
 * those of reports/STAGES.md; evaluate.c has what is shared and the products, evaluate_rows.c, evaluate_attention.c,
 * evaluate_rope.c and evaluate_heads.c the others.
 */
#ifndef DP_EVALUATE_H
#define DP_EVALUATE_H

#include "approx.h"
#include "cpu/pool.h"
#include "stage_set.h"
#include "stage_values.h"

/* What a stage is evaluated from. Everything is borrowed. */
typedef struct dp_evaluation {
    dp_class_model model; /* of the arithmetic that computed what is judged */
    df_draft *draft;
    const df_table *head;       /* NULL: no stage after `final` is asked for */
    const df_table *embedding;  /* NULL: the block is the input `noise`, and there is no stage `input` */
    const int32_t *ids;         /* [B] with an embedding: the block's tokens */
    const double *taps, *noise; /* [context, T H], [B, H] */
    const int32_t *pos;         /* [context + B] */
    int context;
    int32_t anchor;
    const dp_stage_values *values; /* the stages before it */
} dp_evaluation;

/* Which elements: offset, offset + stride, ..., `count` of them. */
typedef struct dp_selection {
    int64_t offset, stride, count;
} dp_selection;

/*
 * out[count]: the elements of the stage. Errors: "evaluate.input" (a stage before it is not among the values),
 * "evaluate.stage" (nothing to evaluate: the verify window is a decision and not a formula).
 */
df_status dp_evaluate(const dp_evaluation *evaluation, const dp_stage_spec *spec, const dp_selection *selection,
                      df_pool *pool, dp_approx *out, df_error *err);

/* Whether every stage that it is evaluated from is among `values`; *fed: whether all of them were given. A stage that
 * starts from the inputs of the run alone is. */
bool dp_evaluate_inputs(const dp_evaluation *evaluation, const dp_stage_spec *spec, bool *fed);

/* Elements in a row whose roundings are shared: those of a norm's row, a query's head, a slot after its gates, and of
 * what is multiplied by the same rounded operand. Groups are independent of each other. */
int64_t dp_evaluate_group(const dp_class_model *model, const df_config *config, const dp_stage_spec *spec);

/* Whether a stage can be evaluated at all. */
bool dp_evaluable(df_stage stage);

#endif
