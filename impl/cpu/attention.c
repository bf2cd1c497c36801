/*
 * attention.c - softmax attention of a block over its visible keys, in the canonical order.
 *
 * The query heads that share a key/value head are laid side by side, sixteen queries to a tile. A query's visible keys
 * form one interval of the key rows, because positions increase; keys outside it are skipped, not multiplied by zero,
 * so whatever they hold stays out. Scores are full products over the head; the softmax's sum and the weighted sum of
 * values run over keys in segments of absolute position.
 */
#include "cpu/cpu_ops.h"

#include "cpu/tile_dot.h"

typedef struct attention_job {
    const df_attention_args *args;
    const int32_t *low, *high; /* [rows] visible key rows [low, high) of each query */
    int group;                 /* query heads a key/value head */
    int tiles;                 /* tiles a key/value head */
    float *scratch;            /* per worker: packed queries, spare keys, weights of all keys */
    size_t scratch_size;
} attention_job;

/* One tile at work. */
typedef struct tile {
    const attention_job *job;
    int kv_head, first; /* first of its query rows among group * rows */
    int32_t low[DF_LANES], high[DF_LANES];
    int begin, end;               /* keys that any lane sees */
    int common_begin, common_end; /* keys that every lane sees */
    float *q;                     /* [hd, DF_LANES] */
    float *spare;                 /* [DF_TILE_OUTPUTS, hd] */
    float *p;                     /* [keys, DF_LANES] scores, then unnormalised weights */
} tile;

/* Lanes past the last query repeat the tile's first, so that they change neither range; they are not stored. */
static int tile_query(const tile *t, int lane) {
    const int queries = t->job->group * t->job->args->rows;
    return t->first + lane < queries ? t->first + lane : t->first;
}

static int query_head(const tile *t, int query) { return t->kv_head * t->job->group + query / t->job->args->rows; }
static int query_row(const tile *t, int query) { return query % t->job->args->rows; }

static void tile_begin(tile *t) {
    const df_attention_args *a = t->job->args;
    t->begin = t->common_begin = 0;
    t->end = t->common_end = a->keys;
    for (int lane = 0; lane < DF_LANES; lane++) {
        const int query = tile_query(t, lane), row = query_row(t, query);
        const float *q = a->q + ((size_t)row * (size_t)a->n_heads + (size_t)query_head(t, query)) * (size_t)a->head_dim;
        for (int d = 0; d < a->head_dim; d++) t->q[d * DF_LANES + lane] = q[d];
        t->low[lane] = t->job->low[row];
        t->high[lane] = t->job->high[row];
        if (lane == 0 || t->low[lane] < t->begin) t->begin = t->low[lane];
        if (lane == 0 || t->high[lane] > t->end) t->end = t->high[lane];
        if (t->low[lane] > t->common_begin) t->common_begin = t->low[lane];
        if (t->high[lane] < t->common_end) t->common_end = t->high[lane];
    }
}

static bool all_lanes_see(const tile *t, int first, int last) {
    return first >= t->common_begin && last <= t->common_end;
}

/* p[key][lane] = q k / sqrt(hd), for keys [begin, end). */
static void tile_scores(tile *t) {
    const df_attention_args *a = t->job->args;
    const size_t stride = (size_t)a->n_kv_heads * (size_t)a->head_dim;
    const v16 scale = v16_set(1.0f / sqrtf((float)a->head_dim));
    df_tile_sum sum;
    for (int key = t->begin; key < t->end; key += DF_TILE_OUTPUTS) {
        const float *k = a->k + (size_t)key * stride + (size_t)t->kv_head * (size_t)a->head_dim;
        size_t key_stride = stride;
        const int keys = t->end - key < DF_TILE_OUTPUTS ? t->end - key : DF_TILE_OUTPUTS;
        if (keys <
            DF_TILE_OUTPUTS) { /* the kernel reads eight keys: the missing ones are zeros, not memory past the end */
            memset(t->spare, 0, DF_TILE_OUTPUTS * (size_t)a->head_dim * sizeof(float));
            for (int i = 0; i < keys; i++)
                memcpy(t->spare + i * a->head_dim, k + (size_t)i * stride, (size_t)a->head_dim * sizeof(float));
            k = t->spare;
            key_stride = (size_t)a->head_dim;
        }
        df_tree_reset(&sum.tree);
        for (int d = 0; d < a->head_dim; d += DF_SEGMENT) {
            const int length = a->head_dim - d < DF_SEGMENT ? a->head_dim - d : DF_SEGMENT;
            v16 partial[DF_TILE_OUTPUTS];
            df_tile_zero(partial);
            df_tile_accumulate(k + d, key_stride, t->q + d * DF_LANES, length, DF_TILE_IN_ORDER, partial);
            df_tile_push_next(&sum, (unsigned)(d / DF_SEGMENT), partial);
        }
        for (int i = 0; i < keys; i++)
            v16_store(t->p + (size_t)(key + i) * DF_LANES, v16_mul(df_tile_total(&sum, i), scale));
    }
}

/* The key after the segment of absolute position that `key` lies in. */
static int segment_end(const tile *t, int key) {
    const int32_t *pos = t->job->args->k_pos;
    const int32_t segment = pos[key] / DF_SEGMENT;
    int end = key + 1;
    while (end < t->end && pos[end] / DF_SEGMENT == segment) end++;
    return end;
}

/* p = exp(score - max) where visible and 0 elsewhere. Returns the sum of p by lane. */
static v16 tile_softmax(tile *t) {
    v16 max = v16_set(-INFINITY);
    for (int key = t->begin; key < t->end; key++) {
        const v16 score = v16_load(t->p + (size_t)key * DF_LANES);
        max = v16_select(v16_within(key, t->low, t->high), v16_max(score, max), max);
    }
    float lane_max[DF_LANES];
    v16_store(lane_max, max);
    df_tree tree;
    v16 slot[DF_TREE_SLOTS];
    df_tree_reset(&tree);
    for (int key = t->begin, next; key < t->end; key = next) {
        next = segment_end(t, key);
        const unsigned segment = (unsigned)(t->job->args->k_pos[key] / DF_SEGMENT);
        v16 sum = v16_zero();
        for (int j = key; j < next; j++) {
            float *p = t->p + (size_t)j * DF_LANES;
            for (int lane = 0; lane < DF_LANES; lane++) p[lane] = df_exp(p[lane] - lane_max[lane]);
            const v16 visible = v16_select(v16_within(j, t->low, t->high), v16_load(p), v16_zero());
            v16_store(p, visible);
            sum = v16_add(sum, visible);
        }
        int top = tree.depth - 1;
        for (int folds = df_tree_push(&tree, segment); folds > 0; folds--, top--)
            slot[top - 1] = v16_add(slot[top - 1], slot[top]);
        slot[tree.depth - 1] = sum;
    }
    v16 total = slot[tree.depth - 1];
    for (int i = tree.depth - 2; i >= 0; i--) total = v16_add(slot[i], total);
    return total;
}

/* Sums p v over keys [first, last), one segment, for eight channels that start at v. */
static void weigh_segment(const tile *t, const float *v, size_t stride, int first, int last, v16 sum[DF_TILE_OUTPUTS]) {
    for (int o = 0; o < DF_TILE_OUTPUTS; o++) sum[o] = v16_zero();
    if (all_lanes_see(t, first, last)) {
        v16 s[DF_TILE_OUTPUTS];
        for (int o = 0; o < DF_TILE_OUTPUTS; o++) s[o] = v16_zero();
        for (int j = first; j < last; j++) {
            const v16 p = v16_load(t->p + (size_t)j * DF_LANES);
            for (int o = 0; o < DF_TILE_OUTPUTS; o++)
                s[o] = v16_fma(p, v16_set(v[(size_t)j * stride + (size_t)o]), s[o]);
        }
        for (int o = 0; o < DF_TILE_OUTPUTS; o++) sum[o] = s[o];
        return;
    }
    for (int j = first; j < last; j++) {
        const v16 p = v16_load(t->p + (size_t)j * DF_LANES);
        const v16_mask seen = v16_within(j, t->low, t->high);
        for (int o = 0; o < DF_TILE_OUTPUTS; o++)
            sum[o] = v16_select(seen, v16_fma(p, v16_set(v[(size_t)j * stride + (size_t)o]), sum[o]), sum[o]);
    }
}

static void tile_values(tile *t, v16 denominator) {
    const df_attention_args *a = t->job->args;
    const size_t stride = (size_t)a->n_kv_heads * (size_t)a->head_dim;
    const int queries = t->job->group * a->rows;
    df_tile_sum sum;
    for (int d = 0; d < a->head_dim; d += DF_TILE_OUTPUTS) {
        /* A head whose size is no multiple of eight ends with a block that overlaps the one before: the same values are
         * computed again, and nothing past the head is read. */
        const int at = a->head_dim - d < DF_TILE_OUTPUTS ? a->head_dim - DF_TILE_OUTPUTS : d;
        const float *v = a->v + (size_t)t->kv_head * (size_t)a->head_dim + (size_t)at;
        df_tree_reset(&sum.tree);
        for (int key = t->begin, next; key < t->end; key = next) {
            next = segment_end(t, key);
            v16 partial[DF_TILE_OUTPUTS];
            weigh_segment(t, v, stride, key, next, partial);
            df_tile_push(&sum, (unsigned)(a->k_pos[key] / DF_SEGMENT), partial);
        }
        float value[DF_TILE_OUTPUTS][DF_LANES];
        for (int o = 0; o < DF_TILE_OUTPUTS; o++) v16_store(value[o], v16_div(df_tile_total(&sum, o), denominator));
        for (int lane = 0; lane < DF_LANES && t->first + lane < queries; lane++) {
            const int query = t->first + lane;
            float *out = a->out + ((size_t)query_row(t, query) * (size_t)a->n_heads + (size_t)query_head(t, query)) *
                                      (size_t)a->head_dim;
            for (int o = 0; o < DF_TILE_OUTPUTS; o++) out[at + o] = value[o][lane];
        }
    }
}

static void attention_task(void *context, int task, int worker) {
    const attention_job *job = context;
    tile t = {.job = job, .kv_head = task / job->tiles, .first = task % job->tiles * DF_LANES};
    t.q = job->scratch + (size_t)worker * job->scratch_size;
    t.spare = t.q + (size_t)job->args->head_dim * DF_LANES;
    t.p = t.spare + (size_t)job->args->head_dim * DF_TILE_OUTPUTS;
    tile_begin(&t);
    tile_scores(&t);
    tile_values(&t, tile_softmax(&t));
}

/* The visible interval of a query at position p: keys j with p - j < W (and j - p < W or j <= p). */
static void visible_range(const df_attention_args *a, int row, int32_t *low, int32_t *high) {
    const int64_t p = a->q_pos[row];
    int begin = 0, end = a->keys;
    if (a->window > 0)
        while (begin < end && p - a->k_pos[begin] >= a->window) begin++;
    const int64_t last = a->causal ? p : a->window > 0 ? p + a->window - 1 : INT64_MAX;
    while (end > begin && a->k_pos[end - 1] > last) end--;
    *low = begin;
    *high = end;
}

dflash_status DF_CPU(attention)(dflash_engine *engine, const df_attention_args *args, dflash_error *err) {
    const size_t worker_size = (size_t)args->head_dim * (DF_LANES + DF_TILE_OUTPUTS) + (size_t)args->keys * DF_LANES;
    const size_t padded = (worker_size + DF_LANES - 1) / DF_LANES * DF_LANES;
    const df_arena_mark mark = df_arena_get_mark(&engine->arena);
    float *scratch = df_arena_floats(&engine->arena, padded * (size_t)df_pool_threads(engine->pool), err);
    int32_t *ranges = (int32_t *)df_arena_floats(&engine->arena, 2 * (size_t)args->rows, err);
    if (scratch == NULL || ranges == NULL) return DFLASH_ERR_MEMORY;
    attention_job job = {.args = args,
                         .low = ranges,
                         .high = ranges + args->rows,
                         .group = args->n_heads / args->n_kv_heads,
                         .scratch = scratch,
                         .scratch_size = padded};
    job.tiles = (job.group * args->rows + DF_LANES - 1) / DF_LANES;
    for (int row = 0; row < args->rows; row++) visible_range(args, row, &ranges[row], &ranges[args->rows + row]);
    df_pool_run(engine->pool, attention_task, &job, args->n_kv_heads * job.tiles);
    df_arena_rewind(&engine->arena, mark);
    return DFLASH_OK;
}
