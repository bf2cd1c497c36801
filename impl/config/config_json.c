/*
 * config_json.c - see config_json.h.
 *
 * The checks that the JSON parser does not make are made here, so that two readers of one config.json can never see
 * different values in it.
 */
#include "config/config_json.h"
#include "config/config_limits.h"
#include "common/error.h"

#include <stdlib.h>
#include <string.h>

/* Length of the UTF-8 sequence at text, or 0 when it is not a valid one (overlong, surrogate, beyond U+10FFFF, cut). */
static size_t utf8_sequence(const unsigned char *text, size_t left) {
    const unsigned char first = text[0];
    if (first < 0x80) return 1;
    size_t length = 0;
    unsigned char low = 0x80, high = 0xbf; /* range of the second byte */
    if (first >= 0xc2 && first <= 0xdf) {
        length = 2;
    } else if (first >= 0xe0 && first <= 0xef) {
        length = 3;
        if (first == 0xe0) low = 0xa0;
        if (first == 0xed) high = 0x9f;
    } else if (first >= 0xf0 && first <= 0xf4) {
        length = 4;
        if (first == 0xf0) low = 0x90;
        if (first == 0xf4) high = 0x8f;
    }
    if (length == 0 || length > left || text[1] < low || text[1] > high) return 0;
    for (size_t i = 2; i < length; i++)
        if (text[i] < 0x80 || text[i] > 0xbf) return 0;
    return length;
}

static size_t digits(const char *text, size_t left) {
    size_t n = 0;
    while (n < left && text[n] >= '0' && text[n] <= '9') n++;
    return n;
}

/* Length of the number at text, or 0 when it is none in JSON's grammar (a leading zero, no digit after the point). */
static size_t number_length(const char *text, size_t left) {
    size_t n = left > 0 && text[0] == '-';
    const size_t whole = digits(text + n, left - n);
    if (whole == 0 || (whole > 1 && text[n] == '0')) return 0;
    n += whole;
    if (n < left && text[n] == '.') {
        const size_t fraction = digits(text + n + 1, left - n - 1);
        if (fraction == 0) return 0;
        n += 1 + fraction;
    }
    if (n < left && (text[n] == 'e' || text[n] == 'E')) {
        const size_t sign = n + 1 < left && (text[n + 1] == '+' || text[n + 1] == '-');
        const size_t exponent = digits(text + n + 1 + sign, left - n - 1 - sign);
        if (exponent == 0) return 0;
        n += 1 + sign + exponent;
    }
    return n;
}

/* Length of what may stand at text outside a string, or 0. Words are left to the parser. */
static size_t token_length(const char *text, size_t left) {
    if ((text[0] >= 'a' && text[0] <= 'z') || strchr("{}[]:,\" \t\r\n", text[0]) != NULL) return 1;
    const size_t number = number_length(text, left);
    return number < left && number > 0 && strchr("}], \t\r\n", text[number]) == NULL ? 0 : number;
}

/* Every byte is looked at, in strings and outside. In strings an escaped NUL is looked for as well: it would end a key
 * early in C and make it look like another. */
static dflash_status check_text(const char *text, size_t length, const char *where, dflash_error *err) {
    bool in_string = false;
    for (size_t i = 0; i < length;) {
        size_t step = utf8_sequence((const unsigned char *)text + i, length - i);
        if (step == 0)
            return df_fail(err, DFLASH_ERR_REFUSED, "config.json.encoding",
                           "%s: the byte 0x%02x at offset %zu is not part of valid UTF-8. A config must be UTF-8 text; "
                           "write the file again as UTF-8 or fetch it again.",
                           where, (unsigned)(unsigned char)text[i], i);
        const bool escaped_nul = in_string && length - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0;
        if (text[i] == '\0' || escaped_nul)
            return df_fail(err, DFLASH_ERR_REFUSED, "config.json.nul",
                           "%s: there is %s NUL character at offset %zu. A config must be text without one; "
                           "fetch the file again.",
                           where, escaped_nul ? "an escaped" : "a", i);
        if (in_string ? (unsigned char)text[i] < 0x20 : token_length(text + i, length - i) == 0)
            return df_fail(
                err, DFLASH_ERR_REFUSED, "config.json.syntax",
                "%s: the character at offset %zu is not JSON (a number with a leading zero or without digits, "
                "a control character in a string, a byte order mark, NaN, Infinity, a comment). Readers "
                "differ in what they make of it; write strict JSON.",
                where, i);
        if (in_string && text[i] == '\\' && i + 1 < length && (unsigned char)text[i + 1] >= 0x20 &&
            (unsigned char)text[i + 1] < 0x80)
            step = 2;
        else if (!in_string)
            step = token_length(text + i, length - i);
        if (text[i] == '"') in_string = !in_string;
        i += step;
    }
    return DFLASH_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted rather than searched pair by pair: a hostile file can hold a million keys. */
static dflash_status check_object(const cJSON *object, const char *where, dflash_error *err) {
    const size_t count = (size_t)cJSON_GetArraySize(object);
    if (count < 2) return DFLASH_OK;
    const char **names = malloc(count * sizeof *names);
    if (names == NULL) return df_fail_memory(err, "the keys of a config", count * sizeof *names);
    size_t n = 0;
    for (const cJSON *item = object->child; item != NULL; item = item->next) names[n++] = item->string;
    qsort(names, n, sizeof *names, compare_names);
    dflash_status status = DFLASH_OK;
    for (size_t i = 1; i < n && status == DFLASH_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status =
                df_fail(err, DFLASH_ERR_REFUSED, "config.json.duplicate",
                        "%s: the key \"%.80s\" appears twice in %s%.80s%s. Every key must appear once in its "
                        "object, because readers differ in which one they take; keep the one that the checkpoint was "
                        "trained with.",
                        where, names[i], object->string != NULL ? "\"" : "",
                        object->string != NULL ? object->string : "one object", object->string != NULL ? "\"" : "");
    free(names);
    return status;
}

/* The parser limits nesting to 1000 levels, which bounds this recursion. */
static dflash_status check_duplicates(const cJSON *value, const char *where, dflash_error *err) {
    if (cJSON_IsObject(value)) {
        const dflash_status status = check_object(value, where, err);
        if (status != DFLASH_OK) return status;
    }
    for (const cJSON *item = value->child; item != NULL; item = item->next) {
        const dflash_status status = check_duplicates(item, where, err);
        if (status != DFLASH_OK) return status;
    }
    return DFLASH_OK;
}

dflash_status df_config_json_parse(const char *text, size_t length, const char *where, cJSON **out, dflash_error *err) {
    *out = NULL;
    if (length > DF_LIMIT_CONFIG_BYTES)
        return df_fail(err, DFLASH_ERR_REFUSED, "config.file.size",
                       "%s: the file has %zu bytes, and a config may have at most %d. This is not a config.json; check "
                       "the path.",
                       where, length, DF_LIMIT_CONFIG_BYTES);
    dflash_status status = check_text(text, length, where, err);
    if (status != DFLASH_OK) return status;

    const char *end = text;
    cJSON *root = cJSON_ParseWithLengthOpts(text, length, &end, false);
    if (root == NULL)
        return df_fail(err, DFLASH_ERR_REFUSED, "config.json.syntax",
                       "%s: not valid JSON at byte %zu of %zu. A config must be one JSON object (NaN, Infinity and "
                       "comments are not JSON); the file may be cut short, so fetch it again.",
                       where, (size_t)(end - text), length);
    while (end < text + length && strchr(" \t\r\n", *end) != NULL) end++;
    if (end != text + length)
        status = df_fail(err, DFLASH_ERR_REFUSED, "config.json.trailing",
                         "%s: the JSON value ends at byte %zu, but the file goes on to byte %zu. Nothing but white "
                         "space may follow; two files may have been joined, so fetch it again.",
                         where, (size_t)(end - text), length);
    else if (!cJSON_IsObject(root))
        status = df_fail(err, DFLASH_ERR_REFUSED, "config.json.shape",
                         "%s: the file holds valid JSON that is not an object. A config must be one object of keys "
                         "and values; check the path.",
                         where);
    else
        status = check_duplicates(root, where, err);
    if (status != DFLASH_OK) {
        cJSON_Delete(root);
        return status;
    }
    *out = root;
    return DFLASH_OK;
}
