/*
 * attention_case.h - one attention call with seeded operands, its answer by a scalar text written from ops.h and
 * canon.h, and its answer by a softmax in double. Which cases are worth running is left to test_attention.c and
 * test_attention_masks.c.
 */
#ifndef DP_TESTS_ATTENTION_CASE_H
#define DP_TESTS_ATTENTION_CASE_H

#include "support/op_case.h"

typedef struct attention_case {
    df_attention_args args; /* out is not used */
    float *q, *k, *v;       /* owned, args points at them */
    int32_t *q_pos, *k_pos;
} attention_case;

typedef struct attention_shape {
    int rows, context;
    int heads, kv_heads, head_dim;
    int window;
    bool causal;
    int32_t start; /* position of the first key */
    int gap;       /* positions between keys of the context: 1 + random below `gap` */
} attention_shape;

/* Keys are `context` rows and then the block's own; scores spread over about +-5. */
void attention_case_init(attention_case *c, const attention_shape *shape, op_random *random);
void attention_case_release(attention_case *c);
size_t attention_case_size(const attention_case *c); /* rows * heads * head_dim */

/* Is key j seen by a query? The sentence of the specification, not an interval. */
bool attention_sees(const df_attention_args *a, int row, int key);

/* The canonical order, one query and one channel at a time. */
void attention_scalar(const df_attention_args *a, float *out);
/* Everything in double. */
void attention_double(const df_attention_args *a, double *out);

/* The operation under test, into a guarded output that the caller releases. */
float *attention_run(dflash_engine *engine, const df_attention_args *a, const char *what);

#endif
