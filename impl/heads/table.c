/*
 * table.c - the target's vocabulary tables: the output head and the embedding, as the drafter uses them.
 *
 * A table is a matrix in its own width. Logits go through the same product as every projection, so a row's logits do
 * not depend on its companions.
 */
#include "heads/table.h"

#include "model/model.h"
#include "common/error.h"
#include "weights/head_find.h"
#include "model/observe.h"
#include "weights/safetensors_header.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- Making one ---- */

static dflash_status new_table(dflash_engine *engine, dflash_table **out, dflash_error *err) {
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return df_fail_memory(err, "a vocabulary table", sizeof **out);
    (*out)->engine = engine;
    (*out)->name = "";
    return DFLASH_OK;
}

static dflash_status parse_dtype(const char *dtype, df_dtype *out, dflash_error *err) {
    for (df_dtype d = DF_F32; d <= DF_BF16; d++)
        if (strcmp(dtype, df_dtype_name(d)) == 0) {
            *out = d;
            return DFLASH_OK;
        }
    return df_fail(err, DFLASH_ERR_ARGUMENT, "table.dtype",
                   "A vocabulary table has dtype \"BF16\", \"F16\" or \"F32\": found \"%.40s\".", dtype);
}

/* Copies the matrix to the engine's memory when that is a device's. */
static dflash_status place(dflash_table *table, dflash_error *err) {
    const df_memory *memory = &table->engine->memory;
    const size_t bytes = (size_t)table->matrix.out * (size_t)table->matrix.in * df_dtype_size(table->matrix.dtype);
    table->bytes = table->matrix.data;
    if (memory->host) return DFLASH_OK;
    TRY(memory->alloc(memory->owner, "a vocabulary table", bytes, &table->device, err));
    TRY(memory->upload(memory->owner, table->device, table->bytes, bytes, err));
    table->matrix.data = table->device;
    return DFLASH_OK;
}

dflash_status dflash_table_create(dflash_engine *engine, const char *dtype, int vocab, int hidden, const void *values,
                                  dflash_table **out, dflash_error *err) {
    df_dtype width = DF_F32;
    *out = NULL;
    dflash_status status = parse_dtype(dtype, &width, err);
    if (status != DFLASH_OK) return status;
    if (vocab < 1 || hidden < 1)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "table.shape",
                       "A vocabulary table has at least one row and one column: found [%d, %d].", vocab, hidden);
    dflash_table *table;
    status = new_table(engine, &table, err);
    if (status != DFLASH_OK) return status;
    const size_t bytes = (size_t)vocab * (size_t)hidden * df_dtype_size(width);
    table->owned = malloc(bytes);
    if (table->owned == NULL) {
        status = df_fail_memory(err, "a vocabulary table", bytes);
    } else {
        memcpy(table->owned, values, bytes);
        table->matrix = (df_matrix){.dtype = width, .out = vocab, .in = hidden, .data = table->owned};
        table->target_vocab = vocab;
        status = place(table, err);
    }
    if (status != DFLASH_OK) {
        dflash_table_destroy(table);
        return status;
    }
    *out = table;
    return DFLASH_OK;
}

static dflash_status find_tensor(const df_safetensors *file, const char *name, const df_tensor **out,
                                 dflash_error *err) {
    if (name == NULL) return df_head_find(file, out, err);
    *out = df_safetensors_find(file, name);
    if (*out != NULL) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "table.tensor.missing",
                   "%s holds no tensor \"%.200s\" among its %d. Correct the name, which is written as in the file.",
                   df_safetensors_path(file), name, df_safetensors_count(file));
}

static dflash_status bind_tensor(dflash_table *table, const char *name, dflash_error *err) {
    const df_tensor *tensor = NULL;
    TRY(find_tensor(table->file, name, &tensor, err));
    TRY(df_safetensors_usable(table->file, tensor, err));
    TRY(df_head_check_bias(table->file, tensor, err));
    if (tensor->rank != 2 || tensor->dim[0] > INT32_MAX || tensor->dim[1] > INT32_MAX) {
        char shape[DF_SHAPE_TEXT_MAX];
        return df_fail(
            err, DFLASH_ERR_REFUSED, "table.tensor.shape",
            "%s: tensor \"%.200s\" has shape %s; a vocabulary table is a matrix [vocabulary, hidden] of less "
            "than 2^31 rows and columns. Name another tensor.",
            df_safetensors_path(table->file), tensor->name, df_shape_text(tensor->rank, tensor->dim, shape));
    }
    table->matrix =
        (df_matrix){.dtype = tensor->dtype, .out = tensor->dim[0], .in = tensor->dim[1], .data = tensor->data};
    table->target_vocab = (int)tensor->dim[0];
    table->name = tensor->name;
    return DFLASH_OK;
}

dflash_status dflash_table_load(dflash_engine *engine, const char *path, const char *name, dflash_table **out,
                                dflash_error *err) {
    dflash_table *table;
    *out = NULL;
    dflash_status status = new_table(engine, &table, err);
    if (status != DFLASH_OK) return status;
    status = df_safetensors_open(path, &table->file, err);
    if (status == DFLASH_OK) status = bind_tensor(table, name, err);
    if (status == DFLASH_OK) status = place(table, err);
    if (status != DFLASH_OK) {
        dflash_table_destroy(table);
        return status;
    }
    *out = table;
    return DFLASH_OK;
}

void dflash_table_destroy(dflash_table *table) {
    if (table == NULL) return;
    const df_memory *memory = &table->engine->memory;
    memory->release(memory->owner, table->device);
    memory->release(memory->owner, table->device_ids);
    df_safetensors_close(table->file);
    free(table->owned);
    free(table->ids);
    free(table);
}

int dflash_table_vocab(const dflash_table *table) { return (int)table->matrix.out; }

dflash_tensor_view dflash_table_view(const dflash_table *table) {
    const df_matrix *m = &table->matrix;
    return (dflash_tensor_view){.name = table->name,
                                .dtype = df_dtype_name(m->dtype),
                                .rank = 2,
                                .dim = {m->out, m->in},
                                .data = table->bytes,
                                .bytes = (size_t)m->out * (size_t)m->in * df_dtype_size(m->dtype),
                                .used = true};
}

/* ---- A reduced vocabulary ---- */

/* ids[row] = row + offset[row]; `seen` has one bit for each target id. */
static dflash_status map_rows(const int32_t *offset, int rows, int target_vocab, int32_t *ids, unsigned char *seen,
                              dflash_error *err) {
    for (int row = 0; row < rows; row++) {
        const int64_t id = (int64_t)row + offset[row];
        if (id < 0 || id >= target_vocab)
            return df_fail(err, DFLASH_ERR_REFUSED, "table.offset.range",
                           "Offset %" PRId32 " maps row %d of the table to id %" PRId64
                           ", outside the target's vocabulary "
                           "of %d. The map is of another target, or holds ids instead of offsets (id = row + offset).",
                           offset[row], row, id, target_vocab);
        unsigned char *byte = &seen[id / 8];
        const unsigned bit = 1u << (id % 8);
        if ((*byte & bit) != 0)
            return df_fail(err, DFLASH_ERR_REFUSED, "table.offset.twice",
                           "Offset %" PRId32 " maps row %d of the table to id %" PRId64
                           ", which an earlier row has already. "
                           "Two rows cannot be one token; correct the map.",
                           offset[row], row, id);
        *byte = (unsigned char)(*byte | bit);
        ids[row] = (int32_t)id;
    }
    return DFLASH_OK;
}

/* A device needs its own copy of the ids. On failure the table keeps the ones that it had. */
static dflash_status place_ids(dflash_table *table, const int32_t *ids, size_t bytes, dflash_error *err) {
    const df_memory *memory = &table->engine->memory;
    void *fresh = NULL;
    if (memory->host) return DFLASH_OK;
    TRY(memory->alloc(memory->owner, "the map of a reduced vocabulary", bytes, &fresh, err));
    const dflash_status status = memory->upload(memory->owner, fresh, ids, bytes, err);
    if (status != DFLASH_OK) {
        memory->release(memory->owner, fresh);
        return status;
    }
    memory->release(memory->owner, table->device_ids);
    table->device_ids = fresh;
    return DFLASH_OK;
}

dflash_status dflash_table_set_offsets(dflash_table *table, const int32_t *offset, int target_vocab,
                                       dflash_error *err) {
    const int rows = dflash_table_vocab(table);
    if (target_vocab < rows)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "table.offset.vocab",
            "A table of %d rows cannot be a reduced vocabulary of a target with %d tokens: the target must have "
            "at least as many.",
            rows, target_vocab);
    const size_t bytes = (size_t)target_vocab / 8 + 1;
    int32_t *ids = malloc((size_t)rows * sizeof *ids);
    unsigned char *seen = calloc(bytes, 1);
    dflash_status status = ids != NULL && seen != NULL ? map_rows(offset, rows, target_vocab, ids, seen, err)
                                                       : df_fail_memory(err, "the map of a reduced vocabulary",
                                                                        (size_t)rows * sizeof *ids + bytes);
    free(seen);
    if (status == DFLASH_OK) status = place_ids(table, ids, (size_t)rows * sizeof *ids, err);
    if (status != DFLASH_OK) {
        free(ids);
        return status;
    }
    free(table->ids);
    table->ids = ids;
    table->target_vocab = target_vocab;
    return DFLASH_OK;
}

/* ---- Using one ---- */

static dflash_status check_hidden(const dflash_draft *draft, const dflash_table *table, dflash_error *err) {
    if (table->matrix.in == draft->config.hidden) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "table.hidden",
                   "The table's rows have %" PRId64
                   " values, but the drafter's hidden size is %d. It is the table of another "
                   "target; pair the drafter with its own.",
                   table->matrix.in, draft->config.hidden);
}

static dflash_status check_id(const dflash_table *table, int64_t id, const char *what, dflash_error *err) {
    if (id >= 0 && id < table->matrix.out) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "table.id",
                   "The %s is token %" PRId64 ", outside the embedding table of %" PRId64
                   " rows. Pass the target's own "
                   "embedding, and an id that the target produced.",
                   what, id, table->matrix.out);
}

dflash_status dflash_embed_block(dflash_draft *draft, const dflash_table *embedding, int32_t anchor, float *noise,
                                 dflash_error *err) {
    const dflash_config *c = &draft->config;
    dflash_engine *engine = draft->engine;
    dflash_status status = check_hidden(draft, embedding, err);
    if (status == DFLASH_OK && embedding->ids != NULL)
        status =
            df_fail(err, DFLASH_ERR_REFUSED, "table.embedding.reduced",
                    "The embedding table carries the offsets of a reduced vocabulary; blocks are embedded with the "
                    "target's full table, by target id. Pass that one.");
    if (status == DFLASH_OK) status = check_id(embedding, anchor, "anchor", err);
    if (status == DFLASH_OK) status = check_id(embedding, c->mask_token_id, "config's mask token", err);
    if (status == DFLASH_OK) status = df_arena_reset(&engine->arena, err);
    if (status != DFLASH_OK) return status;
    const size_t bytes = (size_t)c->block * sizeof(int32_t);
    void *ids = df_arena_floats(&engine->arena, (size_t)c->block, err), *window;
    if (ids == NULL) return DFLASH_ERR_MEMORY;
    TRY(engine->memory.map(engine->memory.owner, ids, bytes, &window, err));
    for (int row = 0; row < c->block; row++) ((int32_t *)window)[row] = row == 0 ? anchor : (int32_t)c->mask_token_id;
    TRY(engine->memory.unmap(engine->memory.owner, ids, bytes, err));
    TRY(engine->ops->gather(engine, &embedding->matrix, ids, c->block, (float)c->input_embedding_scale, noise,
                            (size_t)c->hidden, err));
    const dflash_stage_view view = {.stage = DFLASH_STAGE_INPUT, .layer = -1, .rank = 2, .dim = {c->block, c->hidden}};
    return df_show(draft, view, noise, err);
}

dflash_status dflash_logits(dflash_draft *draft, const dflash_table *head, const float *rows, int n, float *logits,
                            dflash_error *err) {
    const dflash_config *c = &draft->config;
    const df_ops *ops = draft->engine->ops;
    dflash_status status = check_hidden(draft, head, err);
    if (status == DFLASH_OK && n < 1)
        status = df_fail(err, DFLASH_ERR_ARGUMENT, "logits.rows", "Logits need at least one row: found %d.", n);
    if (status == DFLASH_OK) status = df_arena_reset(&draft->engine->arena, err);
    if (status == DFLASH_OK) status = ops->matmul(draft->engine, &head->matrix, NULL, rows, n, logits, err);
    if (status == DFLASH_OK && (c->output_multiplier != 1.0 || c->logit_softcap > 0.0))
        status = ops->scale_cap(draft->engine, logits, (size_t)n * (size_t)head->matrix.out,
                                (float)c->output_multiplier, (float)c->logit_softcap, logits, err);
    const dflash_stage_view view = {
        .stage = DFLASH_STAGE_LOGITS, .layer = -1, .rank = 2, .dim = {n, dflash_table_vocab(head)}};
    return status == DFLASH_OK ? df_show(draft, view, logits, err) : status;
}
