/*
 * result_case.h - result documents for tests, each of a real check of a stored case that the test's fault was injected
 * in. Tests that use them start from scratch_open.
 */
#ifndef DP_TESTS_RESULT_CASE_H
#define DP_TESTS_RESULT_CASE_H

#include "report/render.h"
#include "support/scratch.h"

#include <cjson/cJSON.h>

typedef enum result_kind {
    RESULT_PASS,
    RESULT_FAIL,    /* a weight of layer 1 is another one, and the oracle's record of it too */
    RESULT_NAN,     /* two weights of layer 0 are so large that their product leaves float32 */
    RESULT_MISREAD, /* the drafter takes another rope.theta than its config's */
    RESULT_REFUSED, /* a weight is another one than the oracle says */
    RESULT_NOTHING  /* the filter matches nothing */
} result_kind;

/* The document of a check of tiny-plain, or of a gate with a case for each kind ("case0", ...); delete it. */
cJSON *result_check(result_kind kind);
cJSON *result_gate(const result_kind *kind, int count);

/* The value at a path of keys and indices: "cases/0/stages/3/chained". Fails the test when there is none. */
cJSON *result_at(cJSON *document, const char *path);
/* Puts JSON text in its place. */
void result_put(cJSON *document, const char *path, const char *json);

/* The document is refused with this code, and the message holds the word. */
void result_refused(cJSON *document, const char *code, const char *word);

/* The document as a file of the scratch folder; `path` gets its name. */
void result_write(const cJSON *document, const char *name, char path[SCRATCH_PATH]);

/* What a renderer makes of the document; the caller frees it. */
char *result_render(cJSON *document, dp_report_format format);

#endif
