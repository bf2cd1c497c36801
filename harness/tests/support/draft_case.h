/*
 * draft_case.h - a stored checkpoint with one seeded input, and its answer by a forward in double written from the
 * specification with plain loops. What is asserted about them is left to test_draft*.c.
 */
#ifndef DP_TESTS_DRAFT_CASE_H
#define DP_TESTS_DRAFT_CASE_H

#include "model/model.h"
#include "support/op_case.h"
#include "run/recording.h"

enum { DRAFT_CONTEXT = 160, DRAFT_FIXTURES = 29 };

/* The checkpoints under fixtures/small, sorted by name; fails the test unless there are DRAFT_FIXTURES, so that a
 * new one cannot be left out of the loops. */
const char *draft_fixture_dir(int index);

typedef struct draft_case {
    dflash_engine *engine;
    dflash_draft *draft;
    const dflash_config *config;
    int context;                    /* DRAFT_CONTEXT rows: more than any window of the fixtures */
    size_t features_size, out_size; /* in floats */
    int32_t *pos;                   /* [context + B] */
    float *taps, *noise;            /* [context, T H], [B, H] */
    float *features;                /* [context, H], by dflash_ctx_features */
    float *out;                     /* [B, H], by dflash_forward_block */
} draft_case;

/* `engine` becomes the case's own. Positions start at 1000 in even fixtures, at 100,000 and with gaps in odd ones. */
void draft_case_init(draft_case *c, int index, dflash_engine *engine);
void draft_case_release(draft_case *c);

/* Runs forward_block into a guarded output that the caller releases. */
float *draft_case_block(const draft_case *c);
/* Runs forward_round over `kv`, likewise. */
float *draft_case_round(const draft_case *c, dflash_kv *kv);
dflash_kv *draft_case_cache(const draft_case *c, int capacity);
/* Ingests rows [first, first + rows) of the case's context. */
void draft_case_ingest(const draft_case *c, dflash_kv *kv, int first, int rows);

/* norm(x) of the same input in double: out[B, H]. The angles are the float32 ones, their cosines exact. Returns the
 * largest magnitude of an attention score. */
double draft_reference(const draft_case *c, double *out);

#endif
