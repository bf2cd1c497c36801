/* report_plots.c - the plot data of a case in its result file. */
#include "report/report.h"

#include "base/json_number.h"

/* Numbers as they are, or as many digits as a picture can show. */
static void add_numbers(cJSON *object, const char *key, const double *value, int count, bool exact) {
    cJSON *array = cJSON_AddArrayToObject(object, key);
    for (int i = 0; i < count; i++)
        cJSON_AddItemToArray(array, dp_json_number(exact ? value[i] : dp_plot_digits(value[i])));
}

/* null when there are none. */
static void add_integers(cJSON *object, const char *key, const int32_t *value, int count) {
    if (value == NULL)
        cJSON_AddNullToObject(object, key);
    else
        cJSON_AddItemToObject(object, key, cJSON_CreateIntArray(value, count));
}

static cJSON *scatter_json(const dp_scatter *scatter) {
    if (scatter->count == 0) return cJSON_CreateNull();
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "stage", scatter->stage);
    cJSON_AddNumberToObject(object, "of", (double)scatter->of);
    cJSON *index = cJSON_AddArrayToObject(object, "index");
    for (int i = 0; i < scatter->count; i++) cJSON_AddItemToArray(index, cJSON_CreateNumber((double)scatter->index[i]));
    add_numbers(object, "got", scatter->got, scatter->count, true);
    add_numbers(object, "want", scatter->want, scatter->count, true);
    add_numbers(object, "error", scatter->error, scatter->count, false);
    return object;
}

static cJSON *rope_json(const dp_rope_plot *rope) {
    if (rope->count == 0) return cJSON_CreateNull();
    cJSON *object = cJSON_CreateObject();
    add_numbers(object, "got", rope->got, rope->count, true);
    add_numbers(object, "want", rope->want, rope->count, true);
    add_numbers(object, "relative", rope->relative, rope->count, false);
    return object;
}

static cJSON *margins_json(const dp_margins *margins) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "stage", margins->stage);
    cJSON_AddStringToObject(object, "from", margins->reference ? "reference" : "run");
    add_numbers(object, "margin", margins->margin, margins->rows, false);
    add_numbers(object, "error", margins->error, margins->rows, false);
    add_integers(object, "got", margins->got, margins->rows);
    add_integers(object, "want", margins->want, margins->rows);
    return object;
}

static cJSON *tokens_json(const dp_tokens *tokens) {
    if (tokens->count == 0) return cJSON_CreateNull();
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "stage", tokens->stage);
    add_integers(object, "got", tokens->got, tokens->count);
    add_integers(object, "want", tokens->want, tokens->count);
    return object;
}

cJSON *dp_plots_json(const dp_plot_data *data) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToObject(object, "scatter", scatter_json(&data->scatter));
    cJSON_AddItemToObject(object, "rope", rope_json(&data->rope));
    if (data->margins_count > 0) {
        cJSON *margins = cJSON_AddArrayToObject(object, "margins");
        for (int i = 0; i < data->margins_count; i++) cJSON_AddItemToArray(margins, margins_json(&data->margins[i]));
    } else
        cJSON_AddNullToObject(object, "margins");
    cJSON_AddItemToObject(object, "tokens", tokens_json(&data->tokens));
    return object;
}
