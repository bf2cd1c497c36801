/* packed.cu - the packed matrices of an engine, what becomes of them when their memory goes, and the plan of a product.
 */
#include "cuda/persistent/persistent_parts.h"

namespace {

dflash_status dc_find_packed(dflash_engine *engine, const df_matrix *w, bool fast, dc_packed *out, dflash_error *err) {
    dc_persistent *r = df_cuda_of(engine)->persistent;
    for (const dc_packed &m : r->matrices)
        if (m.source == w->data && m.out == w->out && m.in == w->in) {
            *out = m;
            return DFLASH_OK;
        }
    try {
        r->matrices.reserve(r->matrices.size() + 1);
    } catch (const std::bad_alloc &) {
        return dc_out_of_memory(err, "packed matrices");
    }
    dc_packed m = {w->data, w->out, w->in, nullptr, nullptr, dc_packing_of(w, fast)};
    TRY(df_cuda_check(cudaMalloc(&m.data, m.shape.bytes), "a matrix packed for its kernel", err));
    cudaError_t status = m.shape.scale_bytes > 0 ? cudaMalloc(&m.scale, m.shape.scale_bytes) : cudaSuccess;
    if (status == cudaSuccess) status = dc_pack_matrix(w, fast, m.data, m.scale, df_cuda_stream(engine));
    if (status != cudaSuccess) {
        cudaFree(m.data);
        cudaFree(m.scale);
        return df_cuda_check(status, "packing a matrix", err);
    }
    r->matrices.push_back(m);
    *out = m;
    return DFLASH_OK;
}

/* Segments of a group. Fast: fixed, for the bits depend on it. Exact: they do not, so four or eight, whichever keeps
 * the blocks busier; a block that is alone on its multiprocessor is quicker. */
int choose_run(bool fast, int tiles, int segments, int blocks) {
    if (fast) return DC_FAST_RUN;
    double cost[2];
    for (int i = 0; i < 2; i++) {
        const int run = (i + 1) * DC_EXACT_RUN, work_items = tiles * ((segments + run - 1) / run),
                  rest = work_items % blocks;
        cost[i] = (i + 1) * (work_items / blocks + (rest == 0 ? 0.0 : 2 * rest <= blocks ? 0.62 : 1.0));
    }
    return cost[1] <= 1.03 * cost[0] ? 2 * DC_EXACT_RUN : DC_EXACT_RUN;
}

} /* namespace */

dflash_status dc_ask_blocks(dc_persistent *r, dflash_error *err) {
    if (r->exact_blocks >= 0) return DFLASH_OK;
    int exact = 0,
        fast = 0; /* a question that failed is asked again: 0 would change class fast's arithmetic for good */
    TRY(df_cuda_check(dc_exact_blocks(&exact), "asking how the exact kernel fits", err));
    TRY(df_cuda_check(dc_fast_blocks(&fast), "asking how the fast kernel fits", err));
    r->exact_blocks = exact;
    r->fast_blocks = fast;
    return DFLASH_OK;
}

enum { MOST_GROUPS = 240 }; /* of the tree in dc_output */

dflash_status dc_plan_product(dflash_engine *engine, const df_matrix *const *w, int parts, bool fast, dc_product *out,
                              bool *fits, dflash_error *err) {
    dc_persistent *r = df_cuda_of(engine)->persistent;
    *out = dc_product();
    *fits = true;
    for (int i = 0; i < parts; i++) {
        if (w[i]->dtype != w[0]->dtype || w[i]->in != w[0]->in || w[i]->out > INT32_MAX / 2 ||
            (fast && !dc_fast_width(w[i]->dtype))) {
            *fits = false;
            return DFLASH_OK;
        }
        dc_packed m;
        TRY(dc_find_packed(engine, w[i], fast, &m, err));
        out->part[i].data = m.data;
        out->part[i].scale = m.scale;
        out->part[i].out = (int)w[i]->out;
        out->part[i].tiles = m.shape.tiles;
        out->tiles += m.shape.tiles;
        out->segments = m.shape.segments;
    }
    out->parts = parts;
    out->dtype = w[0]->dtype;
    out->run = choose_run(fast, out->tiles, out->segments, r->exact_blocks);
    out->groups = (out->segments + out->run - 1) / out->run;
    *fits = out->groups <= MOST_GROUPS;
    return DFLASH_OK;
}

size_t dc_partial_floats(const dc_product &p, int padded) {
    return (size_t)p.tiles * (size_t)p.groups * DC_TILE * (size_t)padded;
}

dc_sum dc_sum_of(const dc_product &p, int index, const float *bias, int padded) {
    size_t tiles = 0;
    for (int i = 0; i < index; i++) tiles += (size_t)p.part[i].tiles;
    return dc_sum{p.partial + tiles * (size_t)p.groups * DC_TILE * (size_t)padded, bias, p.groups};
}

dc_persistent *dc_persistent_create(bool fast) {
    dc_persistent *r = new (std::nothrow) dc_persistent();
    if (r != nullptr) {
        r->fast = fast;
        r->exact_blocks = r->fast_blocks = -1;
    }
    return r;
}

void dc_persistent_destroy(dc_persistent *r) {
    if (r == nullptr) return;
    for (dc_program *p : r->programs) dc_drop_program(p);
    for (const dc_packed &m : r->matrices) {
        cudaFree(m.data);
        cudaFree(m.scale);
    }
    delete r;
}

bool dc_persistent_allocated(dc_persistent *r, const void *memory, size_t bytes) {
    try {
        if (r != nullptr) r->blocks.push_back(dc_block{static_cast<const char *>(memory), bytes});
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

void dc_persistent_released(dc_persistent *r, const void *memory) {
    if (r == nullptr || memory == nullptr) return;
    size_t i = 0;
    while (i < r->blocks.size() && r->blocks[i].memory != memory) i++;
    if (i == r->blocks.size()) return;
    const dc_block gone = r->blocks[i];
    r->blocks[i] = r->blocks.back();
    r->blocks.pop_back();
    const auto inside = [&](const void *p) {
        return static_cast<const char *>(p) >= gone.memory && static_cast<const char *>(p) < gone.memory + gone.bytes;
    };
    for (size_t m = 0; m < r->matrices.size();)
        if (inside(r->matrices[m].source)) {
            cudaFree(r->matrices[m].data);
            cudaFree(r->matrices[m].scale);
            r->matrices[m] = r->matrices.back();
            r->matrices.pop_back();
        } else {
            m++;
        }
    for (size_t p = 0; p < r->programs.size();)
        if (inside(r->programs[p]->first)) {
            dc_drop_program(r->programs[p]);
            r->programs[p] = r->programs.back();
            r->programs.pop_back();
        } else {
            p++;
        }
}
