/* result_plots.c - the plot data of a result file, read back. */
#include "report/result_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_stage_name(dp_json_reader *reader, const cJSON *object, char name[DFLASH_STAGE_NAME_MAX]) {
    dflash_stage id;
    int layer;
    const char *text = dp_read_text(reader, object, "stage");
    if (!dflash_stage_parse(text, &id, &layer)) dp_read_wrong(reader, "stage", "the name of a stage");
    snprintf(name, DFLASH_STAGE_NAME_MAX, "%s", text);
}

static void read_scatter(dp_json_reader *reader, const cJSON *object, dp_scatter *scatter) {
    if (object == NULL) return;
    int count = -1;
    read_stage_name(reader, object, scatter->stage);
    scatter->of = dp_read_integer(reader, object, "of", 1, INT64_C(1) << 53);
    scatter->index = dp_read_integers(reader, object, "index", &count);
    scatter->got = dp_read_numbers(reader, object, "got", &count);
    scatter->want = dp_read_numbers(reader, object, "want", &count);
    scatter->error = dp_read_numbers(reader, object, "error", &count);
    if (count < 1 || count > DP_SCATTER_MOST) dp_read_wrong(reader, "index", "an array of 1 to 1,000 indices");
    scatter->count = reader->status == DFLASH_OK ? count : 0;
}

static void read_rope(dp_json_reader *reader, const cJSON *object, dp_rope_plot *rope) {
    if (object == NULL) return;
    int count = -1;
    rope->got = dp_read_numbers(reader, object, "got", &count);
    rope->want = dp_read_numbers(reader, object, "want", &count);
    rope->relative = dp_read_numbers(reader, object, "relative", &count);
    if (count < 1) dp_read_wrong(reader, "got", "an array of at least one number");
    rope->count = reader->status == DFLASH_OK ? count : 0;
}

static void read_margins(dp_json_reader *reader, const cJSON *object, dp_margins *margins) {
    int count = -1;
    read_stage_name(reader, object, margins->stage);
    const char *from = dp_read_text(reader, object, "from");
    margins->reference = strcmp(from, "reference") == 0;
    if (!margins->reference && strcmp(from, "run") != 0) dp_read_wrong(reader, "from", "\"reference\" or \"run\"");
    margins->margin = dp_read_numbers(reader, object, "margin", &count);
    margins->error = dp_read_numbers(reader, object, "error", &count);
    margins->got = dp_read_ids(reader, object, "got", &count);
    margins->want = dp_read_ids(reader, object, "want", &count);
    if (count < 1 || margins->got == NULL) dp_read_wrong(reader, "got", "an array of at least one id");
    if (margins->reference != (margins->want != NULL))
        dp_read_wrong(reader, "want", "an array with \"reference\" and null with \"run\"");
    margins->rows = reader->status == DFLASH_OK ? count : 0;
}

static void read_tokens(dp_json_reader *reader, const cJSON *object, dp_tokens *tokens) {
    if (object == NULL) return;
    int count = -1;
    read_stage_name(reader, object, tokens->stage);
    tokens->got = dp_read_ids(reader, object, "got", &count);
    tokens->want = dp_read_ids(reader, object, "want", &count);
    if (count < 1 || tokens->got == NULL) dp_read_wrong(reader, "got", "an array of at least one id");
    tokens->count = reader->status == DFLASH_OK ? count : 0;
}

void dp_read_plots(dp_json_reader *reader, const cJSON *object, dp_plot_data *data) {
    const cJSON *item;
    read_scatter(reader, dp_read_object_or_null(reader, object, "scatter"), &data->scatter);
    read_rope(reader, dp_read_object_or_null(reader, object, "rope"), &data->rope);
    const cJSON *margins = dp_read_array_or_null(reader, object, "margins");
    cJSON_ArrayForEach(item, margins) {
        if (data->margins_count == DP_MARGIN_STAGES) {
            dp_read_wrong(reader, "margins", "an array of at most 3 objects");
            return;
        }
        read_margins(reader, item, &data->margins[data->margins_count++]);
    }
    read_tokens(reader, dp_read_object_or_null(reader, object, "tokens"), &data->tokens);
}
