/* store_record.c - see store_record.h. */
#include "store_record.h"

#include "error.h"
#include "sha256.h"
#include "store_h5.h"

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

static df_status parse(const char *text, size_t length, const char *where, cJSON **out, df_error *err) {
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(text, length + 1, &end, 1);
    if (json == NULL || !cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return df_fail(
            err, DF_ERR_REFUSED, "oracle.json",
            "%s: expected one JSON object and nothing after it; the text of %zu bytes is not (at or before byte "
            "%zu). Write the file again.",
            where, length, end != NULL ? (size_t)(end - text) : 0);
    }
    const char *twice = repeated_key(json);
    if (twice != NULL) {
        const df_status status = df_fail(
            err, DF_ERR_REFUSED, "oracle.json",
            "%s: the key \"%s\" appears twice in one object; expected once. Write the file again.", where, twice);
        cJSON_Delete(json);
        return status;
    }
    *out = json;
    return DF_OK;
}

df_status dp_record_read(hid_t file, const char *file_name, const char *path, cJSON **out, df_error *err) {
    hid_t dataset = H5I_INVALID_HID;
    char where[512], promised[65], digest[65], *text = NULL;
    size_t length = 0;
    *out = NULL;
    snprintf(where, sizeof where, "%s: %s", file_name, path);
    df_status status = dp_h5_open_dataset(file, file_name, path, &dataset, err);
    if (status != DF_OK) goto cleanup;
    status = dp_h5_text_dataset(dataset, where, &text, &length, err);
    if (status != DF_OK) goto cleanup;
    status = dp_h5_text_attribute(dataset, where, "sha256", promised, sizeof promised, err);
    if (status != DF_OK) goto cleanup;
    dp_sha256_of(text, length, digest);
    if (strcmp(digest, promised) != 0) {
        status =
            df_fail(err, DF_ERR_REFUSED, "oracle.digest",
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

static bool is_text(const cJSON *record, const char *key) {
    return cJSON_IsString(cJSON_GetObjectItemCaseSensitive(record, key));
}

df_status dp_record_check_provenance(const cJSON *provenance, dp_kind kind, const char *file_name, df_error *err) {
    enum { IN_ORACLE = 1 << DP_KIND_ORACLE, IN_RECORDING = 1 << DP_KIND_RECORDING, IN_BOTH = IN_ORACLE | IN_RECORDING };
    const cJSON *packages = cJSON_GetObjectItemCaseSensitive(provenance, "packages");
    const cJSON *reference = cJSON_GetObjectItemCaseSensitive(provenance, "reference");
    const cJSON *adapters = cJSON_GetObjectItemCaseSensitive(provenance, "adapters");
    const cJSON *engine = cJSON_GetObjectItemCaseSensitive(provenance, "engine");
    const struct {
        const char *key, *expected;
        bool good;
        unsigned in;
    } field[] = {
        {"generator", "a string", is_text(provenance, "generator"), IN_BOTH},
        {"command", "a string", is_text(provenance, "command"), IN_BOTH},
        {"packages", "an object of strings", cJSON_IsObject(packages) && all_strings(packages), IN_ORACLE},
        {"reference", "an object with the strings module and sha256",
         cJSON_IsObject(reference) && is_text(reference, "module") && is_text(reference, "sha256"), IN_ORACLE},
        {"config_sha256", "a string", is_text(provenance, "config_sha256"), IN_BOTH},
        {"tensors", "an object", cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(provenance, "tensors")), IN_BOTH},
        {"seed", "a number", cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(provenance, "seed")), IN_ORACLE},
        {"adapters", "an array of strings", cJSON_IsArray(adapters) && all_strings(adapters), IN_ORACLE},
        {"precision", "a string", is_text(provenance, "precision"), IN_RECORDING},
        {"engine", "an object with the string name", cJSON_IsObject(engine) && is_text(engine, "name"), IN_RECORDING},
    };
    for (size_t i = 0; i < sizeof field / sizeof field[0]; i++)
        if (!field[i].good && (field[i].in & (1u << kind)) != 0)
            return df_fail(
                err, DF_ERR_REFUSED, "oracle.provenance",
                "%s: the provenance record's \"%s\" is missing or of another type; expected %s. Without it nobody "
                "can say what the %s speaks of. Write the file again.",
                file_name, field[i].key, field[i].expected, dp_kind_name(kind));
    return DF_OK;
}
