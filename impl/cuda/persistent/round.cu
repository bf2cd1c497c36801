/* round.cu - the program of a draft model's round: its phases, its buffers, and when it may run. */
#include "cuda/persistent/persistent_parts.h"

#include <memory>

namespace {

/* Makes a list of phases, one step of the forward program after another. */
struct planner : dc_phase_list {
    size_t main_floats, dyn_floats;
    float *main, *dyn[2], *stream;
    bool counting;

    /* act = norm(x), and for dflash2 its convolution; *kernels gets the sums for the other half. */
    dflash_status input(int layer, const float *weight, const df_conv_weights *conv, int sublayer, dc_sum *kernels) {
        dc_phase *norm = add(DC_NORM, layer, c->hidden);
        norm->weight = weight;
        norm->x = stream;
        *kernels = dc_sum{nullptr, nullptr, 0};
        if (c->family != DFLASH_FAMILY_DFLASH2) return DFLASH_OK;
        const df_matrix *w[1] = {&conv->projection};
        dc_product projection;
        TRY(product(w, 1, dyn[sublayer], &dyn_floats, &projection));
        *kernels = dc_sum_of(projection, 0, nullptr, padded);
        dc_phase *phase = add(DC_CONV, layer, c->hidden);
        phase->weight = weight;
        phase->x = stream;
        phase->dyn = *kernels;
        phase->base = conv->base;
        return DFLASH_OK;
    }
    void residual(int layer, const dc_sum &sum, const dc_sum &kernels, const df_conv_weights *conv) {
        dc_phase *phase = add(DC_RESIDUAL, layer, c->hidden);
        phase->a = sum;
        phase->x = stream;
        phase->y = stream;
        phase->dyn = kernels;
        phase->half = 1;
        if (kernels.partial != nullptr || (counting && c->family == DFLASH_FAMILY_DFLASH2))
            phase->base = conv->base + (size_t)c->conv_kernel * (size_t)c->hidden;
    }
    dflash_status layer(int i) {
        const df_layer_weights *w = &p->weights->layer[i];
        dc_sum kernels;
        dc_product sum;
        TRY(input(i, w->input_norm, &w->attn_conv, 0, &kernels));
        const df_matrix *qkv[3] = {&w->q, &w->k, &w->v}, *o[1] = {&w->o}, *gate_up[2] = {&w->gate, &w->up},
                        *down[1] = {&w->down};
        TRY(product(qkv, 3, main, &main_floats, &sum));
        dc_phase *heads = add(DC_QKV, i, 0);
        heads->a = dc_sum_of(sum, 0, w->q_bias, padded);
        heads->b = dc_sum_of(sum, 1, w->k_bias, padded);
        heads->c = dc_sum_of(sum, 2, w->v_bias, padded);
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
        residual(i, dc_sum_of(sum, 0, w->o_bias, padded), kernels, &w->attn_conv);
        TRY(input(i, w->post_norm, &w->mlp_conv, 1, &kernels));
        TRY(product(gate_up, 2, main, &main_floats, &sum));
        dc_phase *silu = add(DC_SILU, i, c->intermediate);
        silu->a = dc_sum_of(sum, 0, nullptr, padded);
        silu->b = dc_sum_of(sum, 1, nullptr, padded);
        TRY(product(down, 1, main, &main_floats, &sum));
        residual(i, dc_sum_of(sum, 0, nullptr, padded), kernels, &w->mlp_conv);
        return DFLASH_OK;
    }
    dflash_status all() {
        p->phases.clear();
        work_items = 0;
        dc_phase *load = add(DC_LOAD, 0, c->hidden);
        load->y = stream;
        for (int i = 0; i < c->n_layers; i++) TRY(layer(i));
        dc_phase *last = add(DC_FINAL, 0, c->hidden);
        last->x = stream;
        last->weight = p->weights->norm;
        return DFLASH_OK;
    }
};

dflash_status fill_frame(dflash_engine *engine, dc_program *p, const dflash_config *c, int padded, int segments,
                         dflash_error *err) {
    const int group = c->n_heads / c->n_kv_heads, chunks = (group * padded + DC_QUERIES - 1) / DC_QUERIES;
    const size_t items = (size_t)c->n_kv_heads * (size_t)chunks * (size_t)segments, rows = (size_t)padded;
    const size_t widest =
        (size_t)(c->intermediate > c->n_heads * c->head_dim ? c->intermediate : c->n_heads * c->head_dim);
    const size_t channels = ((widest > (size_t)c->hidden ? widest : (size_t)c->hidden) + DC_ITEM_CHANNELS - 1) /
                            DC_ITEM_CHANNELS * DC_ITEM_CHANNELS;
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
        {reinterpret_cast<void **>(&f->score), p->fast ? 0 : items * DC_ITEM_CHANNELS * DC_QUERIES * 4},
        {reinterpret_cast<void **>(&f->largest), items * DC_QUERIES * 4},
        {reinterpret_cast<void **>(&f->context), items * DC_QUERIES * (size_t)c->head_dim * 4},
        {reinterpret_cast<void **>(&f->total), items * DC_QUERIES * 4},
    };
    for (const wish &w : wishes) TRY(device_scratch(p, w.bytes, w.to, err));
    TRY(device_buffer(p, DC_ARRIVALS * sizeof(unsigned), reinterpret_cast<void **>(&f->arrived), err));
    std::vector<dc_visibility> visibility;
    for (int i = 0; i < c->n_layers; i++) visibility.push_back(dc_visibility{c->layer[i].window, c->layer[i].causal});
    void *memory = nullptr;
    TRY(device_buffer(p, visibility.size() * sizeof(dc_visibility), &memory, err));
    f->visibility = static_cast<const dc_visibility *>(memory);
    return engine->memory.upload(engine->memory.owner, memory, visibility.data(),
                                 visibility.size() * sizeof(dc_visibility), err);
}

/* A program's shapes are planned twice: once to learn how large the partial sums are. */
dflash_status make_program(dflash_engine *engine, const df_round_args *a, bool fast, int segments, dc_program **out,
                           dflash_error *err) {
    std::unique_ptr<dc_program, dc_program_dropper> owned(new (std::nothrow) dc_program());
    dc_program *const p = owned.get();
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
    dflash_status status = plan.all();
    plan.counting = false;
    void *memory = nullptr;
    if (status == DFLASH_OK && plan.fits) {
        status = device_scratch(p, plan.main_floats * 4, &memory, err);
        plan.main = static_cast<float *>(memory);
        for (int i = 0; status == DFLASH_OK && i < 2; i++) {
            status = device_scratch(p, plan.dyn_floats * 4, &memory, err);
            plan.dyn[i] = static_cast<float *>(memory);
        }
        if (status == DFLASH_OK)
            status = device_scratch(p, (size_t)a->config->block * (size_t)a->config->hidden * 4, &memory, err);
        plan.stream = static_cast<float *>(memory);
        if (status == DFLASH_OK) status = fill_frame(engine, p, a->config, plan.padded, segments, err);
        if (status == DFLASH_OK) status = plan.all();
        if (status == DFLASH_OK) status = device_buffer(p, p->phases.size() * sizeof(dc_phase), &memory, err);
        p->frame.phase = static_cast<dc_phase *>(memory);
        p->frame.phases = (int)p->phases.size();
    }
    if (status != DFLASH_OK || !plan.fits) return status;
    *out = owned.release();
    return DFLASH_OK;
}

/* The widest sight of any layer; 0: all. */
int widest_window(const dflash_config *c) {
    int widest = 1;
    for (int i = 0; i < c->n_layers && widest > 0; i++)
        widest = c->layer[i].window == 0 || c->layer[i].window > widest ? c->layer[i].window : widest;
    return widest;
}

/* Class fast: whether all products of the layers are the fast kernel's. */
bool all_fast(const df_round_args *a) {
    for (int i = 0; i < a->config->n_layers; i++) {
        const df_layer_weights *w = &a->weights->layer[i];
        const df_matrix *const all[] = {
            &w->q, &w->k, &w->v, &w->o, &w->gate, &w->up, &w->down, &w->attn_conv.projection, &w->mlp_conv.projection};
        for (int m = 0; m < (a->config->family == DFLASH_FAMILY_DFLASH2 ? 9 : 7); m++)
            if (!dc_fast_width(all[m]->dtype)) return false;
    }
    return true;
}

bool covered(const dc_persistent *r, const df_round_args *a) {
    const dflash_config *c = a->config;
    const int met = c->conv_group > 0 ? (DC_ITEM_CHANNELS - 1) / c->conv_group + 2 : 0;
    return (!r->fast || all_fast(a)) &&
           dc_attention_covered(r->fast, c->block, c->head_dim, widest_window(c), a->key_pos, a->keys,
                                a->map.segments) &&
           c->hidden <= DC_ITEM_CHANNELS * DC_MOST_SEGMENTS &&
           (c->family != DFLASH_FAMILY_DFLASH2 || c->conv_kernel * met <= DC_MOST_DYN) && r->exact_blocks > 0 &&
           (!r->fast || r->fast_blocks > 0);
}

/* Whether it was another address. */
template <typename T> bool renew(T *&at, T *address) {
    const bool changed = at != address;
    at = address;
    return changed;
}

/* The phases carry the addresses of the call: they are sent again when those differ from the last call's. */
dflash_status send_phases(dflash_engine *engine, dc_program *p, const df_round_args *a, dflash_error *err) {
    bool changed = false;
    for (dc_phase &phase : p->phases) {
        const size_t layer = (size_t)phase.layer * a->layer_stride;
        if (phase.kind == DC_LOAD) changed |= renew(phase.x, a->noise);
        if (phase.kind == DC_FINAL) changed |= renew(phase.y, a->out);
        if (phase.kind == DC_QKV || phase.kind == DC_SCORES || phase.kind == DC_VALUES || phase.kind == DC_ATTEND) {
            changed |= renew(phase.k, a->k + layer);
            changed |= renew(phase.v, a->v + layer);
        }
    }
    if (!changed) return DFLASH_OK;
    const dflash_status status = engine->memory.upload(engine->memory.owner, const_cast<dc_phase *>(p->frame.phase),
                                                       p->phases.data(), p->phases.size() * sizeof(dc_phase), err);
    if (status != DFLASH_OK) p->phases[0].x = nullptr; /* no call's noise: the next one sends them again */
    return status;
}

dflash_status find_program(dflash_engine *engine, const df_round_args *a, dc_program **out, dflash_error *err) {
    dc_persistent *r = df_cuda_of(engine)->persistent;
    *out = nullptr;
    for (size_t i = 0; i < r->programs.size(); i++) {
        dc_program *p = r->programs[i];
        if (p->weights != a->weights || p->first != a->weights->layer[0].q.data) continue;
        *out = p;
        if (p->segments >= a->map.segments) return DFLASH_OK;
        TRY(engine->memory.finish(engine->memory.owner, err));
        dc_drop_program(p);
        r->programs.erase(r->programs.begin() + (long)i);
        break;
    }
    r->programs.reserve(r->programs.size() + 1); /* so that what is made is not lost for want of a place */
    TRY(make_program(engine, a, r->fast, a->map.segments + a->map.segments / 4 + 4, out, err));
    if (*out != nullptr) r->programs.push_back(*out);
    return DFLASH_OK;
}

} /* namespace */

void dc_drop_program(dc_program *p) {
    for (const dc_buffer &buffer : p->buffers) cudaFree(buffer.memory);
    delete p;
}

extern "C" dflash_status df_cuda_round(dflash_engine *engine, const df_round_args *a, bool *done,
                                       dflash_error *err) try {
    dc_persistent *r = df_cuda_of(engine)->persistent;
    *done = false;
    TRY(dc_ask_blocks(r, err));
    if (!covered(r, a)) return DFLASH_OK;
    dc_program *p = nullptr; /* stays so when the products do not fit one kernel */
    TRY(find_program(engine, a, &p, err));
    if (p == nullptr) return DFLASH_OK;
    TRY(send_phases(engine, p, a, err));
    TRY(dc_poison(engine, p, err));
    dc_frame f = p->frame;
    f.cos = a->cos;
    f.sin = a->sin;
    f.pos = a->map.pos;
    f.segment_first = a->map.segment_first;
    f.keys = a->keys;
    f.key_segments = a->map.segments;
    f.first_key_segment = a->key_pos[0] / DC_ITEM_CHANNELS;
    *done = true;
    const cudaStream_t stream = df_cuda_stream(engine);
    return df_cuda_check(p->fast ? dc_launch_fast(&f, r->fast_blocks, stream)
                                 : dc_launch_exact(&f, r->exact_blocks, stream),
                         "a round", err);
} catch (const std::bad_alloc &) {
    return dc_out_of_memory(err, "the program of a round");
}
