/*
 * test_vectors_gate.c - the gate's judgement of oracles/vectors.h5: the stored file passes, every value that is changed
 * by little fails under its own name, and a file that holds what nothing judges is refused.
 */
#include "support/child.h"
#include "support/scratch.h"
#include "vectors/vectors.h"
#include "support/vectors_case.h"

#include <string.h>

static void setup(void) {
    scratch_open();
    scratch_copy("oracles/vectors.h5", "oracle.h5");
}

static void judge(dp_result *result) {
    static dp_check_options options;
    options = (dp_check_options){.checkpoint = "", .oracle = sf_path, .threads = 1};
    dp_vectors_check(&options, result);
}

static void refused(const char *code, const char *mention) {
    dp_result result;
    judge(&result);
    ck_assert_int_eq(result.verdict, DP_REFUSED);
    ck_assert_msg(strcmp(result.error.code, code) == 0, "%s: %s", result.error.code, result.error.message);
    ck_assert_msg(strstr(result.error.message, mention) != NULL, "%s", result.error.message);
    dp_result_release(&result);
}

START_TEST(the_stored_file_passes_in_every_part) {
    static const char *const some[] = {"confidence/tiny-dspark/window",
                                       "conv/tiny-dflash2.mlp.1/finish_y",
                                       "logits/tiny-dflash2/logits",
                                       "markov/tiny-dspark-rnn.plain/markov_logits",
                                       "proposal/tiny-embed.sampled/share",
                                       "proposal/tiny-embed-dspark.sampled-reduced/chain",
                                       "selector/tiny-dflash2-k3.ties/scores",
                                       "verify/residual.candidates/residual",
                                       "verify/windows/window",
                                       "yarn/dim8/inv_freq.bits"};
    dp_result result;
    judge(&result);
    ck_assert_msg(result.verdict == DP_PASS, "%s: %s", result.error.code, result.error.message);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const dp_stage_result *value = dp_stage_named(&result, some[i]);
        ck_assert_msg(value != NULL, "%s is not judged", some[i]);
        ck_assert(value->pass && value->difference.count > 0 && (value->exact || value->isolated.pass));
    }
    dp_result_release(&result);
}
END_TEST

/* A result of the reference's, an element of it, what it is multiplied by and what is added, and the values that fail.
 */
static const struct {
    const char *object;
    int64_t index;
    double factor, term;
    const char *fails;
} spoilt[] = {
    {"conv/tiny-dflash2.attention.2/prepare_dyn", 5, 1.0001, 0, "conv/tiny-dflash2.attention.2/prepare_dyn"},
    {"conv/tiny-dflash2.attention.2/prepare_y", 7, 1, 1e-4, "conv/tiny-dflash2.attention.2/prepare_y"},
    {"conv/tiny-dflash2-k3.mlp.6/finish_y", 40, 1, 1e-4, "conv/tiny-dflash2-k3.mlp.6/finish_y"},
    {"selector/tiny-dflash2.plain/hidden", 3, 1, 1e-4, "selector/tiny-dflash2.plain/hidden"},
    {"selector/tiny-dflash2.plain/scores", 9, 1, 1e-4, "selector/tiny-dflash2.plain/scores"},
    {"selector/tiny-dflash2.plain/topk_values", 2, 1, 1e-6, "selector/tiny-dflash2.plain/topk_values"},
    {"selector/tiny-dflash2.ties/path", 1, 1, 1, "selector/tiny-dflash2.ties/path"},
    {"markov/tiny-dspark-gated.plain/markov_logits", 100, 1, 1e-4, "markov/tiny-dspark-gated.plain/markov_logits"},
    {"markov/tiny-dspark.plain/tokens", 5, 1, 1, "markov/tiny-dspark.plain/tokens"},
    {"confidence/tiny-dspark/raw", 2, 1, 1e-4, "confidence/tiny-dspark/raw"},
    {"confidence/tiny-dspark/window", 0, 1, 1, "confidence/tiny-dspark/window"},
    {"logits/tiny-dflash2/logits", 70, 1, 1e-3, "logits/tiny-dflash2/logits"},
    {"proposal/tiny-embed.sampled/token", 3, 1, 1, "proposal/tiny-embed.sampled/token"},
    {"proposal/tiny-embed.sampled/share", 2, 1.00001, 0, "proposal/tiny-embed.sampled/share"},
    {"proposal/tiny-dspark-rnn.sampled/probability", 8, 1.00002, 0, "proposal/tiny-dspark-rnn.sampled/probability"},
    {"proposal/tiny-embed.greedy-reduced/probability", 8, 1, 1e-9, "proposal/tiny-embed.greedy-reduced/probability"},
    {"proposal/tiny-embed.greedy-reduced/candidate", 8, 1, 1, "proposal/tiny-embed.greedy-reduced/candidate"},
    {"proposal/tiny-embed-dflash2.sampled-reduced/logits_float64", 8, 1, 1e-4,
     "proposal/tiny-embed-dflash2.sampled-reduced/logits"},
    {"verify/windows/window", 200, 1, 1, "verify/windows/window"},
    {"verify/residual.whole/residual", 20, 1, 1e-6, "verify/residual.whole/residual"},
    {"verify/residual.same/residual", 20, 1, 1e-9, "verify/residual.same/residual"},
    {"verify/draw/index", 4, 1, 1, "verify/draw/index"},
    {"verify/accept/accepted", 3, 1, 1, "verify/accept/accepted"},
    {"verify/prefix/length", 3, 1, 1, "verify/prefix/length"},
    {"yarn/dim8/inv_freq", 1, 1.0000002, 0, "yarn/dim8/inv_freq.bits"},
    {"yarn/dim64-factor16/attention_factor", 0, 1.0000002, 0, "yarn/dim64-factor16/attention_factor.bits"},
};
enum { SPOILT = sizeof spoilt / sizeof *spoilt };

START_TEST(a_value_that_is_off_by_little_fails_under_its_name) {
    dp_result result;
    scratch_change_value(spoilt[_i].object, spoilt[_i].index, spoilt[_i].factor, spoilt[_i].term);
    judge(&result);
    ck_assert_msg(result.verdict == DP_FAIL, "%s: %s %s", spoilt[_i].object, dp_verdict_name(result.verdict),
                  result.error.message);
    const dp_stage_result *value = dp_stage_named(&result, spoilt[_i].fails);
    ck_assert_msg(value != NULL && dp_stage_failed(value), "%s does not fail", spoilt[_i].fails);
    dp_result_release(&result);
}
END_TEST

START_TEST(a_file_with_something_that_nothing_judges_is_refused) {
    sf_move_link("/verify/draw", "/verify/lottery");
    refused("vectors.part", "verify/lottery");
    sf_move_link("/verify/lottery", "/verify/draw");
    sf_move_link("/yarn", "/rope");
    refused("vectors.part", "\"rope\"");
    sf_move_link("/rope", "/yarn");
    sf_move_link("/verify/prefix/length", "/verify/accept/length");
    refused("vectors.untaken", "verify/accept/length");
}
END_TEST

START_TEST(another_kind_of_file_is_refused) {
    sf_set_text("/", "kind", "oracle");
    refused("vectors.kind", "\"oracle\"");
}
END_TEST

START_TEST(params_that_do_not_fit_are_refused) {
    sf_set_text("/proposal/tiny-embed.sampled", "params", "{\"checkpoint\":\"fixtures/small/tiny-embed\"}");
    refused("vectors.params", "proposal/tiny-embed.sampled");
    sf_set_text("/proposal/tiny-embed.sampled", "params", "[]");
    refused("vectors.params", "no JSON object");
    sf_set_text(
        "/markov/tiny-dspark.plain", "params",
        "{\"checkpoint\":\"fixtures/small/tiny-dspark\",\"tensors\":{\"markov_head.markov_w1.weight\":\"00\"}}");
    refused("vectors.tensor", "markov_head.markov_w1.weight");
}
END_TEST

START_TEST(the_gate_shows_it_as_one_case) {
    child_expect(CHILD("gate", "-k", "tiny-vectors"), 0, "PASS     tiny-vectors", "");
    child_expect(CHILD("gate", "--list", "-k", "*-vec*"), 0, "vectors\n", "");
    cJSON *document = child_json(CHILD("gate", "-k", "tiny-vectors", "--json"), 0);
    const cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(document, "cases"), 0);
    ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "case")), "tiny-vectors");
    ck_assert_int_gt(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(item, "stages")), 150);
    cJSON_Delete(document);
}
END_TEST

TCase *tcase_vectors_gate(void) {
    TCase *tests = tcase_create("gate");
    tcase_add_checked_fixture(tests, setup, scratch_close);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_stored_file_passes_in_every_part);
    tcase_add_loop_test(tests, a_value_that_is_off_by_little_fails_under_its_name, 0, SPOILT);
    tcase_add_test(tests, a_file_with_something_that_nothing_judges_is_refused);
    tcase_add_test(tests, another_kind_of_file_is_refused);
    tcase_add_test(tests, params_that_do_not_fit_are_refused);
    tcase_add_test(tests, the_gate_shows_it_as_one_case);
    return tests;
}
