/* json_out.c - see json_out.h. */
#include "base/json_out.h"

#include "base/coordinates.h"

#include <stdio.h>

void dp_json_dims(cJSON *object, const char *key, int rank, const int64_t *dim) {
    cJSON *list = cJSON_AddArrayToObject(object, key);
    for (int i = 0; i < rank; i++) cJSON_AddItemToArray(list, cJSON_CreateNumber((double)dim[i]));
}

void dp_json_bits(cJSON *object, const char *key, uint32_t bits) {
    char text[16];
    snprintf(text, sizeof text, "0x%08x", bits);
    cJSON_AddStringToObject(object, key, text);
}

void dp_json_coordinates(cJSON *object, const char *key, int rank, const int64_t *dim, int64_t flat) {
    int64_t at[4];
    dp_coordinates(rank, dim, flat, at);
    dp_json_dims(object, key, rank, at);
}
