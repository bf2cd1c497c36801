/* stage_values.c - see stage_values.h. */
#include "run/stage_values.h"

#include "common/error.h"
#include "store/stage_set.h"

#include <stdlib.h>
#include <string.h>

static dp_stage_value *find(const dp_stage_values *values, dflash_stage stage, int layer) {
    for (int i = 0; i < values->count; i++)
        if (values->item[i].stage == stage && values->item[i].layer == layer) return &values->item[i];
    return NULL;
}

dflash_status dp_stage_values_take(dp_stage_values *values, dflash_stage stage, int layer, int64_t count, double *value,
                                   bool fed, dflash_error *err) {
    dp_stage_value *item = find(values, stage, layer);
    if (item != NULL) {
        free(item->value);
        free(item->row_fed);
    } else {
        if (values->count == values->capacity) {
            const int capacity = values->capacity > 0 ? 2 * values->capacity : 64;
            dp_stage_value *grown = realloc(values->item, (size_t)capacity * sizeof *grown);
            if (grown == NULL) {
                free(value);
                return df_fail_memory(err, "the values of the stages", (size_t)capacity * sizeof *grown);
            }
            values->item = grown;
            values->capacity = capacity;
        }
        item = &values->item[values->count++];
    }
    *item = (dp_stage_value){.stage = stage, .layer = layer, .count = count, .value = value, .fed = fed};
    return DFLASH_OK;
}

dflash_status dp_stage_values_mark(dp_stage_values *values, dflash_stage stage, int layer, int64_t rows, bool *row_fed,
                                   dflash_error *err) {
    if (row_fed == NULL) return df_fail_memory(err, "the rows of a stage", (size_t)rows);
    dp_stage_value *item = find(values, stage, layer);
    item->row_fed = row_fed;
    item->rows = rows;
    return DFLASH_OK;
}

bool dp_stage_value_fed(const dp_stage_value *value, int64_t index) {
    return value->row_fed != NULL ? value->row_fed[index / (value->count / value->rows)] : value->fed;
}

dflash_status dp_stage_values_feed(dp_stage_values *values, const dp_stage_value *from, dflash_error *err) {
    dp_stage_value *item = find(values, from->stage, from->layer);
    item->fed = from->fed;
    for (int64_t i = 0; i < from->count; i++)
        if (dp_stage_value_fed(from, i)) item->value[i] = (double)(float)from->value[i];
    if (from->row_fed == NULL) return DFLASH_OK;
    bool *fed = malloc((size_t)from->rows * sizeof *fed);
    if (fed != NULL) memcpy(fed, from->row_fed, (size_t)from->rows * sizeof *fed);
    return dp_stage_values_mark(values, from->stage, from->layer, from->rows, fed, err);
}

dflash_status dp_stage_values_record(dp_stage_values *values, const dp_recorded *recorded, dflash_error *err) {
    const int64_t count = dp_dims_product(recorded->rank, recorded->dim);
    double *value = malloc((size_t)(count > 0 ? count : 1) * sizeof *value);
    if (value == NULL) return df_fail_memory(err, "the values of a stage", (size_t)count * sizeof *value);
    for (int64_t i = 0; i < count; i++)
        value[i] = recorded->integer != NULL ? (double)recorded->integer[i] : (double)recorded->value[i];
    return dp_stage_values_take(values, recorded->stage, recorded->layer, count, value, false, err);
}

const dp_stage_value *dp_stage_values_find(const dp_stage_values *values, dflash_stage stage, int layer) {
    return find(values, stage, layer);
}

void dp_stage_values_release(dp_stage_values *values) {
    for (int i = 0; i < values->count; i++) {
        free(values->item[i].value);
        free(values->item[i].row_fed);
    }
    free(values->item);
    *values = (dp_stage_values){.item = NULL};
}

dflash_status dp_widen(const float *from, size_t n, double **out, dflash_error *err) {
    *out = malloc((n > 0 ? n : 1) * sizeof **out);
    if (*out == NULL) return df_fail_memory(err, "the inputs", n * sizeof **out);
    for (size_t i = 0; i < n; i++) (*out)[i] = (double)from[i];
    return DFLASH_OK;
}
