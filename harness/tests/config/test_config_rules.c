/*
 * test_config_rules.c - every case of fixtures/config-rules/: the verdict of a config, its code, and what its message
 * must name.
 *
 * The generator of oracles is tested on the same files, so that it never makes an oracle that no check accepts.
 */
#include "support/config_cases.h"

#include "config/config_limits.h"
#include "base/text_file.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cJSON *bases;

static cJSON *read_rules(const char *name) {
    char path[256], *text = NULL;
    dflash_error err = {0};
    snprintf(path, sizeof path, "fixtures/config-rules/%s.json", name);
    ck_assert_msg(dp_text_file_read(path, DF_LIMIT_CONFIG_BYTES, &text, &err) == DFLASH_OK, "%s", err.message);
    cJSON *root = cJSON_Parse(text);
    ck_assert_msg(root != NULL, "%s is not JSON", path);
    free(text);
    return root;
}

static const cJSON *find_base(const char *name) {
    if (bases == NULL) bases = read_rules("bases");
    const cJSON *base = cJSON_GetObjectItemCaseSensitive(bases, name);
    ck_assert_msg(base != NULL, "no base %s", name);
    return base;
}

const char *config_base(const char *name) {
    static struct { char name[32], *text; } kept[16];
    size_t i = 0;
    while (kept[i].text != NULL && strcmp(kept[i].name, name) != 0) i++;
    if (kept[i].text == NULL) {
        snprintf(kept[i].name, sizeof kept[i].name, "%s", name);
        kept[i].text = cJSON_PrintUnformatted(find_base(name));
    }
    return kept[i].text;
}

dflash_status config_parse(const char *text, dflash_config *config, dflash_error *err) {
    return df_config_parse(text, strlen(text), "test config", config, err);
}

void config_must_load(const char *text, dflash_config *config) {
    dflash_error err = {0};
    ck_assert_msg(config_parse(text, config, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
}

/* Sets "key" or "section.key" to a JSON value, creating the section; a NULL value deletes the key. */
static void edit_one(cJSON *root, const char *path, const char *json) {
    cJSON *object = root;
    const char *dot = strchr(path, '.');
    if (dot != NULL) {
        char section[64];
        snprintf(section, sizeof section, "%.*s", (int)(dot - path), path);
        object = cJSON_GetObjectItemCaseSensitive(root, section);
        if (object == NULL) object = cJSON_AddObjectToObject(root, section);
        ck_assert_ptr_nonnull(object);
        path = dot + 1;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(object, path);
    if (json == NULL) return;
    cJSON *value = cJSON_CreateRaw(json); /* printed as it stands, so that 1e999 and the last digit survive */
    ck_assert_ptr_nonnull(value);
    ck_assert(cJSON_AddItemToObject(object, path, value));
}

static char *printed(cJSON *root) {
    char *text = cJSON_PrintUnformatted(root);
    ck_assert_ptr_nonnull(text);
    cJSON_Delete(root);
    return text;
}

dflash_status config_parse_edited(const edit *change, dflash_config *config, dflash_error *err) {
    cJSON *root = cJSON_Duplicate(find_base(change->base), true);
    edit_one(root, change->path, change->json);
    if (change->path2 != NULL) edit_one(root, change->path2, change->json2);
    char *text = printed(root);
    const dflash_status status = config_parse(text, config, err);
    cJSON_free(text);
    return status;
}

/* The text of a case: its own, bytes in hexadecimal, or a base with edits. The caller frees it with cJSON_free. */
static char *text_of(const cJSON *item, size_t *length) {
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(item, "text");
    const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(item, "bytes");
    if (bytes != NULL) {
        *length = strlen(bytes->valuestring) / 2;
        char *out = cJSON_malloc(*length + 1);
        ck_assert_ptr_nonnull(out);
        for (size_t i = 0; i < *length; i++) {
            const char pair[3] = {bytes->valuestring[2 * i], bytes->valuestring[2 * i + 1], '\0'};
            out[i] = (char)strtoul(pair, NULL, 16);
        }
        return out;
    }
    char *out;
    if (text != NULL) {
        out = cJSON_malloc(strlen(text->valuestring) + 1);
        ck_assert_ptr_nonnull(out);
        strcpy(out, text->valuestring);
    } else {
        cJSON *root = cJSON_Duplicate(find_base(cJSON_GetObjectItemCaseSensitive(item, "base")->valuestring), true);
        for (const cJSON *one = cJSON_GetObjectItemCaseSensitive(item, "set")->child; one != NULL; one = one->next)
            edit_one(root, one->string, one->valuestring); /* null has no string: the key is deleted */
        out = printed(root);
    }
    *length = strlen(out);
    return out;
}

static void must_name(const cJSON *item, const char *key, const char *message) {
    char quoted[128];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    ck_assert_msg(strstr(message, quoted) != NULL, "%s: no %s in: %s", cJSON_PrintUnformatted(item), quoted, message);
}

static void check_case(const cJSON *item) {
    size_t length = 0;
    char *text = text_of(item, &length);
    dflash_config config;
    dflash_error err = {0};
    const dflash_status status = df_config_parse(text, length, "test config", &config, &err);
    const char *code = cJSON_GetObjectItemCaseSensitive(item, "code")->valuestring;
    const bool accepted = strcmp(code, "accepted") == 0;
    ck_assert_msg(accepted ? status == DFLASH_OK : status == DFLASH_ERR_REFUSED && strcmp(err.code, code) == 0,
                  "%s: found status %d, %s: %s", cJSON_PrintUnformatted(item), (int)status, err.code, err.message);
    if (!accepted) {
        ck_assert_msg(strstr(err.message, "test config: ") == err.message, "%s", err.message);
        ck_assert_msg(strlen(err.message) < sizeof err.message - 1, "message cut off: %s", err.message);
    }
    const cJSON *word = cJSON_GetObjectItemCaseSensitive(item, "word");
    const cJSON *key = cJSON_GetObjectItemCaseSensitive(item, "key"), *name = NULL;
    if (word != NULL)
        ck_assert_msg(strstr(err.message, word->valuestring) != NULL, "%s: no \"%s\" in: %s",
                      cJSON_PrintUnformatted(item), word->valuestring, err.message);
    if (key != NULL) must_name(item, key->valuestring, err.message);
    cJSON_ArrayForEach(name, cJSON_GetObjectItemCaseSensitive(item, "names"))
        must_name(item, name->valuestring, err.message);
    cJSON_free(text);
}

static const char *const lists[] = {"values", "families", "layers", "rope", "keys", "text", "published"};

START_TEST(each_config_of_the_list_has_its_verdict) {
    cJSON *root = read_rules(lists[_i]);
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(root, "cases"), *item = NULL;
    ck_assert_int_gt(cJSON_GetArraySize(cases), 10);
    cJSON_ArrayForEach(item, cases) check_case(item);
    cJSON_Delete(root);
}
END_TEST

START_TEST(fifty_unread_keys_are_named_at_once) {
    cJSON *root = cJSON_Duplicate(find_base("plain"), true);
    for (int i = 0; i < 52; i++) {
        char name[48];
        snprintf(name, sizeof name, "a_key_that_changes_arithmetic_%d", i);
        cJSON_AddNumberToObject(i % 2 != 0 ? cJSON_GetObjectItemCaseSensitive(root, "dflash_config") : root, name, 2);
    }
    char *text = printed(root);
    dflash_config config;
    dflash_error err = {0};
    ck_assert_int_eq(config_parse(text, &config, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "config.key.unread");
    size_t named = 0;
    for (const char *at = err.message; (at = strstr(at, "a_key_that")) != NULL; at++) named++;
    ck_assert_msg(named == 52 || strstr(err.message, " more") != NULL, "%zu of 52 named: %s", named, err.message);
    ck_assert_uint_ge(named, 35);
    ck_assert_ptr_nonnull(strstr(err.message, "leave it in the config"));
    cJSON_free(text);
}
END_TEST

void config_add_rules(Suite *suite) {
    TCase *rules = tcase_create("rules");
    tcase_set_timeout(rules, 30);
    tcase_add_loop_test(rules, each_config_of_the_list_has_its_verdict, 0, (int)(sizeof lists / sizeof lists[0]));
    tcase_add_test(rules, fifty_unread_keys_are_named_at_once);
    suite_add_tcase(suite, rules);
}
