/*
 * run_check.h - one checkpoint against one oracle, from geometry to verdict.
 *
 * Order: the oracle is opened and verified; its geometry is held against the config, its stage list and shapes against
 * what the config demands, its tensor digests against the weights; only then are values compared, stage by stage,
 * chained; then forward_round is held against forward_block bit for bit. Anything that stops before a value is compared
 * is a refusal.
 */
#ifndef DP_RUN_CHECK_H
#define DP_RUN_CHECK_H

#include "limits/compare.h"
#include "limits/envelope.h"
#include "check/growth.h"
#include "judge/isolated.h"
#include "check/plot_data.h"
#include "base/progress.h"
#include "judge/rounds.h"
#include "check/run_facts.h"
#include "preflight/sketch_check.h"

#include <cjson/cJSON.h>

typedef enum dp_verdict {
    DP_PASS = 0,
    DP_FAIL,    /* a stage outside its limit, a pair of variants not identical, or a config that the drafter misreads */
    DP_REFUSED, /* see the error */
    DP_ERROR,   /* I/O, memory, device */
    DP_NOTHING  /* nothing was compared */
} dp_verdict;
const char *dp_verdict_name(dp_verdict verdict); /* "PASS" ... */
int dp_verdict_exit_code(dp_verdict verdict);
/* Which of two verdicts decides the exit code of a run over many cases: an error hides less than a refusal, a refusal
 * less than a numeric failure, and all of them more than a pass. */
dp_verdict dp_worse_verdict(dp_verdict a, dp_verdict b);

typedef struct dp_check_options {
    const char *checkpoint;     /* directory; "" where an oracle of vectors names its own (vectors.h) */
    const char *root;           /* what the paths of those start with (cases.h); NULL: nothing */
    const char *oracle;         /* file */
    const char *head;           /* FILE[:TENSOR] (head_source.h); NULL: the checkpoint's own */
    dflash_precision precision; /* how the matrices are held; must be the oracle's */
    const cJSON *entry;         /* of a case list: its facts must be the oracle's (request.h); NULL: not of a list */
    const cJSON *signature;     /* of what wrote the oracle (manifest.h); NULL: nothing pins it */
    /* What the drafter computes with in the place of the checkpoint's config, which still says what is demanded; NULL:
     * that one. The verdict then says whether the oracle notices. A run that fails chained is not run alone, because
     * the shapes of its stages may be other ones. */
    const dflash_config *altered;
    const char *filter; /* pattern over stage and variant names; NULL: all */
    int threads;        /* 0 = all cores */
    dflash_isa isa;
    dflash_backend backend;
    dflash_class numeric_class;
    dflash_products products;
    int device;                /* number of the CUDA device */
    dp_progress_part progress; /* all zero: nobody watches */
    bool report;               /* also collect what only a result file holds: digests, geometry, plot data */
    void (*fault)(dflash_config *reading); /* for tests: spoils what the drafter read of its config; NULL: nothing */
} dp_check_options;

enum { DP_RESULT_NAME = 64 };

typedef struct dp_stage_result {
    char name[DP_RESULT_NAME]; /* of a stage, or of a value of vectors.h: "GROUP/CASE/VALUE" */
    int rank;
    int64_t dim[4];
    dp_difference difference;
    dp_limit limit;
    double headroom;
    bool exact;              /* integers: any difference fails, and there is no limit */
    bool pass;               /* of the chained comparison */
    bool warn;               /* it passes with a headroom under the warning threshold */
    dp_sketch_result sketch; /* of a sampled stage; difference.l2_rel is then the sketch's, which sees every value */
    dp_isolated isolated;
    dp_share share;
} dp_stage_result;

enum { DP_TENSOR_NAME = 256 };

typedef struct dp_result {
    const dp_check_options *options;
    dp_verdict verdict;
    dflash_error error; /* for a run that stopped (dp_stopped) */
    dflash_family family;
    int context, block; /* rows of the input */
    int threads;
    const char *isa;
    dflash_device_facts device; /* what was asked for, and what it is once an engine was made */
    int stages_known;           /* stages that the config demands */
    char head[DP_TENSOR_NAME];  /* the tensor that was the output head; "" when none was loaded */
    dp_stage_result *stage;     /* owned; the stages compared, in forward order */
    int stage_count;
    dp_variant_result variant[DP_MOST_VARIANTS];
    int variant_count;
    int failed_stages, failed_variants, warnings;
    int isolated_count, failed_isolated; /* stages run alone, and those outside their bound */
    dp_layer_growth *layer;              /* owned, [layer_count]: those whose output and input were both compared */
    int layer_count;
    dp_run_facts facts; /* owned; empty unless options->report */
    dp_plot_data plot;  /* owned; likewise */
    double load_seconds, provenance_seconds, forward_seconds, total_seconds;
} dp_result;

/* What a run that ended with `status` amounts to. */
dp_verdict dp_verdict_of(dflash_status status, const dp_result *result);

/* Never fails: what goes wrong is in the result. */
void dp_check(const dp_check_options *options, dp_result *out);
void dp_result_release(dp_result *result);

/* Whether the run ended before its verdict, with result->error: refused, not possible, or failed by a drafter that
 * misreads its config, so that no value could be compared. */
bool dp_stopped(const dp_result *result);

/* The compared stage with the least headroom; NULL when none was compared. */
const dp_stage_result *dp_worst_stage(const dp_result *result);
/* The compared stage of that name; NULL when it was not compared. */
const dp_stage_result *dp_stage_named(const dp_result *result, const char *name);
int dp_stage_layer(const dp_stage_result *stage); /* -1 outside the layers */
/* How many times its limit the error of a chained stage is, in the measure that is worst. */
double dp_times_limit(const dp_stage_result *stage);
/* Whether a stage fails: chained, alone, or both; and whether it does alone. */
bool dp_stage_failed(const dp_stage_result *stage);
bool dp_alone_failed(const dp_stage_result *stage);

/* Prints the names that a check of this pair would compare, one a line, filtered. Returns the exit code. */
int dp_check_list(const dp_check_options *options);

#endif
