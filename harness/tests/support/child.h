/* child.h - runs build/dflash-parity as a user would, and keeps what it printed and how it ended. */
#ifndef DP_TESTS_CHILD_H
#define DP_TESTS_CHILD_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct child {
    int code;        /* exit code; 128 + the signal when it was killed */
    char *out, *err; /* owned; what went to standard output and to standard error */
} child;

/* How the next run differs from a plain one; cleared by every run. */
typedef struct child_limits {
    const char *out;  /* standard output goes to this path instead; child.out is empty then */
    bool terminal;    /* standard error is a terminal of 100 columns; child.err has what it was sent */
    size_t file_size; /* no file may grow beyond this many bytes, as on a full disk; 0: no limit */
} child_limits;
extern child_limits child_next;

/* Runs with these words after the program's name. Release the result. */
child child_words(const char *const *words, int count);
#define CHILD(...)                                                                                                     \
    child_words((const char *const[]){__VA_ARGS__},                                                                    \
                (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))
void child_release(child *run);

/* The run ended with this code, and each stream holds its word (NULL: anything; "": nothing at all). Releases the run.
 */
void child_expect(child run, int code, const char *out, const char *err);
/* Standard output as JSON, of a run that ended with this code; delete it. Releases the run. */
cJSON *child_json(child run, int code);
/* The one case of a result document, as an object of its own; the document's verdict and command are checked against
 * it. */
cJSON *child_case(child run, int code);
/* The string at a key of an object; fails the test when there is none. */
const char *child_text(const cJSON *object, const char *key);

#endif
