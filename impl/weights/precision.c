/* precision.c - see precision.h; also the names of the modes, for dflash.h. */
#include "weights/precision.h"

#include "common/error.h"
#include "weights/quant.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

enum {
    TASK_VALUES = 1 << 16, /* values that a task converts, about: enough to amortise a task */
    PIECE = 512            /* values widened at a time, a multiple of the block */
};

/* ---- Names ---- */

static const char *const names[] = {
    [DFLASH_PRECISION_STORED] = "stored", [DFLASH_PRECISION_F32] = "f32",   [DFLASH_PRECISION_BF16] = "bf16",
    [DFLASH_PRECISION_Q8_0] = "q8_0",     [DFLASH_PRECISION_Q4_0] = "q4_0", [DFLASH_PRECISION_MIXED] = "mixed",
    [DFLASH_PRECISION_FC] = "fc",
};
enum { MODES = sizeof names / sizeof *names };

const char *dflash_precision_name(dflash_precision precision) {
    return (unsigned)precision < MODES ? names[precision] : "?";
}

bool dflash_precision_parse(const char *name, dflash_precision *out) {
    for (int i = 0; i < MODES; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (dflash_precision)i;
        return true;
    }
    return false;
}

/* ---- Which width ---- */

static bool has(const char *name, const char *part) { return strstr(name, part) != NULL; }

df_dtype df_precision_dtype(dflash_precision precision, const char *name, df_dtype stored) {
    /* Codebook rows are gathered, not multiplied by every round, and small errors in them change tokens. */
    if (precision == DFLASH_PRECISION_STORED || has(name, "_codebook")) return stored;
    if (precision == DFLASH_PRECISION_F32 || has(name, "confidence_head.")) return DF_F32;
    if (has(name, ".markov_w1.")) return DF_BF16;
    if (has(name, ".markov_w2.")) return precision == DFLASH_PRECISION_BF16 ? DF_BF16 : DF_Q8_0;
    switch (precision) {
    case DFLASH_PRECISION_Q8_0:
        return DF_Q8_0;
    case DFLASH_PRECISION_Q4_0:
        return DF_Q4_0;
    case DFLASH_PRECISION_MIXED:
        return has(name, ".mlp.") ? DF_Q8_0 : DF_BF16;
    case DFLASH_PRECISION_FC:
        return strcmp(name, "fc.weight") == 0 ? DF_BF16 : DF_Q8_0;
    case DFLASH_PRECISION_STORED:
    case DFLASH_PRECISION_F32:
    case DFLASH_PRECISION_BF16:
        break;
    }
    return DF_BF16;
}

dflash_status df_precision_check_rows(dflash_precision precision, const char *path, const char *name, df_dtype to,
                                      int64_t in, dflash_error *err) {
    if (!df_dtype_is_block(to) || in % DF_QUANT_BLOCK == 0) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "precision.block",
        "%s: tensor \"%s\" has rows of %" PRId64 " values; precision mode %s holds it as %s, in blocks of %d, and "
        "expects a multiple of that. Rows are not padded, because that would be another format; use mode bf16 or "
        "f32 for this checkpoint.",
        path, name, in, dflash_precision_name(precision), df_dtype_name(to), DF_QUANT_BLOCK);
}

/* ---- Conversion ---- */

typedef struct conversion {
    const df_matrix *from;
    df_dtype to;
    unsigned char *out;
    int64_t values, rows_per_task;
    atomic_llong
        overflow; /* index of the first value (of the first block's first) that does not fit; `values` if none */
} conversion;

/* `count` values from value `first` on, row-major. */
static void widen(const df_matrix *from, int64_t first, int count, float *out) {
    const unsigned char *data = (const unsigned char *)from->data + (size_t)first * df_dtype_size(from->dtype);
    if (from->dtype == DF_F32) {
        memcpy(out, data, (size_t)count * sizeof *out);
        return;
    }
    for (int i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, data + 2 * i, sizeof bits);
        out[i] = from->dtype == DF_F16 ? df_f16_to_f32(bits) : df_bf16_to_f32(bits);
    }
}

/* Encodes a piece and returns the index in it of the first value at fault, or `count`. */
static int narrow(df_dtype to, const float *x, int count, unsigned char *out) {
    int first = count;
    switch (to) {
    case DF_F16: /* no mode holds it: df_precision_dtype never asks for it */
    case DF_F32:
        memcpy(out, x, (size_t)count * sizeof *x);
        break;
    case DF_BF16:
        for (int i = 0; i < count; i++) {
            const uint16_t bits = df_f32_to_bf16(x[i]);
            memcpy(out + 2 * i, &bits, sizeof bits);
        }
        for (int i = count - 1; i >= 0; i--)
            if ((out[2 * i + 1] & 0x7f) == 0x7f && (out[2 * i] & 0x80) != 0) first = i;
        break;
    case DF_Q8_0:
    case DF_Q4_0:
        (to == DF_Q8_0 ? df_quantize_q8_0 : df_quantize_q4_0)(x, count, out);
        for (int i = count - DF_QUANT_BLOCK; i >= 0; i -= DF_QUANT_BLOCK)
            if (!df_scale_is_finite(df_block_scale(out + df_row_bytes(to, i)))) first = i;
        break;
    }
    return first;
}

static void note_overflow(conversion *job, long long at) {
    long long seen = atomic_load(&job->overflow);
    while (at < seen && !atomic_compare_exchange_weak(&job->overflow, &seen, at)) {
    }
}

static void convert_task(void *context, int task, int worker) {
    (void)worker;
    conversion *job = context;
    const int64_t in = job->from->in, begin = task * job->rows_per_task * in;
    const int64_t limit = begin + job->rows_per_task * in, end = limit < job->values ? limit : job->values;
    float x[PIECE];
    for (int64_t at = begin; at < end; at += PIECE) {
        const int count = end - at < PIECE ? (int)(end - at) : PIECE;
        widen(job->from, at, count, x);
        const int first = narrow(job->to, x, count, job->out + df_row_bytes(job->to, at));
        if (first < count) note_overflow(job, at + first);
    }
}

static dflash_status refuse_overflow(const conversion *job, const char *path, const char *name, long long at,
                                     dflash_error *err) {
    const int64_t in = job->from->in;
    float x[DF_QUANT_BLOCK];
    const int64_t rest = job->values - at;
    const int count = df_dtype_is_block(job->to) || rest >= DF_QUANT_BLOCK ? DF_QUANT_BLOCK : (int)rest;
    widen(job->from, at, count, x);
    int worst = 0;
    if (df_dtype_is_block(job->to))
        for (int i = 1; i < count; i++)
            if ((x[i] < 0 ? -x[i] : x[i]) > (x[worst] < 0 ? -x[worst] : x[worst])) worst = i;
    at += worst;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "precision.overflow",
        "%s: element [%lld, %lld] of tensor \"%s\" is %.9g, which %s cannot hold%s: it would become infinite. "
        "Expected finite weights in every precision; use mode f32 or stored, or find out why the weight is so "
        "large.",
        path, at / (long long)in, at % (long long)in, name, (double)x[worst], df_dtype_name(job->to),
        df_dtype_is_block(job->to) ? ", because its block's scale is kept in f16" : "");
}

dflash_status df_precision_convert(df_pool *pool, const char *path, const char *name, const df_matrix *from,
                                   df_dtype to, void *out, dflash_error *err) {
    conversion job = {.from = from, .to = to, .out = out, .values = from->out * from->in};
    job.rows_per_task = TASK_VALUES / from->in + 1;
    atomic_init(&job.overflow, job.values);
    df_pool_run(pool, convert_task, &job, (int)((from->out + job.rows_per_task - 1) / job.rows_per_task));
    const long long at = atomic_load(&job.overflow);
    return at == job.values ? DFLASH_OK : refuse_overflow(&job, path, name, at, err);
}
