/* store_record.c - see store_record.h. */
#include "store/store_record.h"

#include "common/error.h"
#include "base/sha256.h"
#include "store/store_h5.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first key that an object anywhere inside holds twice, or NULL. With two values of one key, two readers could read
 * two different records. */
static const char *repeated_key(const cJSON *item) {
    const cJSON *child;
    cJSON_ArrayForEach(child, item) {
        if (cJSON_IsObject(item) && cJSON_GetObjectItemCaseSensitive(item, child->string) != child)
            return child->string;
        const char *deeper = repeated_key(child);
        if (deeper != NULL) return deeper;
    }
    return NULL;
}

static dflash_status parse(const char *text, size_t length, const char *where, cJSON **out, dflash_error *err) {
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(text, length + 1, &end, 1);
    if (json == NULL || !cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.json",
            "%s: expected one JSON object and nothing after it; the text of %zu bytes is not (at or before byte "
            "%zu). Write the file again.",
            where, length, end != NULL ? (size_t)(end - text) : 0);
    }
    const char *twice = repeated_key(json);
    if (twice != NULL) {
        const dflash_status status = df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.json",
            "%s: the key \"%s\" appears twice in one object; expected once. Write the file again.", where, twice);
        cJSON_Delete(json);
        return status;
    }
    *out = json;
    return DFLASH_OK;
}

dflash_status dp_record_read(hid_t file, const char *file_name, const char *path, cJSON **out, dflash_error *err) {
    hid_t dataset = H5I_INVALID_HID;
    char where[512], promised[65], digest[65], *text = NULL;
    size_t length = 0;
    *out = NULL;
    snprintf(where, sizeof where, "%s: %s", file_name, path);
    dflash_status status = dp_h5_open_dataset(file, file_name, path, &dataset, err);
    if (status != DFLASH_OK) goto cleanup;
    status = dp_h5_text_dataset(dataset, where, &text, &length, err);
    if (status != DFLASH_OK) goto cleanup;
    status = dp_h5_text_attribute(dataset, where, "sha256", promised, sizeof promised, err);
    if (status != DFLASH_OK) goto cleanup;
    dp_sha256_of(text, length, digest);
    if (strcmp(digest, promised) != 0) {
        status =
            df_fail(err, DFLASH_ERR_REFUSED, "oracle.digest",
                    "%s: the SHA-256 of the text is %s; the file promises %s. The file was altered; write it again or "
                    "fetch it again.",
                    where, digest, promised);
        goto cleanup;
    }
    status = parse(text, length, where, out, err);
cleanup:
    free(text);
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

static bool all_strings(const cJSON *list) {
    const cJSON *child;
    cJSON_ArrayForEach(child, list) if (!cJSON_IsString(child)) return false;
    return true;
}

/* ---- Provenance ---- */

static const cJSON *get(const cJSON *object, const char *key) { return cJSON_GetObjectItemCaseSensitive(object, key); }
static bool is_text(const cJSON *item) { return cJSON_IsString(item); }
static bool is_object(const cJSON *item) { return cJSON_IsObject(item); }
static bool is_texts(const cJSON *item) { return cJSON_IsArray(item) && all_strings(item); }
static bool is_versions(const cJSON *item) { return cJSON_IsObject(item) && all_strings(item); }
static bool is_engine(const cJSON *item) { return cJSON_IsObject(item) && is_text(get(item, "name")); }

static bool is_whole(const cJSON *item) {
    return cJSON_IsNumber(item) && item->valuedouble >= 0.0 && item->valuedouble == floor(item->valuedouble);
}

static bool is_digest(const cJSON *item) {
    enum { DIGITS = 64 };
    return cJSON_IsString(item) && strlen(item->valuestring) == DIGITS &&
           strspn(item->valuestring, "0123456789abcdef") == DIGITS;
}

static bool is_source(const cJSON *item) {
    return cJSON_IsObject(item) && is_text(get(item, "module")) && is_digest(get(item, "sha256"));
}

/* Pairs of whole numbers: a row, and the positions that are left out before it. */
static bool is_gaps(const cJSON *item) {
    const cJSON *gap;
    cJSON_ArrayForEach(gap, item) if (cJSON_GetArraySize(gap) != 2 || !is_whole(cJSON_GetArrayItem(gap, 0)) ||
                                      !is_whole(cJSON_GetArrayItem(gap, 1))) return false;
    return cJSON_IsArray(item);
}

/* What was asked for, every fact of it and no other. */
static bool is_request(const cJSON *item) {
    const cJSON *full = get(item, "full_stages"), *gaps = get(item, "gaps");
    return is_whole(get(item, "context")) && is_whole(get(item, "start")) && is_whole(get(item, "input_seed")) &&
           is_text(get(item, "input_profile")) && is_whole(get(item, "sample_stride")) &&
           (full == NULL || is_texts(full)) && (gaps == NULL || is_gaps(gaps)) &&
           cJSON_GetArraySize(item) == 5 + (full != NULL) + (gaps != NULL);
}

static bool is_passed_over(const cJSON *item) {
    const cJSON *seed;
    cJSON_ArrayForEach(seed, item) if (!is_whole(get(seed, "seed")) || !is_text(get(seed, "why"))) return false;
    return cJSON_IsArray(item);
}

enum { IN_ORACLE = 1 << DP_KIND_ORACLE, IN_RECORDING = 1 << DP_KIND_RECORDING, IN_BOTH = IN_ORACLE | IN_RECORDING };

/* Every key that a record may have; oracles/FORMAT.md says what each is held against. */
static const struct {
    const char *key, *expected;
    bool (*good)(const cJSON *);
    unsigned demanded, allowed; /* in which kinds */
} provenance_keys[] = {
    {"generator", "a string", is_text, IN_BOTH, IN_BOTH},
    {"command", "a string", is_text, IN_BOTH, IN_BOTH},
    {"config_sha256", "a SHA-256 in 64 lower-case hex digits", is_digest, IN_BOTH, IN_BOTH},
    {"tensors", "an object", is_object, IN_BOTH, IN_BOTH},
    {"head", "an object", is_object, 0, IN_BOTH},
    {"embedding", "an object", is_object, 0, IN_BOTH},
    {"precision", "a string", is_text, IN_RECORDING, IN_BOTH},
    {"packages", "an object of strings", is_versions, IN_ORACLE, IN_ORACLE},
    {"reference", "an object with the string module and its sha256", is_source, IN_ORACLE, IN_ORACLE},
    {"seed", "a whole number", is_whole, IN_ORACLE, IN_ORACLE},
    {"request",
     "an object with context, start, input_seed, input_profile, sample_stride and perhaps full_stages and gaps",
     is_request, IN_ORACLE, IN_ORACLE},
    {"adapters", "an array of strings", is_texts, IN_ORACLE, IN_ORACLE},
    {"float32_orders", "an object", is_object, IN_ORACLE, IN_ORACLE},
    {"seeds_passed_over", "an array of {seed, why}", is_passed_over, 0, IN_ORACLE},
    {"second_opinion", "an object with the string module and its sha256", is_source, 0, IN_ORACLE},
    {"engine", "an object with the string name", is_engine, IN_RECORDING, IN_RECORDING},
};
enum { PROVENANCE_KEYS = sizeof provenance_keys / sizeof *provenance_keys };

dflash_status dp_record_check_provenance(const cJSON *provenance, dp_kind kind, const char *file_name,
                                         dflash_error *err) {
    const unsigned here = 1u << kind;
    for (int i = 0; i < PROVENANCE_KEYS; i++) {
        const cJSON *item = get(provenance, provenance_keys[i].key);
        if ((item == NULL && (provenance_keys[i].demanded & here) == 0) ||
            (item != NULL && provenance_keys[i].good(item)))
            continue;
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.provenance",
            "%s: the provenance record's \"%s\" is missing or of another type; expected %s. Without it nobody "
            "can say what the %s speaks of. Write the file again.",
            file_name, provenance_keys[i].key, provenance_keys[i].expected, dp_kind_name(kind));
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, provenance) {
        int i = 0;
        while (i < PROVENANCE_KEYS && strcmp(provenance_keys[i].key, item->string) != 0) i++;
        if (i < PROVENANCE_KEYS && (provenance_keys[i].allowed & here) != 0) continue;
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.provenance.unknown",
                       "%s: the provenance record of this %s has the key \"%.60s\", which schema version %d does not "
                       "give it; nothing would be held against it. Write the file again as oracles/FORMAT.md says.",
                       file_name, dp_kind_name(kind), item->string, DP_SCHEMA_VERSION);
    }
    return DFLASH_OK;
}
