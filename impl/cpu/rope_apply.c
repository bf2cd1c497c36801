/* rope_apply.c - rotates the leading part of every head by tabulated angles, half-split layout. */
#include "cpu/cpu_ops.h"

#include <math.h>
#include <string.h>

dflash_status DF_CPU(rope)(dflash_engine *engine, const float *x, const float *cos_table, const float *sin_table,
                           int rows, int heads, int head_dim, int rotary_dim, float *y, dflash_error *err) {
    (void)engine;
    (void)err;
    const int half = rotary_dim / 2;
    for (int row = 0; row < rows; row++) {
        const float *c = cos_table + (size_t)row * (size_t)half, *s = sin_table + (size_t)row * (size_t)half;
        for (int head = 0; head < heads; head++) {
            for (int i = 0; i < half; i++) {
                const float a = x[i], b = x[i + half];
                y[i] = fmaf(a, c[i], -(b * s[i]));
                y[i + half] = fmaf(b, c[i], a * s[i]);
            }
            memcpy(y + rotary_dim, x + rotary_dim, (size_t)(head_dim - rotary_dim) * sizeof(float));
            x += head_dim;
            y += head_dim;
        }
    }
    return DFLASH_OK;
}
