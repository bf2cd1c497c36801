/*
 * precision.h - which width a precision mode holds each matrix in, and the conversion to it.
 *
 * A mode is defined by the tensors' names, so the usual spelling of the census is what decides. When and where a
 * checkpoint's matrices are converted is weights.c's business.
 */
#ifndef DF_PRECISION_H
#define DF_PRECISION_H

#include "common/pool.h"
#include "weights/weights.h"

/* The width in which `precision` holds the matrix `name` that the file stores as `stored`. */
df_dtype df_precision_dtype(dflash_precision precision, const char *name, df_dtype stored);

/* Refuses a matrix whose rows are not whole blocks, when `to` is a block format. `path` is for the message. */
dflash_status df_precision_check_rows(dflash_precision precision, const char *path, const char *name, df_dtype to,
                                      int64_t in, dflash_error *err);

/*
 * Converts a matrix of finite values in a file's width to `to`, by way of exact float32: each value is rounded once
 * (bf16) or encoded (quant.h). `out` has df_row_bytes(to, in) bytes a row. The rows are shared among the threads; the
 * bytes do not depend on how. A value that `to` cannot hold is a refusal that names the first one.
 */
dflash_status df_precision_convert(df_pool *pool, const char *path, const char *name, const df_matrix *from,
                                   df_dtype to, void *out, dflash_error *err);

#endif
