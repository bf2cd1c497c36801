/*
 * gather.h - one row of a table in its stored width, widened to float32, which is exact.
 *
 * Embeddings, codebooks and the Markov head's W1 are read by row, not multiplied; they are never in a block format.
 */
#ifndef DF_GATHER_H
#define DF_GATHER_H

#include "weights/weights.h"

/* out[table->in] = row `id` of `table`. An id outside the table stands for row 0, as ops.h says of every gather:
 * nothing else is read, and whoever drafts refuses what follows from it. */
static inline void df_gather_row(const df_matrix *table, int64_t id, float *out) {
    const int64_t row = id >= 0 && id < table->out ? id : 0;
    const unsigned char *from =
        (const unsigned char *)table->data + (size_t)(row * table->in) * df_dtype_size(table->dtype);
    for (int64_t i = 0; i < table->in; i++) {
        if (table->dtype == DF_F32) {
            memcpy(&out[i], from + (size_t)i * sizeof(float), sizeof(float));
        } else {
            uint16_t narrow;
            memcpy(&narrow, from + (size_t)i * sizeof narrow, sizeof narrow);
            out[i] = table->dtype == DF_F16 ? df_f16_to_f32(narrow) : df_bf16_to_f32(narrow);
        }
    }
}

#endif
