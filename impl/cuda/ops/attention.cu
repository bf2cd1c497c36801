/*
 * attention.cu - softmax attention of a block over its visible keys, in the canonical order.
 *
 * Four kernels, so that a block of 16 rows fills a device: scores, tile by tile; softmax, query by query; weighted
 * sums, segment of absolute positions by segment; and the tree over the segments. Queries that share a key/value head
 * lie side by side, 64 to a tile. Every sum runs in the order of canon.h, and a key that is not visible takes no part.
 */
#include "cuda/common/cuda_ops.h"

#include "common/canon.h"
#include "common/mathfn.h"

namespace {

enum {
    TILE = 64, /* queries, keys or channels of a tile */
    THREADS = 256,
    SIDE = 16,           /* threads along an edge of a tile */
    EACH = TILE / SIDE,  /* values of a thread along it */
    MOST_SEGMENTS = 255, /* of a head: the scores keep eight levels of the tree */
    LEVELS = 8
};

struct problem {
    df_attention_args a;
    int group;   /* query heads a key/value head */
    int queries; /* of a key/value head: group * rows */
    float scale;
    float *p;           /* [nkv, queries, keys] scores, then unnormalised weights */
    float *sums;        /* [nkv, queries, segments] of the softmax */
    float *denominator; /* [nkv, queries] */
    int2 *range;        /* [nkv, queries] visible keys [x, y) */
    float *part;        /* [nkv, queries, segments, hd] */
};

/* Query `q` of a key/value head: where its head starts in q and out. */
__device__ size_t query_at(const problem &p, int kv_head, int q) {
    const size_t head = static_cast<size_t>(kv_head * p.group + q / p.a.rows), row = static_cast<size_t>(q % p.a.rows);
    return (row * static_cast<size_t>(p.a.n_heads) + head) * static_cast<size_t>(p.a.head_dim);
}

__device__ const float *key_at(const problem &p, const float *keys, int kv_head, int key) {
    return keys + (static_cast<size_t>(key) * static_cast<size_t>(p.a.n_kv_heads) + static_cast<size_t>(kv_head)) *
                      static_cast<size_t>(p.a.head_dim);
}

/* ---- Scores: q k / sqrt(hd) ---- */

__global__ void __launch_bounds__(THREADS) scores_kernel(problem p) {
    __shared__ float q[TILE][TILE + 1], k[TILE][TILE + 1]; /* [row][channel of the segment] */
    const int kv_head = static_cast<int>(blockIdx.y), first_key = static_cast<int>(blockIdx.x) * TILE,
              first_query = static_cast<int>(blockIdx.z) * TILE;
    const int tx = static_cast<int>(threadIdx.x) % SIDE, ty = static_cast<int>(threadIdx.x) / SIDE;
    float slot[LEVELS][EACH][EACH];
    int depth = 0;
    for (int d = 0; d < p.a.head_dim; d += DF_SEGMENT) {
        const int length = p.a.head_dim - d < DF_SEGMENT ? p.a.head_dim - d : DF_SEGMENT;
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < TILE * DF_SEGMENT; i += THREADS) {
            const int row = i / DF_SEGMENT, c = i % DF_SEGMENT;
            const int query = first_query + row, key = first_key + row;
            q[row][c] = c < length && query < p.queries ? p.a.q[query_at(p, kv_head, query) + d + c] : 0.0f;
            k[row][c] = c < length && key < p.a.keys ? key_at(p, p.a.k, kv_head, key)[d + c] : 0.0f;
        }
        __syncthreads();
        float sum[EACH][EACH] = {};
        for (int c = 0; c < length; c++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++) sum[i][j] = fmaf(k[tx + j * SIDE][c], q[ty + i * SIDE][c], sum[i][j]);
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) {
                float total = sum[i][j] + 0.0f;
                int at = depth;
                for (unsigned s = static_cast<unsigned>(d / DF_SEGMENT); (s & 1u) != 0; s >>= 1)
                    total = slot[--at][i][j] + total;
                slot[at][i][j] = total;
            }
        for (unsigned s = static_cast<unsigned>(d / DF_SEGMENT); (s & 1u) != 0; s >>= 1) depth--;
        depth++;
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            const int query = first_query + ty + i * SIDE, key = first_key + tx + j * SIDE;
            if (query >= p.queries || key >= p.a.keys) continue;
            float total = slot[depth - 1][i][j];
            for (int s = depth - 2; s >= 0; s--) total = slot[s][i][j] + total;
            p.p[static_cast<size_t>(kv_head * p.queries + query) * static_cast<size_t>(p.a.keys) + key] =
                total * p.scale;
        }
}

/* ---- Softmax ---- */

/* The first key row whose position is above `limit`. */
__device__ int first_above(const int32_t *pos, int keys, int64_t limit) {
    int low = 0, high = keys;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (pos[middle] > limit)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Keys j of the query at position x with x - j < W and, causal, j <= x, or, with a window, j - x < W. */
__device__ int2 visible_range(const problem &p, int q) {
    const int64_t x = p.a.map.pos[p.a.keys - p.a.rows + q % p.a.rows];
    int2 range = make_int2(0, p.a.keys);
    if (p.a.window > 0) range.x = first_above(p.a.map.pos, p.a.keys, x - p.a.window);
    if (p.a.causal)
        range.y = first_above(p.a.map.pos, p.a.keys, x);
    else if (p.a.window > 0)
        range.y = first_above(p.a.map.pos, p.a.keys, x + p.a.window - 1);
    return range;
}

__device__ float larger(float a, float b) { return a > b ? a : b; } /* a NaN in a is passed over, as on the CPU */

__global__ void __launch_bounds__(THREADS) softmax_kernel(problem p) {
    __shared__ int2 range;
    __shared__ float warp_max[THREADS / 32];
    const size_t query = blockIdx.x;
    const int thread = static_cast<int>(threadIdx.x), segments = p.a.map.segments;
    float *const row = p.p + query * static_cast<size_t>(p.a.keys);
    float *const sums = p.sums + query * static_cast<size_t>(segments);
    if (thread == 0) {
        range = visible_range(p, static_cast<int>(query % static_cast<size_t>(p.queries)));
        p.range[query] = range;
    }
    __syncthreads();
    float max = -INFINITY;
    for (int key = range.x + thread; key < range.y; key += THREADS) max = larger(row[key], max);
    for (int offset = 16; offset > 0; offset /= 2) max = larger(__shfl_xor_sync(~0u, max, offset), max);
    if (thread % 32 == 0) warp_max[thread / 32] = max;
    __syncthreads();
    max = warp_max[0];
    for (int i = 1; i < THREADS / 32; i++) max = larger(warp_max[i], max);
    for (int key = range.x + thread; key < range.y; key += THREADS) row[key] = df_exp(row[key] - max);
    __syncthreads();
    for (int s = thread; s < segments; s += THREADS) {
        const int begin = p.a.map.segment_first[s], end = p.a.map.segment_first[s + 1];
        float sum = 0.0f;
        for (int key = begin > range.x ? begin : range.x; key < end && key < range.y; key++) sum += row[key];
        sums[s] = sum;
    }
    __syncthreads();
    if (thread != 0) return;
    df_sum tree;
    df_tree_reset(&tree.tree);
    for (int s = 0; s < segments; s++)
        df_sum_push(&tree, static_cast<unsigned>(p.a.map.pos[p.a.map.segment_first[s]] / DF_SEGMENT), sums[s]);
    p.denominator[query] = df_sum_total(&tree);
}

/* ---- Weighted sums of the values ---- */

__global__ void __launch_bounds__(THREADS) values_kernel(problem p) {
    __shared__ float weight[TILE][DF_SEGMENT + 1], value[DF_SEGMENT][TILE];
    const int segment = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(blockIdx.y),
              first_query = static_cast<int>(blockIdx.z) * TILE;
    const int tx = static_cast<int>(threadIdx.x) % SIDE, ty = static_cast<int>(threadIdx.x) / SIDE;
    const int begin = p.a.map.segment_first[segment], keys = p.a.map.segment_first[segment + 1] - begin;
    int low[EACH], high[EACH]; /* visible keys of the thread's queries, counted from the segment's first */
    for (int i = 0; i < EACH; i++) {
        const int query = first_query + ty + i * SIDE;
        const int2 range = query < p.queries ? p.range[kv_head * p.queries + query] : make_int2(0, 0);
        low[i] = range.x - begin;
        high[i] = range.y - begin;
    }
    for (int i = static_cast<int>(threadIdx.x); i < TILE * DF_SEGMENT; i += THREADS) {
        const int query = first_query + i / DF_SEGMENT, key = i % DF_SEGMENT;
        weight[i / DF_SEGMENT][key] =
            query < p.queries && key < keys
                ? p.p[static_cast<size_t>(kv_head * p.queries + query) * static_cast<size_t>(p.a.keys) + begin + key]
                : 0.0f;
    }
    for (int d = 0; d < p.a.head_dim; d += TILE) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < DF_SEGMENT * TILE; i += THREADS) {
            const int key = i / TILE, c = i % TILE;
            value[key][c] = key < keys && d + c < p.a.head_dim ? key_at(p, p.a.v, kv_head, begin + key)[d + c] : 0.0f;
        }
        __syncthreads();
        float sum[EACH][EACH] = {};
        for (int key = 0; key < keys; key++)
            for (int i = 0; i < EACH; i++) {
                const bool visible = key >= low[i] && key < high[i];
                const float w = weight[ty + i * SIDE][key];
                for (int j = 0; j < EACH; j++)
                    sum[i][j] = visible ? fmaf(w, value[key][tx + j * SIDE], sum[i][j]) : sum[i][j];
            }
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) {
                const int query = first_query + ty + i * SIDE, c = d + tx + j * SIDE;
                if (query >= p.queries || c >= p.a.head_dim) continue;
                const size_t at =
                    static_cast<size_t>(kv_head * p.queries + query) * static_cast<size_t>(p.a.map.segments) +
                    static_cast<size_t>(segment);
                p.part[at * static_cast<size_t>(p.a.head_dim) + static_cast<size_t>(c)] = sum[i][j];
            }
    }
}

__global__ void __launch_bounds__(THREADS) combine_kernel(problem p) {
    const int query = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(blockIdx.y), hd = p.a.head_dim;
    const size_t at = static_cast<size_t>(kv_head * p.queries + query);
    for (int d = static_cast<int>(threadIdx.x); d < hd; d += static_cast<int>(blockDim.x)) {
        const float *part = p.part + at * static_cast<size_t>(p.a.map.segments) * static_cast<size_t>(hd) + d;
        df_sum tree;
        df_tree_reset(&tree.tree);
        for (int s = 0; s < p.a.map.segments; s++)
            df_sum_push(&tree, static_cast<unsigned>(p.a.map.pos[p.a.map.segment_first[s]] / DF_SEGMENT),
                        part[static_cast<size_t>(s) * static_cast<size_t>(hd)]);
        p.a.out[query_at(p, kv_head, query) + d] = df_sum_total(&tree) / p.denominator[at];
    }
}

/* Room for what goes from kernel to kernel. */
dflash_status take_scratch(dflash_engine *engine, problem *p, dflash_error *err) {
    const size_t queries = static_cast<size_t>(p->queries) * static_cast<size_t>(p->a.n_kv_heads),
                 segments = static_cast<size_t>(p->a.map.segments);
    p->p = df_cuda_take<float>(engine, queries * static_cast<size_t>(p->a.keys), err);
    if (p->p == nullptr) return DFLASH_ERR_MEMORY;
    p->sums = df_cuda_take<float>(engine, queries * segments, err);
    if (p->sums == nullptr) return DFLASH_ERR_MEMORY;
    p->denominator = df_cuda_take<float>(engine, queries, err);
    if (p->denominator == nullptr) return DFLASH_ERR_MEMORY;
    p->range = df_cuda_take<int2>(engine, queries, err);
    if (p->range == nullptr) return DFLASH_ERR_MEMORY;
    p->part = df_cuda_take<float>(engine, queries * segments * static_cast<size_t>(p->a.head_dim), err);
    return p->part != nullptr ? DFLASH_OK : DFLASH_ERR_MEMORY;
}

dflash_status launch(const problem &p, cudaStream_t stream, dflash_error *err) {
    const unsigned heads = static_cast<unsigned>(p.a.n_kv_heads),
                   tiles = df_cuda_blocks(static_cast<size_t>(p.queries), TILE),
                   queries = static_cast<unsigned>(p.queries), segments = static_cast<unsigned>(p.a.map.segments);
    const dim3 score_grid(df_cuda_blocks(static_cast<size_t>(p.a.keys), TILE), heads, tiles);
    scores_kernel<<<score_grid, THREADS, 0, stream>>>(p);
    TRY(df_cuda_launched("attention scores", err));
    softmax_kernel<<<queries * heads, THREADS, 0, stream>>>(p);
    TRY(df_cuda_launched("attention softmax", err));
    values_kernel<<<dim3(segments, heads, tiles), THREADS, 0, stream>>>(p);
    TRY(df_cuda_launched("attention values", err));
    combine_kernel<<<dim3(queries, heads), p.a.head_dim <= 128 ? 128 : THREADS, 0, stream>>>(p);
    return df_cuda_launched("attention tree", err);
}

} /* namespace */

extern "C" dflash_status df_cuda_attention(dflash_engine *engine, const df_attention_args *args, dflash_error *err) {
    problem p = {};
    if (args->head_dim > MOST_SEGMENTS * DF_SEGMENT)
        return df_fail(err, DFLASH_ERR_REFUSED, "config.head_dim.large",
                       "head_dim is %d: the CUDA attention handles at most %d channels a head.", args->head_dim,
                       MOST_SEGMENTS * DF_SEGMENT);
    p.a = *args;
    p.group = args->n_heads / args->n_kv_heads;
    p.queries = p.group * args->rows;
    p.scale = 1.0f / sqrtf(static_cast<float>(args->head_dim));
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    TRY(take_scratch(engine, &p, err));
    TRY(launch(p, df_cuda_stream(engine), err));
    df_arena_rewind(&engine->arena, mark); /* whoever takes this memory next comes later on the stream */
    return DFLASH_OK;
}
