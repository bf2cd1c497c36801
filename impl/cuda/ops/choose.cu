/*
 * choose.cu - one token from each row: the best value, its softmax share, or a draw.
 *
 * The largest value comes from the pass of topk_row.h. A distribution is made in canonical order: a thread runs one
 * segment, a block folds the segments of a row level by level (segments start at 0 and none is absent, so that is the
 * tree of canon.h). A draw sums in double as verify.c does: segments from left to right, terms from left to right.
 * Faults go into the choice, and a row at fault still names column 0, so that whatever follows stays inside its tables.
 */
#include "cuda/ops/topk_row.h"

#include "common/canon.h"
#include "common/mathfn.h"

namespace {

enum { THREADS = 256, FOLD_THREADS = 1024 };

struct slots {
    df_choose_args a;
    int segments; /* of a row */
    float *sums;  /* [n, segments] */
    double *mass; /* [n, segments]; sampled only */
};

__device__ int segment_end(int segment, int width) {
    const int begin = segment * DF_SEGMENT;
    return width - begin < DF_SEGMENT ? width : begin + DF_SEGMENT;
}

__device__ void name_token(const df_choose_args &a, df_choice *choice, int32_t column) {
    choice->index = column;
    choice->token = a.ids != nullptr ? a.ids[column] : column;
}

__global__ void __launch_bounds__(DF_TOPK_THREADS) best_kernel(df_choose_args a) {
    const float *row = a.rows + blockIdx.x * static_cast<size_t>(a.width);
    const df_topk_found found = df_topk_below(row, a.width, UINT64_MAX);
    if (threadIdx.x != 0) return;
    df_choice choice = {};
    if (found.bad < a.width)
        choice = df_topk_fault(row, found.bad);
    else if (found.key == 0)
        choice.fault = DF_FAULT_FEW;
    else
        choice.value = row[df_topk_column(found.key)];
    name_token(a, &choice, df_topk_column(found.key));
    a.choice[blockIdx.x] = choice;
}

/* probability = exp((row - max) / temperature), and the sum of each segment. */
__global__ void __launch_bounds__(THREADS) weights_kernel(slots s) {
    const int segment = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
    if (segment >= s.segments) return;
    const size_t at = blockIdx.y * static_cast<size_t>(s.a.width);
    const float max = s.a.choice[blockIdx.y].value, temperature = s.a.temperature > 0.0f ? s.a.temperature : 1.0f;
    const float *row = s.a.rows + at;
    float *probability = s.a.probability + at;
    float sum = 0.0f;
    for (int i = segment * DF_SEGMENT; i < segment_end(segment, s.a.width); i++) {
        const float p = df_exp((row[i] - max) / temperature);
        probability[i] = p;
        sum += p;
    }
    s.sums[blockIdx.y * static_cast<size_t>(s.segments) + static_cast<size_t>(segment)] = sum + 0.0f;
}

/* The tree over a row's segment sums, in place; its value ends in sums[0]. */
__global__ void __launch_bounds__(FOLD_THREADS) fold_kernel(slots s) {
    float *sums = s.sums + blockIdx.x * static_cast<size_t>(s.segments);
    for (int step = 1; step < s.segments; step *= 2) {
        for (int64_t i = static_cast<int64_t>(2 * step) * threadIdx.x; i + step < s.segments;
             i += static_cast<int64_t>(2 * step) * FOLD_THREADS)
            sums[i] += sums[i + step];
        __syncthreads();
    }
}

/* probability /= total, and the mass of each segment where a draw follows. */
__global__ void __launch_bounds__(THREADS) divide_kernel(slots s) {
    const int segment = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
    if (segment >= s.segments) return;
    const float total = s.sums[blockIdx.y * static_cast<size_t>(s.segments)];
    float *probability = s.a.probability + blockIdx.y * static_cast<size_t>(s.a.width);
    double mass = 0.0;
    for (int i = segment * DF_SEGMENT; i < segment_end(segment, s.a.width); i++) {
        probability[i] /= total;
        mass += static_cast<double>(probability[i]);
    }
    if (s.mass != nullptr) s.mass[blockIdx.y * static_cast<size_t>(s.segments) + static_cast<size_t>(segment)] = mass;
}

__global__ void share_kernel(slots s) {
    const int slot = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (slot >= s.a.n) return;
    df_choice *choice = &s.a.choice[slot];
    choice->share = s.a.probability[static_cast<size_t>(slot) * static_cast<size_t>(s.a.width) +
                                    static_cast<size_t>(choice->index)];
}

/* The first column whose cumulative mass exceeds u times the whole; a row at fault is left alone. One thread: the sums
 * run in order. */
__global__ void draw_kernel(slots s, int slot, float u) {
    df_choice *choice = &s.a.choice[slot];
    const float *probability = s.a.probability + static_cast<size_t>(slot) * static_cast<size_t>(s.a.width);
    const double *mass = s.mass + static_cast<size_t>(slot) * static_cast<size_t>(s.segments);
    if (choice->fault != DF_FAULT_NONE) return;
    double total = 0.0, before = 0.0;
    for (int i = 0; i < s.segments; i++) total += mass[i];
    const double goal = static_cast<double>(u) * total;
    for (int segment = 0; segment < s.segments; segment++) {
        if (before + mass[segment] > goal) {
            double inside = 0.0;
            for (int i = segment * DF_SEGMENT; i < segment_end(segment, s.a.width); i++) {
                inside += static_cast<double>(probability[i]);
                if (!(before + inside > goal)) continue;
                name_token(s.a, choice, i);
                return;
            }
        }
        before += mass[segment];
    }
    choice->fault = DF_FAULT_DRAW;
    choice->value = u;
}

dflash_status make_distribution(dflash_engine *engine, slots *s, dflash_error *err) {
    const cudaStream_t stream = df_cuda_stream(engine);
    const unsigned rows = static_cast<unsigned>(s->a.n);
    const size_t sums = static_cast<size_t>(s->a.n) * static_cast<size_t>(s->segments);
    const dim3 grid(df_cuda_blocks(static_cast<size_t>(s->segments), THREADS), rows);
    s->sums = df_cuda_take<float>(engine, sums, err);
    if (s->sums == nullptr) return DFLASH_ERR_MEMORY;
    if (s->a.temperature > 0.0f) {
        s->mass = df_cuda_take<double>(engine, sums, err);
        if (s->mass == nullptr) return DFLASH_ERR_MEMORY;
    }
    weights_kernel<<<grid, THREADS, 0, stream>>>(*s);
    TRY(df_cuda_launched("softmax weights", err));
    fold_kernel<<<rows, FOLD_THREADS, 0, stream>>>(*s);
    TRY(df_cuda_launched("softmax sum", err));
    divide_kernel<<<grid, THREADS, 0, stream>>>(*s);
    return df_cuda_launched("softmax division", err);
}

dflash_status draw(dflash_engine *engine, const slots &s, dflash_error *err) {
    for (int slot = 0; slot < s.a.n; slot++) {
        draw_kernel<<<1, 1, 0, df_cuda_stream(engine)>>>(s, slot, s.a.uniform[s.a.first_slot + slot]);
        TRY(df_cuda_launched("draw", err));
    }
    return DFLASH_OK;
}

} /* namespace */

extern "C" dflash_status df_cuda_choose(dflash_engine *engine, const df_choose_args *args, dflash_error *err) {
    const bool sampled = args->temperature > 0.0f;
    slots s = {*args, (args->width + DF_SEGMENT - 1) / DF_SEGMENT, nullptr, nullptr};
    best_kernel<<<static_cast<unsigned>(args->n), DF_TOPK_THREADS, 0, df_cuda_stream(engine)>>>(*args);
    TRY(df_cuda_launched("argmax", err));
    if (!sampled && !args->share) return DFLASH_OK;
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    TRY(make_distribution(engine, &s, err));
    if (sampled) TRY(draw(engine, s, err));
    share_kernel<<<df_cuda_blocks(static_cast<size_t>(args->n), 32), 32, 0, df_cuda_stream(engine)>>>(s);
    df_arena_rewind(&engine->arena, mark); /* whoever takes this memory next comes later on the stream */
    return df_cuda_launched("share", err);
}
