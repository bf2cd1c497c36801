/*
 * resident.cu - packed matrices, programs and their buffers; see resident.h. program.cuh runs what is planned here.
 */
#include "cuda/resident.h"

#include "cuda/pack.cuh"
#include "cuda/program.cuh"

#include <new>
#include <vector>

namespace {

struct packed {
    const void *source;
    int64_t out, in;
    void *data, *scale;
    dc_packing shape;
};

struct block {
    const char *memory;
    size_t bytes;
};

/* The program of one draft model: phases and buffers for a number of key segments. */
struct program {
    const df_weights *weights;
    const void *first; /* of its matrices, to know a draft from another at the same address */
    bool fast;
    int segments; /* of keys that the buffers have room for */
    std::vector<dc_phase> phases;
    dc_frame frame;
    std::vector<void *> buffers;
};

} /* namespace */

struct dc_resident {
    bool fast;
    int exact_blocks, fast_blocks; /* -1: not asked yet */
    std::vector<block> blocks;
    std::vector<packed> matrices;
    std::vector<program *> programs;
};

namespace {

void drop_program(program *p) {
    for (void *buffer : p->buffers) cudaFree(buffer);
    delete p;
}

df_status ask_blocks(dc_resident *r, df_error *err) {
    if (r->exact_blocks >= 0) return DF_OK;
    TRY(df_cuda_check(dc_exact_blocks(&r->exact_blocks), "asking how the exact kernel fits", err));
    return df_cuda_check(dc_fast_blocks(&r->fast_blocks), "asking how the fast kernel fits", err);
}

df_status device_buffer(program *p, size_t bytes, void **out, df_error *err) {
    TRY(df_cuda_check(cudaMalloc(out, bytes > 0 ? bytes : 1), "the buffers of a round", err));
    p->buffers.push_back(*out);
    return DF_OK;
}

df_status find_packed(df_engine *engine, const df_matrix *w, bool fast, packed *out, df_error *err) {
    dc_resident *r = df_cuda_of(engine)->resident;
    for (const packed &m : r->matrices)
        if (m.source == w->data && m.out == w->out && m.in == w->in) {
            *out = m;
            return DF_OK;
        }
    packed m = {w->data, w->out, w->in, nullptr, nullptr, dc_packing_of(w, fast)};
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
    return DF_OK;
}

/* Segments of a group. Fast: fixed, for the bits depend on it. Exact: they do not, so as long as blocks stay equally
 * busy. */
int choose_run(bool fast, int tiles, int segments, int blocks) {
    if (fast) return DC_FAST_RUN;
    double cost[2];
    for (int i = 0; i < 2; i++) { /* four segments, then eight; a block that is alone on its multiprocessor is quicker */
        const int run = (i + 1) * DC_EXACT_RUN, units = tiles * ((segments + run - 1) / run), rest = units % blocks;
        cost[i] = (i + 1) * (units / blocks + (rest == 0 ? 0.0 : 2 * rest <= blocks ? 0.62 : 1.0));
    }
    return cost[1] <= 1.03 * cost[0] ? 2 * DC_EXACT_RUN : DC_EXACT_RUN;
}

enum { MOST_GROUPS = 240 }; /* of the tree in dc_output */

/* A product of matrices that share an input; partial is left to the caller. False when they cannot share. */
df_status plan_product(df_engine *engine, const df_matrix *const *w, int parts, bool fast, dc_product *out, bool *fits,
                       df_error *err) {
    dc_resident *r = df_cuda_of(engine)->resident;
    *out = dc_product();
    *fits = true;
    for (int i = 0; i < parts; i++) {
        if (w[i]->dtype != w[0]->dtype || w[i]->in != w[0]->in || w[i]->out > INT32_MAX / 2 || (fast && !dc_fast_width(w[i]->dtype))) {
            *fits = false;
            return DF_OK;
        }
        packed m;
        TRY(find_packed(engine, w[i], fast, &m, err));
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
    return DF_OK;
}

size_t partial_floats(const dc_product &p, int padded) {
    return (size_t)p.tiles * (size_t)p.groups * DC_TILE * (size_t)padded;
}

/* The sum that part `index` of a product has in its partial. */
dc_sum sum_of(const dc_product &p, int index, const float *bias, int padded) {
    size_t tiles = 0;
    for (int i = 0; i < index; i++) tiles += (size_t)p.part[i].tiles;
    return dc_sum{p.partial + tiles * (size_t)p.groups * DC_TILE * (size_t)padded, bias, p.groups};
}

/* Makes a list of phases, one step of the forward program after another. */
struct planner {
    df_engine *engine;
    program *p;
    const df_config *c;
    int padded, units;
    size_t main_floats, dyn_floats;
    float *main, *dyn[2], *stream;
    bool counting, fits;
    df_error *err;

    dc_phase *add(dc_kind kind, int layer, int n) {
        p->phases.push_back(dc_phase());
        dc_phase *phase = &p->phases.back();
        phase->kind = kind;
        phase->layer = layer;
        phase->n = n;
        return phase;
    }
    df_status product(const df_matrix *const *w, int parts, float *partial, size_t *most, dc_product *out) {
        bool ok = false;
        TRY(plan_product(engine, w, parts, p->fast, out, &ok, err));
        if (!ok) fits = false;
        out->partial = partial;
        out->first_unit = units;
        units += out->tiles * out->groups;
        const size_t floats = partial_floats(*out, padded);
        if (floats > *most) *most = floats;
        add(DC_PRODUCT, 0, 0)->product = *out;
        return DF_OK;
    }
    /* act = norm(x), and for dflash2 its convolution; *kernels gets the sums for the other half. */
    df_status input(int layer, const float *weight, const df_conv_weights *conv, int sublayer, dc_sum *kernels) {
        dc_phase *norm = add(DC_NORM, layer, c->hidden);
        norm->weight = weight;
        norm->x = stream;
        *kernels = dc_sum{nullptr, nullptr, 0};
        if (c->family != DF_FAMILY_DFLASH2) return DF_OK;
        const df_matrix *w[1] = {&conv->projection};
        dc_product projection;
        TRY(product(w, 1, dyn[sublayer], &dyn_floats, &projection));
        *kernels = sum_of(projection, 0, nullptr, padded);
        dc_phase *phase = add(DC_CONV, layer, c->hidden);
        phase->weight = weight;
        phase->x = stream;
        phase->dyn = *kernels;
        phase->base = conv->base;
        return DF_OK;
    }
    void residual(int layer, const dc_sum &sum, const dc_sum &kernels, const df_conv_weights *conv) {
        dc_phase *phase = add(DC_RESIDUAL, layer, c->hidden);
        phase->a = sum;
        phase->x = stream;
        phase->y = stream;
        phase->dyn = kernels;
        phase->half = 1;
        if (kernels.partial != nullptr || (counting && c->family == DF_FAMILY_DFLASH2))
            phase->base = conv->base + (size_t)c->conv_kernel * (size_t)c->hidden;
    }
    df_status layer(int i) {
        const df_layer_weights *w = &p->weights->layer[i];
        dc_sum kernels;
        dc_product sum;
        TRY(input(i, w->input_norm, &w->attn_conv, 0, &kernels));
        const df_matrix *qkv[3] = {&w->q, &w->k, &w->v}, *o[1] = {&w->o}, *gate_up[2] = {&w->gate, &w->up},
                        *down[1] = {&w->down};
        TRY(product(qkv, 3, main, &main_floats, &sum));
        dc_phase *heads = add(DC_QKV, i, 0);
        heads->a = sum_of(sum, 0, w->q_bias, padded);
        heads->b = sum_of(sum, 1, w->k_bias, padded);
        heads->c = sum_of(sum, 2, w->v_bias, padded);
        heads->weight = w->q_norm;
        heads->weight2 = w->k_norm;
        if (p->fast) {
            add(DC_ATTEND, i, 0);
        } else {
            add(DC_SCORES, i, 0);
            add(DC_VALUES, i, 0);
        }
        add(DC_CONTEXT, i, c->n_heads * c->head_dim);
        TRY(product(o, 1, main, &main_floats, &sum));
        residual(i, sum_of(sum, 0, w->o_bias, padded), kernels, &w->attn_conv);
        TRY(input(i, w->post_norm, &w->mlp_conv, 1, &kernels));
        TRY(product(gate_up, 2, main, &main_floats, &sum));
        dc_phase *silu = add(DC_SILU, i, c->intermediate);
        silu->a = sum_of(sum, 0, nullptr, padded);
        silu->b = sum_of(sum, 1, nullptr, padded);
        TRY(product(down, 1, main, &main_floats, &sum));
        residual(i, sum_of(sum, 0, nullptr, padded), kernels, &w->mlp_conv);
        return DF_OK;
    }
    df_status all() {
        p->phases.clear();
        units = 0;
        dc_phase *load = add(DC_LOAD, 0, c->hidden);
        load->y = stream;
        for (int i = 0; i < c->n_layers; i++) TRY(layer(i));
        dc_phase *last = add(DC_FINAL, 0, c->hidden);
        last->x = stream;
        last->weight = p->weights->norm;
        return DF_OK;
    }
};

df_status fill_frame(df_engine *engine, program *p, const df_config *c, int padded, int segments, df_error *err) {
    const int group = c->n_heads / c->n_kv_heads, chunks = (group * padded + DC_QUERIES - 1) / DC_QUERIES;
    const size_t items = (size_t)c->n_kv_heads * (size_t)chunks * (size_t)segments, rows = (size_t)padded;
    const size_t widest = (size_t)(c->intermediate > c->n_heads * c->head_dim ? c->intermediate : c->n_heads * c->head_dim);
    const size_t channels = ((widest > (size_t)c->hidden ? widest : (size_t)c->hidden) + DC_UNIT - 1) / DC_UNIT * DC_UNIT;
    dc_frame *f = &p->frame;
    *f = dc_frame();
    f->rows = c->block;
    f->hidden = c->hidden;
    f->n_heads = c->n_heads;
    f->n_kv_heads = c->n_kv_heads;
    f->head_dim = c->head_dim;
    f->rotary_half = c->rope.rotary_dim / 2;
    f->layers = c->n_layers;
    f->taps = c->conv_kernel;
    f->conv_group = c->conv_group > 0 ? c->conv_group : 1;
    f->conv_groups = c->hidden / f->conv_group;
    f->eps = (float)c->rms_eps;
    f->score_scale = 1.0f / sqrtf((float)c->head_dim);
    struct wish {
        void **to;
        size_t bytes;
    };
    const wish wishes[] = {
        {&f->act, channels * rows * 4},
        {reinterpret_cast<void **>(&f->ss), DC_MOST_SEGMENTS * rows * 4},
        {reinterpret_cast<void **>(&f->seen), (size_t)c->n_layers * 2 * rows * 4},
        {reinterpret_cast<void **>(&f->q), rows * (size_t)c->n_heads * (size_t)c->head_dim * 4},
        {reinterpret_cast<void **>(&f->score), items * DC_UNIT * DC_QUERIES * 4},
        {reinterpret_cast<void **>(&f->largest), items * DC_QUERIES * 4},
        {reinterpret_cast<void **>(&f->context), items * DC_QUERIES * (size_t)c->head_dim * 4},
        {reinterpret_cast<void **>(&f->total), items * DC_QUERIES * 4},
        {reinterpret_cast<void **>(&f->arrived), DC_ARRIVALS * sizeof(unsigned)},
    };
    for (const wish &w : wishes) TRY(device_buffer(p, w.bytes, w.to, err));
    std::vector<dc_sight> sight;
    for (int i = 0; i < c->n_layers; i++) sight.push_back(dc_sight{c->layer[i].window, c->layer[i].causal});
    void *memory = nullptr;
    TRY(device_buffer(p, sight.size() * sizeof(dc_sight), &memory, err));
    f->sight = static_cast<const dc_sight *>(memory);
    return engine->memory.upload(engine->memory.owner, memory, sight.data(), sight.size() * sizeof(dc_sight), err);
}

/* A program's shapes are planned twice: once to learn how large the partial sums are. */
df_status make_program(df_engine *engine, const df_round_args *a, bool fast, int segments, program **out,
                       df_error *err) {
    program *p = new (std::nothrow) program();
    *out = nullptr;
    if (p == nullptr) return df_fail_memory(err, "the program of a round", sizeof *p);
    p->weights = a->weights;
    p->first = a->weights->layer[0].q.data;
    p->fast = fast;
    p->segments = segments;
    planner plan = {};
    plan.engine = engine;
    plan.p = p;
    plan.c = a->config;
    plan.padded = dc_padded_rows(a->config->block);
    plan.fits = true;
    plan.counting = true;
    plan.err = err;
    df_status status = plan.all();
    plan.counting = false;
    void *memory = nullptr;
    if (status == DF_OK && plan.fits) {
        status = device_buffer(p, plan.main_floats * 4, &memory, err);
        plan.main = static_cast<float *>(memory);
        for (int i = 0; status == DF_OK && i < 2; i++) {
            status = device_buffer(p, plan.dyn_floats * 4, &memory, err);
            plan.dyn[i] = static_cast<float *>(memory);
        }
        if (status == DF_OK)
            status = device_buffer(p, (size_t)a->config->block * (size_t)a->config->hidden * 4, &memory, err);
        plan.stream = static_cast<float *>(memory);
        if (status == DF_OK) status = fill_frame(engine, p, a->config, plan.padded, segments, err);
        if (status == DF_OK) status = plan.all();
        if (status == DF_OK) status = device_buffer(p, p->phases.size() * sizeof(dc_phase), &memory, err);
        p->frame.phase = static_cast<dc_phase *>(memory);
        p->frame.phases = (int)p->phases.size();
    }
    if (status != DF_OK || !plan.fits) {
        drop_program(p);
        return status;
    }
    *out = p;
    return DF_OK;
}

/* Segments with a key that a block which starts at `pos` can see through `window` (0: all). */
int segments_in_sight(const int32_t *key_pos, int keys, int32_t pos, int window) {
    int count = 0;
    for (int i = keys; i > 0; i--) {
        if (window > 0 && (int64_t)pos - key_pos[i - 1] >= window) break;
        count += i == keys || key_pos[i - 1] / DC_UNIT != key_pos[i] / DC_UNIT;
    }
    return count;
}

/*
 * Whether the resident kernels' attention covers these shapes and keys. Exact: segments without a gap, within the tree's
 * counter; it does not matter for the bits. Fast: as few segments in sight as a block has shares for, which does, so it
 * may not depend on keys out of sight: those may have left the cache.
 */
bool attention_covered(bool fast, int rows, int head_dim, int window, const int32_t *key_pos, int keys, int segments) {
    if (rows > 16 || head_dim > DC_MOST_HEAD || head_dim % 4 != 0) return false;
    if (fast) {
        const int heads = DC_UNIT % head_dim == 0   ? DC_UNIT / head_dim
                          : head_dim % DC_UNIT == 0 ? 1
                                                    : (DC_UNIT - 1) / head_dim + 2;
        return heads * segments_in_sight(key_pos, keys, key_pos[keys - rows], window) <= DC_MOST_SHARES;
    }
    const int first = key_pos[0] / DC_UNIT, last = key_pos[keys - 1] / DC_UNIT;
    return last - first + 1 == segments && first % 1024 + segments < 2040;
}

/* The widest sight of any layer; 0: all. */
int widest_window(const df_config *c) {
    int widest = 1;
    for (int i = 0; i < c->n_layers && widest > 0; i++)
        widest = c->layer[i].window == 0 || c->layer[i].window > widest ? c->layer[i].window : widest;
    return widest;
}

/* Class fast: whether all products of the layers are the fast kernel's. */
bool all_fast(const df_round_args *a) {
    for (int i = 0; i < a->config->n_layers; i++) {
        const df_layer_weights *w = &a->weights->layer[i];
        const df_matrix *const all[] = {&w->q,    &w->k,  &w->v,    &w->o,
                                        &w->gate, &w->up, &w->down, &w->attn_conv.projection, &w->mlp_conv.projection};
        for (int m = 0; m < (a->config->family == DF_FAMILY_DFLASH2 ? 9 : 7); m++)
            if (!dc_fast_width(all[m]->dtype)) return false;
    }
    return true;
}

bool covered(const dc_resident *r, const df_round_args *a) {
    const df_config *c = a->config;
    const int met = c->conv_group > 0 ? (DC_UNIT - 1) / c->conv_group + 2 : 0;
    return (!r->fast || all_fast(a)) && 
           attention_covered(r->fast, c->block, c->head_dim, widest_window(c), a->key_pos, a->keys, a->map.segments) &&
           c->hidden <= DC_UNIT * DC_MOST_SEGMENTS &&
           (c->family != DF_FAMILY_DFLASH2 || c->conv_kernel * met <= DC_MOST_DYN) && r->exact_blocks > 0 &&
           (!r->fast || r->fast_blocks > 0);
}

/* The phases carry the addresses of the call: they are sent again when those differ from the last call's. */
df_status send_phases(df_engine *engine, program *p, const df_round_args *a, df_error *err) {
    bool changed = false;
    for (dc_phase &phase : p->phases) {
        float *k = a->k + (size_t)phase.layer * a->layer_stride, *v = a->v + (size_t)phase.layer * a->layer_stride;
        const dc_phase before = phase;
        if (phase.kind == DC_LOAD) phase.x = a->noise;
        if (phase.kind == DC_FINAL) phase.y = a->out;
        if (phase.kind == DC_QKV || phase.kind == DC_SCORES || phase.kind == DC_VALUES ||
            phase.kind == DC_ATTEND) phase.k = k, phase.v = v;
        changed |= before.x != phase.x || before.y != phase.y || before.k != phase.k || before.v != phase.v;
    }
    if (!changed) return DF_OK;
    return engine->memory.upload(engine->memory.owner, const_cast<dc_phase *>(p->frame.phase), p->phases.data(),
                                 p->phases.size() * sizeof(dc_phase), err);
}

df_status find_program(df_engine *engine, const df_round_args *a, program **out, df_error *err) {
    dc_resident *r = df_cuda_of(engine)->resident;
    *out = nullptr;
    for (size_t i = 0; i < r->programs.size(); i++) {
        program *p = r->programs[i];
        if (p->weights != a->weights || p->first != a->weights->layer[0].q.data) continue;
        *out = p;
        if (p->segments >= a->map.segments) return DF_OK;
        TRY(engine->memory.finish(engine->memory.owner, err));
        drop_program(p);
        r->programs.erase(r->programs.begin() + (long)i);
        break;
    }
    TRY(make_program(engine, a, r->fast, a->map.segments + a->map.segments / 4 + 4, out, err));
    if (*out != nullptr) r->programs.push_back(*out);
    return DF_OK;
}

} /* namespace */

dc_resident *dc_resident_create(bool fast) {
    dc_resident *r = new (std::nothrow) dc_resident();
    if (r != nullptr) {
        r->fast = fast;
        r->exact_blocks = r->fast_blocks = -1;
    }
    return r;
}

void dc_resident_destroy(dc_resident *r) {
    if (r == nullptr) return;
    for (program *p : r->programs) drop_program(p);
    for (const packed &m : r->matrices) {
        cudaFree(m.data);
        cudaFree(m.scale);
    }
    delete r;
}

void dc_resident_allocated(dc_resident *r, const void *memory, size_t bytes) {
    if (r != nullptr) r->blocks.push_back(block{static_cast<const char *>(memory), bytes});
}

void dc_resident_released(dc_resident *r, const void *memory) {
    if (r == nullptr || memory == nullptr) return;
    size_t i = 0;
    while (i < r->blocks.size() && r->blocks[i].memory != memory) i++;
    if (i == r->blocks.size()) return;
    const block gone = r->blocks[i];
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
            drop_program(r->programs[p]);
            r->programs[p] = r->programs.back();
            r->programs.pop_back();
        } else {
            p++;
        }
}

extern "C" df_status df_cuda_round(df_engine *engine, const df_round_args *a, bool *done, df_error *err) {
    dc_resident *r = df_cuda_of(engine)->resident;
    *done = false;
    TRY(ask_blocks(r, err));
    if (!covered(r, a)) return DF_OK;
    program *p = nullptr; /* stays so when the products do not fit one kernel */
    TRY(find_program(engine, a, &p, err));
    if (p == nullptr) return DF_OK;
    TRY(send_phases(engine, p, a, err));
    dc_frame f = p->frame;
    f.cos = a->cos;
    f.sin = a->sin;
    f.pos = a->map.pos;
    f.segment_first = a->map.segment_first;
    f.keys = a->keys;
    f.key_segments = a->map.segments;
    f.first_key_segment = a->key_pos[0] / DC_UNIT;
    *done = true;
    const cudaStream_t stream = df_cuda_stream(engine);
    return df_cuda_check(p->fast ? dc_launch_fast(&f, r->fast_blocks, stream) : dc_launch_exact(&f, r->exact_blocks, stream),
                         "a round", err);
}

extern "C" df_status df_cuda_matmul_resident(df_engine *engine, const df_matrix *w, const float *bias, const float *x,
                                             int rows, float *y, df_error *err) {
    enum { TILE_ROWS = 16 };
    dc_resident *r = df_cuda_of(engine)->resident;
    const bool fast = r->fast && dc_fast_width(w->dtype);
    if (rows == 0) return DF_OK;
    TRY(ask_blocks(r, err));
    const df_matrix *matrices[1] = {w};
    dc_phase phase[3] = {};
    bool fits = (fast ? r->fast_blocks : r->exact_blocks) > 0;
    if (fits) TRY(plan_product(engine, matrices, 1, fast, &phase[1].product, &fits, err));
    if (!fits) return df_cuda_matmul_plain(engine, w, bias, x, rows, y, err);
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    const int widest = rows < TILE_ROWS ? dc_padded_rows(rows) : TILE_ROWS;
    dc_product &product = phase[1].product;
    product.partial = df_cuda_take<float>(engine, partial_floats(product, widest), err);
    dc_frame f = {};
    dc_phase *phases = df_cuda_take<dc_phase>(engine, 3 * (size_t)((rows - 1) / TILE_ROWS + 1), err);
    f.act = df_cuda_take<float>(engine, (size_t)product.segments * DC_UNIT * (size_t)widest, err);
    f.arrived = df_cuda_take<unsigned>(engine, DC_ARRIVALS, err);
    if (product.partial == nullptr || phases == nullptr || f.act == nullptr || f.arrived == nullptr)
        return DF_ERR_MEMORY;
    f.phases = 3;
    phase[0].kind = DC_COPY;
    phase[0].n = (int)w->in;
    phase[1].kind = DC_PRODUCT;
    phase[2].kind = DC_STORE;
    phase[2].n = (int)w->out;
    phase[2].a = dc_sum{product.partial, bias, product.groups};
    const cudaStream_t stream = df_cuda_stream(engine);
    for (int row = 0, tile = 0; row < rows; row += TILE_ROWS, tile++) {
        f.rows = rows - row < TILE_ROWS ? rows - row : TILE_ROWS;
        f.phase = phases + 3 * tile;
        phase[0].x = x + (size_t)row * (size_t)w->in;
        phase[2].y = y + (size_t)row * (size_t)w->out;
        /* from pageable memory: it is read before the call returns */
        TRY(df_cuda_check(
            cudaMemcpyAsync(const_cast<dc_phase *>(f.phase), phase, sizeof phase, cudaMemcpyHostToDevice, stream),
            "the phases of a product", err));
        TRY(df_cuda_check(fast ? dc_launch_fast(&f, r->fast_blocks, stream) : dc_launch_exact(&f, r->exact_blocks, stream),
                          "a product", err));
    }
    df_arena_rewind(&engine->arena, mark);
    return DF_OK;
}

extern "C" df_status df_cuda_attention_fast(df_engine *engine, const df_attention_args *a, df_error *err) {
    dc_resident *r = df_cuda_of(engine)->resident;
    TRY(ask_blocks(r, err));
    if (r->fast_blocks == 0 ||
        !attention_covered(true, a->rows, a->head_dim, a->window, a->k_pos, a->keys, a->map.segments))
        return df_cuda_attention(engine, a, err);
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    const int padded = dc_padded_rows(a->rows), group = a->n_heads / a->n_kv_heads;
    const int chunks = (group * padded + DC_QUERIES - 1) / DC_QUERIES;
    const size_t items = (size_t)a->n_kv_heads * (size_t)chunks * (size_t)a->map.segments;
    struct sent {
        dc_phase phase[3];
        dc_sight sight;
    } host = {};
    dc_frame f = {};
    sent *device = df_cuda_take<sent>(engine, 1, err);
    f.seen = df_cuda_take<int32_t>(engine, 2 * (size_t)padded, err);
    f.largest = df_cuda_take<float>(engine, items * DC_QUERIES, err);
    f.total = df_cuda_take<float>(engine, items * DC_QUERIES, err);
    f.context = df_cuda_take<float>(engine, items * DC_QUERIES * (size_t)a->head_dim, err);
    f.arrived = df_cuda_take<unsigned>(engine, DC_ARRIVALS, err);
    if (device == nullptr || f.seen == nullptr || f.largest == nullptr || f.total == nullptr || f.context == nullptr ||
        f.arrived == nullptr)
        return DF_ERR_MEMORY;
    host.sight = dc_sight{a->window, a->causal};
    host.phase[0].kind = DC_SEEN;
    host.phase[1].kind = DC_ATTEND;
    host.phase[1].k = const_cast<float *>(a->k);
    host.phase[1].v = const_cast<float *>(a->v);
    host.phase[2].kind = DC_CONTEXT;
    host.phase[2].n = a->n_heads * a->head_dim;
    host.phase[2].y = a->out;
    f.phase = device->phase;
    f.sight = &device->sight;
    f.phases = 3;
    f.layers = 1;
    f.rows = a->rows;
    f.n_heads = a->n_heads;
    f.n_kv_heads = a->n_kv_heads;
    f.head_dim = a->head_dim;
    f.score_scale = 1.0f / sqrtf((float)a->head_dim);
    f.q = const_cast<float *>(a->q);
    f.pos = a->map.pos;
    f.segment_first = a->map.segment_first;
    f.keys = a->keys;
    f.key_segments = a->map.segments;
    f.first_key_segment = a->k_pos[0] / DC_UNIT;
    const cudaStream_t stream = df_cuda_stream(engine);
    TRY(df_cuda_check(cudaMemcpyAsync(device, &host, sizeof host, cudaMemcpyHostToDevice, stream),
                      "the phases of an attention", err));
    TRY(df_cuda_check(dc_launch_fast(&f, r->fast_blocks, stream), "an attention", err));
    df_arena_rewind(&engine->arena, mark);
    return DF_OK;
}
