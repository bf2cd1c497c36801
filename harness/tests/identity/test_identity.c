/*
 * test_identity.c - classes of agreement between two recordings, and digests of a run. Schedules, injected faults and
 * the command are in test_identity_*.c.
 */
#include "identity/identity_digests.h"
#include "judge/identity_pair.h"

#include "common/dtype.h"
#include "support/identity_cases.h"
#include "support/scratch.h"
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Classes ---- */

enum { PAIR_ROWS = 3, PAIR_COLUMNS = 4, PAIR_VALUES = PAIR_ROWS * PAIR_COLUMNS };
static dp_recording left, right;
static dp_pair pair;

static void add_rows(dp_recording *to, dflash_stage stage, int layer, int rows, const float *values) {
    const dflash_stage_view view = {
        .stage = stage, .layer = layer, .rank = 2, .dim = {rows, PAIR_COLUMNS}, .f32 = values};
    dp_recording_add(to, &view);
}

static void setup(void) {
    const float values[PAIR_VALUES] = {1, -2, 3, 0, 5, 6, -7, 8, 9, 10, 11, 12};
    left = right = (dp_recording){.stage = NULL};
    pair = (dp_pair){.stage = NULL};
    add_rows(&left, DFLASH_STAGE_MLP_NORM, 0, PAIR_ROWS, values);
    add_rows(&right, DFLASH_STAGE_MLP_NORM, 0, PAIR_ROWS, values);
}

static void teardown(void) {
    dp_recording_release(&left);
    dp_recording_release(&right);
    dp_pair_release(&pair);
}

static void compare(dp_pair_rule rule) {
    dflash_error err;
    ck_assert_int_eq(dp_pair_compare(&left, &right, rule, NULL, &pair, &err), DFLASH_OK);
}

static const struct {
    int index;
    uint32_t left, right;
    dp_bit_class reached;
    uint32_t ulp;
} changes[] = {
    {3, 0x00000000u, 0x80000000u, DP_BITS_EQUAL, 0},
    {5, 0x7fc00001u, 0x7fc00002u, DP_BITS_EQUAL, 0},
    {0, 0x3f800000u, 0x3f800001u, DP_BITS_ULP, 1},
    {7, 0x3f800000u, 0x3f800010u, DP_BITS_ULP, 16},
    {7, 0x3f800000u, 0x3f800011u, DP_BITS_DIVERGENT, 17},
    {2, 0x00000001u, 0x80000001u, DP_BITS_ULP, 2},
    {2, 0x3f800000u, 0xbf800000u, DP_BITS_DIVERGENT, 0x7f000000u},
    {4, 0x7f7fffffu, 0x7f800000u, DP_BITS_DIVERGENT, UINT32_MAX},
    {4, 0x3f800000u, 0x7fc00000u, DP_BITS_DIVERGENT, UINT32_MAX},
};
enum { CHANGES = sizeof changes / sizeof *changes };

START_TEST(one_changed_value_has_its_class_and_is_found_where_it_is) {
    left.stage[0].value[changes[_i].index] = df_bits_to_f32(changes[_i].left);
    right.stage[0].value[changes[_i].index] = df_bits_to_f32(changes[_i].right);
    compare(DP_PAIR_WHOLE);
    const dp_pair_stage *stage = dp_pair_first(&pair);
    ck_assert_ptr_nonnull(stage);
    ck_assert_str_eq(stage->name, "layers.0.mlp.norm");
    ck_assert_int_eq(stage->reached, changes[_i].reached);
    ck_assert_uint_eq(stage->ulp, changes[_i].ulp);
    ck_assert_int_eq(stage->first, changes[_i].index);
    ck_assert_uint_eq(stage->bits[0], changes[_i].left);
    ck_assert_uint_eq(stage->bits[1], changes[_i].right);
    ck_assert_int_eq(stage->compared, PAIR_VALUES);
    ck_assert_int_eq(stage->differing, 1);
    ck_assert(!dp_pair_passes(&pair));
}
END_TEST

START_TEST(the_same_bits_pass_and_the_same_nan_does_not) {
    compare(DP_PAIR_WHOLE);
    ck_assert(dp_pair_passes(&pair));
    ck_assert_int_eq(dp_pair_compared(&pair), PAIR_VALUES);
    dp_pair_release(&pair);
    left.stage[0].value[6] = right.stage[0].value[6] = df_bits_to_f32(0x7fc00000u);
    compare(DP_PAIR_WHOLE);
    ck_assert_int_eq(dp_pair_class(&pair), DP_BITS_IDENTICAL);
    ck_assert_int_eq(dp_pair_first(&pair)->nonfinite, 1);
    ck_assert(!dp_pair_passes(&pair));
}
END_TEST

START_TEST(nothing_compared_does_not_pass) {
    const dp_pair nothing = {.stage = NULL};
    ck_assert(!dp_pair_passes(&nothing));
}
END_TEST

START_TEST(a_stage_on_one_side_alone_is_lacking_on_either_side) {
    const float values[PAIR_VALUES] = {0};
    add_rows(&right, DFLASH_STAGE_FINAL, -1, PAIR_ROWS, values);
    compare(DP_PAIR_WHOLE);
    ck_assert_str_eq(dp_pair_first(&pair)->name, "final");
    ck_assert(dp_pair_first(&pair)->lacking);
    dp_pair_release(&pair);
    add_rows(&left, DFLASH_STAGE_FINAL, -1, PAIR_ROWS, values);
    add_rows(&left, DFLASH_STAGE_MLP_UP, 0, PAIR_ROWS, values);
    compare(DP_PAIR_WHOLE);
    ck_assert_str_eq(dp_pair_first(&pair)->name, "layers.0.mlp.up");
    dp_pair_release(&pair);
    compare(DP_PAIR_SHOWN);
    ck_assert(dp_pair_passes(&pair));
}
END_TEST

START_TEST(other_rows_are_lacking_unless_a_round_shows_the_last_ones) {
    const float values[2 * PAIR_VALUES] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                           13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};
    add_rows(&left, DFLASH_STAGE_ATTN_V, 1, 2 * PAIR_ROWS, values);
    add_rows(&right, DFLASH_STAGE_ATTN_V, 1, PAIR_ROWS, values + PAIR_VALUES);
    compare(DP_PAIR_ROUND);
    ck_assert(dp_pair_passes(&pair));
    dp_pair_release(&pair);
    compare(DP_PAIR_WHOLE);
    ck_assert_str_eq(dp_pair_first(&pair)->name, "layers.1.attn.v");
    dp_pair_release(&pair);
    left.stage[0].dim[0] = PAIR_ROWS - 1; /* a stage of the block's rows may not be cut */
    compare(DP_PAIR_ROUND);
    ck_assert_str_eq(dp_pair_first(&pair)->name, "layers.0.mlp.norm");
}
END_TEST

START_TEST(of_several_comparisons_the_worst_class_and_the_first_difference_stay) {
    compare(DP_PAIR_WHOLE);
    right.stage[0].value[9] = nextafterf(right.stage[0].value[9], INFINITY);
    compare(DP_PAIR_WHOLE);
    right.stage[0].value[9] = left.stage[0].value[9];
    right.stage[0].value[2] += 1.0f;
    compare(DP_PAIR_WHOLE);
    ck_assert_int_eq(pair.count, 1);
    ck_assert_int_eq(pair.stage[0].reached, DP_BITS_DIVERGENT);
    ck_assert_int_eq(pair.stage[0].first, 9);
    ck_assert_int_eq(pair.stage[0].differing, 2);
    ck_assert_int_eq(pair.stage[0].compared, 3 * PAIR_VALUES);
}
END_TEST

/* ---- Digests ---- */

static dp_digest_list digests_of(const dp_recording *run, const char *name) {
    dp_digest_list list = {.item = NULL};
    dflash_error err;
    ck_assert_int_eq(dp_digests_add(&list, name, run, &err), DFLASH_OK);
    return list;
}

static void count_report(const dp_digest *digest, dp_digest_verdict verdict, void *user) {
    ck_assert(digest->hex[63] != '\0');
    ((int *)user)[verdict]++;
}

static dp_digest_comparison compare_lists(const dp_digest_list *run, const dp_digest_list *file) {
    int reported[4] = {0};
    const dp_digest_comparison c = dp_digests_compare(run, file, count_report, reported);
    ck_assert_int_eq(reported[DP_DIGEST_DIFFERS], c.differing);
    ck_assert_int_eq(reported[DP_DIGEST_MISSING], c.missing);
    ck_assert_int_eq(reported[DP_DIGEST_EXTRA], c.extra);
    return c;
}

START_TEST(a_digest_sees_every_bit_the_shape_and_the_kind) {
    dp_digest_list a = digests_of(&left, "case");
    const int64_t dim[4] = {PAIR_ROWS, PAIR_COLUMNS};
    for (int change = 0; change < 3; change++) {
        if (change == 0) right.stage[0].value[3] = -right.stage[0].value[3]; /* +0 to -0 */
        if (change == 1)
            right.stage[0].value[3] = 0.0f, right.stage[0].dim[0] = PAIR_COLUMNS, right.stage[0].dim[1] = PAIR_ROWS;
        if (change == 2) {
            memcpy(right.stage[0].dim, dim, sizeof dim);
            right.stage[0].integer = malloc(PAIR_VALUES * sizeof(int32_t));
            memcpy(right.stage[0].integer, right.stage[0].value, PAIR_VALUES * sizeof(int32_t));
        }
        dp_digest_list b = digests_of(&right, "case");
        ck_assert_int_eq(compare_lists(&a, &b).differing, 1);
        dp_digest_list_release(&b);
    }
    dp_digest_list_release(&a);
}
END_TEST

START_TEST(a_run_that_holds_a_nan_leaves_no_digests) {
    dp_digest_list list = {.item = NULL};
    dflash_error err;
    left.stage[0].value[0] = NAN;
    ck_assert_int_eq(dp_digests_add(&list, "case", &left, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "digests.nonfinite");
    dp_digest_list_release(&list);
}
END_TEST

START_TEST(digests_written_and_read_again_agree_and_a_missing_or_extra_stage_does_not) {
    char path[SCRATCH_PATH];
    dflash_error err;
    const float values[PAIR_VALUES] = {0};
    scratch_open();
    dp_digest_list run = digests_of(&left, "case"), file;
    ck_assert_int_eq(dp_digests_write(scratch_path("digests.json", path), &run, &err), DFLASH_OK);
    ck_assert_int_eq(dp_digests_read(path, &file, &err), DFLASH_OK);
    dp_digest_comparison c = compare_lists(&run, &file);
    ck_assert(c.compared == 1 && c.differing == 0 && c.missing == 0 && c.extra == 0);
    add_rows(&right, DFLASH_STAGE_FINAL, -1, PAIR_ROWS, values);
    dp_digest_list more = digests_of(&right, "case"), other = digests_of(&left, "other");
    c = compare_lists(&more, &file);
    ck_assert(c.compared == 1 && c.differing == 0 && c.missing == 0 && c.extra == 1);
    c = compare_lists(&run, &more);
    ck_assert(c.compared == 1 && c.differing == 0 && c.missing == 1 && c.extra == 0);
    c = compare_lists(&other, &file);
    ck_assert(c.compared == 0 && c.missing == 1 && c.extra == 1);
    dp_digest_list_release(&run);
    dp_digest_list_release(&file);
    dp_digest_list_release(&more);
    dp_digest_list_release(&other);
    scratch_close();
}
END_TEST

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HEAD "{\"schema\":\"dflash-parity-digests\",\"schema_version\":1,\"digests\":"
static const struct {
    const char *text, *code;
} malformed[] = {
    {"", "digests.json"},
    {"[]", "digests.json"},
    {HEAD "{}}", "digests.json"},
    {HEAD "[]} x", "digests.json"},
    {"{\"schema\":\"dflash-parity-digests\",\"schema_version\":2,\"digests\":[]}", "digests.json"},
    {"{\"schema\":\"dflash-parity-result\",\"schema_version\":1,\"digests\":[]}", "digests.json"},
    {HEAD "[1]}", "digests.entry"},
    {HEAD "[{\"case\":\"a\",\"stage\":\"final\"}]}", "digests.entry"},
    {HEAD "[{\"case\":\"a\",\"stage\":\"fin\",\"digest\":\"" HEX "\"}]}", "digests.entry"},
    {HEAD "[{\"case\":\"a\",\"stage\":\"final\",\"digest\":\"" HEX "0\"}]}", "digests.entry"},
    {HEAD "[{\"case\":\"a\",\"stage\":\"final\",\"digest\":\"G" HEX "\"}]}", "digests.entry"},
    {HEAD "[{\"case\":\"a\",\"stage\":\"final\",\"digest\":\"" HEX "\"},"
          "{\"case\":\"a\",\"stage\":\"final\",\"digest\":\"" HEX "\"}]}",
     "digests.entry"},
};
enum { MALFORMED = sizeof malformed / sizeof *malformed };

START_TEST(a_file_of_digests_that_is_none_is_refused) {
    char path[SCRATCH_PATH];
    dflash_error err = {.status = DFLASH_OK};
    dp_digest_list list;
    scratch_open();
    scratch_write_text("digests.json", malformed[_i].text);
    ck_assert_int_eq(dp_digests_read(scratch_path("digests.json", path), &list, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, malformed[_i].code);
    ck_assert_ptr_null(list.item);
    scratch_close();
}
END_TEST

Suite *suite_identity(void) {
    Suite *suite = suite_create("identity");
    TCase *tests = tcase_create("pairs");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, one_changed_value_has_its_class_and_is_found_where_it_is, 0, CHANGES);
    tcase_add_test(tests, the_same_bits_pass_and_the_same_nan_does_not);
    tcase_add_test(tests, nothing_compared_does_not_pass);
    tcase_add_test(tests, a_stage_on_one_side_alone_is_lacking_on_either_side);
    tcase_add_test(tests, other_rows_are_lacking_unless_a_round_shows_the_last_ones);
    tcase_add_test(tests, of_several_comparisons_the_worst_class_and_the_first_difference_stay);
    tcase_add_test(tests, a_digest_sees_every_bit_the_shape_and_the_kind);
    tcase_add_test(tests, a_run_that_holds_a_nan_leaves_no_digests);
    tcase_add_test(tests, digests_written_and_read_again_agree_and_a_missing_or_extra_stage_does_not);
    tcase_add_loop_test(tests, a_file_of_digests_that_is_none_is_refused, 0, MALFORMED);
    suite_add_tcase(suite, tests);
    identity_add_shrink(suite);
    identity_add_faults(suite);
    identity_add_command(suite);
    return suite;
}
