/* json_out.h - the few shapes that every JSON result is made of. */
#ifndef DP_JSON_OUT_H
#define DP_JSON_OUT_H

#include "base/json_number.h"

#include <cjson/cJSON.h>
#include <stdint.h>

void dp_json_dims(cJSON *object, const char *key, int rank, const int64_t *dim);
void dp_json_bits(cJSON *object, const char *key, uint32_t bits); /* "0x3f800000" */
/* The coordinates of a flat index. */
void dp_json_coordinates(cJSON *object, const char *key, int rank, const int64_t *dim, int64_t flat);

#endif
