/*
 * test_traps.c - readings that implementations are known to differ in and that no other suite decides by itself.
 *
 * Each test takes an input on which the other reading gives something else. Traps of one function are in that
 * function's suite: test_config*.c, test_rope.c, test_logits.c, test_propose.c, test_selector.c, test_markov.c,
 * test_window.c.
 */
#include "support/config_cases.h"
#include "support/draft_case.h"
#include "support/propose_case.h"
#include "model/rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading a config ---- */

static void load_with(const char *more, dflash_config *config) {
    char text[4096];
    snprintf(text, sizeof text, "{%s,%s", more, config_base("plain") + 1);
    config_must_load(text, config);
}

START_TEST(a_key_is_what_the_parser_says_and_not_what_the_text_looks_like) {
    static const char *const decoys[] = {
        "\"_name_or_path\":\"\\\"hidden_size\\\": 999,\"",       /* inside a string */
        "\"auto_map\":{\"hidden_size\":999}",                    /* of another object */
        "\"id2label\":[{\"hidden_size\":999,\"block_size\":9}]", /* of an object in a list */
    };
    dflash_config config;
    dflash_error err = {0};
    for (size_t i = 0; i < sizeof decoys / sizeof *decoys; i++) {
        load_with(decoys[i], &config);
        ck_assert_int_eq(config.hidden, 64);
        ck_assert_int_eq(config.block, 5);
    }
    static const char *const others[] = {
        "\"Hidden_Size\":999",    /* another key: names are case-sensitive */
        "\"my_hidden_size\":999", /* another key: the name is a part of it */
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char text[4096];
        snprintf(text, sizeof text, "{%s,%s", others[i], config_base("plain") + 1);
        ck_assert_int_eq(config_parse(text, &config, &err), DFLASH_ERR_REFUSED);
        ck_assert_str_eq(err.code, "config.key.unread");
    }
    /* and a key written with an escape is that key, so it is there twice */
    char text[4096];
    snprintf(text, sizeof text, "{\"hidden\\u005fsize\":999,%s", config_base("plain") + 1);
    ck_assert_int_eq(config_parse(text, &config, &err), DFLASH_ERR_REFUSED);
    ck_assert_msg(strstr(err.message, "hidden_size") != NULL, "%s: %s", err.code, err.message);
}
END_TEST

START_TEST(without_layer_types_every_layer_is_full_and_sees_both_ways) {
    dflash_config config;
    config_must_load(config_base("plain"), &config);
    for (int i = 0; i < config.n_layers; i++)
        ck_assert(!config.layer[i].sliding && !config.layer[i].causal && config.layer[i].window == 0);
    load_with("\"sliding_window\":16", &config); /* a window that no layer uses */
    for (int i = 0; i < config.n_layers; i++) ck_assert(!config.layer[i].sliding && config.layer[i].window == 0);
}
END_TEST

START_TEST(taps_keep_the_order_in_which_they_are_given) {
    dflash_config config;
    dflash_error err = {0};
    const edit unsorted = {"plain", "dflash_config.target_layer_ids", "[9,1,4]", NULL, NULL};
    ck_assert_int_eq(config_parse_edited(&unsorted, &config, &err), DFLASH_OK);
    ck_assert(config.taps[0] == 9 && config.taps[1] == 1 && config.taps[2] == 4);
}
END_TEST

START_TEST(the_embedding_output_is_a_tap_for_dspark_alone) {
    dflash_config config;
    dflash_error err = {0};
    config_must_load(config_base("dspark"), &config);
    ck_assert_int_eq(config.taps[0], -1);
    const edit plain = {"plain", "dflash_config.target_layer_ids", "[-1,4,9]", NULL, NULL};
    ck_assert_int_eq(config_parse_edited(&plain, &config, &err), DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "config.taps.range");
}
END_TEST

START_TEST(each_family_has_a_stored_checkpoint_that_mixes_sliding_and_full_layers) {
    int mixed[DFLASH_FAMILY_DFLASH2 + 1] = {0};
    for (int i = 0; i < DRAFT_FIXTURES; i++) {
        char path[320];
        dflash_config config;
        dflash_error err = {0};
        int sliding = 0;
        snprintf(path, sizeof path, "%s/config.json", draft_fixture_dir(i));
        ck_assert_msg(dflash_config_read(path, &config, &err) == DFLASH_OK, "%s", err.message);
        for (int layer = 0; layer < config.n_layers; layer++) sliding += config.layer[layer].sliding;
        mixed[config.family] += sliding > 0 && sliding < config.n_layers;
    }
    ck_assert(mixed[DFLASH_FAMILY_DFLASH] > 0 && mixed[DFLASH_FAMILY_DSPARK] > 0 && mixed[DFLASH_FAMILY_DFLASH2] > 0);
}
END_TEST

/* ---- Rotary table ---- */

START_TEST(a_yarn_range_of_no_length_is_widened_and_not_divided_by) {
    /* Both ends of the range at 13.9995: widened by 0.001, frequency 14 is half-way through it. Without, the division
     * by zero sends it to the far end. Where the ends are whole numbers, both readings give one table. */
    enum { DIM = 64, AT = 14 };
    const double theta = 1e6, factor = 4.0, end = AT - 0.0005;
    const double turns = 4096 / (2 * acos(-1.0)) * pow(theta, -2.0 * end / DIM);
    const dflash_rope_config rope = {.type = DFLASH_ROPE_YARN,
                                     .theta = theta,
                                     .rotary_dim = DIM,
                                     .factor = factor,
                                     .original_max_position = 4096,
                                     .beta_fast = turns,
                                     .beta_slow = turns};
    float table[DIM / 2];
    df_rope_inv_freq(&rope, table);
    for (int i = 0; i < DIM / 2; i++) {
        const double plain = pow(theta, -2.0 * i / DIM), ramp = i < AT ? 0 : i > AT ? 1 : 0.5;
        const double expected = plain / factor * ramp + plain * (1 - ramp);
        /* float32 holds the end to one part in a thousand of the range */
        ck_assert(fabs((double)table[i] - expected) <= (i == AT ? 1e-2 : 1e-6) * expected);
    }
}
END_TEST

/* ---- Candidates ---- */

enum { VOCAB = 320, LEADERS = 100 };

/* The row (1, 0, 0, ...) against a head whose token v has the logit raw[v], before multiplier and cap. */
static void top_of(dflash_draft *draft, const float *raw, int32_t *ids, float *values) {
    const dflash_config *c = dflash_draft_config(draft);
    const size_t width = (size_t)c->hidden, top = (size_t)c->selector_top_k;
    float *head = op_floats(VOCAB * width), *row = op_floats(width), *logits = op_floats(VOCAB);
    dp_recording seen = {.stage = NULL};
    dflash_table *table = NULL;
    dflash_error err = {0};
    int32_t token;
    const dflash_proposal_options greedy = {.temperature = 0};
    memset(head, 0, VOCAB * width * sizeof *head);
    memset(row, 0, width * sizeof *row);
    row[0] = 1.0f;
    for (size_t v = 0; v < VOCAB; v++) head[v * width] = raw[v];
    ck_assert_int_eq(dflash_table_create(draft->engine, "F32", VOCAB, c->hidden, head, &table, &err), DFLASH_OK);
    ck_assert_int_eq(dflash_logits(draft, table, row, 1, logits, &err), DFLASH_OK);
    dflash_draft_observe(draft, dp_recording_observe, &seen);
    ck_assert_msg(dflash_propose(draft, table, logits, row, 1, VOCAB, 0, &greedy, &(dflash_proposal){.token = &token},
                                 &err) == DFLASH_OK,
                  "%s", err.message);
    dflash_draft_observe(draft, NULL, NULL);
    memcpy(ids, dp_recording_find(&seen, DFLASH_STAGE_SELECT_TOPK_IDS, -1)->integer, top * sizeof *ids);
    memcpy(values, dp_recording_find(&seen, DFLASH_STAGE_SELECT_TOPK_VALUES, -1)->value, top * sizeof *values);
    for (size_t i = 0; i < top; i++) op_expect_bits(&logits[ids[i]], &values[i], 1, "a candidate's value");
    dp_recording_release(&seen);
    dflash_table_destroy(table);
    free(head);
    free(row);
    free(logits);
}

START_TEST(candidates_are_the_best_after_multiplier_and_cap) {
    dflash_engine *engine = op_engine(DFLASH_ISA_BEST, 1, true);
    dflash_draft *draft = pc_load(engine, "fixtures/small/tiny-dflash2");
    enum { TOP = 8 };
    float raw[VOCAB], values[TOP];
    int32_t ids[TOP];
    ck_assert_int_eq(draft->config.selector_top_k, TOP);
    for (int v = 0; v < VOCAB; v++) raw[v] = v < LEADERS ? 0.0f : 1000.0f + (float)v;
    /* Under the cap all leaders are 20, and the lowest ids win; before it the highest would. */
    top_of(draft, raw, ids, values);
    for (int i = 0; i < TOP; i++) ck_assert(ids[i] == LEADERS + i && !(values[i] < 20.0f) && !(values[i] > 20.0f));
    draft->config.logit_softcap = 0;
    top_of(draft, raw, ids, values);
    for (int i = 0; i < TOP; i++) ck_assert_int_eq(ids[i], VOCAB - 1 - i);
    /* A negative multiplier turns the order round; before it the order would stay. */
    draft->config.output_multiplier = -0.5;
    for (int v = 0; v < VOCAB; v++) raw[v] = (float)(v - 10);
    top_of(draft, raw, ids, values);
    for (int i = 0; i < TOP; i++) ck_assert(ids[i] == i && !(values[i] < 0.0f));
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}
END_TEST

Suite *suite_traps(void) {
    Suite *suite = suite_create("traps");
    TCase *tests = tcase_create("config");
    tcase_add_test(tests, a_key_is_what_the_parser_says_and_not_what_the_text_looks_like);
    tcase_add_test(tests, without_layer_types_every_layer_is_full_and_sees_both_ways);
    tcase_add_test(tests, taps_keep_the_order_in_which_they_are_given);
    tcase_add_test(tests, the_embedding_output_is_a_tap_for_dspark_alone);
    tcase_add_test(tests, each_family_has_a_stored_checkpoint_that_mixes_sliding_and_full_layers);
    suite_add_tcase(suite, tests);
    tests = tcase_create("rope");
    tcase_add_test(tests, a_yarn_range_of_no_length_is_widened_and_not_divided_by);
    suite_add_tcase(suite, tests);
    tests = tcase_create("proposals");
    tcase_add_test(tests, candidates_are_the_best_after_multiplier_and_cap);
    suite_add_tcase(suite, tests);
    return suite;
}
