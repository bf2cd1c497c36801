/* round_variants.c - see round_variants.h. Each variant fills a cache in its own way; rounds.c drafts from it and
 * compares. */
#include "judge/round_variants.h"

#include "common/error.h"
#include "run/hosted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One variant in progress. */
typedef struct course {
    dflash_draft *draft;
    const dflash_config *c;
    dp_round_input input;
    int chunk;
    dflash_kv *kv; /* owned */
    int least;     /* rows that it must hold at the end */
    bool wrong;    /* the cache said something of itself that is not so */
    dflash_error *err;
} course;

/* Fills a->kv with the context of a->input. */
typedef dflash_status (*fill_fn)(course *a);

struct dp_variant {
    const char *name;
    fill_fn fill; /* NULL: no cache, dflash_forward */
    int chunk;    /* rows per call of ingestion; 0: the whole context */
    bool sliding; /* only where every layer slides */
    bool floor;   /* over the last half of the context alone */
    bool twice;   /* drafts once more without an observer on the host too, where that runs the same program */
};

/* The largest window; 0 when some layer has none and sees every row. */
static int largest_window(const dflash_config *c) {
    int largest = 0;
    for (int i = 0; i < c->n_layers; i++) {
        if (c->layer[i].window == 0) return 0;
        if (c->layer[i].window > largest) largest = c->layer[i].window;
    }
    return largest;
}

static int least_of(int a, int b) { return a < b ? a : b; }

/* Rows that an ingest or a block takes as the `count`-th after the context, of values that are none of the context's.
 */
static dflash_status stray(const course *a, int after, int count, float **rows, int32_t **pos) {
    const size_t values = (size_t)count * (size_t)a->c->hidden;
    const int32_t last = a->input.pos[a->input.context + a->c->block - 1];
    *rows = malloc(values * sizeof **rows);
    *pos = malloc((size_t)count * sizeof **pos);
    if (*rows == NULL || *pos == NULL) return df_fail_memory(a->err, "rows beyond the context", values * sizeof **rows);
    for (size_t i = 0; i < values; i++) (*rows)[i] = (float)(1 + (int)(i % 7)) * (i % 2 == 0 ? 0.25f : -0.25f);
    for (int i = 0; i < count; i++) (*pos)[i] = last + 1 + after + i;
    return DFLASH_OK;
}

static dflash_status create(course *a, int capacity) {
    TRY(dflash_kv_create(a->draft, capacity, &a->kv, a->err));
    a->wrong =
        a->wrong || dflash_kv_capacity(a->kv) != capacity || dflash_kv_len(a->kv) != 0 || dflash_kv_floor(a->kv) != 0;
    return DFLASH_OK;
}

/* Rows [from, to) of the context, a->chunk to a call. */
static dflash_status ingest(course *a, int from, int to) {
    for (int row = from; row < to; row += a->chunk)
        TRY(dp_ingest_ctx(a->draft, a->kv, a->input.features + (size_t)row * (size_t)a->c->hidden, a->input.pos + row,
                          least_of(a->chunk, to - row), a->err));
    return DFLASH_OK;
}

/* `count` stray rows into the cache, or one stray block over it, `after` positions behind the block to come. */
static dflash_status ingest_stray(course *a, int after, int count) {
    float *rows;
    int32_t *pos;
    dflash_status status = stray(a, after, count, &rows, &pos);
    if (status == DFLASH_OK) status = dp_ingest_ctx(a->draft, a->kv, rows, pos, count, a->err);
    free(rows);
    free(pos);
    return status;
}

static dflash_status draft_stray(course *a, int after) {
    float *rows, *out = malloc((size_t)a->c->block * (size_t)a->c->hidden * sizeof *out);
    int32_t *pos;
    dflash_status status = stray(a, after, a->c->block, &rows, &pos);
    if (status == DFLASH_OK && out == NULL) status = df_fail_memory(a->err, "a stray block", 0);
    if (status == DFLASH_OK) status = dp_forward_round(a->draft, a->kv, rows, pos, out, a->err);
    free(rows);
    free(pos);
    free(out);
    return status;
}

/* ---- The variants ---- */

static dflash_status fill_plain(course *a) {
    TRY(create(a, a->input.context + a->c->block));
    return ingest(a, 0, a->input.context);
}

static dflash_status ingest_taps(course *a) {
    const size_t width = (size_t)a->c->n_taps * (size_t)a->c->hidden;
    for (int row = 0; row < a->input.context; row += a->chunk)
        TRY(dp_ingest_taps(a->draft, a->kv, a->input.taps + (size_t)row * width, a->input.pos + row,
                           least_of(a->chunk, a->input.context - row), a->err));
    return DFLASH_OK;
}

/* A cache that was used and cleared, then filled from the taps themselves. */
static dflash_status fill_taps(course *a) {
    TRY(create(a, a->input.context + a->c->block));
    TRY(ingest(a, 0, a->input.context));
    dflash_kv_clear(a->kv);
    return ingest_taps(a);
}

/* All that queries at the end can see, through bytes, into a cache that held something else. */
static dflash_status fill_tail(course *a) {
    const int window = largest_window(a->c), context = a->input.context;
    a->least = window > 1 ? least_of(context, window - 1) : context;
    dflash_kv *from = NULL;
    dflash_kv_blob blob = {.data = NULL};
    TRY(fill_plain(a));
    from = a->kv;
    a->kv = NULL;
    dflash_status status = dflash_kv_export_tail(from, a->least, &blob, a->err);
    dflash_kv_destroy(from);
    if (status == DFLASH_OK) status = create(a, context + a->c->block);
    if (status == DFLASH_OK) status = ingest_stray(a, 0, 1);
    if (status == DFLASH_OK) status = dflash_kv_import_tail(a->kv, &blob, a->err);
    dflash_kv_blob_free(&blob);
    return status;
}

/* The context before a->input does not exist, and no row of it is taken. */
static dflash_status fill_floor(course *a) {
    const int32_t floor = a->input.pos[0], before = floor - 1;
    dflash_error refusal;
    TRY(create(a, a->input.context + a->c->block));
    TRY(dflash_kv_set_floor(a->kv, floor, a->err));
    a->wrong = a->wrong || dflash_kv_floor(a->kv) != floor ||
               (floor > 0 && dp_ingest_ctx(a->draft, a->kv, a->input.features, &before, 1, &refusal) == DFLASH_OK);
    TRY(ingest(a, 0, a->input.context));
    a->wrong = a->wrong || dflash_kv_floor(a->kv) != floor;
    return DFLASH_OK;
}

/* A pin, two blocks more, a draft behind them, and back. Where old rows may go, there is room for them only if some
 * do, and without the pin all but the last window + B would. */
static dflash_status fill_pin(course *a) {
    const int window = largest_window(a->c), block = a->c->block, context = a->input.context;
    const int spare = window > 0 && context > window + block;
    a->least = context - (spare ? context - window - block : 0);
    TRY(create(a, context + 3 * block - spare));
    TRY(ingest(a, 0, context));
    const int32_t next = a->input.pos[context + block - 1] + 1; /* of the first stray row */
    TRY(dflash_kv_pin(a->kv, a->err));
    TRY(ingest_stray(a, 0, block));
    TRY(ingest_stray(a, block, block));
    TRY(draft_stray(a, 2 * block));
    TRY(dflash_kv_truncate_at(a->kv, next, a->err));
    dflash_kv_unpin(a->kv);
    TRY(dflash_kv_pin(a->kv, a->err)); /* there is one pin, so this asks whether it was lifted */
    dflash_kv_unpin(a->kv);
    return DFLASH_OK;
}

/* A block that is rejected whole, and the last row of the context with it, which then comes again. */
static dflash_status fill_rollback(course *a) {
    const int block = a->c->block, context = a->input.context;
    TRY(create(a, context + 3 * block));
    TRY(ingest(a, 0, context));
    TRY(draft_stray(a, 0));
    TRY(ingest_stray(a, 0, block));
    TRY(draft_stray(a, block));
    TRY(dflash_kv_truncate(a->kv, dflash_kv_len(a->kv) - block - 1, a->err));
    return ingest(a, context - 1, context);
}

/* The smallest capacity that never refuses, and the whole context in one call: what would be dropped at once is not
 * even computed. */
static dflash_status create_small(course *a) {
    const int keep = largest_window(a->c) + a->c->block;
    a->least = least_of(a->input.context, keep);
    return create(a, keep + a->c->block);
}

static dflash_status fill_skip(course *a) {
    TRY(create_small(a));
    return ingest(a, 0, a->input.context);
}

static dflash_status fill_skip_taps(course *a) {
    TRY(create_small(a));
    return ingest_taps(a);
}

/* The same a few rows to a call, so that rows must go; drafts in between land where the next rows do. */
static dflash_status fill_ring(course *a) {
    const int context = a->input.context;
    TRY(create_small(a));
    for (int row = 0; row < context; row += a->chunk) {
        TRY(ingest(a, row, least_of(row + a->chunk, context)));
        TRY(draft_stray(a, 0));
    }
    return DFLASH_OK;
}

static const dp_variant variants[] = {
    {.name = "round.all", .fill = fill_plain, .twice = true},
    {.name = "round.chunk1", .fill = fill_plain, .chunk = 1},
    {.name = "round.chunk7", .fill = fill_plain, .chunk = 7},
    {.name = "round.taps", .fill = fill_taps, .chunk = 5},
    {.name = "round.tail", .fill = fill_tail},
    {.name = "round.floor", .fill = fill_floor, .floor = true},
    {.name = "round.pin", .fill = fill_pin},
    {.name = "round.rollback", .fill = fill_rollback},
    {.name = "round.ring", .fill = fill_ring, .chunk = 3, .sliding = true},
    {.name = "round.skip", .fill = fill_skip, .sliding = true},
    {.name = "round.skip.taps", .fill = fill_skip_taps, .sliding = true},
    {.name = "forward"},
};
enum { VARIANTS = sizeof variants / sizeof *variants };
_Static_assert((int)VARIANTS <= (int)DP_MOST_VARIANTS, "a result holds every variant");

const dp_variant *dp_variant_at(int index) { return index >= 0 && index < VARIANTS ? &variants[index] : NULL; }
const char *dp_variant_name(const dp_variant *variant) { return variant->name; }
bool dp_variant_exists(const dp_variant *variant, const dflash_config *config) {
    return !variant->sliding || largest_window(config) > 0;
}

/* ---- Running one ---- */

/* forward_block over the rows of an input. */
static dflash_status record_block(dflash_draft *draft, const dp_round_input *input, dp_recording *out,
                                  dflash_error *err) {
    const dflash_config *c = dflash_draft_config(draft);
    float *result = malloc((size_t)c->block * (size_t)c->hidden * sizeof *result);
    if (result == NULL) return df_fail_memory(err, "a block's result", 0);
    dflash_draft_observe(draft, dp_recording_observe, out);
    dflash_status status =
        dp_forward_block(draft, input->features, input->noise, input->pos, input->context, result, err);
    dflash_draft_observe(draft, NULL, NULL);
    free(result);
    return status == DFLASH_OK ? dp_recording_status(out, err) : status;
}

static dflash_status run_forward(dflash_draft *draft, const dp_round_input *input, const dp_recording *block,
                                 dp_variant_result *out, dflash_error *err) {
    const dflash_config *c = dflash_draft_config(draft);
    dp_recording whole = {.stage = NULL};
    float *result = malloc((size_t)c->block * (size_t)c->hidden * sizeof *result);
    if (result == NULL) return df_fail_memory(err, "a forward's result", 0);
    dflash_draft_observe(draft, dp_recording_observe, &whole);
    dflash_status status = dp_forward(draft, input->taps, input->noise, input->pos, input->context, result, err);
    dflash_draft_observe(draft, NULL, NULL);
    if (status == DFLASH_OK) status = dp_recording_status(&whole, err);
    if (status == DFLASH_OK) dp_compare_runs(draft, block, &whole, input->context, result, out);
    dp_recording_release(&whole);
    free(result);
    return status;
}

dflash_status dp_variant_run(const dp_variant *variant, dflash_draft *draft, const dp_round_input *input,
                             const dp_recording *block, dp_variant_result *out, dflash_error *err) {
    course a = {.draft = draft, .c = dflash_draft_config(draft), .input = *input, .err = err};
    dp_recording shorter = {.stage = NULL};
    dflash_status status = DFLASH_OK;
    if (variant->floor) {
        const int left_out = input->context / 2;
        a.input.features += (size_t)left_out * (size_t)a.c->hidden;
        a.input.pos += left_out;
        a.input.context -= left_out;
        status = record_block(draft, &a.input, &shorter, err);
        block = &shorter;
    }
    a.chunk = variant->chunk > 0 ? variant->chunk : a.input.context;
    a.least = a.input.context;
    dp_variant_begin(out, variant->name, a.chunk);
    if (status == DFLASH_OK)
        status = variant->fill != NULL ? variant->fill(&a) : run_forward(draft, input, block, out, err);
    if (status == DFLASH_OK && a.kv != NULL && dflash_kv_len(a.kv) > 0 && dflash_kv_len(a.kv) <= a.input.context)
        a.wrong = a.wrong || dflash_kv_floor(a.kv) != a.input.pos[a.input.context - dflash_kv_len(a.kv)];
    if (status == DFLASH_OK && a.wrong) dp_variant_lacks(out, "kv.k");
    if (status == DFLASH_OK && variant->fill != NULL)
        status = dp_compare_round(draft, a.kv, &a.input, block, a.least,
                                  variant->twice || !dflash_engine_on_host(dflash_draft_engine(draft)), out, err);
    dp_recording_release(&shorter);
    dflash_kv_destroy(a.kv);
    return status;
}
