/* json_read.c - see json_read.h. */
#include "base/json_read.h"

#include "common/error.h"
#include "base/json_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whole numbers up to here are themselves in a double. */
static const double LARGEST_WHOLE = 0x1p53;

void dp_read_wrong(dp_json_reader *reader, const char *key, const char *expected) {
    if (reader->status != DFLASH_OK) return;
    reader->status = df_fail(reader->err, DFLASH_ERR_REFUSED, "result.key",
                             "%s, %s: expected the key \"%s\" to be %s, and it is missing or something else. The file "
                             "was not written by this program, or it was changed; write it again with --out.",
                             reader->file, reader->where, key, expected);
}

static const cJSON *find(const dp_json_reader *reader, const cJSON *object, const char *key) {
    return reader->status == DFLASH_OK ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
}

const char *dp_read_text(dp_json_reader *reader, const cJSON *object, const char *key) {
    const cJSON *item = find(reader, object, key);
    if (cJSON_IsString(item)) return item->valuestring;
    dp_read_wrong(reader, key, "a string");
    return "";
}

const char *dp_read_text_or_null(dp_json_reader *reader, const cJSON *object, const char *key) {
    const cJSON *item = find(reader, object, key);
    if (cJSON_IsString(item)) return item->valuestring;
    if (!cJSON_IsNull(item)) dp_read_wrong(reader, key, "a string or null");
    return NULL;
}

double dp_read_number(dp_json_reader *reader, const cJSON *object, const char *key) {
    double value = 0.0;
    if (!dp_json_read_number(find(reader, object, key), &value))
        dp_read_wrong(reader, key, "a number, \"nan\", \"inf\" or \"-inf\"");
    return value;
}

double dp_read_number_or_null(dp_json_reader *reader, const cJSON *object, const char *key, double none) {
    return cJSON_IsNull(find(reader, object, key)) ? none : dp_read_number(reader, object, key);
}

static bool whole(const cJSON *item, double low, double high) {
    return cJSON_IsNumber(item) && item->valuedouble >= low && item->valuedouble <= high &&
           item->valuedouble == trunc(item->valuedouble) && fabs(item->valuedouble) <= LARGEST_WHOLE;
}

int64_t dp_read_integer(dp_json_reader *reader, const cJSON *object, const char *key, int64_t low, int64_t high) {
    const cJSON *item = find(reader, object, key);
    if (whole(item, (double)low, (double)high)) return (int64_t)item->valuedouble;
    dp_read_wrong(reader, key, "a whole number within its range");
    return low;
}

bool dp_read_bool(dp_json_reader *reader, const cJSON *object, const char *key) {
    const cJSON *item = find(reader, object, key);
    if (!cJSON_IsBool(item)) dp_read_wrong(reader, key, "true or false");
    return cJSON_IsTrue(item);
}

const cJSON *dp_read_object(dp_json_reader *reader, const cJSON *object, const char *key) {
    const cJSON *item = find(reader, object, key);
    if (cJSON_IsObject(item)) return item;
    dp_read_wrong(reader, key, "an object");
    return NULL;
}

const cJSON *dp_read_object_or_null(dp_json_reader *reader, const cJSON *object, const char *key) {
    return cJSON_IsNull(find(reader, object, key)) ? NULL : dp_read_object(reader, object, key);
}

const cJSON *dp_read_array(dp_json_reader *reader, const cJSON *object, const char *key) {
    const cJSON *item = find(reader, object, key);
    if (cJSON_IsArray(item)) return item;
    dp_read_wrong(reader, key, "an array");
    return NULL;
}

const cJSON *dp_read_array_or_null(dp_json_reader *reader, const cJSON *object, const char *key) {
    return cJSON_IsNull(find(reader, object, key)) ? NULL : dp_read_array(reader, object, key);
}

/* Memory for an array's elements; NULL when it is empty, wrong, or of another length than demanded. */
static void *begin(dp_json_reader *reader, const cJSON *object, const char *key, int *count, size_t size,
                   const cJSON **array) {
    *array = dp_read_array(reader, object, key);
    if (*array == NULL) return NULL;
    const int length = cJSON_GetArraySize(*array);
    if (*count >= 0 && length != *count) {
        dp_read_wrong(reader, key, "an array as long as those beside it");
        return NULL;
    }
    *count = length;
    if (length == 0) return NULL;
    void *memory = calloc((size_t)length, size);
    if (memory == NULL) reader->status = df_fail_memory(reader->err, key, (size_t)length * size);
    return memory;
}

double *dp_read_numbers(dp_json_reader *reader, const cJSON *object, const char *key, int *count) {
    const cJSON *array, *item;
    double *out = begin(reader, object, key, count, sizeof *out, &array);
    int at = 0;
    if (out == NULL) return NULL;
    cJSON_ArrayForEach(item, array) if (!dp_json_read_number(item, &out[at++]))
        dp_read_wrong(reader, key, "an array of numbers");
    return out;
}

int64_t *dp_read_integers(dp_json_reader *reader, const cJSON *object, const char *key, int *count) {
    const cJSON *array, *item;
    int64_t *out = begin(reader, object, key, count, sizeof *out, &array);
    int at = 0;
    if (out == NULL) return NULL;
    cJSON_ArrayForEach(item, array) {
        if (!whole(item, 0.0, LARGEST_WHOLE)) {
            dp_read_wrong(reader, key, "an array of counts");
            break;
        }
        out[at++] = (int64_t)item->valuedouble;
    }
    return out;
}

int32_t *dp_read_ids(dp_json_reader *reader, const cJSON *object, const char *key, int *count) {
    const cJSON *array, *item;
    int at = 0;
    if (cJSON_IsNull(find(reader, object, key))) return NULL;
    int32_t *out = begin(reader, object, key, count, sizeof *out, &array);
    if (out == NULL) return NULL;
    cJSON_ArrayForEach(item, array) {
        if (!whole(item, INT32_MIN, INT32_MAX)) {
            dp_read_wrong(reader, key, "an array of ids");
            break;
        }
        out[at++] = (int32_t)item->valuedouble;
    }
    return out;
}
