/*
 * producer_fast.cuh - the two warps that keep the fast class's ring of stages full with bulk copies.
 *
 * One streams the weights of this block's work items, and the keys and values of its attention items, in order, from
 * phase to phase and ahead of the grid's barriers: weights and the context's rows wait for nobody's results. It has no
 * more than DC_FLIGHT stages under way, which keeps the memory busy, and starts DC_LEAD phases ahead with no more than
 * DC_AHEAD: what waits in the memory's queues only delays the loads, stores and barriers of the phases between
 * products. The other warp adds the packed activations to each stage of weights once the barrier before the phase has
 * opened.
 *
 * A stage of keys or values holds the 64 places of a segment, one row of a head each, at the place of its position, so
 * that sums do not depend on where the cache starts. A place without a key that some row sees holds a copy of one that
 * has, because what is multiplied by 0 must be finite. The strides keep lanes of a quad and their neighbours in
 * different banks (attend_fast.cuh).
 */
#ifndef DF_CUDA_PRODUCE_FAST_CUH
#define DF_CUDA_PRODUCE_FAST_CUH

#include "cuda/persistent/attend.cuh"
#include "cuda/persistent/product_fast.cuh"

enum { DC_LEAD = 2 }; /* how many phases ahead weights and the cache's rows may be fetched */
enum { DC_KEY_STRIDE = DC_MOST_HEAD * 4 + 16, DC_VALUE_STRIDE = DC_MOST_HEAD * 4 + 32 }; /* bytes */
static_assert(DC_ITEM_CHANNELS * DC_VALUE_STRIDE <= sizeof(dc_stage<8>), "a segment of values fits a stage");

/* ---- What of the cache a block of rows sees. All lanes of a warp call these. ---- */

/* What row lane % R sees: its first key and the end. Loads alone, so that others can be under way with them. */
struct dc_row_visible_range {
    int low, high;
};
template <int R> DC_DEVICE dc_row_visible_range dc_row_visible_range_of(const dc_frame &f, int layer, int lane) {
    return dc_row_visible_range{__ldcg(f.seen + layer * 2 * R + lane % R),
                                __ldcg(f.seen + (layer * 2 + 1) * R + lane % R)};
}

/* The first key that any row sees, and the end. */
struct dc_visible_range {
    int low, high;
};
DC_DEVICE dc_visible_range dc_visible_range_of(const dc_row_visible_range &row) {
    return dc_visible_range{__reduce_min_sync(0xffffffffu, row.low), __reduce_max_sync(0xffffffffu, row.high)};
}

/* The segments with a key in sight. */
struct dc_segments {
    int begin, end;
};
DC_DEVICE dc_segments dc_segments_of(const dc_frame &f, const dc_row_visible_range &row, int lane) {
    enum { BATCH = 2 };
    int before = 0, behind = 0;
    dc_visible_range visibility = {0, 0};
    for (int s0 = 0; s0 < f.key_segments; s0 += 32 * BATCH) {
        int first[BATCH], next[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int s = min(s0 + 32 * i + lane, f.key_segments);
            first[i] = f.segment_first[s];
            next[i] = f.segment_first[min(s + 1, f.key_segments)];
        }
        if (s0 == 0) visibility = dc_visible_range_of(row);
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (s0 + 32 * i + lane < f.key_segments) {
                before += next[i] <= visibility.low;
                behind += first[i] >= visibility.high;
            }
    }
    return dc_segments{__reduce_add_sync(0xffffffffu, before), f.key_segments - __reduce_add_sync(0xffffffffu, behind)};
}

/* The places in their segment of keys lane and lane + 32 of an item; -1: there is none. */
struct dc_key_rows {
    int at[2];
};
DC_DEVICE dc_key_rows dc_key_rows_of(const dc_frame &f, const dc_item &item, int lane) {
    dc_key_rows key_rows;
#pragma unroll
    for (int h = 0; h < 2; h++)
        key_rows.at[h] = lane + 32 * h < item.keys ? f.pos[item.key + lane + 32 * h] % DC_ITEM_CHANNELS : -1;
    return key_rows;
}

/* The keys of an item that some row sees: [begin, end) of it; whose places are taken; this lane's two. */
struct dc_span {
    int begin, end;
    unsigned taken[2]; /* a bit a place */
    int place[2];      /* of keys lane and lane + 32; -1: none */

    /* The key at a place; -1: none. */
    __device__ __forceinline__ int key_at(const dc_item &item, int at) const {
        const unsigned word = at < 32 ? taken[0] : taken[1], bit = 1u << at % 32;
        if ((word & bit) == 0) return -1;
        return item.key + begin + (at < 32 ? 0 : __popc(taken[0])) + __popc(word & (bit - 1));
    }
};
DC_DEVICE dc_span dc_span_of(const dc_item &item, const dc_key_rows &key_rows, const dc_visible_range &visibility,
                             int lane) {
    dc_span span;
    span.begin = max(visibility.low - item.key, 0);
    span.end = min(visibility.high - item.key, item.keys);
    unsigned bits[2] = {0, 0};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int key = lane + 32 * h;
        span.place[h] = key >= span.begin && key < span.end ? key_rows.at[h] : -1;
        if (span.place[h] >= 0) (span.place[h] < 32 ? bits[0] : bits[1]) |= 1u << span.place[h] % 32;
    }
    span.taken[0] = __reduce_or_sync(0xffffffffu, bits[0]);
    span.taken[1] = __reduce_or_sync(0xffffffffu, bits[1]);
    return span;
}

/* Attention items of a block: neighbours, so that their queries are mostly the same. */
template <int R> DC_DEVICE int dc_first_item(const dc_frame &f, int block, int blocks) {
    return dc_items<R>(f) * block / blocks;
}

/* ---- The producers: whole warps, whose lane 0 issues what is not a row ---- */

/* Whoever waits for a grid's barrier asks this block's own memory: the counter in L2 has pollers enough. Both sides are
 * atomic, which says to the reader and to racecheck that this word is how threads meet. */
template <int R> DC_DEVICE void dc_begin_phase(dc_ring<R> &ring, unsigned phase) {
    asm volatile("{\n\t.reg .u32 before;\n\tatom.release.cta.shared.exch.b32 before, [%0], %1;\n\t}" ::"r"(
                     dc_shared(&ring.begun)),
                 "r"(phase)
                 : "memory");
}
/* All lanes of a producer ask once. */
template <int R> DC_DEVICE bool dc_has_begun(dc_ring<R> &ring, unsigned phase, int lane) {
    unsigned begun = 0;
    if (lane == 0)
        asm volatile("atom.acquire.cta.shared.or.b32 %0, [%1], 0;"
                     : "=r"(begun)
                     : "r"(dc_shared(&ring.begun))
                     : "memory");
    return __shfl_sync(0xffffffffu, begun, 0) >= phase;
}
template <int R> DC_DEVICE void dc_wait_phase(dc_ring<R> &ring, unsigned phase, int lane) {
    while (!dc_has_begun(ring, phase, lane)) {
    }
    __syncwarp();
    dc_before_any_bulk(); /* what other blocks stored is read by bulk copies */
}

/* The stages of a producer, and those of them that are under way. */
struct dc_flight {
    dc_pipeline_state state, oldest;
    int under_way;

    /* All lanes: waits until the next stage, of phase `phase`, may be filled. `narrow`: stages are half as large. */
    template <int R> __device__ __forceinline__ void wait(dc_ring<R> &ring, unsigned phase, bool narrow, int lane) {
        const int all = dc_has_begun(ring, phase, lane) ? DC_FLIGHT : DC_AHEAD;
        const int most = narrow ? min(2 * all, (int)DC_STAGES) : all; /* no two of a slot */
        while (under_way >= most) {
            dc_barrier_wait(&ring.landed[oldest.slot], oldest.parity);
            oldest.next();
            under_way--;
        }
        dc_barrier_wait(&ring.empty[state.slot], state.parity);
    }
    __device__ __forceinline__ void next() {
        state.next();
        under_way++;
    }
};

template <int R>
DC_DEVICE void dc_stream_weights(dc_ring<R> &ring, dc_flight &flight, const dc_product &p, unsigned phase,
                                 unsigned long long hint, int lane, int block, int blocks) {
    for (int index = dc_first_work_item(p, block, blocks); index < p.tiles * p.groups; index += blocks) {
        const dc_work_item u = dc_work_item_at(p, index);
#pragma unroll 1
        for (int s = 0; s < u.stages; s++, flight.next()) {
            flight.wait(ring, phase, p.dtype == DF_Q8_0, lane);
            const int slot = flight.state.slot;
            if (lane == 0) {
                dc_barrier_expect(&ring.landed[slot], u.bytes);
                dc_bulk(ring.stage[slot].weights, u.weights + (size_t)s * u.bytes, u.bytes, &ring.landed[slot], hint);
            }
            __syncwarp();
        }
    }
}

/* Phase `phase`: keys, then values, of each item. Rows of the block itself are there once the phase has begun. */
template <int R>
DC_DEVICE void dc_stream_keys(dc_ring<R> &ring, dc_flight &flight, const dc_frame &f, int phase, int lane, int block,
                              int blocks) {
    const int hd = f.head_dim, last = dc_first_item<R>(f, block + 1, blocks);
    const size_t width = (size_t)f.n_kv_heads * hd;
    const dc_phase &p = f.phase[phase];
    bool begun = false;
    dc_wait_phase(ring, 1, lane); /* what is in sight is known */
    const dc_visible_range visibility = dc_visible_range_of(dc_row_visible_range_of<R>(f, p.layer, lane));
    for (int index = dc_first_item<R>(f, block, blocks); index < last; index++) {
        const dc_item item = dc_item_at<R>(f, index);
        const dc_span span = dc_span_of(item, dc_key_rows_of(f, item, lane), visibility, lane);
        if (span.begin >= span.end) continue;
        if (!begun && item.key + span.end > f.keys - f.rows) {
            dc_wait_phase(ring, (unsigned)phase, lane);
            begun = true;
        }
#pragma unroll 1
        for (int part = 0; part < 2; part++, flight.next()) {
            const float *rows = (part == 0 ? p.k : p.v) + (size_t)item.key * width + item.kv_head * hd;
            const int stride = part == 0 ? DC_KEY_STRIDE : DC_VALUE_STRIDE;
            flight.wait(ring, (unsigned)phase, false, lane);
            unsigned char *to = ring.stage[flight.state.slot].weights;
            unsigned long long *landed = &ring.landed[flight.state.slot];
            if (lane == 0) dc_barrier_expect(landed, (unsigned)(DC_ITEM_CHANNELS * hd * 4));
            __syncwarp();
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (span.place[h] >= 0)
                    dc_bulk_plain(to + span.place[h] * stride, rows + (size_t)(lane + 32 * h) * width,
                                  (unsigned)(hd * 4), landed);
                if ((span.taken[h] >> lane & 1u) == 0)
                    dc_bulk_plain(to + (lane + 32 * h) * stride, rows + (size_t)span.begin * width, (unsigned)(hd * 4),
                                  landed);
            }
            __syncwarp();
        }
    }
}

template <int R>
DC_DEVICE void dc_produce_weights(dc_ring<R> &ring, const dc_frame &f, int lane, int block, int blocks) {
    const unsigned long long hint = dc_evict_first();
    dc_flight flight = {{0, 1}, {0, 0}, 0};
    for (int i = 0; i < f.phases; i++) {
        if (f.phase[i].kind != DC_PRODUCT && f.phase[i].kind != DC_ATTEND) continue;
        if (i > DC_LEAD) dc_wait_phase(ring, (unsigned)(i - DC_LEAD), lane);
        if (f.phase[i].kind == DC_PRODUCT)
            dc_stream_weights<R>(ring, flight, f.phase[i].product, (unsigned)i, hint, lane, block, blocks);
        else
            dc_stream_keys<R>(ring, flight, f, i, lane, block, blocks);
    }
}

/* The activations of the stages of weights; of the others it is an arrival alone, for which the readers wait all the
 * same: it keeps them from running past this warp. */
template <int R> DC_DEVICE void dc_produce_act(dc_ring<R> &ring, const dc_frame &f, int lane, int block, int blocks) {
    enum { BYTES = DC_ITEM_CHANNELS * R * 4 };
    const unsigned long long hint = dc_evict_last();
    dc_pipeline_state state = {0, 1};
    for (int i = 0; i < f.phases; i++) {
        if (f.phase[i].kind == DC_ATTEND) {
            dc_wait_phase(ring, 1, lane);
            const dc_visible_range visibility =
                dc_visible_range_of(dc_row_visible_range_of<R>(f, f.phase[i].layer, lane));
            const int last = dc_first_item<R>(f, block + 1, blocks);
            for (int index = dc_first_item<R>(f, block, blocks); index < last; index++) {
                const dc_item item = dc_item_at<R>(f, index);
                if (max(visibility.low - item.key, 0) >= min(visibility.high - item.key, item.keys)) continue;
#pragma unroll 1
                for (int part = 0; part < 2; part++, state.next()) {
                    dc_barrier_wait(&ring.empty[state.slot], state.parity);
                    if (lane == 0) dc_barrier_arrive(&ring.full[state.slot]);
                    __syncwarp();
                }
            }
            continue;
        }
        if (f.phase[i].kind != DC_PRODUCT) continue;
        const dc_product &p = f.phase[i].product;
        dc_wait_phase(ring, (unsigned)i, lane);
        const unsigned char *act = static_cast<const unsigned char *>(f.act);
        for (int index = dc_first_work_item(p, block, blocks); index < p.tiles * p.groups; index += blocks) {
            const dc_work_item u = dc_work_item_at(p, index);
#pragma unroll 1
            for (int s = 0; s < u.stages; s++, state.next()) {
                dc_barrier_wait(&ring.empty[state.slot], state.parity);
                if (lane == 0) {
                    dc_barrier_expect(&ring.full[state.slot], BYTES);
                    dc_bulk(ring.stage[state.slot].act, act + (size_t)(u.first + s) * BYTES, BYTES,
                            &ring.full[state.slot], hint);
                }
                __syncwarp();
            }
        }
    }
}

#endif
