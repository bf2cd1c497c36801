/* postmortem_case.h - series of runs for the tests of postmortem: results of real checks that a test changes, and the
 * reading of whatever files a test has collected. */
#ifndef DP_TESTS_POSTMORTEM_CASE_H
#define DP_TESTS_POSTMORTEM_CASE_H

#include "support/page_case.h"
#include "history/postmortem.h"
#include "support/result_case.h"

enum { PM_MOST = 8 };
extern char pm_path[PM_MOST][SCRATCH_PATH]; /* the files collected */
extern int pm_count;
extern dp_postmortem_options pm_options; /* order, oracle and repository of the next reading */

void pm_open(void); /* an empty list in a fresh scratch folder */

/* Documents of a check of tiny-plain: one that passes, and one whose stages fail from `stage` on. */
cJSON *pm_good(void);
cJSON *pm_bad(const char *stage);
/* The verdict and its exit codes, of document and case. */
void pm_set_verdict(cJSON *document, const char *verdict, int code);
void pm_set_fact(cJSON *document, const char *key, const char *value); /* of the environment */

/* Writes the document as the next file, begun then and built from that commit, and deletes it. */
void pm_add(cJSON *document, const char *when, const char *commit);
/* The next file is this one. */
void pm_add_file(const char *path);

/* Reads the files; the test fails when that is refused. Release the story. */
void pm_read(dp_postmortem *summary);
/* They are refused with this code, and the message holds both words. */
void pm_refused(const char *code, const char *a, const char *b);

/* The commit of a run as its file has it. */
const char *pm_commit(const dp_postmortem *summary, int run);
/* "BEFORE -> AFTER" of a fact that changed between two runs, or "none". */
const char *pm_change(const dp_changes *changes, const char *name);
/* The text holds each of these, which end with NULL. */
void pm_holds(const char *text, const char *const *words);

void postmortem_add_recordings(Suite *suite); /* test_postmortem_recordings.c */
void postmortem_add_revisions(Suite *suite);  /* test_postmortem_revisions.c */

#endif
