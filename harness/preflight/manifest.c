/* manifest.c - see manifest.h. */
#include "preflight/manifest.h"

#include "common/error.h"
#include "base/sha256.h"
#include "base/text_file.h"
#include "store/store_trial.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LARGEST = 4 << 20, PATH_SIZE = 4096, MOST_NAMED = 4 };

static const cJSON *get(const cJSON *object, const char *key) { return cJSON_GetObjectItemCaseSensitive(object, key); }

static bool is_digest(const cJSON *item) {
    const char *text = cJSON_GetStringValue(item);
    return text != NULL && strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

/* ---- Reading ---- */

static dflash_status check_entries(const dp_manifest *m, dflash_error *err) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, m->oracles) {
        const char *key = cJSON_GetStringValue(get(entry, "signature"));
        const cJSON *signature = key != NULL ? get(m->signatures, key) : NULL;
        if (cJSON_IsNumber(get(entry, "bytes")) && is_digest(get(entry, "sha256")) &&
            cJSON_IsObject(get(signature, "generator")) && cJSON_IsObject(get(signature, "references")) &&
            cJSON_IsObject(get(signature, "packages")))
            continue;
        return df_fail(err, DFLASH_ERR_REFUSED, "manifest.entry",
                       "%s: the entry of %s is not complete: expected its bytes, its sha256 and the key of a signature "
                       "with generator, references and packages. Write the oracle again with `make oracles`.",
                       m->path, entry->string);
    }
    return DFLASH_OK;
}

dflash_status dp_manifest_read(const char *path, dp_manifest *out, dflash_error *err) {
    char *text = NULL;
    *out = (dp_manifest){.path = path};
    if (path == NULL) return DFLASH_OK;
    TRY(dp_text_file_read(path, LARGEST, &text, err));
    out->document = cJSON_ParseWithOpts(text, NULL, true);
    free(text);
    out->oracles = get(out->document, "oracles");
    out->signatures = get(out->document, "signatures");
    const cJSON *schema = get(out->document, "schema");
    dflash_status status = DFLASH_OK;
    if (!cJSON_IsNumber(schema) || schema->valuedouble != 1.0 || !cJSON_IsObject(out->oracles) ||
        !cJSON_IsObject(out->signatures))
        status = df_fail(err, DFLASH_ERR_REFUSED, "manifest.json",
                         "%s is not a manifest of oracles: expected one JSON object with schema 1, oracles and "
                         "signatures. Write it again with `make oracles`.",
                         path);
    if (status == DFLASH_OK) status = check_entries(out, err);
    if (status != DFLASH_OK) dp_manifest_release(out);
    return status;
}

void dp_manifest_release(dp_manifest *manifest) {
    cJSON_Delete(manifest->document);
    *manifest = (dp_manifest){.path = NULL};
}

/* ---- Files ---- */

dflash_status dp_manifest_check_file(const dp_manifest *m, const char *name, const char *oracle, dflash_error *err) {
    char digest[DP_DIGEST_TEXT];
    struct stat info;
    if (m->document == NULL) return DFLASH_OK;
    const cJSON *entry = get(m->oracles, name);
    if (entry == NULL)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "manifest.case",
            "%s has no entry for %s, which a case of its list names: expected one for every case, or nothing "
            "says what that file should hold. Write the oracle with `make oracles`.",
            m->path, name);
    if (stat(oracle, &info) != 0)
        return df_fail(err, DFLASH_ERR_REFUSED, "manifest.file",
                       "%s has an entry for %s, and there is no such file. Fetch it again, or write it with `make "
                       "oracles`.",
                       m->path, oracle);
    const double bytes = get(entry, "bytes")->valuedouble;
    const char *promised = get(entry, "sha256")->valuestring;
    dp_file_digest(oracle, digest);
    if ((double)info.st_size == bytes && strcmp(digest, promised) == 0) {
        dp_trial_vouch(&info);
        return DFLASH_OK;
    }
    return df_fail(
        err, DFLASH_ERR_REFUSED, "manifest.digest",
        "%s is not the oracle that was stored: it has %lld bytes and the SHA-256 %s, %s says %.0f bytes and %s. "
        "Fetch the stored file again; a new oracle gets its entry from `make oracles`.",
        oracle, (long long)info.st_size, digest, m->path, bytes, promised);
}

const cJSON *dp_manifest_signature(const dp_manifest *m, const char *entry) {
    const char *key = cJSON_GetStringValue(get(get(m->oracles, entry), "signature"));
    return key != NULL ? get(m->signatures, key) : NULL;
}

/* ---- Signatures ---- */

static dflash_status differs(const char *where, const char *what, const char *name, const char *said,
                             const char *signed_, dflash_error *err) {
    return df_fail(
        err, DFLASH_ERR_REFUSED, "manifest.signature",
        "%s: its provenance says that %s %s was %.80s, and the manifest's signature of it says %.80s. One of the "
        "two was changed; write the oracle again with `make oracles`.",
        where, what, name, said, signed_);
}

/* A record {module, sha256} of a reference's source. */
static dflash_status check_reference(const cJSON *signature, const cJSON *record, const char *where,
                                     dflash_error *err) {
    const char *module = cJSON_GetStringValue(get(record, "module")),
               *said = cJSON_GetStringValue(get(record, "sha256"));
    const char *known = module != NULL ? cJSON_GetStringValue(get(get(signature, "references"), module)) : NULL;
    if (known != NULL && said != NULL && strcmp(said, known) == 0) return DFLASH_OK;
    return differs(where, "the reference", module != NULL ? module : "without a name", said != NULL ? said : "nothing",
                   known != NULL ? known : "nothing", err);
}

dflash_status dp_manifest_check_provenance(const cJSON *signature, const cJSON *provenance, const char *where,
                                           dflash_error *err) {
    const cJSON *package, *second = get(provenance, "second_opinion");
    TRY(check_reference(signature, get(provenance, "reference"), where, err));
    if (second != NULL) TRY(check_reference(signature, second, where, err));
    cJSON_ArrayForEach(package, get(provenance, "packages")) {
        const char *known = cJSON_GetStringValue(get(get(get(signature, "packages"), package->string), "version"));
        if (known != NULL && strcmp(known, package->valuestring) == 0) continue;
        return differs(where, "the package", package->string, package->valuestring, known != NULL ? known : "nothing",
                       err);
    }
    return DFLASH_OK;
}

/* ---- Age ---- */

/* Adds the names of sources that are others now; whether there are any. */
static bool changed_sources(const cJSON *signature, const char *folder, cJSON *names) {
    const cJSON *source;
    bool any = false;
    cJSON_ArrayForEach(source, get(signature, "generator")) {
        char path[PATH_SIZE], digest[DP_DIGEST_TEXT] = "";
        if (snprintf(path, sizeof path, "%s/%s", folder, source->string) < PATH_SIZE) dp_file_digest(path, digest);
        if (cJSON_IsString(source) && strcmp(digest, source->valuestring) == 0) continue;
        any = true;
        if (!cJSON_HasObjectItem(names, source->string)) cJSON_AddTrueToObject(names, source->string);
    }
    return any;
}

void dp_manifest_print_age(const dp_manifest *m, const char *folder, FILE *to) {
    const cJSON *entry, *name;
    cJSON *names = cJSON_CreateObject();
    const int all = cJSON_GetArraySize(m->oracles);
    int old = 0, shown = 0;
    cJSON_ArrayForEach(entry, m->oracles) {
        const char *key = cJSON_GetStringValue(get(entry, "signature"));
        old += changed_sources(key != NULL ? get(m->signatures, key) : NULL, folder, names);
    }
    if (old == 0)
        fprintf(to, "oracles: all %d were written by the generator as it is\n", all);
    else {
        fprintf(to, "oracles: the generator changed after %d of %d were written (", old, all);
        cJSON_ArrayForEach(name, names) if (shown++ < MOST_NAMED)
            fprintf(to, "%s%s", shown > 1 ? ", " : "", name->string);
        fprintf(to, "%s); `make oracles` writes them again\n", shown > MOST_NAMED ? ", ..." : "");
    }
    cJSON_Delete(names);
}
