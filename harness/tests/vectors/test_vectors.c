/*
 * test_vectors.c - the YaRN tables of both generations of transformers against ours, for every parameter set stored.
 *
 * The convolution and the heads on stored rows are test_vectors_heads.c's.
 */
#include "support/vectors_case.h"

#include "config/config.h"
#include "formulas/evaluate.h"
#include "model/rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HALF = 64, LEAST_SETS = 12 };

typedef struct yarn_case {
    char name[VF_NAME];
    char *text; /* the config.json */
    dflash_config config;
    int half;
    float *table;    /* transformers', float32 */
    double *precise; /* the formula in float64 */
    double factor;
} yarn_case;

static yarn_case set[VF_MOST];
static int sets;

static dflash_config parse(const char *text) {
    dflash_config config;
    dflash_error err = {0};
    ck_assert_msg(df_config_parse(text, strlen(text), "a yarn case", &config, &err) == DFLASH_OK, "%s: %s", err.code,
                  err.message);
    ck_assert_int_eq(config.rope.type, DFLASH_ROPE_YARN);
    return config;
}

static void load(void) {
    vf_file file;
    vf_open(&file);
    dp_h5_names names = vf_cases(&file, "yarn", LEAST_SETS);
    for (sets = 0; sets < names.count; sets++) {
        yarn_case *c = &set[sets];
        vf_group group;
        vf_group_open(&file, "yarn", names.name[sets], &group);
        snprintf(c->name, sizeof c->name, "%s", names.name[sets]);
        c->text = cJSON_PrintUnformatted(vf_param(&group, "config"));
        ck_assert_ptr_nonnull(c->text);
        c->config = parse(c->text);
        c->half = c->config.rope.rotary_dim / 2;
        ck_assert_int_le(c->half, MOST_HALF);
        c->table = vf_floats(&group, "inv_freq", (const int64_t[4]){c->half});
        c->precise = vf_doubles(&group, "inv_freq_float64", (const int64_t[4]){c->half});
        double *factor = vf_doubles(&group, "attention_factor", (const int64_t[4]){1});
        c->factor = *factor;
        free(factor);
        vf_group_close(&group);
    }
    dp_h5_names_release(&names);
    vf_close(&file);
}

static void unload(void) {
    for (int i = 0; i < sets; i++) {
        free(set[i].text);
        free(set[i].table);
        free(set[i].precise);
    }
    sets = 0;
}

/* ---- Agreement ---- */

static bool same_bits(const yarn_case *c, const dflash_rope_config *rope) {
    float ours[MOST_HALF];
    if (rope->rotary_dim != 2 * c->half) return false;
    df_rope_inv_freq(rope, ours);
    return memcmp(ours, c->table, (size_t)c->half * sizeof *ours) == 0;
}

static bool same_factor(const yarn_case *c, const dflash_rope_config *rope) {
    return fabs(df_rope_attention_scaling(rope) - c->factor) <= 1e-15;
}

/*
 * Within 2e-7 of the float64 table: four roundings of half a unit, in practice. Two things cost more. An exponent
 * 2i/dim that float32 cannot hold (dim is no power of two) is off by half a unit of it, which the power multiplies by
 * ln theta. And between the two ends of the ramp 1 - ramp cancels, whose error is relative to the frequency before it
 * is divided.
 */
static bool near_float64(const yarn_case *c, const float *table) {
    const dflash_rope_config *rope = &c->config.rope;
    for (int i = 0; i < c->half; i++) {
        const double exponent = 2.0 * i / rope->rotary_dim, plain = pow(rope->theta, -exponent), want = c->precise[i];
        const bool between = want < plain * (1 - 1e-9) && want > plain / rope->factor * (1 + 1e-9);
        const bool inexact = (double)(float)exponent < exponent || (double)(float)exponent > exponent;
        const double share = 2e-7 + (inexact ? exponent * 0x1p-24 * log(rope->theta) : 0.0);
        if (!(fabs((double)table[i] - want) <= share * want + (between ? 1.2e-7 * plain : 0.0))) return false;
    }
    return true;
}

START_TEST(every_table_has_the_bits_of_both_generations_and_is_near_the_formula) {
    ck_assert_int_ge(sets, LEAST_SETS);
    for (int i = 0; i < sets; i++) {
        float ours[MOST_HALF];
        const yarn_case *c = &set[i];
        df_rope_inv_freq(&c->config.rope, ours);
        ck_assert_msg(same_bits(c, &c->config.rope), "%s: another table than transformers'", c->name);
        ck_assert_msg(near_float64(c, ours), "%s: too far from the formula in float64", c->name);
        ck_assert_msg(same_factor(c, &c->config.rope), "%s: attention factor %.17g, not %.17g", c->name,
                      df_rope_attention_scaling(&c->config.rope), c->factor);
    }
}
END_TEST

/* What preflight asks of a reference's table. One set lies 18.7 roundings off, where the ramp cancels. */
START_TEST(every_table_lies_within_the_bound_of_its_formula) {
    double most = 0.0;
    for (int i = 0; i < sets; i++)
        for (int k = 0; k < set[i].half; k++) {
            const double want = set[i].precise[k], error = fabs((double)set[i].table[k] - want);
            const dp_approx bound = dp_frequency(&set[i].config.rope, k);
            ck_assert_msg(error <= bound.error, "%s, frequency %d: %g of its bound", set[i].name, k,
                          error / bound.error);
            ck_assert(fabs(bound.value - want) <= 1e-14 * want);
            most = fmax(most, error / want * 0x1p24);
        }
    ck_assert_msg(most > 16.0, "%g roundings", most);
}
END_TEST

START_TEST(a_table_or_factor_that_is_off_by_little_is_caught) {
    for (int i = 0; i < sets; i++) {
        yarn_case c = set[i];
        float spoilt[MOST_HALF];
        memcpy(spoilt, c.table, (size_t)c.half * sizeof *spoilt);
        c.table = spoilt;
        spoilt[c.half - 1] = nextafterf(spoilt[c.half - 1], 0.0f);
        ck_assert(!same_bits(&c, &c.config.rope));
        spoilt[c.half - 1] = set[i].table[c.half - 1];
        ck_assert(same_bits(&c, &c.config.rope) && near_float64(&c, spoilt));
        spoilt[0] *= 1.0f + 4e-7f;
        ck_assert(!near_float64(&c, spoilt));
        c.factor += 2e-15;
        ck_assert(!same_factor(&c, &c.config.rope));
        /* the tables of the other parameter sets; one of them may mean the same (mscale 0 is no mscale) */
        int alike = 0;
        for (int other = 0; other < sets; other++)
            alike += same_bits(&set[i], &set[other].config.rope) && same_factor(&set[i], &set[other].config.rope);
        ck_assert_msg(alike <= 2, "%s cannot be told from %d others", set[i].name, alike - 1);
    }
}
END_TEST

/* ---- Keys ---- */

/* A drafter that did not read a key would compute with what stands here in its place. */
static void ignore(dflash_rope_config *rope, const dflash_config *config, int key) {
    switch (key) {
    case 0:
        rope->truncate = true;
        break;
    case 1:
        rope->beta_fast = 32;
        break;
    case 2:
        rope->beta_slow = 1;
        break;
    case 3:
        rope->original_max_position = config->max_position;
        break;
    case 4:
        rope->has_attention_factor = false;
        break;
    case 5:
        rope->mscale = 0;
        break;
    case 6:
        rope->mscale_all_dim = 0;
        break;
    case 7:
        rope->theta = 10000;
        break;
    case 8:
        rope->rotary_dim = config->head_dim;
        break;
    case 9:
        rope->factor = 1;
        break;
    default:
        ck_abort();
    }
}
enum { KEYS = 10 };

START_TEST(a_drafter_that_ignored_a_key_would_fail_some_set) {
    int caught = 0;
    for (int i = 0; i < sets; i++) {
        dflash_rope_config rope = set[i].config.rope;
        ignore(&rope, &set[i].config, _i);
        caught += !same_bits(&set[i], &rope) || !same_factor(&set[i], &rope);
    }
    ck_assert_msg(caught > 0, "no parameter set depends on key %d", _i);
}
END_TEST

/* Whether a config says `key` in the object that holds its rope keys, null included. */
static const cJSON *rope_object(const cJSON *config) {
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(config, "rope_parameters");
    return object != NULL ? object : cJSON_GetObjectItemCaseSensitive(config, "rope_scaling");
}

START_TEST(the_sets_hold_every_way_in_which_implementations_part) {
    int old = 0, explicit_factor = 0, pair = 0, equal_pair = 0, exact_range = 0, no_range = 0, small = 0, no_factor = 0,
        no_original = 0, no_beta = 0, partial = 0;
    for (int i = 0; i < sets; i++) {
        cJSON *config = cJSON_Parse(set[i].text);
        const cJSON *rope = rope_object(config);
        const dflash_rope_config *r = &set[i].config.rope;
        old += cJSON_HasObjectItem(config, "rope_scaling");
        explicit_factor += r->has_attention_factor && fabs(r->attention_factor - (0.1 * log(r->factor) + 1)) > 1e-3;
        pair += r->mscale > 0 && r->mscale_all_dim > 0 && fabs(r->mscale - r->mscale_all_dim) > 1e-9;
        equal_pair += r->mscale > 0 && fabs(r->mscale - r->mscale_all_dim) < 1e-9;
        exact_range += !r->truncate;
        no_range += !r->truncate && !(fabs(r->beta_fast - r->beta_slow) > 0);
        small += r->rotary_dim <= 8;
        no_factor += cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(rope, "factor"));
        no_original += !cJSON_HasObjectItem(rope, "original_max_position_embeddings");
        no_beta += cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(rope, "beta_slow"));
        partial += r->rotary_dim < set[i].config.head_dim;
        cJSON_Delete(config);
    }
    ck_assert(old > 0 && old < sets);
    ck_assert(explicit_factor > 0 && pair > 0 && equal_pair > 0);
    ck_assert(exact_range > 0 && no_range > 0 && small >= 2 && partial > 0);
    ck_assert_msg(no_factor > 0 && no_original > 0 && no_beta > 0, "a key that may be absent or null never is");
}
END_TEST

/* The same parameters as the other generation writes them. */
static char *other_generation(const char *text) {
    cJSON *config = cJSON_Parse(text), *theta = NULL;
    const bool now = cJSON_HasObjectItem(config, "rope_parameters");
    cJSON *rope = cJSON_DetachItemFromObjectCaseSensitive(config, now ? "rope_parameters" : "rope_scaling");
    if (now) {
        theta = cJSON_DetachItemFromObjectCaseSensitive(rope, "rope_theta");
        cJSON_DeleteItemFromObjectCaseSensitive(config, "rope_theta");
        cJSON_AddItemToObject(config, "rope_theta", theta);
    } else {
        theta = cJSON_DetachItemFromObjectCaseSensitive(config, "rope_theta");
        cJSON_DeleteItemFromObjectCaseSensitive(rope, "rope_theta");
        cJSON_AddItemToObject(rope, "rope_theta", theta);
    }
    cJSON_AddItemToObject(config, now ? "rope_scaling" : "rope_parameters", rope);
    char *written = cJSON_PrintUnformatted(config);
    ck_assert_ptr_nonnull(written);
    cJSON_Delete(config);
    return written;
}

START_TEST(both_ways_of_writing_a_set_load_to_the_same_table) {
    for (int i = 0; i < sets; i++) {
        char *text = other_generation(set[i].text);
        ck_assert_str_ne(text, set[i].text);
        const dflash_config config = parse(text);
        ck_assert_msg(same_bits(&set[i], &config.rope) && same_factor(&set[i], &config.rope), "%s as %s", set[i].name,
                      text);
        free(text);
    }
}
END_TEST

/* ---- The numbers of the specification ---- */

static const struct {
    const char *name;
    double factor;
    struct {
        int i;
        double value;
    } at[4];
} golden[] = {
    {"dim128-factor32",
     1.3465735902799727,
     {{14, 2.942727176e-2}, {21, 2.765919341e-3}, {28, 8.298824766e-5}, {63, 4.019990453e-9}}},
    {"dim64-small-factor", 1.044628710262842, {{1, .6042963902}, {15, 4.997507e-4}, {22, 9.855530e-6}, {0, 1.0}}},
    {"dim64-factor16",
     1.2772588722239782,
     {{11, 3.912856979e-2}, {16, 5.673076923e-3}, {31, 8.334508951e-6}, {0, 1.0}}},
};
enum { GOLDEN = sizeof golden / sizeof *golden };

START_TEST(the_published_numbers_hold_on_both_sides) {
    int at = 0;
    while (at < sets && strcmp(set[at].name, golden[_i].name) != 0) at++;
    ck_assert_msg(at < sets, "there is no set %s", golden[_i].name);
    float ours[MOST_HALF];
    df_rope_inv_freq(&set[at].config.rope, ours);
    for (int g = 0; g < 4; g++) {
        const int i = golden[_i].at[g].i;
        const double want = golden[_i].at[g].value;
        ck_assert(fabs((double)ours[i] - want) <= 2e-7 * want);
        ck_assert(fabs((double)set[at].table[i] - want) <= 2e-7 * want);
        ck_assert(fabs(set[at].precise[i] - want) <= 1e-7 * want); /* as many digits as are given */
    }
    ck_assert(fabs(df_rope_attention_scaling(&set[at].config.rope) - golden[_i].factor) <= 1e-15);
}
END_TEST

START_TEST(the_file_has_no_part_that_is_not_compared) {
    static const char *const parts[] = {"confidence", "conv",     "logits", "markov", "proposal",
                                        "provenance", "selector", "verify", "yarn"};
    enum { PARTS = sizeof parts / sizeof *parts };
    vf_file file;
    vf_open(&file);
    ck_assert_int_eq(file.parts.count, PARTS);
    for (int i = 0; i < PARTS; i++) ck_assert_str_eq(file.parts.name[i], parts[i]);
    vf_close(&file);
}
END_TEST

Suite *suite_vectors(void) {
    Suite *suite = suite_create("vectors");
    TCase *tests = tcase_create("yarn");
    tcase_add_checked_fixture(tests, load, unload);
    tcase_add_test(tests, every_table_has_the_bits_of_both_generations_and_is_near_the_formula);
    tcase_add_test(tests, every_table_lies_within_the_bound_of_its_formula);
    tcase_add_test(tests, a_table_or_factor_that_is_off_by_little_is_caught);
    tcase_add_loop_test(tests, a_drafter_that_ignored_a_key_would_fail_some_set, 0, KEYS);
    tcase_add_test(tests, the_sets_hold_every_way_in_which_implementations_part);
    tcase_add_test(tests, both_ways_of_writing_a_set_load_to_the_same_table);
    tcase_add_loop_test(tests, the_published_numbers_hold_on_both_sides, 0, GOLDEN);
    suite_add_tcase(suite, tests);
    tests = tcase_create("file");
    tcase_add_test(tests, the_file_has_no_part_that_is_not_compared);
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, tcase_vectors_conv());
    suite_add_tcase(suite, tcase_vectors_heads());
    suite_add_tcase(suite, tcase_vectors_gate());
    return suite;
}
