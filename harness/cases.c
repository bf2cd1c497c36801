/* cases.c - see cases.h. */
#include "cases.h"

#include "error.h"
#include "text_file.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, RECIPE_SIZE = 8192, LARGEST_LIST = 1 << 20 };

static const char *string_of(const cJSON *object, const char *key) {
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool read_recipe(const cJSON *synth, dp_case *item) {
    const char *dtype = string_of(synth, "dtype"), *profile = string_of(synth, "profile");
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(synth, "seed");
    item->synth_config = string_of(synth, "config");
    if (item->synth_config == NULL || dtype == NULL || profile == NULL || !cJSON_IsNumber(seed)) return false;
    if (seed->valuedouble < 0 || seed->valuedouble > 0x1p53) return false;
    item->synth.seed = (uint64_t)seed->valuedouble;
    item->synth.threads = 2;
    return dp_synth_parse_dtype(dtype, &item->synth.dtype) && dp_synth_parse_profile(profile, &item->synth.profile);
}

static bool read_case(const cJSON *object, dp_case *item) {
    const cJSON *stored = cJSON_GetObjectItemCaseSensitive(object, "stored");
    item->name = string_of(object, "name");
    item->checkpoint = string_of(object, "checkpoint");
    item->oracle = string_of(object, "oracle");
    item->stored = cJSON_IsTrue(stored);
    return item->name != NULL && item->checkpoint != NULL && item->oracle != NULL && cJSON_IsBool(stored) &&
           read_recipe(cJSON_GetObjectItemCaseSensitive(object, "synth"), item);
}

df_status dp_cases_read(const char *path, dp_case_list *out, df_error *err) {
    char *text = NULL;
    *out = (dp_case_list){.item = NULL};
    df_status status = dp_text_file_read(path, LARGEST_LIST, &text, err);
    if (status != DF_OK) return status;
    cJSON *document = cJSON_Parse(text);
    free(text);
    out->document = document;
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(document, "cases"), *entry = NULL;
    if (!cJSON_IsArray(cases) || cJSON_GetArraySize(cases) == 0) {
        dp_cases_release(out);
        return df_fail(err, DF_ERR_REFUSED, "cases.json",
                       "The list of cases %s is not a JSON object with a non-empty array `cases`. See fixtures/README.md for "
                       "its form.",
                       path);
    }
    out->item = calloc((size_t)cJSON_GetArraySize(cases), sizeof *out->item);
    if (out->item == NULL) {
        dp_cases_release(out);
        return df_fail_memory(err, "the list of cases", 0);
    }
    cJSON_ArrayForEach(entry, cases) {
        if (!read_case(entry, &out->item[out->count])) {
            status = df_fail(err, DF_ERR_REFUSED, "cases.entry",
                             "Case %d of %s is incomplete: expected name, checkpoint, oracle, stored and synth {config, "
                             "seed, dtype, profile}. See fixtures/README.md.",
                             out->count + 1, path);
            dp_cases_release(out);
            return status;
        }
        out->count++;
    }
    return DF_OK;
}

void dp_cases_release(dp_case_list *list) {
    cJSON_Delete(list->document);
    free(list->item);
    *list = (dp_case_list){.item = NULL};
}

/* The recipe in words, kept beside a checkpoint made from it, so that a changed recipe is noticed. */
static df_status recipe_of(const dp_case *item, char recipe[RECIPE_SIZE], df_error *err) {
    char *config = NULL;
    const df_status status = dp_text_file_read(item->synth_config, LARGEST_LIST, &config, err);
    if (status != DF_OK) return status;
    snprintf(recipe, RECIPE_SIZE, "seed %llu, dtype %d, profile %d, config:\n%s", (unsigned long long)item->synth.seed,
             (int)item->synth.dtype, (int)item->synth.profile, config);
    free(config);
    return DF_OK;
}

df_status dp_case_prepare(const dp_case *item, df_error *err) {
    char path[PATH_SIZE], recipe[RECIPE_SIZE], *found = NULL;
    struct stat info;
    if (item->stored) return DF_OK;
    df_status status = recipe_of(item, recipe, err);
    if (status != DF_OK) return status;
    snprintf(path, sizeof path, "%s/model.safetensors", item->checkpoint);
    const bool written = stat(path, &info) == 0;
    snprintf(path, sizeof path, "%s/recipe.txt", item->checkpoint);
    if (written && dp_text_file_read(path, RECIPE_SIZE, &found, NULL) == DF_OK && strcmp(found, recipe) == 0) {
        free(found);
        return DF_OK;
    }
    free(found);
    unlink(path); /* until the new checkpoint is complete there is no recipe that it follows */
    status = dp_synth_write(item->synth_config, item->checkpoint, &item->synth, NULL, err);
    return status == DF_OK ? dp_text_file_write(path, recipe, err) : status;
}
