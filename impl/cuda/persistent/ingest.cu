/*
 * ingest.cu - the program of an ingestion: at most 16 rows of the context, from their taps or their features to the
 * keys and values of all layers, in one launch.
 *
 * The layers' k and v share their input, so one product phase serves as many layers as a phase has room for.
 */
#include "cuda/persistent/persistent_parts.h"

#include <memory>

namespace {

enum { MOST_ROWS = 16, LAYERS = DC_PARTS / 2 /* of one product phase */ };

struct planner : dc_phase_list {
    bool taps;
    size_t partial_floats;
    float *partial, *stream;
    std::vector<dc_cached> cached;

    dflash_status layers(int first, int count) {
        const df_matrix *w[DC_PARTS];
        dc_product sum;
        for (int i = 0; i < count; i++) {
            w[2 * i] = &p->weights->layer[first + i].k;
            w[2 * i + 1] = &p->weights->layer[first + i].v;
        }
        TRY(product(w, 2 * count, partial, &partial_floats, &sum));
        for (int i = 0; i < count; i++) {
            const df_layer_weights *layer = &p->weights->layer[first + i];
            cached.push_back(dc_cached{dc_sum_of(sum, 2 * i, layer->k_bias, p->rows),
                                       dc_sum_of(sum, 2 * i + 1, layer->v_bias, p->rows), layer->k_norm});
        }
        add(DC_CACHE, first, count);
        return DFLASH_OK;
    }
    dflash_status all() {
        p->phases.clear();
        cached.clear();
        work_items = 0;
        add(DC_COPY, 0, taps ? c->n_taps * c->hidden : c->hidden);
        if (taps) {
            const df_matrix *w[1] = {&p->weights->fc};
            dc_product sum;
            TRY(product(w, 1, partial, &partial_floats, &sum));
            dc_phase *phase = add(DC_RESIDUAL, 0, c->hidden);
            phase->a = dc_sum_of(sum, 0, nullptr, p->rows);
            phase->y = stream;
            phase = add(DC_NORM, 0, c->hidden);
            phase->x = stream;
            phase->weight = p->weights->hidden_norm;
        }
        for (int i = 0; i < c->n_layers; i += LAYERS)
            TRY(layers(i, c->n_layers - i < LAYERS ? c->n_layers - i : LAYERS));
        return DFLASH_OK;
    }
};

/* A copy of `bytes` in device memory that goes with the program. */
dflash_status place(dflash_engine *engine, dc_program *p, const void *from, size_t bytes, void **out,
                    dflash_error *err) {
    TRY(device_buffer(p, bytes, out, err));
    return engine->memory.upload(engine->memory.owner, *out, from, bytes, err);
}

/* The buffers, the plan with their addresses, and both tables on the device. */
dflash_status fill(dflash_engine *engine, planner *plan, dflash_error *err) {
    dc_program *p = plan->p;
    const dflash_config *c = plan->c;
    const size_t rows = (size_t)p->rows, channels = (size_t)p->phases[0].n;
    dc_frame *f = &p->frame;
    void *memory = nullptr;
    TRY(device_scratch(p, plan->partial_floats * 4, &memory, err));
    plan->partial = static_cast<float *>(memory);
    TRY(device_scratch(p, rows * (size_t)c->hidden * 4, &memory, err));
    plan->stream = static_cast<float *>(memory);
    TRY(device_scratch(p, (channels + DC_ITEM_CHANNELS - 1) / DC_ITEM_CHANNELS * DC_ITEM_CHANNELS * rows * 4, &f->act,
                       err));
    TRY(device_scratch(p, DC_MOST_SEGMENTS * rows * 4, &memory, err));
    f->ss = static_cast<float *>(memory);
    TRY(device_buffer(p, DC_ARRIVALS * sizeof(unsigned), &memory, err));
    f->arrived = static_cast<unsigned *>(memory);
    TRY(plan->all());
    TRY(place(engine, p, plan->cached.data(), plan->cached.size() * sizeof(dc_cached), &memory, err));
    f->cached = static_cast<const dc_cached *>(memory);
    TRY(place(engine, p, p->phases.data(), p->phases.size() * sizeof(dc_phase), &memory, err));
    f->phase = static_cast<const dc_phase *>(memory);
    f->phases = (int)p->phases.size();
    f->hidden = c->hidden;
    f->n_kv_heads = c->n_kv_heads;
    f->head_dim = c->head_dim;
    f->rotary_half = c->rope.rotary_dim / 2;
    f->eps = (float)c->rms_eps;
    return DFLASH_OK;
}

/* Shapes are planned twice: once to learn how large the partial sums are. *out NULL: the products do not fit. */
dflash_status make_program(dflash_engine *engine, const df_ingest_args *a, const void *first, bool fast,
                           dc_program **out, dflash_error *err) {
    std::unique_ptr<dc_program, dc_program_dropper> owned(new (std::nothrow) dc_program());
    dc_program *const p = owned.get();
    *out = nullptr;
    if (p == nullptr) return df_fail_memory(err, "the program of an ingestion", sizeof *p);
    p->weights = a->weights;
    p->first = first;
    p->fast = fast;
    p->rows = dc_padded_rows(a->rows);
    planner plan = {};
    plan.engine = engine;
    plan.p = p;
    plan.c = a->config;
    plan.padded = p->rows;
    plan.taps = a->taps != nullptr;
    plan.fits = true;
    plan.err = err;
    dflash_status status = plan.all();
    if (status == DFLASH_OK && plan.fits) status = fill(engine, &plan, err);
    if (status != DFLASH_OK || !plan.fits) return status;
    *out = owned.release();
    return DFLASH_OK;
}

/* Class fast: whether all products are the fast kernel's. */
bool all_fast(const df_ingest_args *a) {
    bool fast = a->taps == nullptr || dc_fast_width(a->weights->fc.dtype);
    for (int i = 0; i < a->config->n_layers; i++) {
        const df_layer_weights *w = &a->weights->layer[i];
        fast = fast && dc_fast_width(w->k.dtype) && dc_fast_width(w->v.dtype);
    }
    return fast;
}

bool covered(const dc_persistent *r, const df_ingest_args *a) {
    return a->rows <= MOST_ROWS && (r->fast ? r->fast_blocks : r->exact_blocks) > 0 && (!r->fast || all_fast(a)) &&
           a->config->head_dim <= DC_MOST_HEAD && a->config->hidden <= DC_ITEM_CHANNELS * DC_MOST_SEGMENTS;
}

} /* namespace */

extern "C" dflash_status df_cuda_ingest(dflash_engine *engine, const df_ingest_args *a, bool *done,
                                        dflash_error *err) try {
    dc_persistent *r = df_cuda_of(engine)->persistent;
    *done = false;
    TRY(dc_ask_blocks(r, err));
    if (!covered(r, a)) return DFLASH_OK;
    /* one program for each input and each width of rows: the first matrix says which input it takes */
    const void *first = a->taps != nullptr ? a->weights->fc.data : a->weights->layer[0].k.data;
    dc_program *p = nullptr;
    for (dc_program *have : r->programs)
        if (have->weights == a->weights && have->first == first && have->rows == dc_padded_rows(a->rows)) p = have;
    if (p == nullptr) {
        r->programs.reserve(r->programs.size() + 1); /* so that what is made is not lost for want of a place */
        TRY(make_program(engine, a, first, r->fast, &p, err));
        if (p == nullptr) return DFLASH_OK;
        r->programs.push_back(p);
    }
    TRY(dc_poison(engine, p, err));
    dc_frame f = p->frame;
    f.rows = a->rows;
    f.input = a->taps != nullptr ? a->taps : a->features;
    f.cos = a->cos;
    f.sin = a->sin;
    f.cache_k = a->k;
    f.cache_v = a->v;
    f.layer_stride = a->layer_stride;
    *done = true;
    const cudaStream_t stream = df_cuda_stream(engine);
    return df_cuda_check(p->fast ? dc_launch_fast(&f, r->fast_blocks, stream)
                                 : dc_launch_exact(&f, r->exact_blocks, stream),
                         "an ingestion", err);
} catch (const std::bad_alloc &) {
    return dc_out_of_memory(err, "the program of an ingestion");
}
