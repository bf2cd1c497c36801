/*
 * test_arena.c - the scratch memory of a forward call: what is handed out does not overlap, a rewind gives back exactly
 * what came after its mark, and once its sizes have been seen a call allocates nothing.
 */
#include "engine/arena.h"
#include "support/draft_case.h"

#include <math.h>

static float *take(df_arena *arena, size_t n) {
    dflash_error err = {0};
    float *memory = df_arena_floats(arena, n, &err);
    ck_assert_msg(memory != NULL, "%s", err.message);
    ck_assert_uint_eq((uintptr_t)memory % 64, 0);
    return memory;
}

static void reset(df_arena *arena) {
    dflash_error err = {0};
    ck_assert_msg(df_arena_reset(arena, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_uint_eq(arena->in_use, 0);
}

START_TEST(buffers_do_not_overlap_across_blocks) {
    enum { BUFFERS = 60 };
    df_arena arena = {0};
    float *buffer[BUFFERS];
    size_t size[BUFFERS];
    op_random random = {600};
    for (int round = 0; round < 3; round++) {
        reset(&arena);
        for (int i = 0; i < BUFFERS; i++) {
            size[i] = (size_t)op_below(&random, 40000);
            buffer[i] = take(&arena, size[i]);
            for (size_t j = 0; j < size[i]; j++) buffer[i][j] = (float)i;
        }
        for (int i = 0; i < BUFFERS; i++)
            for (size_t j = 0; j < size[i]; j++) OP_REQUIRE(buffer[i][j] == (float)i, "buffer %d element %zu", i, j);
    }
    df_arena_release(&arena);
    ck_assert_ptr_null(arena.blocks);
}
END_TEST

START_TEST(a_rewind_gives_back_what_came_after_its_mark) {
    df_arena arena = {0};
    const df_arena_mark empty = df_arena_get_mark(&arena);
    take(&arena, 1000);
    float *kept = take(&arena, 100);
    for (int i = 0; i < 100; i++) kept[i] = 7.0f;
    const df_arena_mark mark = df_arena_get_mark(&arena);
    const size_t in_use = arena.in_use;
    float *first = take(&arena, 500);
    take(&arena, 3 << 20); /* a block of its own */
    take(&arena, 2 << 20);
    df_arena_rewind(&arena, mark);
    ck_assert_uint_eq(arena.in_use, in_use);
    ck_assert_ptr_eq(take(&arena, 500), first);
    for (int i = 0; i < 100; i++) ck_assert(kept[i] == 7.0f);
    df_arena_rewind(&arena, empty);
    ck_assert_uint_eq(arena.in_use, 0);
    df_arena_release(&arena);
}
END_TEST

/* Is there still one block, the one that `block` was, after these sizes are handed out? */
static bool fits(df_arena *arena, size_t lasting, size_t temporary) {
    take(arena, lasting);
    const df_arena_mark mark = df_arena_get_mark(arena);
    take(arena, temporary);
    const bool same = df_arena_get_mark(arena).block == mark.block;
    df_arena_rewind(arena, mark);
    return same;
}

START_TEST(a_reset_merges_blocks_into_one_that_holds_everything) {
    df_arena arena = {0};
    for (int i = 0; i < 4; i++) take(&arena, 300000);
    const df_arena_mark spread = df_arena_get_mark(&arena);
    ck_assert_uint_eq(arena.peak, 4 * 1200000); /* 1,200,000 is a multiple of 64 */
    reset(&arena);
    take(&arena, 300000);
    const df_arena_mark merged = df_arena_get_mark(&arena);
    for (int i = 0; i < 3; i++) take(&arena, 300000);
    ck_assert_ptr_eq(df_arena_get_mark(&arena).block, merged.block);
    ck_assert_uint_ne(spread.used, 4 * 1200000);
    df_arena_release(&arena);
}
END_TEST

START_TEST(memory_that_was_given_back_counts_as_seen) {
    df_arena arena = {0};
    /* The lasting part fits in the first block (1 MiB) and the temporary part does not fit beside it. */
    ck_assert(!fits(&arena, 200000, 200000));
    reset(&arena);
    ck_assert(fits(&arena, 200000, 200000));
    const df_arena_mark mark = df_arena_get_mark(&arena);
    reset(&arena);
    ck_assert(fits(&arena, 200000, 200000));
    ck_assert_ptr_eq(df_arena_get_mark(&arena).block, mark.block);
    df_arena_release(&arena);
}
END_TEST

START_TEST(a_poisoned_arena_hands_out_nan) {
    df_arena arena = {.poison = true};
    for (int round = 0; round < 3; round++) {
        reset(&arena);
        for (int b = 0; b < 3; b++) {
            float *buffer = take(&arena, 200000);
            for (int i = 0; i < 200000; i++) {
                OP_REQUIRE(isnan(buffer[i]), "round %d buffer %d element %d holds %g", round, b, i, (double)buffer[i]);
                buffer[i] = 1.0f;
            }
        }
    }
    df_arena_release(&arena);
}
END_TEST

START_TEST(a_request_that_no_machine_can_serve_is_refused) {
    static const size_t wrong[] = {SIZE_MAX, SIZE_MAX / 4, SIZE_MAX / 8 + 1};
    df_arena arena = {0};
    take(&arena, 10);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dflash_error err = {0};
        ck_assert_ptr_null(df_arena_floats(&arena, wrong[i], &err));
        ck_assert_int_eq(err.status, DFLASH_ERR_MEMORY);
        ck_assert_str_eq(err.code, "memory.exhausted");
    }
    ck_assert_uint_eq(arena.in_use, 64);
    df_arena_release(&arena);
}
END_TEST

/* The bytes and the block of two calls alike: the second found room for everything. */
START_TEST(a_second_forward_finds_its_memory) {
    draft_case c;
    draft_case_init(&c, 7, op_engine(DFLASH_ISA_BEST, 2, false));
    op_output_free(draft_case_block(&c));
    const size_t peak = c.engine->arena.peak;
    const df_arena_block *block = c.engine->arena.blocks;
    ck_assert_uint_gt(peak, 0);
    for (int i = 0; i < 3; i++) {
        op_output_free(draft_case_block(&c));
        ck_assert_uint_eq(c.engine->arena.peak, peak);
        ck_assert_ptr_eq(c.engine->arena.blocks, block);
    }
    draft_case_release(&c);
}
END_TEST

TCase *tcase_arena(void) {
    TCase *tcase = tcase_create("arena");
    tcase_add_test(tcase, buffers_do_not_overlap_across_blocks);
    tcase_add_test(tcase, a_rewind_gives_back_what_came_after_its_mark);
    tcase_add_test(tcase, a_reset_merges_blocks_into_one_that_holds_everything);
    tcase_add_test(tcase, memory_that_was_given_back_counts_as_seen);
    tcase_add_test(tcase, a_poisoned_arena_hands_out_nan);
    tcase_add_test(tcase, a_request_that_no_machine_can_serve_is_refused);
    tcase_add_test(tcase, a_second_forward_finds_its_memory);
    return tcase;
}
