/*
 * json_read.h - takes demanded keys out of a JSON document, the first fault kept.
 *
 * Every function returns a harmless value once something was wrong, so that a whole object can be read before the
 * status is looked at.
 */
#ifndef DP_JSON_READ_H
#define DP_JSON_READ_H

#include "dflash.h"

#include <cjson/cJSON.h>

enum { DP_WHERE_TEXT = 160 };

typedef struct dp_json_reader {
    const char *file;          /* for messages */
    char where[DP_WHERE_TEXT]; /* "case 2 (tiny-plain), stage 5 (ctx.fc)"; the reader's user keeps it current */
    dflash_status status;      /* of everything so far */
    dflash_error *err;
} dp_json_reader;

/* Says that `key` is missing or not `expected`; the first call counts. Code: "result.key". */
void dp_read_wrong(dp_json_reader *reader, const char *key, const char *expected);

const char *dp_read_text(dp_json_reader *reader, const cJSON *object, const char *key);         /* "" */
const char *dp_read_text_or_null(dp_json_reader *reader, const cJSON *object, const char *key); /* NULL for null */
double dp_read_number(dp_json_reader *reader, const cJSON *object, const char *key); /* either form of a number */
double dp_read_number_or_null(dp_json_reader *reader, const cJSON *object, const char *key, double none);
/* A whole number within [low, high]. */
int64_t dp_read_integer(dp_json_reader *reader, const cJSON *object, const char *key, int64_t low, int64_t high);
bool dp_read_bool(dp_json_reader *reader, const cJSON *object, const char *key);
const cJSON *dp_read_object(dp_json_reader *reader, const cJSON *object, const char *key);
const cJSON *dp_read_object_or_null(dp_json_reader *reader, const cJSON *object, const char *key); /* NULL for null */
const cJSON *dp_read_array(dp_json_reader *reader, const cJSON *object, const char *key);
const cJSON *dp_read_array_or_null(dp_json_reader *reader, const cJSON *object, const char *key);

/* Arrays of one length, into memory that the caller frees; *count < 0: any length, which is stored there. NULL when
 * empty or wrong. */
double *dp_read_numbers(dp_json_reader *reader, const cJSON *object, const char *key, int *count);
int64_t *dp_read_integers(dp_json_reader *reader, const cJSON *object, const char *key, int *count);
/* null gives NULL. */
int32_t *dp_read_ids(dp_json_reader *reader, const cJSON *object, const char *key, int *count);

#endif
