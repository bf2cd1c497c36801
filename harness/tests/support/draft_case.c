/* draft_case.c - see draft_case.h; the forward in double is in draft_reference.c. */
#include "support/draft_case.h"

#include "common/fnv.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

const char *draft_fixture_dir(int index) {
    static char path[300];
    struct dirent **entry;
    const int n = scandir("fixtures/small", &entry, is_visible, alphasort);
    ck_assert_msg(n == DRAFT_FIXTURES, "fixtures/small holds %d checkpoints and the loops run over %d", n,
                  DRAFT_FIXTURES);
    snprintf(path, sizeof path, "fixtures/small/%s", entry[index]->d_name);
    for (int i = 0; i < n; i++) free(entry[i]);
    free(entry);
    return path;
}

void draft_case_init(draft_case *c, int index, dflash_engine *engine) {
    /* of the name, so that a new checkpoint leaves the others' inputs as they are */
    const char *dir = draft_fixture_dir(index);
    const uint64_t drawn = df_fnv(DF_FNV_START, dir, strlen(dir));
    op_random random = {drawn};
    dflash_error err = {0};
    *c = (draft_case){.engine = engine, .context = DRAFT_CONTEXT};
    ck_assert_msg(dflash_draft_load(engine, draft_fixture_dir(index), &c->draft, &err) == DFLASH_OK, "%s", err.message);
    c->config = dflash_draft_config(c->draft);
    ck_assert_int_gt(c->context, c->config->sliding_window);
    const size_t hidden = (size_t)c->config->hidden, taps = (size_t)(c->context * c->config->n_taps) * hidden;
    c->features_size = (size_t)c->context * hidden;
    c->out_size = (size_t)c->config->block * hidden;
    c->pos = op_alloc((size_t)(c->context + c->config->block) * sizeof *c->pos);
    c->taps = op_floats(taps);
    c->noise = op_floats(c->out_size);
    c->features = op_floats(c->features_size);
    op_fill(&random, c->taps, taps);
    op_fill(&random, c->noise, c->out_size);
    int32_t at = drawn % 2 == 0 ? 1000 : 100000;
    for (int i = 0; i < c->context + c->config->block; i++) {
        c->pos[i] = at;
        at += index % 2 == 0 || i + 1 >= c->context ? 1 : 1 + op_below(&random, 3);
    }
    ck_assert_msg(dflash_ctx_features(c->draft, c->taps, c->context, c->features, &err) == DFLASH_OK, "%s",
                  err.message);
    c->out = draft_case_block(c);
}

void draft_case_release(draft_case *c) {
    free(c->pos);
    free(c->taps);
    free(c->noise);
    free(c->features);
    op_output_free(c->out);
    dflash_draft_destroy(c->draft);
    dflash_engine_destroy(c->engine);
}

float *draft_case_block(const draft_case *c) {
    dflash_error err = {0};
    float *out = op_output(c->out_size);
    ck_assert_msg(dflash_forward_block(c->draft, c->features, c->noise, c->pos, c->context, out, &err) == DFLASH_OK,
                  "%s", err.message);
    op_output_check(out, c->out_size, "forward_block");
    return out;
}

float *draft_case_round(const draft_case *c, dflash_kv *kv) {
    dflash_error err = {0};
    float *out = op_output(c->out_size);
    ck_assert_msg(dflash_forward_round(c->draft, kv, c->noise, c->pos + c->context, out, &err) == DFLASH_OK, "%s",
                  err.message);
    op_output_check(out, c->out_size, "forward_round");
    return out;
}

dflash_kv *draft_case_cache(const draft_case *c, int capacity) {
    dflash_error err = {0};
    dflash_kv *kv = NULL;
    ck_assert_msg(dflash_kv_create(c->draft, capacity, &kv, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_int_eq(dflash_kv_len(kv), 0);
    ck_assert_int_eq(dflash_kv_capacity(kv), capacity);
    return kv;
}

void draft_case_ingest(const draft_case *c, dflash_kv *kv, int first, int rows) {
    dflash_error err = {0};
    ck_assert_msg(dflash_ingest_ctx(c->draft, kv, c->features + (size_t)first * (size_t)c->config->hidden,
                                    c->pos + first, rows, &err) == DFLASH_OK,
                  "%s", err.message);
}
