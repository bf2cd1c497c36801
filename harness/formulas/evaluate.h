/*
 * evaluate.h - what a stage is by its formula, in float64, from given inputs, with the bound of a class's arithmetic.
 *
 * It is a second implementation: it shares with impl/ the weights as they are held and the exact decoding of their
 * formats, and no arithmetic. Any stage can be evaluated at any of its elements, without the rest. The formulas are
 * those of reports/STAGES.md; evaluate.c has what is shared and the products, evaluate_fed.c which rows a row is made
 * of, evaluate_rows.c, evaluate_attention.c, evaluate_rope.c and evaluate_heads.c the others.
 */
#ifndef DP_EVALUATE_H
#define DP_EVALUATE_H

#include "limits/approx.h"
#include "common/pool.h"
#include "store/stage_set.h"
#include "run/stage_values.h"

/* What a stage is evaluated from. Everything is borrowed. */
typedef struct dp_evaluation {
    dp_class_model model; /* of the arithmetic that computed what is judged */
    dflash_draft *draft;
    const dflash_table *head;      /* NULL: no stage after `final` is asked for */
    const dflash_table *embedding; /* NULL: the block is the input `noise`, and there is no stage `input` */
    const int32_t *ids;            /* [B] with an embedding: the block's tokens */
    const double *taps, *noise;    /* [context, T H], [B, H] */
    const int32_t *pos;            /* [context + B] */
    int context;
    int32_t anchor;
    const dp_stage_values *values; /* the stages before it */
} dp_evaluation;

/* What a stage's formula takes its operands from: stages, or inputs of the run in the place of one. `embedded`: the run
 * has the stage `input`. The cache, which holds every layer's keys or values, has none here. */
enum { DP_MOST_INPUTS = 4 };
typedef struct dp_reference {
    dflash_stage stage;
    int layer;
} dp_reference;
enum { DP_TAPS = DFLASH_STAGE_COUNT + 1, DP_NOISE };
typedef struct dp_references {
    dp_reference item[DP_MOST_INPUTS];
    int count;
} dp_references;
dp_references dp_stage_inputs(const dflash_config *config, bool embedded, dflash_stage stage, int layer);

/* Which elements, `count` of them: those of `index`, or offset, offset + stride, ... where that is NULL. */
typedef struct dp_selection {
    int64_t offset, stride, count;
    const int64_t *index;
} dp_selection;
static inline int64_t dp_selected(const dp_selection *selection, int64_t i) {
    return selection->index != NULL ? selection->index[i] : selection->offset + i * selection->stride;
}

/*
 * out[count]: the elements of the stage. Errors: "evaluate.input" (a stage before it is not among the values),
 * "evaluate.id" (an id among them has no row in the table that it is looked up in), "evaluate.stage" (nothing to
 * evaluate: the verify window is a decision and not a formula).
 */
dflash_status dp_evaluate(const dp_evaluation *evaluation, const dp_stage_spec *spec, const dp_selection *selection,
                          df_pool *pool, dp_approx *out, dflash_error *err);

/* Whether every stage that it is evaluated from is among `values`. */
bool dp_evaluate_inputs(const dp_evaluation *evaluation, const dp_stage_spec *spec);
/* Whether all that row `row` of the stage is evaluated from was given. What starts from the inputs of the run alone is.
 */
bool dp_evaluate_fed(const dp_evaluation *evaluation, const dp_stage_spec *spec, int64_t row);

/* Elements in a row whose roundings are shared: those of a norm's row, a query's head, a slot after its gates, and of
 * what is multiplied by the same rounded operand. Groups are independent of each other. */
int64_t dp_evaluate_group(const dp_class_model *model, const dflash_config *config, const dp_stage_spec *spec);

/* Rotary frequency `index` of a config: its value, and what the float32 operations that make it can be off by, from the
 * operands (the exponent times ln theta, the ramp, the mixture of two frequencies). */
dp_approx dp_frequency(const dflash_rope_config *rope, int index);

/* Whether a stage can be evaluated at all. */
bool dp_evaluable(dflash_stage stage);

#endif
