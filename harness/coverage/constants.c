/* constants.c - see constants.h. */
#include "coverage/constants.h"

#include "common/error.h"
#include "base/text_file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_SIZE = 4096, LARGEST_SOURCE = 4 << 20 };

/* A file in progress. */
typedef struct reader {
    dp_constant_list *list;
    const char *file; /* below the folder */
    dflash_error *err;
} reader;

/* ---- Values ---- */

/* An expression in progress; `bad` once it holds something other than whole numbers and what is known by name. */
typedef struct expression {
    const char *at, *end;
    const reader *r;
    bool bad;
} expression;

static void skip_space(expression *e) {
    while (e->at < e->end && isspace((unsigned char)*e->at)) e->at++;
}

static bool take(expression *e, const char *word) {
    skip_space(e);
    const size_t length = strlen(word);
    if ((size_t)(e->end - e->at) < length || strncmp(e->at, word, length) != 0) return false;
    e->at += length;
    return true;
}

/* The latest constant of that name, this file's own first. */
static bool look_up(const reader *r, const char *name, size_t length, int64_t *value) {
    const dp_source_constant *found = NULL;
    for (int i = 0; i < r->list->count; i++) {
        const dp_source_constant *c = &r->list->item[i];
        const bool own = strcmp(c->file, r->file) == 0;
        if (strlen(c->name) == length && strncmp(c->name, name, length) == 0 &&
            (own || found == NULL || strcmp(found->file, r->file) != 0))
            found = c;
    }
    if (found != NULL) *value = found->value;
    return found != NULL;
}

static int64_t level(expression *e, int depth);

static int64_t primary(expression *e) {
    int64_t value = 0;
    if (take(e, "(")) {
        value = level(e, 0);
        e->bad = e->bad || !take(e, ")");
        return value;
    }
    skip_space(e);
    const char *start = e->at;
    while (e->at < e->end && (isalnum((unsigned char)*e->at) || *e->at == '_')) e->at++;
    if (e->at > start && isdigit((unsigned char)*start)) {
        char *end;
        value = strtoll(start, &end, 0);
        e->bad = e->bad || end != e->at; /* 1e6, 64u */
    } else if (e->at == start || !look_up(e->r, start, (size_t)(e->at - start), &value))
        e->bad = true;
    return value;
}

/* | below << and >> below + and - below * and /. */
static int64_t level(expression *e, int depth) {
    static const char *const words[4][2] = {{"|", NULL}, {"<<", ">>"}, {"+", "-"}, {"*", "/"}};
    if (depth == 4) return primary(e);
    int64_t left = level(e, depth + 1);
    while (!e->bad) {
        const bool first = take(e, words[depth][0]);
        if (!first && (words[depth][1] == NULL || !take(e, words[depth][1]))) break;
        const int64_t right = level(e, depth + 1);
        if (depth == 0) left |= right;
        if (depth == 1) e->bad = e->bad || right < 0 || right > 40;
        if (depth == 1 && !e->bad) left = first ? left * ((int64_t)1 << right) : left >> right;
        if (depth == 2) left = first ? left + right : left - right;
        if (depth == 3 && !first && right == 0) e->bad = true;
        if (depth == 3 && !e->bad) left = first ? left * right : left / right;
    }
    return left;
}

static dflash_status add(const reader *r, const char *name, size_t length, const char *value, const char *end) {
    expression e = {value, end, r, false};
    dp_source_constant c = {.value = level(&e, 0)};
    skip_space(&e);
    if (e.bad || e.at != e.end) return DFLASH_OK;
    if (length >= sizeof c.name || strlen(r->file) >= sizeof c.file)
        return df_fail(r->err, DFLASH_ERR_REFUSED, "constants.name",
                       "%s: the constant %.*s has a name, or its file a path, that is too long to be held. Shorten it.",
                       r->file, (int)length, name);
    memcpy(c.name, name, length);
    strcpy(c.file, r->file);
    dp_source_constant *grown = realloc(r->list->item, (size_t)(r->list->count + 1) * sizeof *grown);
    if (grown == NULL) return df_fail_memory(r->err, "the list of constants", sizeof *grown);
    r->list->item = grown;
    r->list->item[r->list->count++] = c;
    return DFLASH_OK;
}

/* ---- Text ---- */

/* Comments become spaces. */
static void blank_comments(char *text) {
    for (char *at = text; *at != '\0'; at++) {
        const char *end = NULL;
        if (at[0] == '/' && at[1] == '*') end = strstr(at + 2, "*/");
        if (at[0] == '/' && at[1] == '/') end = strchr(at, '\n');
        if (end != NULL)
            for (end += at[1] == '*' ? 2 : 0; at < end - 1; at++) *at = ' ';
        if (end != NULL) *at = ' ';
    }
}

static const char *word_end(const char *at) {
    while (isalnum((unsigned char)*at) || *at == '_') at++;
    return at;
}

/* NAME = VALUE, ... up to the closing brace. */
static dflash_status read_enumerators(const reader *r, const char *at) {
    const char *close = strchr(at, '}');
    while (close != NULL && at < close) {
        while (at < close && !isalpha((unsigned char)*at) && *at != '_') at++;
        const char *name = at, *end = word_end(at);
        int depth = 0;
        for (at = end; at < close && (*at != ',' || depth > 0); at++) depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
        const char *value = end;
        while (value < at && isspace((unsigned char)*value)) value++;
        if (value >= at || *value != '=') continue;
        const dflash_status status = add(r, name, (size_t)(end - name), value + 1, at);
        if (status != DFLASH_OK) return status;
    }
    return DFLASH_OK;
}

static dflash_status read_text(const reader *r, char *text) {
    dflash_status status = DFLASH_OK;
    blank_comments(text);
    for (const char *at = text; status == DFLASH_OK && *at != '\0'; at++) {
        if (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_')) continue;
        if (strncmp(at, "enum", 4) == 0 && word_end(at) == at + 4) {
            const char *open = at + strcspn(at, "{;)=");
            if (*open == '{') status = read_enumerators(r, open + 1);
        } else if (strncmp(at, "#define ", 8) == 0) {
            const char *name = at + 8, *end = word_end(name), *line = name + strcspn(name, "\n");
            if (*end == ' ') status = add(r, name, (size_t)(end - name), end, line);
        }
    }
    return status;
}

/* ---- Files ---- */

static const char *const kinds[] = {".h", ".cuh", ".c", ".cu"}; /* of source files, those that are included first */
enum { KINDS = sizeof kinds / sizeof *kinds };

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* The files of one kind; `below` is the path below `folder`, "" for the folder itself. */
static dflash_status read_folder(const char *folder, const char *below, const char *kind, dp_constant_list *out,
                                 dflash_error *err) {
    char path[PATH_SIZE], file[PATH_SIZE];
    struct dirent **entry = NULL;
    dflash_status status = DFLASH_OK;
    snprintf(path, sizeof path, "%s/%s", folder, below);
    const int n = scandir(path, &entry, is_visible, alphasort);
    if (n < 0)
        return df_fail(err, DFLASH_ERR_IO, "constants.folder",
                       "The sources in %s cannot be listed: %s. Run the command from the root of the repository.", path,
                       strerror(errno));
    for (int i = 0; status == DFLASH_OK && i < n; i++) {
        const char *name = entry[i]->d_name, *dot = strrchr(name, '.');
        struct stat info;
        const bool fits = snprintf(file, sizeof file, "%s%s%s", below, *below != '\0' ? "/" : "", name) < PATH_SIZE &&
                          snprintf(path, sizeof path, "%s/%s", folder, file) < PATH_SIZE;
        if (!fits || stat(path, &info) != 0) continue;
        if (S_ISDIR(info.st_mode))
            status = read_folder(folder, file, kind, out, err);
        else if (dot != NULL && strcmp(dot, kind) == 0) {
            char *text = NULL;
            const reader r = {out, file, err};
            status = dp_text_file_read(path, LARGEST_SOURCE, &text, err);
            if (status == DFLASH_OK) status = read_text(&r, text);
            free(text);
        }
    }
    for (int i = 0; i < n; i++) free(entry[i]);
    free(entry);
    return status;
}

dflash_status dp_constants_read(const char *folder, dp_constant_list *out, dflash_error *err) {
    dflash_status status = DFLASH_OK;
    *out = (dp_constant_list){.item = NULL};
    for (int i = 0; status == DFLASH_OK && i < KINDS; i++) status = read_folder(folder, "", kinds[i], out, err);
    return status;
}

void dp_constants_release(dp_constant_list *list) {
    free(list->item);
    *list = (dp_constant_list){.item = NULL};
}
