/*
 * subject_options.h - the options that say what is run: a checkpoint with an oracle, or a case of the list.
 */
#ifndef DP_SUBJECT_OPTIONS_H
#define DP_SUBJECT_OPTIONS_H

#include "store/cases.h"
#include "run/head_source.h"
#include "judge/record_run.h"

typedef struct dp_subject_options {
    const char *checkpoint, *oracle, *head, *precision, *name, *cases; /* NULL: not given */
} dp_subject_options;

#define DP_SUBJECT_OPTIONS_HELP                                                                                        \
    "  --checkpoint DIR  the checkpoint (config.json, model.safetensors)\n"                                            \
    "  --oracle FILE     an oracle of its geometry\n"                                                                  \
    "  --case NAME       a case of FILE instead of these two\n"                                                        \
    "  --cases FILE      the list of cases (default fixtures/cases.json)\n" DP_HEAD_OPTION_HELP                        \
    "  --precision MODE  stored, f32, bf16, q8_0, q4_0, mixed or fc (default: the oracle's)\n"

/* Tries to take argv[*index] and its value. 1: taken, 0: another word, -1: a usage error, reported, code in *code. */
int dp_take_subject_option(const char *command, int argc, char **argv, int *index, dp_subject_options *options,
                           int *code);

/* What the resolved strings are borrowed from. */
typedef struct dp_subject_source {
    dp_case_list list;
} dp_subject_source;

/* Fills the paths and the precision of *setup; a case's missing checkpoint is written from its recipe. Returns
 * DP_EXIT_PASS, or reports and returns the exit code, with nothing to release. */
int dp_subject_resolve(const char *command, const dp_subject_options *options, dp_subject_source *source,
                       dp_run_setup *setup);
/* Whether --out (NULL: not given) can be written and is none of the files that the subject is read from. Reports, and
 * returns the exit code. */
int dp_subject_spared(const char *command, const char *out, const dp_run_setup *setup);
void dp_subject_source_release(dp_subject_source *source);

#endif
