/*
 * test_narrow.c - faults injected into a recording by index, and the pattern that the narrowing must name. Causes are
 * in test_narrow_cause.c. The case is tiny-plain: 24 context rows and 5 of the block, 6 query heads of 16 on 2
 * key/value heads, 96 channels, 160 in the MLP.
 */
#include "support/recording_case.h"
#include "support/recording_cases.h"

#include "support/child.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN_SIZE = 96, MLP_SIZE = 160, KEY_SIZE = 32, CONTEXT_ROWS = 24 };

static bool one_element(int64_t i) { return i == 2 * HIDDEN_SIZE + 17; }
static bool one_row(int64_t i) { return i / HIDDEN_SIZE == 3; }
static bool one_column(int64_t i) { return i % HIDDEN_SIZE == 40; }
static bool one_head(int64_t i) { return i / 16 % 6 == 4; }
static bool one_group(int64_t i) { return i / 16 % 6 >= 3; }
static bool lanes_of_8(int64_t i) { return i % MLP_SIZE % 8 == 5; }
static bool lanes_of_32(int64_t i) { return i % MLP_SIZE % 32 == 9; }
static bool tile_of_rows(int64_t i) { return i / KEY_SIZE >= 8 && i / KEY_SIZE < 16; }
static bool block_rows(int64_t i) { return i / KEY_SIZE >= CONTEXT_ROWS; }
static bool context_rows(int64_t i) { return i / KEY_SIZE < CONTEXT_ROWS; }
static bool output_tile(int64_t i) { return i % MLP_SIZE >= 64 && i % MLP_SIZE < 128; }
static bool first_half(int64_t i) { return i % 16 < 8; }
static bool some_columns(int64_t i) { return i / MLP_SIZE == 1 && i % MLP_SIZE >= 30 && i % MLP_SIZE < 47; }
static bool scattered(int64_t i) { return i == 7 || i == HIDDEN_SIZE + 30 || i == 4 * HIDDEN_SIZE + 77; }

static const struct {
    const char *stage;
    bool (*chosen)(int64_t index);
    float factor, term;
    int64_t differing;
    dp_axis_pattern row, head, column;
    int64_t at; /* first of the axis that is not all (row, then head, then column); -1: not checked */
    dp_value_pattern values;
    const char *words;
} injections[] = {
    {"layers.1.mlp.down", one_element, 1.001f, 0, 1, DP_AXIS_ONE, DP_AXIS_TRIVIAL, DP_AXIS_ONE, 2, DP_VALUES_NONE,
     "row 2 of 5"},
    {"layers.1.attn.norm", one_row, 1.0001f, 0, 96, DP_AXIS_ONE, DP_AXIS_TRIVIAL, DP_AXIS_ALL, 3, DP_VALUES_SCALED,
     "B is A times 1.0001"},
    {"layers.2.mlp.down", one_column, 1, 0.5f, 5, DP_AXIS_ALL, DP_AXIS_TRIVIAL, DP_AXIS_ONE, 40, DP_VALUES_SHIFTED,
     "B is A plus 0.5"},
    {"layers.0.attn.q_norm", one_head, -1, 0, 80, DP_AXIS_ALL, DP_AXIS_ONE, DP_AXIS_TILE, 4, DP_VALUES_NEGATED,
     "head 4 of 6"},
    {"layers.0.attn.context", one_group, 1.25f, 0, 240, DP_AXIS_ALL, DP_AXIS_RANGE, DP_AXIS_RANGE, 3, DP_VALUES_SCALED,
     "those of key/value head 1"},
    {"layers.1.mlp.gate", lanes_of_8, 1.01f, 0, 100, DP_AXIS_ALL, DP_AXIS_TRIVIAL, DP_AXIS_LANE, 5, DP_VALUES_SCALED,
     "every column that is 5 modulo 8"},
    {"layers.1.mlp.up", lanes_of_32, 1.01f, 0, 25, DP_AXIS_ALL, DP_AXIS_TRIVIAL, DP_AXIS_LANE, 9, DP_VALUES_SCALED,
     "9 modulo 32"},
    {"layers.1.attn.k_proj", tile_of_rows, 0, 0, 256, DP_AXIS_TILE, DP_AXIS_ALL, DP_AXIS_ALL, 8, DP_VALUES_ZERO,
     "rows 8..15 of 29, one whole tile of 8: of the context"},
    {"layers.1.attn.v", block_rows, 1.5f, 0, 160, DP_AXIS_RANGE, DP_AXIS_ALL, DP_AXIS_ALL, 24, DP_VALUES_SCALED,
     "the block's, all of them"},
    {"layers.1.attn.k_rope", context_rows, 1.5f, 0, 768, DP_AXIS_RANGE, DP_AXIS_ALL, DP_AXIS_ALL, 0, DP_VALUES_SCALED,
     "the context's, all of them"},
    {"layers.0.mlp.act", output_tile, 1.5f, 0, 320, DP_AXIS_ALL, DP_AXIS_TRIVIAL, DP_AXIS_TILE, 64, DP_VALUES_SCALED,
     "columns 64..127 of 160, one whole tile of 64"},
    {"layers.2.attn.q_rope", first_half, 2, 0, 240, DP_AXIS_ALL, DP_AXIS_ALL, DP_AXIS_SCATTERED, -1, DP_VALUES_SCALED,
     "in a head: columns 0..7 of 16, one whole tile of 8"},
    {"layers.2.mlp.gate", some_columns, 1.5f, 0, 17, DP_AXIS_ONE, DP_AXIS_TRIVIAL, DP_AXIS_RANGE, 1, DP_VALUES_SCALED,
     "columns 30..46 of 160"},
    {"layers.2.out", scattered, 1, INFINITY, 3, DP_AXIS_SCATTERED, DP_AXIS_TRIVIAL, DP_AXIS_SCATTERED, -1,
     DP_VALUES_NONFINITE, "3 of 5 rows, no pattern"},
};
enum { INJECTIONS = sizeof injections / sizeof *injections };

static const dp_axis *telling_axis(const dp_narrowing *n) {
    if (n->row.pattern > DP_AXIS_ALL) return &n->row;
    return n->head.pattern > DP_AXIS_ALL ? &n->head : &n->column;
}

static void expect_words(const dp_bisection *found, const char *words) {
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    ck_assert_ptr_nonnull(to);
    dp_bisection_text(to, found);
    fclose(to);
    ck_assert_msg(strstr(text, words) != NULL, "no \"%s\" in:\n%s", words, text);
    free(text);
}

START_TEST(a_planted_fault_is_localised_exactly) {
    dp_bisection found;
    rc_open("tiny-plain");
    rc_change(injections[_i].stage, injections[_i].chosen, injections[_i].factor, injections[_i].term);
    rc_bisect(&found);
    const dp_narrowing *n = &found.narrowing;
    ck_assert_str_eq(found.first->spec.name, injections[_i].stage);
    ck_assert(found.narrowed);
    ck_assert_int_eq(n->differing, injections[_i].differing);
    ck_assert_int_eq(n->row.pattern, injections[_i].row);
    ck_assert_int_eq(n->head.pattern, injections[_i].head);
    ck_assert_int_eq(n->column.pattern, injections[_i].column);
    if (injections[_i].at >= 0 && injections[_i].column != DP_AXIS_LANE)
        ck_assert_int_eq(telling_axis(n)->first, injections[_i].at);
    if (injections[_i].column == DP_AXIS_LANE) ck_assert_int_eq(n->column.residue, injections[_i].at);
    ck_assert_int_eq(n->values, injections[_i].values);
    expect_words(&found, injections[_i].words);
    dp_bisection_release(&found);
}
END_TEST

START_TEST(a_row_or_head_in_the_place_of_another_is_recognised) {
    int64_t count;
    dp_bisection found;
    rc_open("tiny-plain");
    float *values = rc_values("layers.1.attn.residual", &count);
    memcpy(values + 3 * HIDDEN_SIZE, values + 2 * HIDDEN_SIZE, HIDDEN_SIZE * sizeof *values);
    rc_put_values("layers.1.attn.residual", values);
    free(values);
    rc_bisect(&found);
    ck_assert_int_eq(found.narrowing.values, DP_VALUES_OTHER_ROW);
    ck_assert_int_eq(found.narrowing.shift, -1);
    ck_assert_int_eq(found.narrowing.row.first, 3);
    dp_bisection_release(&found);
    rc_open("tiny-plain");
    values = rc_values("layers.1.attn.q_norm", &count);
    for (int64_t row = 0; row < 5; row++)
        memcpy(values + row * HIDDEN_SIZE + 16, values + row * HIDDEN_SIZE + 48, 16 * sizeof *values);
    rc_put_values("layers.1.attn.q_norm", values);
    free(values);
    rc_bisect(&found);
    ck_assert_int_eq(found.narrowing.values, DP_VALUES_OTHER_HEAD);
    ck_assert_int_eq(found.narrowing.shift, 2);
    ck_assert_int_eq(found.narrowing.head.first, 1);
    dp_bisection_release(&found);
}
END_TEST

START_TEST(noise_has_no_pattern_of_values) {
    int64_t count;
    dp_bisection found;
    rc_open("tiny-plain");
    float *values = rc_values("layers.1.mlp.norm", &count);
    for (int64_t i = 0; i < count; i++) values[i] *= 1.0f + 1e-5f * (float)(i * 2654435761u % 1000u) / 1000.0f;
    rc_put_values("layers.1.mlp.norm", values);
    free(values);
    rc_bisect(&found);
    ck_assert_int_eq(found.narrowing.values, DP_VALUES_NONE);
    ck_assert_int_eq(found.narrowing.row.pattern, DP_AXIS_ALL);
    expect_words(&found, "values:    no pattern");
    dp_bisection_release(&found);
}
END_TEST

START_TEST(the_map_shows_where_the_differences_lie) {
    dp_bisection found;
    rc_open("tiny-plain");
    rc_change("layers.1.attn.norm", one_row, 2, 0);
    rc_bisect(&found);
    ck_assert_int_eq(found.narrowing.map_lines, 5);
    ck_assert_int_eq(found.narrowing.columns_a_character, 2);
    for (int y = 0; y < 5; y++) ck_assert_uint_eq(strspn(found.narrowing.map[y], y == 3 ? "#" : "."), HIDDEN_SIZE / 2);
    dp_bisection_release(&found);
}
END_TEST

/* The reference has rounding noise everywhere; one element of the run is far off. */
START_TEST(against_an_oracle_only_what_is_beyond_the_bar_counts) {
    char oracle[SCRATCH_PATH];
    rc_open("tiny-plain");
    rc_change("layers.1.mlp.down", one_element, 1.0f, 0.01f);
    const dp_compare_options options = {.files = {.a = scratch_path("case.h5", oracle), .b = sf_path}};
    dp_bisection found;
    dp_bisect_files(&options, NULL, sf_folder, &found);
    ck_assert_int_eq(found.comparison.verdict, DP_FAIL);
    ck_assert_str_eq(found.first->spec.name, "layers.1.mlp.down");
    ck_assert_int_eq(found.narrowing.differing, 1);
    ck_assert_int_eq(found.narrowing.first, 2 * HIDDEN_SIZE + 17);
    dp_bisection_release(&found);
}
END_TEST

START_TEST(the_command_names_stage_and_place) {
    rc_open("tiny-plain");
    child_expect(CHILD("bisect", rc_a, sf_path), 0, "no divergence: all 59 stages compared are identical", "");
    rc_change("layers.1.attn.norm", one_row, 2, 0);
    child_expect(CHILD("bisect", rc_a, sf_path), 1, "first divergent stage: layers.1.attn.norm [5, 96], after 22", "");
    cJSON *json = child_json(CHILD("bisect", rc_a, sf_path, "--json"), 1);
    ck_assert_str_eq(child_text(cJSON_GetObjectItemCaseSensitive(json, "first_divergent"), "name"),
                     "layers.1.attn.norm");
    ck_assert_str_eq(child_text(cJSON_GetObjectItemCaseSensitive(json, "narrowing"), "values"),
                     "B is A times 2, up to rounding");
    cJSON_Delete(json);
    child_expect(CHILD("bisect", rc_a, sf_path, "-k", "no.stage"), 5, "NOTHING COMPARED", "");
    child_expect(CHILD("bisect", rc_a, "oracles/tiny-hot.h5"), 3, "REFUSED: geometry.field.differs", "");
}
END_TEST

START_TEST(an_oracle_and_a_run_part_where_the_check_says_even_inside_every_bar) {
    /* The chained comparison passes; the stage does not follow from the ones before it, which it shows alone. */
    scratch_copy_case("tiny-plain");
    scratch_change_value("/stages/float64/layers.1.mlp.up", 333, 1 + 1e-9, 0.0);
    child_expect(CHILD("bisect", "--checkpoint", sf_folder, "--oracle", sf_path), 1,
                 "first divergent stage: layers.1.mlp.up", "");
    child_expect(CHILD("bisect", "--checkpoint", sf_folder, "--oracle", sf_path), 1, "it fails when it is run alone",
                 "");
    child_expect(CHILD("check", "--checkpoint", sf_folder, "--oracle", sf_path), 1,
                 "first failing stage layers.1.mlp.up", "");
}
END_TEST

START_TEST(an_oracle_and_a_run_and_two_ways_of_running_are_bisected_too) {
    child_expect(CHILD("bisect", "--case", "tiny-plain"), 0, "no divergence: all 59 stages compared are inside", "");
    child_expect(CHILD("bisect", "--case", "tiny-plain", "--between", "isa=generic,threads=2"), 0, "are identical", "");
    child_expect(CHILD("bisect", "--case", "tiny-plain", "--a", "precision=f32", "--b", "precision=q8_0,threads=1"), 1,
                 "first divergent stage: ctx.fc", "");
    child_expect(CHILD("bisect", "--case", "tiny-plain", "--a", "class=exact", "--b", "class=fast"), 2, "",
                 "engine.class");
    child_expect(CHILD("bisect", "--case", "tiny-hot", "--oracle", "x"), 2, "", "is needed");
}
END_TEST

START_TEST(a_wrong_checkpoint_is_bisected_to_the_stage_that_it_spoils) {
    char path[SCRATCH_PATH];
    rc_open("tiny-plain");
    scratch_copy("oracles/tiny-plain.h5", "oracle.h5");
    scratch_flip_weight("layers.1.self_attn.o_proj.weight", 3, 13, true);
    child_expect(CHILD("bisect", "--checkpoint", sf_folder, "--oracle", scratch_path("oracle.h5", path)), 1,
                 "first divergent stage: layers.1.attn.o_proj", "");
}
END_TEST

START_TEST(a_wrong_word_of_bisect_is_a_usage_error) {
    static const struct {
        const char *word[8], *complaint;
    } usage[] = {
        {{"a.h5"}, "two files are needed"},
        {{"a.h5", "b.h5", "--good", "x", "--bad", "y"}, "exclude each other"},
        {{"--case", "tiny-plain", "--between", "isa=generic"}, "bisect.side"},
        {{"--case", "tiny-plain", "--between", "isa=generic,isa=mmx"}, "'isa=mmx' is no setting"},
        {{"--case", "tiny-plain", "--a", "threads=0", "--b", "threads=1"}, "'threads=0' is no setting"},
        {{"--case", "tiny-plain", "--a", "threads=1"}, "--a and --b are both needed"},
        {{"--case", "tiny-plain", "--good", "HEAD"}, "--good and --bad are both needed"},
        {{"--case", "tiny-plain", "--build", "make"}, "belong to --good and --bad"},
        {{"--expect", "nothing", "a.h5", "b.h5"}, "found 'nothing'"},
        {{"a.h5", "b.h5", "--threads", "2"}, "two files are not run: --threads and --isa do not apply"},
        {{"--good", "a", "--bad", "b", "--isa", "avx2"}, "as --run says: --threads and --isa do not apply"},
        {{"a.h5", "b.h5", "--case", "tiny-plain"}, "--case, --precision and --lm-head do not apply"},
    };
    for (size_t i = 0; i < sizeof usage / sizeof *usage; i++) {
        const char *words[10] = {"bisect"};
        int count = 1;
        while (count < 9 && usage[i].word[count - 1] != NULL) words[count] = usage[i].word[count - 1], count++;
        child_expect(child_words(words, count), 2, "", usage[i].complaint);
    }
}
END_TEST

void bisect_add_narrow(Suite *suite) {
    TCase *tests = tcase_create("narrow");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_add_loop_test(tests, a_planted_fault_is_localised_exactly, 0, INJECTIONS);
    tcase_add_test(tests, a_row_or_head_in_the_place_of_another_is_recognised);
    tcase_add_test(tests, noise_has_no_pattern_of_values);
    tcase_add_test(tests, the_map_shows_where_the_differences_lie);
    tcase_add_test(tests, against_an_oracle_only_what_is_beyond_the_bar_counts);
    tcase_add_test(tests, the_command_names_stage_and_place);
    tcase_add_test(tests, an_oracle_and_a_run_part_where_the_check_says_even_inside_every_bar);
    tcase_add_test(tests, an_oracle_and_a_run_and_two_ways_of_running_are_bisected_too);
    tcase_add_test(tests, a_wrong_checkpoint_is_bisected_to_the_stage_that_it_spoils);
    tcase_add_test(tests, a_wrong_word_of_bisect_is_a_usage_error);
    suite_add_tcase(suite, tests);
}
