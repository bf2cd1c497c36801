/* identity_digests.c - see identity_digests.h. */
#include "identity/identity_digests.h"

#include "common/error.h"
#include "report/report.h"
#include "base/sha256.h"
#include "store/stage_set.h"
#include "base/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_FILE = 64 << 20, VERSION = 1 };
static const char schema[] = "dflash-parity-digests";

void dp_digest_list_release(dp_digest_list *list) {
    free(list->item);
    *list = (dp_digest_list){.item = NULL};
}

static dflash_status append(dp_digest_list *list, const char *name, const char *stage, const char *hex,
                            dflash_error *err) {
    if (strlen(name) >= DP_DIGEST_NAME)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "digests.name",
                       "The case name '%.60s...' is too long for a digest: at most %d characters. Shorten it.", name,
                       DP_DIGEST_NAME - 1);
    if (list->count == list->capacity) {
        const int capacity = list->capacity > 0 ? 2 * list->capacity : 256;
        dp_digest *grown = realloc(list->item, (size_t)capacity * sizeof *grown);
        if (grown == NULL) return df_fail_memory(err, "the digests", (size_t)capacity * sizeof *grown);
        list->item = grown;
        list->capacity = capacity;
    }
    dp_digest *digest = &list->item[list->count++];
    snprintf(digest->name, sizeof digest->name, "%s", name);
    snprintf(digest->stage, sizeof digest->stage, "%s", stage);
    snprintf(digest->hex, sizeof digest->hex, "%s", hex);
    return DFLASH_OK;
}

static void digest_of(const dp_recorded *entry, char hex[65]) {
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "digests are taken of little-endian bytes");
    dp_sha256 hash;
    dp_sha256_init(&hash);
    const char kind = entry->integer != NULL ? 'i' : 'f';
    const int64_t rank = entry->rank;
    dp_sha256_update(&hash, &kind, 1);
    dp_sha256_update(&hash, &rank, sizeof rank);
    dp_sha256_update(&hash, entry->dim, (size_t)rank * sizeof *entry->dim);
    const void *bits = entry->integer != NULL ? (const void *)entry->integer : entry->value;
    dp_sha256_update(&hash, bits, (size_t)dp_dims_product(entry->rank, entry->dim) * 4);
    dp_sha256_hex(&hash, hex);
}

dflash_status dp_digests_add(dp_digest_list *list, const char *name, const dp_recording *run, dflash_error *err) {
    dflash_status status = DFLASH_OK;
    for (int i = 0; status == DFLASH_OK && i < run->count; i++) {
        char stage[DFLASH_STAGE_NAME_MAX], hex[65];
        const dp_recorded *r = &run->stage[i];
        if (r->value != NULL && dp_first_nonfinite(r->value, dp_dims_product(r->rank, r->dim)) >= 0)
            return df_fail(err, DFLASH_ERR_REFUSED, "digests.nonfinite",
                           "Stage %s of %s holds a NaN or an infinity: its digest would let a broken run agree with "
                           "another broken run. Run `dflash-parity check` on this case.",
                           dflash_stage_name(run->stage[i].stage, run->stage[i].layer, stage), name);
        digest_of(&run->stage[i], hex);
        status = append(list, name, dflash_stage_name(run->stage[i].stage, run->stage[i].layer, stage), hex, err);
    }
    return status;
}

/* ---- Files ---- */

dflash_status dp_digests_write(const char *path, const dp_digest_list *list, dflash_error *err) {
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "schema", schema);
    cJSON_AddNumberToObject(document, "schema_version", VERSION);
    cJSON *digests = cJSON_AddArrayToObject(document, "digests");
    int written = 0;
    for (int i = 0; i < list->count; i++) {
        cJSON *entry = cJSON_CreateObject();
        const bool whole = cJSON_AddStringToObject(entry, "case", list->item[i].name) != NULL &&
                           cJSON_AddStringToObject(entry, "stage", list->item[i].stage) != NULL &&
                           cJSON_AddStringToObject(entry, "digest", list->item[i].hex) != NULL;
        if (!cJSON_AddItemToArray(digests, entry))
            cJSON_Delete(entry);
        else
            written += whole;
    }
    const dflash_status status =
        written == list->count ? dp_write_json(path, document, err) : df_fail_memory(err, "the digests", 0);
    cJSON_Delete(document);
    return status;
}

static const dp_digest *find(const dp_digest_list *list, const char *name, const char *stage) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->item[i].stage, stage) == 0 && strcmp(list->item[i].name, name) == 0) return &list->item[i];
    return NULL;
}

static dflash_status read_entry(const cJSON *entry, const char *path, dp_digest_list *out, dflash_error *err) {
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "case"));
    const char *stage = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "stage"));
    const char *hex = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "digest"));
    dflash_stage kind;
    int layer;
    if (name == NULL || stage == NULL || !dflash_stage_parse(stage, &kind, &layer) || hex == NULL ||
        strlen(hex) != 64 || strspn(hex, "0123456789abcdef") != 64)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "digests.entry",
            "Digest %d of %s is not {case, stage, digest} with the name of a stage and 64 hexadecimal digits. "
            "Write the file again with --digests.",
            out->count + 1, path);
    if (find(out, name, stage) != NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, "digests.entry",
                       "%s holds stage %.47s of case %.80s twice. Write the file again with --digests.", path, stage,
                       name);
    return append(out, name, stage, hex, err);
}

dflash_status dp_digests_read(const char *path, dp_digest_list *out, dflash_error *err) {
    char *text = NULL;
    *out = (dp_digest_list){.item = NULL};
    dflash_status status = dp_text_file_read(path, LARGEST_FILE, &text, err);
    if (status != DFLASH_OK) return status;
    cJSON *document = cJSON_ParseWithOpts(text, NULL, true); /* true: nothing may follow the document */
    free(text);
    const char *found = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(document, "schema"));
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(document, "schema_version");
    const cJSON *digests = cJSON_GetObjectItemCaseSensitive(document, "digests"), *entry = NULL;
    if (found == NULL || strcmp(found, schema) != 0 || !cJSON_IsNumber(version) || version->valuedouble != VERSION ||
        !cJSON_IsArray(digests))
        status = df_fail(err, DFLASH_ERR_REFUSED, "digests.json",
                         "%s is not a document of schema %s, version %d, with an array \"digests\". Write it with "
                         "identity --digests.",
                         path, schema, VERSION);
    cJSON_ArrayForEach(entry, digests) {
        if (status == DFLASH_OK) status = read_entry(entry, path, out, err);
    }
    cJSON_Delete(document);
    if (status != DFLASH_OK) dp_digest_list_release(out);
    return status;
}

/* ---- Comparison ---- */

dp_digest_comparison dp_digests_compare(const dp_digest_list *run, const dp_digest_list *file, dp_digest_report report,
                                        void *user) {
    dp_digest_comparison result = {.compared = 0};
    for (int i = 0; i < run->count; i++) {
        const dp_digest *own = &run->item[i], *other = find(file, own->name, own->stage);
        if (other == NULL) {
            result.extra++;
            report(own, DP_DIGEST_EXTRA, user);
            continue;
        }
        result.compared++;
        if (strcmp(own->hex, other->hex) == 0) continue;
        result.differing++;
        report(own, DP_DIGEST_DIFFERS, user);
    }
    for (int i = 0; i < file->count; i++) {
        if (find(run, file->item[i].name, file->item[i].stage) != NULL) continue;
        result.missing++;
        report(&file->item[i], DP_DIGEST_MISSING, user);
    }
    return result;
}
