/* vectors_parts.h - what the files of vectors.h share: one file being judged, its memory, how values are judged. */
#ifndef DP_VECTORS_PARTS_H
#define DP_VECTORS_PARTS_H

#include "limits/chain.h"
#include "formulas/evaluate.h"
#include "run/recording.h"
#include "vectors/vectors.h"
#include "vectors/vectors_file.h"

typedef struct dp_vectors_run {
    const dp_check_options *options;
    dp_result *out;
    dflash_error *err;
    dp_class_model model, reference; /* of the class under test; of the reference's float64 */
    dflash_engine *engine, *host_engine;
    /* The group in hand. `witness` is the drafter on the CPU, `draft` itself there; NULL without a checkpoint. */
    dp_vector_group *group;
    char checkpoint[4096];
    dflash_draft *draft, *host_copy;
    void **owned; /* memory of the group */
    int owned_count, owned_capacity, stage_capacity;
} dp_vectors_run;

/* `count` zeroed elements until the group ends; NULL when there is no memory (df_fail_memory was called). */
void *dp_vector_take(dp_vectors_run *run, int64_t count, size_t size);

/* The values of a dataset of the group, which live as long as it does. */
dflash_status dp_vector_read_doubles(dp_vectors_run *run, const char *name, const int64_t dim[4], double **out);
dflash_status dp_vector_read_floats(dp_vectors_run *run, const char *name, const int64_t dim[4], float **out);
dflash_status dp_vector_read_ints(dp_vectors_run *run, const char *name, const int64_t dim[4], int32_t **out);

/* One float value: ours, the formula in the class and in the reference's float64, the reference's. dim ends at a 0. */
typedef struct dp_vector_value {
    const char *name, *bound;
    int64_t dim[4];
    const float *got;
    const dp_approx *want, *their_want;
    const double *theirs;
} dp_vector_value;
dflash_status dp_vector_judge(dp_vectors_run *run, const dp_vector_value *value);
/* Ids and counts. */
dflash_status dp_vector_equal(dp_vectors_run *run, const char *name, const int64_t dim[4], const int32_t *got,
                              const int32_t *want);

/* A stage evaluated over `values`, in the class and in the reference's float64. `head` may be NULL. */
typedef struct dp_vector_formula {
    dflash_stage stage;
    int layer;
    int64_t dim[4];
    const dp_stage_values *values;
    const dflash_table *head;
    int32_t anchor;
} dp_vector_formula;
dflash_status dp_vector_evaluate(dp_vectors_run *run, const dp_vector_formula *formula, dp_approx **want,
                                 dp_approx **their_want);
/* Rows as the stage `final` holds them: behind those that are not harvested. */
dflash_status dp_vector_final(dp_vectors_run *run, const float *rows, int n, dp_stage_values *values);
dflash_status dp_vector_give(dp_vectors_run *run, dflash_stage stage, int layer, int64_t count, const float *value,
                             dp_stage_values *values);
dflash_status dp_vector_give_ints(dp_vectors_run *run, dflash_stage stage, int64_t count, const int32_t *value,
                                  dp_stage_values *values);

/* The selector's scores of candidates id[n, k], whose logits are given, along token[n], from rows[n, H]: with the
 * errors of the hidden projection. */
dflash_status dp_vector_scores(dp_vectors_run *run, const dp_class_model *model, const dp_approx *hidden,
                               const float *logits, const int32_t *id, const int32_t *token, int32_t anchor, int n,
                               dp_approx **out);

/* The parts. Each judges one group. */
dflash_status dp_vectors_conv(dp_vectors_run *run);
dflash_status dp_vectors_selector(dp_vectors_run *run);
dflash_status dp_vectors_markov(dp_vectors_run *run);
dflash_status dp_vectors_confidence(dp_vectors_run *run);
dflash_status dp_vectors_logits(dp_vectors_run *run);
dflash_status dp_vectors_proposal(dp_vectors_run *run);
dflash_status dp_vectors_verify(dp_vectors_run *run);
dflash_status dp_vectors_yarn(dp_vectors_run *run);

#endif
