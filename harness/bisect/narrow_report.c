/* narrow_report.c - a narrowing in words and in JSON. */
#include "bisect/narrow.h"

#include "base/json_out.h"

#include <stdio.h>
#include <string.h>

enum { AXIS_TEXT = 128 };

/* "row 3 of 5", "rows 8..15 of 40, one tile of 8". */
static const char *axis_text(const dp_axis *a, const char *one, const char *many, char text[AXIS_TEXT]) {
    const long long first = a->first, last = a->last, size = a->size;
    switch (a->pattern) {
    case DP_AXIS_TRIVIAL:
        text[0] = '\0';
        break;
    case DP_AXIS_ALL:
        snprintf(text, AXIS_TEXT, "all %lld %s", (long long)a->known, many);
        break;
    case DP_AXIS_ONE:
        snprintf(text, AXIS_TEXT, "%s %lld of %lld", one, first, size);
        break;
    case DP_AXIS_TILE:
        snprintf(text, AXIS_TEXT, "%s %lld..%lld of %lld, one whole tile of %lld", many, first, last, size,
                 (long long)a->modulus);
        break;
    case DP_AXIS_LANE:
        snprintf(text, AXIS_TEXT, "every %s that is %lld modulo %lld (%lld of %lld)", one, (long long)a->residue,
                 (long long)a->modulus, (long long)a->hit, size);
        break;
    case DP_AXIS_RANGE:
        snprintf(text, AXIS_TEXT, "%s %lld..%lld of %lld", many, first, last, size);
        break;
    case DP_AXIS_SCATTERED:
        snprintf(text, AXIS_TEXT, "%lld of %lld %s, no pattern", (long long)a->hit, (long long)a->known, many);
        break;
    }
    return text;
}

/* What the rows or heads are, beyond their numbers. */
static const char *row_note(const dp_narrowing *n) {
    if (n->context < 0 || n->row.hit == 0 || n->row.pattern == DP_AXIS_ALL) return "";
    if (n->row.last < n->context) return n->row.hit == n->context ? ": the context's, all of them" : ": of the context";
    if (n->row.first < n->context) return "";
    return n->row.hit == n->rows - n->context ? ": the block's, all of them" : ": of the block";
}

static void head_note(const dp_narrowing *n, char text[AXIS_TEXT]) {
    text[0] = '\0';
    if (n->group < 1 || n->head.hit != n->group || n->head.first % n->group != 0 ||
        n->head.last != n->head.first + n->group - 1 || n->head.pattern == DP_AXIS_ALL)
        return;
    snprintf(text, AXIS_TEXT, ": those of key/value head %lld", (long long)(n->head.first / n->group));
}

static void values_text(const dp_narrowing *n, char text[AXIS_TEXT]) {
    static const char *const words[] = {[DP_VALUES_NONE] = "no pattern",
                                        [DP_VALUES_NONFINITE] = "B is NaN or infinite at each of them",
                                        [DP_VALUES_ZERO] = "B is 0 at each of them",
                                        [DP_VALUES_NEGATED] = "B is A with the other sign"};
    if (n->values == DP_VALUES_SCALED)
        snprintf(text, AXIS_TEXT, "B is A times %.7g, up to rounding", n->factor);
    else if (n->values == DP_VALUES_SHIFTED)
        snprintf(text, AXIS_TEXT, "B is A plus %.6g, up to rounding", n->term);
    else if (n->values == DP_VALUES_OTHER_ROW || n->values == DP_VALUES_OTHER_HEAD)
        snprintf(text, AXIS_TEXT, "B's %s is, bit by bit, A's %s %lld places %s",
                 n->values == DP_VALUES_OTHER_ROW ? "row" : "head", n->values == DP_VALUES_OTHER_ROW ? "row" : "head",
                 (long long)(n->shift < 0 ? -n->shift : n->shift), n->shift < 0 ? "before" : "after");
    else
        snprintf(text, AXIS_TEXT, "%s", words[n->values]);
}

void dp_narrowing_text(FILE *to, const dp_narrowing *n) {
    char text[AXIS_TEXT], note[AXIS_TEXT];
    fprintf(to, "  differing: %lld of %lld values\n", (long long)n->differing, (long long)n->known);
    if (n->layers > 1) fprintf(to, "  layers:    %s\n", axis_text(&n->layer, "layer", "layers", text));
    if (n->rows > 1) fprintf(to, "  rows:      %s%s\n", axis_text(&n->row, "row", "rows", text), row_note(n));
    if (n->heads > 1) {
        head_note(n, note);
        fprintf(to, "  heads:     %s%s\n", axis_text(&n->head, "head", "heads", text), note);
        fprintf(to, "  in a head: %s\n", axis_text(&n->column_in_head, "column", "columns", text));
    }
    if (n->columns > 1) fprintf(to, "  columns:   %s\n", axis_text(&n->column, "column", "columns", text));
    values_text(n, text);
    fprintf(to, "  values:    %s\n", text);
    fprintf(to, "  map, %d %s a line, %d %s a character (. same, + some differ, # all differ%s):\n", n->rows_a_line,
            n->rows_a_line > 1 ? "rows" : "row", n->columns_a_character,
            n->columns_a_character > 1 ? "columns" : "column", strchr(n->map[0], '-') != NULL ? ", - not held" : "");
    for (int i = 0; i < n->map_lines; i++) fprintf(to, "    %s\n", n->map[i]);
}

static void add_axis(cJSON *object, const char *key, const dp_axis *a) {
    static const char *const names[] = {"trivial", "all", "one", "tile", "lane", "range", "scattered"};
    if (a->pattern == DP_AXIS_TRIVIAL) return;
    cJSON *axis = cJSON_AddObjectToObject(object, key);
    cJSON_AddStringToObject(axis, "pattern", names[a->pattern]);
    cJSON_AddNumberToObject(axis, "size", (double)a->size);
    cJSON_AddNumberToObject(axis, "known", (double)a->known);
    cJSON_AddNumberToObject(axis, "hit", (double)a->hit);
    cJSON_AddNumberToObject(axis, "first", (double)a->first);
    cJSON_AddNumberToObject(axis, "last", (double)a->last);
    if (a->pattern == DP_AXIS_TILE || a->pattern == DP_AXIS_LANE)
        cJSON_AddNumberToObject(axis, "modulus", (double)a->modulus);
    if (a->pattern == DP_AXIS_LANE) cJSON_AddNumberToObject(axis, "residue", (double)a->residue);
}

cJSON *dp_narrowing_json(const dp_narrowing *n) {
    char text[AXIS_TEXT];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "differing", (double)n->differing);
    cJSON_AddNumberToObject(object, "known", (double)n->known);
    cJSON_AddNumberToObject(object, "first", (double)n->first);
    add_axis(object, "layers", &n->layer);
    add_axis(object, "rows", &n->row);
    add_axis(object, "heads", &n->head);
    add_axis(object, "columns", &n->column);
    add_axis(object, "columns_in_head", &n->column_in_head);
    values_text(n, text);
    cJSON_AddStringToObject(object, "values", text);
    cJSON *map = cJSON_AddArrayToObject(object, "map");
    for (int i = 0; i < n->map_lines; i++) cJSON_AddItemToArray(map, cJSON_CreateString(n->map[i]));
    return object;
}
