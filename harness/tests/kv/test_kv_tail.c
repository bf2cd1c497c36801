/*
 * test_kv_tail.c - the draft cache's tail as bytes: exact round trips in the middle of a run, and the refusal of bytes
 * that are damaged, contradictory or of another drafter.
 */
#include "support/kv_case.h"

#include "common/fnv.h"

#include <stdlib.h>
#include <string.h>

/* Where things stand in the bytes of kc_default's drafter: 10 fields from byte 24, 8 frequencies, 2 layers. */
enum {
    AT_MAGIC = 0,
    AT_BYTES = 8,
    AT_VERSION = 16,
    AT_FIELDS = 24,
    AT_ROPE = AT_FIELDS + 10 * 8,
    AT_LAYERS = AT_ROPE + 8 * 4,
    AT_ROWS = AT_LAYERS + 2 * 8,
    AT_FLOOR = AT_ROWS + 8,
    AT_DROPPED = AT_FLOOR + 8,
    AT_POSITIONS = AT_DROPPED + 8
};

static dflash_kv_blob export_tail(const dflash_kv *kv, int rows) {
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv_blob blob;
    kc_assert_ok(dflash_kv_export_tail(kv, rows, &blob, &err), &err);
    ck_assert_ptr_nonnull(blob.data);
    return blob;
}

static void import_tail(dflash_kv *kv, const dflash_kv_blob *blob) {
    dflash_error err = {.status = DFLASH_OK};
    kc_assert_ok(dflash_kv_import_tail(kv, blob, &err), &err);
}

static dflash_kv_blob copy_blob(const dflash_kv_blob *blob) {
    dflash_kv_blob copy = {.data = malloc(blob->bytes), .bytes = blob->bytes};
    ck_assert_ptr_nonnull(copy.data);
    memcpy(copy.data, blob->data, blob->bytes);
    return copy;
}

/* Writes a value of four or eight bytes, little-endian. */
static void poke(dflash_kv_blob *blob, size_t at, int bytes, uint64_t value) {
    for (int i = 0; i < bytes; i++) ((unsigned char *)blob->data)[at + (size_t)i] = (unsigned char)(value >> 8 * i);
}

static void seal(dflash_kv_blob *blob) {
    poke(blob, blob->bytes - 8, 8, df_fnv(DF_FNV_START, blob->data, blob->bytes - 8));
}

/* Expects the refusal, and that kv keeps its rows. */
static void refuse(dflash_kv *kv, const dflash_kv_blob *blob, dflash_status status, const char *code,
                   const char *word) {
    const int len = dflash_kv_len(kv), pinned = kv->pinned;
    const int32_t floor = dflash_kv_floor(kv);
    float before[KC_B * KC_H], after[KC_B * KC_H];
    kc_round(kv, before);
    dflash_error err = {.status = DFLASH_OK};
    kc_assert_refused(dflash_kv_import_tail(kv, blob, &err), &err, status, code, word);
    kc_round(kv, after);
    ck_assert_int_eq(dflash_kv_len(kv), len);
    ck_assert_int_eq(dflash_kv_floor(kv), floor);
    ck_assert_int_eq(kv->pinned, pinned);
    ck_assert_mem_eq(before, after, sizeof before);
}

/* ---- Round trips ---- */

/* A run goes on in the old cache and, from the tail's bytes, in one of another size on another engine. */
START_TEST(a_run_goes_on_bit_for_bit_after_export_and_import) {
    kc_model model = kc_default;
    if (_i == 2) model.second_layer = "full_attention";
    kc_drafter here = kc_open(&model, true, DFLASH_ISA_BEST), there = kc_open(&model, true, DFLASH_ISA_GENERIC);
    kc_history *history = kc_history_new(40, 77);
    kc_grow(history, 90, 2);
    dflash_kv *old = kc_cache(&here, _i == 2 ? 900 : 60), *new = kc_cache(&there, _i == 2 ? 1000 : 35);
    kc_ingest(old, history, 0, 90, true);
    const int rows = _i == 0 ? KC_W - 1 : _i == 1 ? KC_W + KC_B : dflash_kv_len(old);
    dflash_kv_blob blob = export_tail(old, rows);
    import_tail(new, &blob);
    ck_assert_int_eq(dflash_kv_len(new), rows);
    ck_assert_int_eq(dflash_kv_floor(new), history->pos[90 - rows]);
    kc_assert_same_round(old, new);
    dflash_error err = {.status = DFLASH_OK};
    for (int round = 0; round < 80; round++) {
        const int first = history->rows, add = 1 + kc_random(history, KC_B + 1), back = kc_random(history, add);
        kc_grow(history, add, 2);
        kc_ingest(old, history, first, first + add, true);
        kc_ingest(new, history, first, first + add, true);
        history->rows -= back;
        kc_assert_ok(dflash_kv_truncate(old, dflash_kv_len(old) - back, &err), &err);
        kc_assert_ok(dflash_kv_truncate(new, dflash_kv_len(new) - back, &err), &err);
        ck_assert_msg(kc_same_round(old, new), "round %d after the import differs", round);
    }
    dflash_kv_blob_free(&blob);
    ck_assert_ptr_null(blob.data);
    dflash_kv_blob_free(&blob);
    dflash_kv_blob_free(NULL);
    dflash_kv_destroy(old);
    dflash_kv_destroy(new);
    free(history);
    kc_close(&here);
    kc_close(&there);
}
END_TEST

START_TEST(the_rows_come_back_with_every_bit_and_export_to_the_same_bytes) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(41, 3);
    kc_grow(history, 20, 4);
    dflash_kv *old = kc_cache_of(&drafter, 60, history, 0, 20), *new = kc_cache_of(&drafter, 40, history, 5, 9);
    *df_kv_row(old, old->v, 1, 7) = -0.0f;
    dflash_error err = {.status = DFLASH_OK};
    kc_assert_ok(dflash_kv_pin(new, &err), &err);
    dflash_kv_blob first = export_tail(old, 20);
    import_tail(new, &first);
    ck_assert_int_eq(new->pinned, -1);
    ck_assert_mem_eq(new->pos, old->pos, 20 * sizeof *old->pos);
    float a[20 * 32], b[20 * 32], c[20 * 32], d[20 * 32];
    for (int layer = 0; layer < 2; layer++) {
        kc_assert_ok(dflash_kv_read(old, layer, a, b, &err), &err);
        kc_assert_ok(dflash_kv_read(new, layer, c, d, &err), &err);
        ck_assert_mem_eq(a, c, sizeof a);
        ck_assert_mem_eq(b, d, sizeof b);
    }
    dflash_kv_blob second = export_tail(new, 20);
    ck_assert_uint_eq(first.bytes, second.bytes);
    ck_assert_mem_eq(first.data, second.data, first.bytes);
    dflash_kv_blob_free(&first);
    dflash_kv_blob_free(&second);
    dflash_kv_destroy(old);
    dflash_kv_destroy(new);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(a_tail_one_row_too_short_is_a_context_that_starts_there) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(42, 30);
    kc_grow(history, 50, 1);
    dflash_kv *old = kc_cache_of(&drafter, 100, history, 0, 50), *new = kc_cache(&drafter, 60);
    dflash_kv *late = kc_cache_of(&drafter, 60, history, 50 - (KC_W - 2), 50);
    dflash_kv_blob blob = export_tail(old, KC_W - 2);
    import_tail(new, &blob);
    kc_assert_other_round(new, old);
    kc_assert_same_round(new, late);
    dflash_error err = {.status = DFLASH_OK};
    kc_assert_ok(dflash_kv_truncate(new, 3, &err), &err);
    kc_assert_ok(dflash_kv_truncate(late, 3, &err), &err);
    kc_assert_same_round(new, late);
    dflash_kv_blob_free(&blob);
    dflash_kv_destroy(old);
    dflash_kv_destroy(new);
    dflash_kv_destroy(late);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(beside_a_full_layer_any_shorter_tail_is_a_context_that_starts_there) {
    kc_model model = kc_default;
    model.second_layer = "full_attention";
    kc_drafter drafter = kc_open(&model, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(51, 30);
    kc_grow(history, 50, 1);
    dflash_kv *old = kc_cache_of(&drafter, 100, history, 0, 50), *new = kc_cache(&drafter, 60);
    dflash_kv *late = kc_cache_of(&drafter, 60, history, 1, 50);
    dflash_kv_blob blob = export_tail(old, 49);
    import_tail(new, &blob);
    kc_assert_other_round(new, old);
    kc_assert_same_round(new, late);
    dflash_kv_blob_free(&blob);
    dflash_kv_destroy(old);
    dflash_kv_destroy(new);
    dflash_kv_destroy(late);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(an_imported_tail_still_knows_which_rows_it_lacks) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(43, 0);
    kc_grow(history, 50, 1);
    dflash_kv *old = kc_cache_of(&drafter, 100, history, 0, 50), *new = kc_cache(&drafter, 60);
    dflash_kv_blob blob = export_tail(old, KC_W);
    import_tail(new, &blob);
    dflash_error err = {.status = DFLASH_OK};
    kc_assert_ok(dflash_kv_truncate(new, KC_W - 1, &err), &err);
    kc_assert_ok(dflash_kv_truncate(old, 49, &err), &err);
    kc_assert_same_round(new, old);
    kc_assert_refused(dflash_kv_truncate(new, KC_W - 2, &err), &err, DFLASH_ERR_ARGUMENT, "kv.truncate.compacted",
                      "up to position 33");
    dflash_kv_blob_free(&blob);
    blob = export_tail(old, KC_W - 1); /* just enough, with nothing to spare */
    import_tail(new, &blob);
    kc_assert_same_round(new, old);
    kc_assert_refused(dflash_kv_truncate(new, KC_W - 2, &err), &err, DFLASH_ERR_ARGUMENT, "kv.truncate.compacted",
                      "up to position 33");
    dflash_kv_blob_free(&blob);
    dflash_kv_destroy(old);
    dflash_kv_destroy(new);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(an_empty_cache_carries_its_floor) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(44, 0);
    kc_grow(history, 8, 1);
    dflash_error err = {.status = DFLASH_OK};
    dflash_kv *old = kc_cache(&drafter, 40), *new = kc_cache_of(&drafter, 40, history, 0, 8);
    kc_assert_ok(dflash_kv_set_floor(old, 1234, &err), &err);
    dflash_kv_blob blob = export_tail(old, 0);
    import_tail(new, &blob);
    ck_assert_int_eq(dflash_kv_len(new), 0);
    ck_assert_int_eq(dflash_kv_floor(new), 1234);
    kc_assert_same_round(old, new);
    dflash_kv_blob_free(&blob);
    dflash_kv_destroy(old);
    dflash_kv_destroy(new);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(a_tail_of_rows_that_are_not_there_is_refused) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(45, 0);
    kc_grow(history, 8, 1);
    dflash_kv *kv = kc_cache_of(&drafter, 40, history, 0, 8);
    static const int wrong[] = {-1, 0, 9};
    for (int i = 0; i < 3; i++) {
        dflash_error err = {.status = DFLASH_OK};
        dflash_kv_blob blob = {.data = kv};
        kc_assert_refused(dflash_kv_export_tail(kv, wrong[i], &blob, &err), &err, DFLASH_ERR_ARGUMENT, "kv.export.rows",
                          "1..8 of them");
        ck_assert_ptr_null(blob.data);
    }
    dflash_kv_destroy(kv);
    free(history);
    kc_close(&drafter);
}
END_TEST

/* ---- Refusals ---- */

static const struct edit {
    size_t at;
    int bytes;
    uint64_t value;
    const char *code, *word;
} edits[] = {
    {AT_MAGIC, 4, 0, "kv.import.magic", "DFKVTAIL"},
    {AT_VERSION, 8, 2, "kv.import.version", "version 2"},
    {AT_FIELDS, 8, 2, "kv.import.family", "is 0 here and 2 there"},
    {AT_FIELDS + 8, 8, 2, "kv.import.class", "numeric class"},
    {AT_FIELDS + 16, 8, 3, "kv.import.precision", "is 0 here and 3 there"},
    {AT_FIELDS + 24, 8, 3, "kv.import.layers", "is 2 here and 3 there"},
    {AT_FIELDS + 32, 8, 6, "kv.import.kv_heads", "is 2 here and 6 there"},
    {AT_FIELDS + 40, 8, 32, "kv.import.head_dim", "is 16 here and 32 there"},
    {AT_FIELDS + 48, 8, 8, "kv.import.rotary_dim", "is 16 here and 8 there"},
    {AT_FIELDS + 56, 8, 0x3f800001, "kv.import.scaling", "000000003f800001"},
    {AT_FIELDS + 64, 8, 0, "kv.import.eps", "rms_norm_eps"},
    {AT_FIELDS + 72, 8, 0, "kv.import.weights", "checkpoint"},
    {AT_FIELDS + 24, 8, UINT64_MAX, "kv.import.layers", "2 here"},
    {AT_ROPE + 12, 4, 0x3f000000, "kv.import.rope", "frequency 3"},
    {AT_LAYERS + 8, 4, 15, "kv.import.window", "layer 1 is 16 here and 15"},
    {AT_LAYERS + 4, 4, 1, "kv.import.causal", "layer 0 is 0 here and 1"},
    {AT_ROWS, 8, 9, "kv.import.size", "9 rows"},
    {AT_ROWS, 8, UINT64_MAX, "kv.import.size", "bytes of rows are there"},
    {AT_POSITIONS, 4, 0xffffffff, "kv.import.positions", "row 0 is at position -1"},
    {AT_POSITIONS + 4, 4, 1000, "kv.import.positions", "row 1 is at position 1000"},
    {AT_FLOOR, 8, 1001, "kv.import.floor", "starts at position 1001"},
    {AT_FLOOR, 8, UINT64_MAX, "kv.import.floor", "starts at position -1"},
    {AT_DROPPED, 8, 998, "kv.import.floor", "up to position 998"},
    {AT_DROPPED, 8, (uint64_t)-2, "kv.import.floor", "up to position -2"},
};

START_TEST(bytes_that_say_something_else_are_refused_by_name) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(46, 1000);
    kc_grow(history, 30, 1);
    dflash_kv *old = kc_cache_of(&drafter, 60, history, 0, 8), *new = kc_cache_of(&drafter, 60, history, 10, 30);
    dflash_kv_blob blob = export_tail(old, 8), changed = copy_blob(&blob);
    poke(&changed, edits[_i].at, edits[_i].bytes, edits[_i].value);
    ck_assert_mem_ne(changed.data, blob.data, blob.bytes);
    seal(&changed);
    refuse(new, &changed, DFLASH_ERR_REFUSED, edits[_i].code, edits[_i].word);
    dflash_kv_blob_free(&changed);
    dflash_kv_blob_free(&blob);
    dflash_kv_destroy(old);
    dflash_kv_destroy(new);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(a_tail_that_claims_dropped_rows_which_queries_could_see_is_refused) {
    kc_drafter drafter = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(47, 0);
    kc_grow(history, 50, 1);
    dflash_kv *old = kc_cache_of(&drafter, 100, history, 0, 50), *new = kc_cache_of(&drafter, 60, history, 0, 9);
    dflash_kv_blob blob = export_tail(old, KC_W - 2);
    poke(&blob, AT_DROPPED, 8, 50 - (KC_W - 2) - 1);
    seal(&blob);
    refuse(new, &blob, DFLASH_ERR_REFUSED, "kv.import.floor", "contradicts itself");
    dflash_kv_blob_free(&blob);
    dflash_kv_destroy(old);
    dflash_kv_destroy(new);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(every_flipped_byte_and_every_other_length_is_refused) {
    kc_drafter drafter = kc_open(&kc_default, false, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(48, 0);
    kc_grow(history, 9, 1);
    dflash_kv *old = kc_cache_of(&drafter, 60, history, 0, 2), *new = kc_cache_of(&drafter, 60, history, 0, 9);
    dflash_kv_blob blob = export_tail(old, 2);
    const size_t bytes = blob.bytes;
    unsigned char *data = blob.data;
    for (size_t at = 0; at < bytes; at++) {
        const char *const code = at < AT_BYTES ? "kv.import.magic" : at < AT_VERSION ? "" : "kv.import.checksum";
        data[at] ^= 0x10;
        dflash_error err = {.status = DFLASH_OK};
        ck_assert_int_eq(dflash_kv_import_tail(new, &blob, &err), DFLASH_ERR_REFUSED);
        ck_assert_msg(*code == '\0' || strcmp(err.code, code) == 0, "byte %zu: %s", at, err.code);
        data[at] ^= 0x10;
    }
    for (blob.bytes = 0; blob.bytes < bytes; blob.bytes++) {
        /* In memory of exactly that size, so that a read past the end shows. */
        dflash_kv_blob part = {.data = malloc(blob.bytes + (blob.bytes == 0)), .bytes = blob.bytes};
        ck_assert_ptr_nonnull(part.data);
        memcpy(part.data, data, blob.bytes);
        dflash_error err = {.status = DFLASH_OK};
        kc_assert_refused(dflash_kv_import_tail(new, &part, &err), &err, DFLASH_ERR_REFUSED, "kv.import.truncated", "");
        if (blob.bytes >= AT_FIELDS + 8) { /* a consistent front, cut anywhere behind it */
            poke(&part, AT_BYTES, 8, part.bytes);
            seal(&part);
            ck_assert_int_eq(dflash_kv_import_tail(new, &part, &err), DFLASH_ERR_REFUSED);
        }
        dflash_kv_blob_free(&part);
    }
    blob.bytes = bytes - 1;
    refuse(new, &blob, DFLASH_ERR_REFUSED, "kv.import.truncated", "whole block");
    poke(&blob, AT_BYTES, 8, bytes - 1);
    blob.bytes = bytes;
    refuse(new, &blob, DFLASH_ERR_REFUSED, "kv.import.size", "nothing more");
    const dflash_kv_blob none = {.data = NULL};
    refuse(new, &none, DFLASH_ERR_REFUSED, "kv.import.truncated", "0 bytes");
    dflash_kv_blob_free(&blob);
    dflash_kv_destroy(old);
    dflash_kv_destroy(new);
    free(history);
    kc_close(&drafter);
}
END_TEST

START_TEST(a_tail_that_does_not_fit_beside_a_block_is_refused) {
    for (int full = 0; full < 2; full++) {
        kc_model model = kc_default;
        if (full) model.second_layer = "full_attention";
        kc_drafter drafter = kc_open(&model, true, DFLASH_ISA_BEST);
        kc_history *history = kc_history_new(49, 0);
        kc_grow(history, 20, 1);
        const int fits = full ? 20 : 20 + KC_B; /* a cache that never drops may be full to the last row */
        dflash_kv *old = kc_cache_of(&drafter, 60, history, 0, 20),
                  *new = kc_cache_of(&drafter, fits - 1, history, 0, 9);
        dflash_kv *larger = kc_cache(&drafter, fits);
        dflash_kv_blob blob = export_tail(old, 20);
        refuse(new, &blob, DFLASH_ERR_ARGUMENT, "kv.import.capacity", "20 rows");
        import_tail(larger, &blob);
        ck_assert_int_eq(dflash_kv_len(larger), 20);
        dflash_kv_blob_free(&blob);
        dflash_kv_destroy(old);
        dflash_kv_destroy(new);
        dflash_kv_destroy(larger);
        free(history);
        kc_close(&drafter);
    }
}
END_TEST

START_TEST(the_tail_of_another_drafter_is_refused_by_what_differs) {
    kc_model window = kc_default, causal = kc_default, theta = kc_default, eps = kc_default, seed = kc_default;
    window.window = 17;
    causal.is_causal = "true";
    theta.theta = 100001;
    eps.eps = 1.1e-6;
    seed.seed = 32;
    const struct {
        const kc_model *model;
        const char *code;
    } others[] = {{&window, "kv.import.window"},
                  {&causal, "kv.import.causal"},
                  {&theta, "kv.import.rope"},
                  {&eps, "kv.import.eps"},
                  {&seed, "kv.import.weights"}};
    kc_drafter here = kc_open(&kc_default, true, DFLASH_ISA_BEST);
    kc_history *history = kc_history_new(50, 0);
    kc_grow(history, 12, 1);
    dflash_kv *kv = kc_cache_of(&here, 60, history, 0, 12);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        kc_drafter there = kc_open(others[i].model, true, DFLASH_ISA_BEST);
        dflash_kv *other = kc_cache_of(&there, 60, history, 0, 12);
        dflash_kv_blob blob = export_tail(other, 12);
        refuse(kv, &blob, DFLASH_ERR_REFUSED, others[i].code, "same drafter");
        dflash_kv_blob_free(&blob);
        dflash_kv_destroy(other);
        kc_close(&there);
    }
    dflash_kv_destroy(kv);
    free(history);
    kc_close(&here);
}
END_TEST

START_TEST(the_checksum_is_fnv_1a_with_64_bits) {
    ck_assert_uint_eq(df_fnv(DF_FNV_START, "", 0), UINT64_C(0xcbf29ce484222325));
    ck_assert_uint_eq(df_fnv(DF_FNV_START, "a", 1), UINT64_C(0xaf63dc4c8601ec8c));
    ck_assert_uint_eq(df_fnv(DF_FNV_START, "foobar", 6), UINT64_C(0x85944171f73967e8));
    ck_assert_uint_eq(df_fnv(df_fnv(DF_FNV_START, "foo", 3), "bar", 3), UINT64_C(0x85944171f73967e8));
}
END_TEST

TCase *kv_tail_tests(void) {
    TCase *tests = tcase_create("tail");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_run_goes_on_bit_for_bit_after_export_and_import, 0, 3);
    tcase_add_test(tests, the_rows_come_back_with_every_bit_and_export_to_the_same_bytes);
    tcase_add_test(tests, a_tail_one_row_too_short_is_a_context_that_starts_there);
    tcase_add_test(tests, beside_a_full_layer_any_shorter_tail_is_a_context_that_starts_there);
    tcase_add_test(tests, an_imported_tail_still_knows_which_rows_it_lacks);
    tcase_add_test(tests, an_empty_cache_carries_its_floor);
    tcase_add_test(tests, a_tail_of_rows_that_are_not_there_is_refused);
    tcase_add_loop_test(tests, bytes_that_say_something_else_are_refused_by_name, 0,
                        (int)(sizeof edits / sizeof *edits));
    tcase_add_test(tests, a_tail_that_claims_dropped_rows_which_queries_could_see_is_refused);
    tcase_add_test(tests, every_flipped_byte_and_every_other_length_is_refused);
    tcase_add_test(tests, a_tail_that_does_not_fit_beside_a_block_is_refused);
    tcase_add_test(tests, the_tail_of_another_drafter_is_refused_by_what_differs);
    tcase_add_test(tests, the_checksum_is_fnv_1a_with_64_bits);
    return tests;
}
