/* cases.c - see cases.h. */
#include "store/cases.h"

#include "common/error.h"
#include "common/printable.h"
#include "store/request.h"
#include "base/text_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, LARGEST_LIST = 1 << 20, LARGEST_CONFIG = 16 << 20 };

static const char *string_of(const cJSON *object, const char *key) {
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* A recipe key that is not known would be an ingredient left out. */
static bool known_recipe_key(const char *key) {
    static const char *const known[] = {"config",          "seed",        "dtype", "profile", "lm_head",
                                        "codebook_suffix", "embed_tokens"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(key, known[i]) == 0) return true;
    return false;
}

/* Each of these returns NULL, or what the entry should have said and does not. */
static const char *read_extras(const cJSON *synth, unsigned *extras) {
    static const struct {
        const char *key;
        dp_synth_extra flag;
    } keys[] = {{"lm_head", DP_SYNTH_LM_HEAD},
                {"codebook_suffix", DP_SYNTH_CODEBOOK_SUFFIX},
                {"embed_tokens", DP_SYNTH_EMBED_TOKENS}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(synth, keys[i].key);
        if (value != NULL && !cJSON_IsBool(value))
            return "synth.lm_head, synth.codebook_suffix and synth.embed_tokens, true or false";
        if (cJSON_IsTrue(value)) *extras |= keys[i].flag;
    }
    return NULL;
}

static const char *read_recipe(const cJSON *synth, dp_case *item) {
    const char *dtype = string_of(synth, "dtype"), *profile = string_of(synth, "profile");
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(synth, "seed");
    item->synth_config = string_of(synth, "config");
    item->synth.threads = 2;
    if (!cJSON_IsObject(synth)) return "synth, an object of config, seed, dtype and profile";
    if (item->synth_config == NULL) return "synth.config, the path of a config.json";
    if (!cJSON_IsNumber(seed) || seed->valuedouble < 0 || seed->valuedouble > 0x1p53 ||
        seed->valuedouble != floor(seed->valuedouble))
        return "synth.seed, a whole number from 0 to 2^53";
    if (dtype == NULL || !dp_synth_parse_dtype(dtype, &item->synth.dtype))
        return "synth.dtype, one of bf16, f16 and f32";
    if (profile == NULL || !dp_synth_parse_profile(profile, &item->synth.profile))
        return "synth.profile, one of unit, hot and sharp";
    item->synth.seed = (uint64_t)seed->valuedouble;
    return read_extras(synth, &item->synth.extras);
}

/* ---- Paths ---- */

/* Takes "FOLDER/.." out of a path, again and again; FOLDER is no ".." itself. Links are not followed: what a list says
 * is meant as it stands. */
static void shorten(char *path) {
    for (char *up = strstr(path, "/../"); up != NULL; up = strstr(up, "/../")) {
        char *folder = up;
        while (folder > path && folder[-1] != '/') folder--;
        const bool name = folder < up && strncmp(folder, "../", 3) != 0;
        if (name) {
            memmove(folder, up + 4, strlen(up + 4) + 1);
            up = folder > path ? folder - 1 : path;
        } else
            up++;
    }
}

static char *joined(const char *folder, size_t length, const char *path) {
    char *whole = NULL;
    if (asprintf(&whole, "%.*s%s", path[0] == '/' ? 0 : (int)length, folder, path) < 0) return NULL;
    shorten(whole);
    return whole;
}

/* Keeps a path of the list as it is from the working directory; NULL when out of memory. */
static const char *place(dp_case_list *list, const char *path) {
    char **grown = realloc(list->path, (size_t)(list->path_count + 1) * sizeof *grown);
    if (grown == NULL) return NULL;
    list->path = grown;
    char *whole = joined(list->root != NULL ? list->root : "", list->root != NULL ? strlen(list->root) : 0, path);
    if (whole != NULL) list->path[list->path_count++] = whole;
    return whole;
}

/* The list's root from the working directory, with a slash at its end: of fixtures/cases.json and "..", "". */
static dflash_status read_root(const cJSON *document, const char *path, dp_case_list *out, dflash_error *err) {
    const cJSON *root = cJSON_GetObjectItemCaseSensitive(document, "root");
    const char *slash = strrchr(path, '/');
    char *below = NULL;
    struct stat info;
    /* A list that comes out of a pipe has no folder. */
    if (root == NULL || strncmp(path, "/dev/", 5) == 0 || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return DFLASH_OK;
    if (string_of(document, "root") == NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, "cases.root",
                       "\"root\" of %s is not the path of a folder: expected a string such as \"..\", from the list's "
                       "own folder. Without the key paths start from the working directory.",
                       path);
    if (asprintf(&below, "%s/", root->valuestring) < 0) return df_fail_memory(err, "the root of a list", 0);
    char *whole = joined(path, slash != NULL ? (size_t)(slash - path) + 1 : 0, below);
    char **first = whole != NULL ? malloc(sizeof *first) : NULL;
    free(below);
    if (first == NULL) {
        free(whole);
        return df_fail_memory(err, "the root of a list", 0);
    }
    out->path = first;
    out->path[out->path_count++] = whole;
    out->root = whole;
    return DFLASH_OK;
}

/* ---- Entries ---- */

static const char *read_case(const cJSON *object, dp_case *item) {
    const cJSON *stored = cJSON_GetObjectItemCaseSensitive(object, "stored");
    item->entry = object;
    item->name = string_of(object, "name");
    item->checkpoint = string_of(object, "checkpoint");
    item->oracle = string_of(object, "oracle");
    item->stored = cJSON_IsTrue(stored);
    const size_t shown = item->name != NULL ? df_printable(item->name, NULL, 0) : 0;
    if (shown == 0 || shown != strlen(item->name)) return "name, a string without control characters";
    if (item->checkpoint == NULL) return "checkpoint, the path of a folder";
    if (item->oracle == NULL) return "oracle, the path of a file";
    if (!cJSON_IsBool(stored)) return "stored, true or false";
    item->head = string_of(object, "lm_head");
    if (item->head == NULL && cJSON_HasObjectItem(object, "lm_head"))
        return "lm_head, FILE or FILE:TENSOR, or no such key";
    return read_recipe(cJSON_GetObjectItemCaseSensitive(object, "synth"), item);
}

static dflash_status check_list_keys(const cJSON *document, const char *path, dflash_error *err) {
    const cJSON *key = NULL, *manifest = cJSON_GetObjectItemCaseSensitive(document, "manifest");
    cJSON_ArrayForEach(key, document) {
        if (strcmp(key->string, "schema") == 0 || strcmp(key->string, "root") == 0 ||
            strcmp(key->string, "manifest") == 0 || strcmp(key->string, "vectors") == 0 ||
            strcmp(key->string, "cases") == 0)
            continue;
        return df_fail(
            err, DFLASH_ERR_REFUSED, "cases.key",
            "The list %s has the key \"%.60s\", which no list has; expected schema, root, manifest, vectors and cases "
            "only. "
            "Correct its spelling or remove it.",
            path, key->string);
    }
    if (manifest == NULL || string_of(document, "manifest") != NULL) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "cases.entry",
                   "The list %s has a manifest that is no path of a file. Give the path, or leave the key out: then "
                   "nothing pins the oracles.",
                   path);
}

static bool known_case_key(const char *key) {
    static const char *const known[] = {"name",        "checkpoint",    "oracle",  "stored",     "precision",
                                        "synth",       "context",       "start",   "input_seed", "input_profile",
                                        "full_stages", "sample_stride", "lm_head", "gaps"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(key, known[i]) == 0) return true;
    return false;
}

/* A misspelt "precision" would be a case of another mode. */
static dflash_status check_case_keys(const cJSON *entry, const char *path, dflash_error *err) {
    const cJSON *key = NULL;
    cJSON_ArrayForEach(key, entry) {
        if (known_case_key(key->string)) continue;
        return df_fail(err, DFLASH_ERR_REFUSED, "cases.key",
                       "Case %s of %s has the key \"%.60s\", which no case has; fixtures/README.md lists the keys. "
                       "Correct its spelling or remove it.",
                       string_of(entry, "name"), path, key->string);
    }
    return DFLASH_OK;
}

static dflash_status check_recipe_keys(const cJSON *entry, const char *path, dflash_error *err) {
    const cJSON *key = NULL;
    cJSON_ArrayForEach(key, cJSON_GetObjectItemCaseSensitive(entry, "synth")) {
        if (known_recipe_key(key->string)) continue;
        return df_fail(
            err, DFLASH_ERR_REFUSED, "cases.recipe",
            "Case %s of %s has the key \"%.60s\" in its recipe; expected config, seed, dtype, profile, lm_head, "
            "codebook_suffix and embed_tokens only. Correct its spelling or remove it.",
            string_of(entry, "name"), path, key->string);
    }
    return DFLASH_OK;
}

/* Absent: as stored. */
static dflash_status read_precision(const cJSON *entry, const char *path, dflash_precision *out, dflash_error *err) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(entry, "precision");
    if (value == NULL || (cJSON_IsString(value) && dflash_precision_parse(value->valuestring, out))) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "cases.precision",
        "Case %s of %s asks for the precision %.60s; expected one of stored, f32, bf16, q8_0, q4_0, mixed and "
        "fc. Another mode is never put in its place; correct the key.",
        string_of(entry, "name"), path, cJSON_IsString(value) ? value->valuestring : "that is not a string");
}

static dflash_status place_case(dp_case_list *list, dp_case *item, dflash_error *err) {
    item->oracle_entry = item->oracle;
    const char **const paths[] = {&item->checkpoint, &item->oracle, &item->synth_config, &item->head};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (*paths[i] != NULL && (*paths[i] = place(list, *paths[i])) == NULL)
            return df_fail_memory(err, "the paths of a list", 0);
    return DFLASH_OK;
}

static dflash_status read_cases(const cJSON *cases, const char *path, dp_case_list *out, dflash_error *err) {
    const cJSON *entry = NULL;
    out->item = calloc((size_t)cJSON_GetArraySize(cases), sizeof *out->item);
    if (out->item == NULL) return df_fail_memory(err, "the list of cases", 0);
    cJSON_ArrayForEach(entry, cases) {
        dp_case *item = &out->item[out->count];
        const char *lacking = read_case(entry, item);
        if (lacking != NULL)
            return df_fail(
                err, DFLASH_ERR_REFUSED, "cases.entry",
                "Case %d of %s (%s): expected %s; it is missing or holds something else. Complete the entry; see "
                "fixtures/README.md.",
                out->count + 1, path, item->name != NULL ? item->name : "without a name", lacking);
        for (int i = 0; i < out->count; i++)
            if (strcmp(out->item[i].name, item->name) == 0)
                return df_fail(
                    err, DFLASH_ERR_REFUSED, "cases.entry",
                    "Cases %d and %d of %s have the same name, %s: expected one case to a name, since a name "
                    "selects it. Rename one.",
                    i + 1, out->count + 1, path, item->name);
        dflash_status status = check_case_keys(entry, path, err);
        if (status == DFLASH_OK) status = check_recipe_keys(entry, path, err);
        if (status == DFLASH_OK) status = read_precision(entry, path, &item->precision, err);
        if (status == DFLASH_OK && out->manifest != NULL && dp_request_lacking(entry) != NULL)
            status = df_fail(err, DFLASH_ERR_REFUSED, "cases.entry",
                             "Case %s of %s lacks \"%s\": a list that names a manifest states every fact of its "
                             "oracles, which are held against them. Complete the entry; see fixtures/README.md.",
                             item->name, path, dp_request_lacking(entry));
        if (status == DFLASH_OK) status = place_case(out, item, err);
        if (status != DFLASH_OK) return status;
        out->count++;
    }
    return DFLASH_OK;
}

static dflash_status read_vectors(const cJSON *document, const char *path, dp_case_list *out, dflash_error *err) {
    const cJSON *vectors = cJSON_GetObjectItemCaseSensitive(document, "vectors");
    out->vectors = string_of(document, "vectors");
    if (vectors == NULL || out->vectors != NULL) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "cases.vectors",
                   "\"vectors\" of %s is not the path of a file: expected a string such as \"oracles/vectors.h5\". See "
                   "fixtures/README.md.",
                   path);
}

dflash_status dp_cases_read(const char *path, dp_case_list *out, dflash_error *err) {
    char *text = NULL;
    *out = (dp_case_list){.item = NULL};
    dflash_status status = dp_text_file_read(path, LARGEST_LIST, &text, err);
    if (status != DFLASH_OK) return status;
    cJSON *document = cJSON_ParseWithOpts(text, NULL, true); /* true: nothing may follow the document */
    free(text);
    out->document = document;
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(document, "cases");
    if (!cJSON_IsArray(cases) || cJSON_GetArraySize(cases) == 0)
        status = df_fail(err, DFLASH_ERR_REFUSED, "cases.json",
                         "The list of cases %s is not one JSON object with a non-empty array `cases`: found %s. See "
                         "fixtures/README.md for its form.",
                         path,
                         document == NULL       ? "text that is not JSON"
                         : cJSON_IsArray(cases) ? "an empty array"
                                                : "no such array");
    else
        status = check_list_keys(document, path, err);
    if (status == DFLASH_OK) status = read_root(document, path, out, err);
    out->manifest = string_of(document, "manifest");
    if (status == DFLASH_OK) status = read_cases(cases, path, out, err);
    if (status == DFLASH_OK) status = read_vectors(document, path, out, err);
    const char **const files[] = {&out->manifest, &out->vectors};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (status == DFLASH_OK && *files[i] != NULL && (*files[i] = place(out, *files[i])) == NULL)
            status = df_fail_memory(err, "the paths of a list", 0);
    if (status != DFLASH_OK) dp_cases_release(out);
    return status;
}

void dp_cases_release(dp_case_list *list) {
    cJSON_Delete(list->document);
    free(list->item);
    for (int i = 0; i < list->path_count; i++) free(list->path[i]);
    free(list->path);
    *list = (dp_case_list){.item = NULL};
}

/* The recipe in words, config included, kept beside a checkpoint made from it, so that a changed recipe is noticed. */
static dflash_status recipe_of(const dp_case *item, char **recipe, dflash_error *err) {
    char *config = NULL;
    const dflash_status status = dp_text_file_read(item->synth_config, LARGEST_CONFIG, &config, err);
    if (status != DFLASH_OK) return status;
    const int length = asprintf(recipe, "seed %llu, dtype %d, profile %d, extras %u, config:\n%s",
                                (unsigned long long)item->synth.seed, (int)item->synth.dtype, (int)item->synth.profile,
                                item->synth.extras, config);
    if (length < 0) *recipe = NULL;
    free(config);
    return length >= 0 ? DFLASH_OK : df_fail_memory(err, "a checkpoint's recipe", 0);
}

/* Whether the folder holds a finished checkpoint made from this recipe. */
static bool is_made(const char *model, const char *recipe_path, const char *recipe) {
    struct stat info;
    char *found = NULL;
    const bool made = stat(model, &info) == 0 &&
                      dp_text_file_read(recipe_path, strlen(recipe), &found, NULL) == DFLASH_OK &&
                      strcmp(found, recipe) == 0;
    free(found);
    return made;
}

dflash_status dp_case_prepare(const dp_case *item, dflash_error *err) {
    char model[PATH_SIZE], note[PATH_SIZE], *recipe = NULL;
    if (item->stored) return DFLASH_OK;
    if (snprintf(model, sizeof model, "%s/model.safetensors", item->checkpoint) >= PATH_SIZE ||
        snprintf(note, sizeof note, "%s/recipe.txt", item->checkpoint) >= PATH_SIZE)
        return df_fail(err, DFLASH_ERR_REFUSED, "path.long",
                       "The checkpoint path of case %s is longer than %d characters. Choose a shorter one.", item->name,
                       PATH_SIZE - 1);
    dflash_status status = recipe_of(item, &recipe, err);
    if (status == DFLASH_OK && !is_made(model, note, recipe)) {
        unlink(note); /* until the new checkpoint is complete there is no recipe that it follows */
        status = dp_synth_write(item->synth_config, item->checkpoint, &item->synth, NULL, err);
        if (status == DFLASH_OK) status = dp_text_file_write(note, recipe, err);
    }
    free(recipe);
    return status;
}

/* What a case takes whatever its size, in bytes of checkpoint. */
static const double OVERHEAD = 4e7;

double dp_checkpoint_work(const char *folder) {
    char model[PATH_SIZE];
    struct stat info;
    const bool there =
        snprintf(model, sizeof model, "%s/model.safetensors", folder) < PATH_SIZE && stat(model, &info) == 0;
    return OVERHEAD + (there ? (double)info.st_size : 0.0);
}

double dp_case_work(const dp_case *item) {
    const double there = dp_checkpoint_work(item->checkpoint);
    return there > OVERHEAD ? there : OVERHEAD + dp_synth_bytes(item->synth_config, &item->synth);
}
