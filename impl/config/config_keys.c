/*
 * config_keys.c - see config_keys.h.
 *
 * What the values must be is left to the parts that read them; here a key is only known or not, needed or not.
 */
#include "config/config_keys.h"
#include "common/error.h"

#include <stdio.h>
#include <string.h>

/* Who reads or needs a key: families, and types of rope. */
enum {
    NOBODY = 0,
    DFLASH = 1 << DFLASH_FAMILY_DFLASH,
    DSPARK = 1 << DFLASH_FAMILY_DSPARK,
    DFLASH2 = 1 << DFLASH_FAMILY_DFLASH2,
    ALL = DFLASH | DSPARK | DFLASH2,
    FIRST_ROPE = 8, /* 1 << FIRST_ROPE + type */
    LINEAR = 1 << (FIRST_ROPE + DFLASH_ROPE_LINEAR),
    YARN = 1 << (FIRST_ROPE + DFLASH_ROPE_YARN),
    LLAMA3 = 1 << (FIRST_ROPE + DFLASH_ROPE_LLAMA3),
    EVERY_ROPE = LINEAR | YARN | LLAMA3
};

typedef struct key_row {
    const char *name;
    unsigned places, readers, needed;
    const char *only; /* the one value as JSON, or NULL */
} key_row;

#define READ(places, name, readers, needed) {#name, DF_IN_##places, readers, needed, NULL},
#define IGNORED(places, name) {#name, DF_IN_##places, ALL, NOBODY, NULL},
#define ONLY(places, name, value) {#name, DF_IN_##places, ALL, NOBODY, #value},
static const key_row rows[] = {
#include "config/config_key_rows.h"
};
#undef READ
#undef IGNORED
#undef ONLY
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const key_row *find_row(const char *name, int place) {
    for (size_t i = 0; i < N_ROWS; i++)
        if ((rows[i].places & 1u << place) != 0 && strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

/* Phrases with a comma between them; those that do not fit are counted. */
typedef struct phrases {
    char text[2400];
    size_t used, count, left_out;
} phrases;

static void add_phrase(phrases *list, const char *phrase) {
    const size_t length = strlen(phrase), comma = list->used > 0 ? 2 : 0;
    if (list->used + comma + length >= sizeof list->text) {
        list->left_out++;
        return;
    }
    memcpy(list->text + list->used, ", ", comma);
    memcpy(list->text + list->used + comma, phrase, length + 1);
    list->used += comma + length;
    list->count++;
}

static const char *and_more(const phrases *list, char text[32]) {
    text[0] = '\0';
    if (list->left_out > 0) snprintf(text, 32, " and %zu more", list->left_out);
    return text;
}

/* The bit of the config's rope type; every one where it names none that is known, which config_rope.c refuses. */
static unsigned rope_reader(const df_config_doc *doc) {
    const char *type = NULL;
    if (df_config_string(doc, &(df_key){"rope_type", "type", DF_IN_ROPE, false}, &type) != DFLASH_OK) return EVERY_ROPE;
    if (type == NULL) { /* a factor without a type is refused by config_rope.c as well */
        df_found factor;
        const dflash_status status = df_config_find(doc, &(df_key){"factor", NULL, DF_IN_ROPE, false}, &factor);
        return status != DFLASH_OK || factor.item != NULL ? EVERY_ROPE : NOBODY;
    }
    for (int known = DFLASH_ROPE_DEFAULT; known <= DFLASH_ROPE_LLAMA3; known++)
        if (strcmp(type, dflash_rope_type_name((dflash_rope_type)known)) == 0)
            return known == DFLASH_ROPE_DEFAULT ? NOBODY : 1u << (FIRST_ROPE + known);
    return EVERY_ROPE;
}

static unsigned readers_of(const df_config_doc *doc, dflash_family family) {
    df_config_doc quiet = *doc;
    quiet.err = NULL; /* whatever is wrong with the type is reported by config_rope.c */
    return 1u << family | rope_reader(&quiet);
}

dflash_status df_config_missing(const df_config_doc *doc, dflash_family family) {
    const unsigned readers = readers_of(doc, family), rope = readers & EVERY_ROPE;
    phrases list = {0};
    for (size_t i = 0; i < N_ROWS; i++) {
        if ((rows[i].needed & readers) == 0 || ((rows[i].needed & EVERY_ROPE) != 0 && rope == EVERY_ROPE)) continue;
        bool present = false;
        char phrase[192];
        size_t used = (size_t)snprintf(phrase, sizeof phrase, "\"%s\" (", rows[i].name);
        for (int p = 0; p < DF_PLACE_COUNT; p++) {
            if ((rows[i].places & 1u << p) == 0) continue;
            const cJSON *item = cJSON_GetObjectItemCaseSensitive(doc->object[p], rows[i].name);
            present = present || (item != NULL && !cJSON_IsNull(item));
            used += (size_t)snprintf(phrase + used, sizeof phrase - used, "%s%s", phrase[used - 1] == '(' ? "" : ", ",
                                     doc->place_name[p]);
        }
        snprintf(phrase + used, sizeof phrase - used, ")");
        if (!present) add_phrase(&list, phrase);
    }
    if (list.count == 0) return DFLASH_OK;
    char more[32];
    return df_fail(
        doc->err, DFLASH_ERR_REFUSED, "config.key.missing",
        "%s: %s %s missing or null: %s%s. In reference spreads is where they are looked for. Their values are never "
        "guessed; add them to the config as the checkpoint was trained.",
        doc->where, list.count == 1 ? "a required key" : "required keys", list.count == 1 ? "is" : "are", list.text,
        and_more(&list, more));
}

dflash_status df_config_unread(const df_config_doc *doc, dflash_family family) {
    const unsigned readers = readers_of(doc, family);
    phrases unknown = {0}, changed = {0};
    for (int p = 0; p < DF_PLACE_COUNT; p++) {
        if (doc->object[p] == NULL) continue;
        for (const cJSON *item = doc->object[p]->child; item != NULL; item = item->next) {
            if (cJSON_IsNull(item)) continue;
            const key_row *row = find_row(item->string, p);
            char phrase[320], shown[DF_SHOWN_MAX];
            if (row == NULL || ((row->readers & ALL) == 0 && (row->readers & readers) == 0)) {
                snprintf(phrase, sizeof phrase, "\"%.80s\" in %s%s", item->string, doc->place_name[p],
                         row == NULL ? "" : " (other rope types read it)");
                add_phrase(&unknown, phrase);
            } else if (row->only != NULL) {
                cJSON *only = cJSON_Parse(row->only);
                if (only == NULL) return df_fail_memory(doc->err, "the value of a key", strlen(row->only));
                if (!df_config_same(only, item)) {
                    snprintf(phrase, sizeof phrase, "\"%s\" in %s is %s (%s is the only value that changes nothing)",
                             row->name, doc->place_name[p], df_config_show(item, shown), row->only);
                    add_phrase(&changed, phrase);
                }
                cJSON_Delete(only);
            }
        }
    }
    if (unknown.count + changed.count == 0) return DFLASH_OK;
    char more[32], more_changed[32];
    return df_fail(
        doc->err, DFLASH_ERR_REFUSED, "config.key.unread",
        "%s: the config has keys that nothing here reads, and that may change what the drafter computes: "
        "%s%s%s%s%s. A drafter that needs one of them is not supported, and without the key the config would "
        "describe another drafter: leave it in the config. A key that is known to change no arithmetic "
        "belongs into the table impl/config/config_key_rows.h.",
        doc->where, unknown.text, and_more(&unknown, more), unknown.count > 0 && changed.count > 0 ? "; " : "",
        changed.text, and_more(&changed, more_changed));
}

static bool says_nothing(const cJSON *item) {
    return cJSON_IsFalse(item) || (cJSON_IsNumber(item) && item->valuedouble == 0) ||
           (cJSON_IsString(item) && strcmp(item->valuestring, "none") == 0);
}

dflash_status df_config_foreign(const df_config_doc *doc, dflash_family family) {
    phrases list = {0};
    for (size_t i = 0; i < N_ROWS; i++) {
        if ((rows[i].readers & ALL) == 0 || (rows[i].readers & 1u << family) != 0) continue;
        df_found found;
        const df_key key = {rows[i].name, NULL, rows[i].places, false};
        const dflash_status status = df_config_find(doc, &key, &found);
        if (status != DFLASH_OK) return status;
        if (found.item == NULL || says_nothing(found.item)) continue;
        char phrase[256], shown[DF_SHOWN_MAX];
        snprintf(phrase, sizeof phrase, "\"%s\" in %s is %s (%s)", found.name, found.place,
                 df_config_show(found.item, shown), rows[i].readers == DSPARK ? "dspark" : "dflash2");
        add_phrase(&list, phrase);
    }
    if (list.count == 0) return DFLASH_OK;
    char more[32];
    return df_fail(
        doc->err, DFLASH_ERR_REFUSED, "config.family.ambiguous",
        "%s: the config names a %s drafter, but has keys of another family, in reference spreads: %s%s. A backbone "
        "without a part that it was trained with computes something else. Find out as which family the "
        "checkpoint was trained, and write its architecture (or projector_type); do not delete the keys of "
        "a part that it was trained with.",
        doc->where, dflash_family_name(family), list.text, and_more(&list, more));
}
