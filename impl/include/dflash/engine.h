/* dflash/engine.h - a backend, a numeric class, its memory, and the widths of weights. Conventions are those of
 * dflash.h. */
#ifndef DFLASH_ENGINE_H
#define DFLASH_ENGINE_H

#include "dflash/api.h"

DFLASH_BEGIN

/* ---- Engine: a backend, a numeric class and its memory ---- */

typedef enum dflash_backend { DFLASH_BACKEND_CPU = 0, DFLASH_BACKEND_CUDA } dflash_backend;
typedef enum dflash_class { DFLASH_CLASS_EXACT = 0, DFLASH_CLASS_CUBLAS, DFLASH_CLASS_FAST } dflash_class;
typedef enum dflash_isa {
    DFLASH_ISA_BEST = 0,
    DFLASH_ISA_GENERIC,
    DFLASH_ISA_AVX2,
    DFLASH_ISA_AVX512,
    DFLASH_ISA_REFERENCE
} dflash_isa;

/* How the operands of every product with a matrix of weights (ops.h: matmul; the output head and the heads after it
 * included) are rounded before they are multiplied; sums stay float32. Attention's scores and weighted sums, norms,
 * rotation and convolutions take no part. The CPU simulates the narrow ones (round to nearest even, activations and
 * weights alike) so that their drift can be measured anywhere. */
typedef enum dflash_products { DFLASH_PRODUCTS_F32 = 0, DFLASH_PRODUCTS_TF32, DFLASH_PRODUCTS_BF16 } dflash_products;

/* Names, and back: false where there is no such name, and *out stays as it is. Any thread. */
const char *dflash_backend_name(dflash_backend backend);    /* "cpu", "cuda" */
const char *dflash_class_name(dflash_class numeric_class);  /* "exact", "cublas", "fast" */
const char *dflash_products_name(dflash_products products); /* "f32", "tf32", "bf16" */
bool dflash_backend_parse(const char *name, dflash_backend *out);
bool dflash_class_parse(const char *name, dflash_class *out);
bool dflash_products_parse(const char *name, dflash_products *out);
bool dflash_isa_parse(const char *name, dflash_isa *out); /* "best", "generic", "avx2", "avx512", "reference" */

typedef struct dflash_engine_options {
    dflash_backend backend;
    dflash_class numeric_class;
    dflash_products products;
    dflash_isa isa; /* CPU only; every choice gives the same bits. REFERENCE is plain code on one thread, to read and to
                       compare with: a hundred times slower */
    int threads;    /* CPU only; 0 = as many as this process may use: its affinity, within the quota of its control
                       groups; every choice gives the same bits */
    int device;     /* CUDA only: the device's number, as the runtime counts those that the process sees, from 0 */
    bool poison_scratch;  /* fill scratch memory with NaN before every call, so that an unwritten element shows */
    void *stream;         /* CUDA only: a cudaStream_t of the device to queue all work on, which stays the caller's and
                             outlives the engine; NULL: a stream of the engine's own */
    uint64_t reserved[4]; /* zero: room for options to come */
} dflash_engine_options;

typedef struct dflash_engine dflash_engine;

/* A call makes its engine's device current and gives the caller's back, so a process may use engines on several devices
 * and change the current one at will. Giving back device n makes the runtime's context there if there was none. */
dflash_status dflash_engine_create(const dflash_engine_options *options, dflash_engine **out, dflash_error *err);
void dflash_engine_destroy(dflash_engine *engine); /* NULL is allowed; destroy drafts and caches first */
int dflash_engine_threads(const dflash_engine *engine);
const char *dflash_engine_isa(const dflash_engine *engine); /* a name of dflash_isa_parse; on a device "cuda" */

/* What an engine computes with, for reports. Device strings are empty and numbers 0 on the CPU. */
typedef struct dflash_device_facts {
    const char *backend, *numeric_class, *products;
    char device[256];             /* "NVIDIA H200" */
    char driver[16], runtime[16]; /* CUDA versions: the newest that the driver supports, the one built with; "13.0" */
    char cublas[16];              /* empty unless the class uses it */
    int capability;               /* compute capability, 90 for 9.0 */
    int multiprocessors;
    size_t memory_bytes;
    bool tf32; /* products may be rounded to TF32 */
} dflash_device_facts;
void dflash_engine_describe(const dflash_engine *engine, dflash_device_facts *out);

/* What the machine can do with this engine's instructions and threads, the best of a few short tries: the limits that a
 * kernel's own figures, taken in the same run, are held against. Takes a second and 512 MiB, or 2 GiB of a
 * device. */
typedef struct dflash_machine {
    double macs_per_second;  /* float32 multiply-adds, operands in registers */
    double bytes_per_second; /* read once from memory */
} dflash_machine;
dflash_status dflash_engine_probe(dflash_engine *engine, dflash_machine *out, dflash_error *err);

/* Memory of the engine. n is in floats. On a device, calls return once their work is queued; what went wrong in it is
 * reported by the next dflash_engine_finish or download, or by a later call. */
bool dflash_engine_on_host(const dflash_engine *engine); /* whether its memory is the processor's */
dflash_status dflash_engine_finish(dflash_engine *engine,
                                   dflash_error *err); /* waits until everything asked for is done */
dflash_status dflash_engine_alloc(dflash_engine *engine, size_t n, float **out, dflash_error *err);
void dflash_engine_free(dflash_engine *engine, float *buffer);
dflash_status dflash_engine_upload(dflash_engine *engine, float *to, const float *from_host, size_t n,
                                   dflash_error *err);
dflash_status dflash_engine_download(dflash_engine *engine, float *to_host, const float *from, size_t n,
                                     dflash_error *err);

/* ---- Precision modes ---- */

/*
 * How the matrices are held. Products are taken from the blocks as they are held; activations and sums are float32.
 * STORED keeps each matrix in the file's own width. Norms, biases, base kernels, codebooks and the confidence row are
 * never quantised; Markov W1 is bf16 in every mode but F32 and STORED, and W2 is bf16 in BF16, q8_0 in the quantised
 * ones.
 */
typedef enum dflash_precision {
    DFLASH_PRECISION_STORED = 0,
    DFLASH_PRECISION_F32,
    DFLASH_PRECISION_BF16,
    DFLASH_PRECISION_Q8_0,
    DFLASH_PRECISION_Q4_0,
    DFLASH_PRECISION_MIXED, /* bf16, `.mlp.` matrices q8_0 */
    DFLASH_PRECISION_FC     /* fc bf16, the rest q8_0 */
} dflash_precision;

const char *
dflash_precision_name(dflash_precision precision); /* "stored", "f32", "bf16", "q8_0", "q4_0", "mixed", "fc" */
bool dflash_precision_parse(const char *name, dflash_precision *out); /* false: no such mode */

DFLASH_END

#endif
