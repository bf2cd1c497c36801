/*
 * workflow_file.h - the steps of reports/ci/github-actions.yml, so that a test runs what the file says.
 *
 * Not YAML: the few forms that the file is written in, and anything else fails the test, so that no step is left out by
 * being written in another way. That the file is a valid workflow is for GitHub's schema to say (reports/ci/README.md).
 */
#ifndef DP_TESTS_WORKFLOW_FILE_H
#define DP_TESTS_WORKFLOW_FILE_H

#include <stdbool.h>

enum { WORKFLOW_STEPS = 16, WORKFLOW_TEXT = 2048 };

typedef struct workflow_step {
    char name[64];
    char uses[64];           /* empty: a step that runs */
    char run[WORKFLOW_TEXT]; /* empty: a step of an action */
    char path[64], key[256]; /* of an action: what it keeps, and as what; empty: not given */
    bool always;             /* also after a failure */
} workflow_step;

typedef struct workflow {
    workflow_step step[WORKFLOW_STEPS];
    int count;
    char shell[16];
    char env_name[32], env_value[128]; /* the job's one variable */
} workflow;

void workflow_read(const char *path, workflow *out);

#endif
