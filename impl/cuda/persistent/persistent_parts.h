/*
 * persistent_parts.h - what the files behind persistent.h share: the packed matrices of an engine, its programs, and
 * the plan of a product.
 */
#ifndef DF_CUDA_PERSISTENT_PARTS_H
#define DF_CUDA_PERSISTENT_PARTS_H

#include "cuda/persistent/pack.cuh"
#include "cuda/persistent/program.cuh"
#include "cuda/persistent/persistent.h"

#include <new>
#include <vector>

struct dc_packed {
    const void *source;
    int64_t out, in;
    void *data, *scale;
    dc_packing shape;
};

struct dc_block {
    const char *memory;
    size_t bytes;
};

struct dc_buffer {
    void *memory;
    size_t scratch; /* bytes that every run writes before it reads; 0: what is there stays */
};

/* A program of one draft model, a round's or an ingestion's: its phases and buffers. */
struct dc_program {
    const df_weights *weights;
    const void *first; /* of its matrices, to know a draft from another at the same address */
    bool fast;
    int segments; /* of keys that the buffers have room for; a round's */
    int rows;     /* that it is padded to; an ingestion's */
    std::vector<dc_phase> phases;
    dc_frame frame;
    std::vector<dc_buffer> buffers;
};

struct dc_persistent {
    bool fast;
    int exact_blocks, fast_blocks; /* -1: not asked yet */
    std::vector<dc_block> blocks;
    std::vector<dc_packed> matrices;
    std::vector<dc_program *> programs;
};

/* Asks once how many blocks of each kernel fit on the device at once. */
dflash_status dc_ask_blocks(dc_persistent *r, dflash_error *err);

/* A product of matrices that share an input, packed at the first use; partial is left to the caller. *fits false: they
 * cannot share a phase. */
dflash_status dc_plan_product(dflash_engine *engine, const df_matrix *const *w, int parts, bool fast, dc_product *out,
                              bool *fits, dflash_error *err);
/* Floats of its partial, for rows padded to `padded`; and the sum that part `index` has there. */
size_t dc_partial_floats(const dc_product &p, int padded);
dc_sum dc_sum_of(const dc_product &p, int index, const float *bias, int padded);

/* Whether the persistent kernels' attention covers these shapes and keys (persistent.cu). */
bool dc_attention_covered(bool fast, int rows, int head_dim, int window, const int32_t *key_pos, int keys,
                          int segments);

/* Products of many rows (wide_exact.cu, wide_fast.cu): the bits of the persistent kernels, with the weights read once
 * for 64 rows. dc_many_fast takes what it covers. */
dflash_status dc_many_exact(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows,
                            float *y, dflash_error *err);
bool dc_many_fast_covers(const df_matrix *w, const float *x);
dflash_status dc_many_fast(dflash_engine *engine, const df_matrix *w, const float *bias, const float *x, int rows,
                           float *y, dflash_error *err);

void dc_drop_program(dc_program *program);
struct dc_program_dropper {
    void operator()(dc_program *p) const { dc_drop_program(p); }
};

/* What a vector throws that cannot grow ends where C calls. */
static inline dflash_status dc_out_of_memory(dflash_error *err, const char *what) {
    return df_fail(err, DFLASH_ERR_MEMORY, "memory.exhausted",
                   "Out of memory: a list of %s could not grow. Free memory or use a smaller input.", what);
}

/* Device memory that goes with the program. */
static inline dflash_status device_buffer(dc_program *p, size_t bytes, void **out, dflash_error *err) {
    p->buffers.push_back(dc_buffer{}); /* before the allocation, which could not be given back if this failed */
    TRY(df_cuda_check(cudaMalloc(&p->buffers.back().memory, bytes > 0 ? bytes : 1), "the buffers of a program", err));
    *out = p->buffers.back().memory;
    return DFLASH_OK;
}

static inline dflash_status device_scratch(dc_program *p, size_t bytes, void **out, dflash_error *err) {
    TRY(device_buffer(p, bytes, out, err));
    p->buffers.back().scratch = bytes;
    return DFLASH_OK;
}

/* Under poison_scratch, fills what a run has to write with NaN, so that a value that it leaves out shows. */
static inline dflash_status dc_poison(dflash_engine *engine, const dc_program *p, dflash_error *err) {
    if (!engine->options.poison_scratch) return DFLASH_OK;
    for (const dc_buffer &b : p->buffers)
        TRY(engine->memory.fill(engine->memory.owner, b.memory, 0xff, b.scratch, err));
    return DFLASH_OK;
}

/* A list of phases in the making: what the plans of a round and of an ingestion share. Set before the first use. */
struct dc_phase_list {
    dflash_engine *engine;
    dc_program *p;
    const dflash_config *c;
    int padded;     /* rows */
    int work_items; /* of the products so far, so that blocks take turns */
    bool fits;      /* false: a product does not fit the kernel, and there is no such program */
    dflash_error *err;

    dc_phase *add(dc_kind kind, int layer, int n) {
        p->phases.push_back(dc_phase());
        dc_phase *phase = &p->phases.back();
        phase->kind = kind;
        phase->layer = layer;
        phase->n = n;
        return phase;
    }
    /* *most becomes what `partial` has to hold, if that is more. */
    dflash_status product(const df_matrix *const *w, int parts, float *partial, size_t *most, dc_product *out) {
        bool ok = false;
        TRY(dc_plan_product(engine, w, parts, p->fast, out, &ok, err));
        if (!ok) fits = false;
        out->partial = partial;
        out->first_work_item = work_items;
        work_items += out->tiles * out->groups;
        const size_t floats = dc_partial_floats(*out, padded);
        if (floats > *most) *most = floats;
        add(DC_PRODUCT, 0, 0)->product = *out;
        return DFLASH_OK;
    }
};

#endif
