/* test_story.c - what the first screen of a page tells: which stage to look at, why, and what came of it. */
#include "support/page_case.h"
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

START_TEST(the_first_screen_of_a_failure_names_the_stage_and_the_command) {
    page_without_gnuplot();
    cJSON *document = page_document("tiny-plain");
    page_break(document, "layers.1.attn.context", 1e-3);
    char *page = page_render(document);
    FIRST_SCREEN(page, "FAIL", "tiny-plain", "Look at", "layers.1.attn.context",
                 "the softmax-weighted values over the visible keys", "4 of 7 compared stages are outside their limits",
                 "1,000 times the limit", "[2, 3], is 1.5 instead of 1.25", "Only row 2 of its 4 is off",
                 "No stage was run alone", "Of the 3 stages after it, 3", "1 of 3 drafted tokens differs",
                 "dflash-parity check --checkpoint &#39;a b&#39;");
    free(page);
}
END_TEST

START_TEST(an_isolated_fault_is_told_as_the_cause_and_the_rest_as_carried_on) {
    page_without_gnuplot();
    cJSON *document = page_document("tiny-plain");
    page_break(document, "layers.1.attn.context", 1e-3);
    page_isolate(document, "layers.1.attn.context");
    char *page = page_render(document);
    FIRST_SCREEN(page, "Look at", "layers.1.attn.context", "1 of 7 run alone is outside its bound",
                 "on the reference&#39;s own inputs", "41.5 times the bound", "the fault is in this stage",
                 "they only carry the error on");
    ck_assert_ptr_nonnull(strstr(page, "alone, × bound"));
    free(page);
}
END_TEST

START_TEST(a_stage_that_fails_at_its_noise_is_not_told_as_beyond_its_bound) {
    static const struct {
        const char *key;
        double value;
    } set[] = {{"share", 0.29}, {"noise", 3}, {"noise_bar", 1.5}, {"peak", 1}, {"peak_bar", 9}};
    page_without_gnuplot();
    cJSON *document = page_document("tiny-plain"), *stage;
    page_break(document, "layers.1.attn.context", 1e-3);
    page_isolate(document, "layers.1.attn.context");
    cJSON_ArrayForEach(stage, cJSON_GetObjectItem(page_only_case(document), "stages")) {
        cJSON *isolated = cJSON_GetObjectItem(stage, "isolated");
        if (cJSON_IsTrue(cJSON_GetObjectItem(isolated, "pass"))) continue;
        for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
            cJSON_DeleteItemFromObject(isolated, set[i].key);
            cJSON_AddNumberToObject(isolated, set[i].key, set[i].value);
        }
    }
    char *page = page_render(document);
    FIRST_SCREEN(page, "Look at", "layers.1.attn.context", "each element is inside the bound of its own arithmetic",
                 "together their errors are 2 times the rounding noise", "the fault is in this stage");
    ck_assert_ptr_null(strstr(page, "0.29 times the bound"));
    free(page);
}
END_TEST

START_TEST(a_pass_says_so_and_names_the_stage_nearest_to_its_bar) {
    page_without_gnuplot();
    char *page = page_render(page_document("tiny-plain"));
    FIRST_SCREEN(page, "PASS", "passes", "all 7 compared stages", "90 % of it left");
    ck_assert_ptr_null(strstr(page, "Look at"));
    free(page);
}
END_TEST

START_TEST(values_that_are_not_finite_are_named_as_such) {
    page_without_gnuplot();
    cJSON *document = page_document("tiny-plain");
    page_break(document, "layers.0.out", NAN);
    char *page = page_render(document);
    FIRST_SCREEN(page, "FAIL", "Look at", "layers.0.out", "NaN or infinite: 2 of its 32", "not finite");
    ck_assert_ptr_null(strstr(page, "is nan"));
    ck_assert_ptr_nonnull(strstr(page, "2 NaN"));
    free(page);
}
END_TEST

START_TEST(a_round_that_differs_is_a_failure_with_its_bits) {
    page_without_gnuplot();
    cJSON *document = page_document("tiny-plain"), *item = page_only_case(document), *variant, *first;
    variant = cJSON_GetObjectItem(item, "rounds")->child;
    cJSON_ReplaceItemInObject(variant, "identical", cJSON_CreateFalse());
    first = cJSON_CreateObject();
    page_set(first, "stage", "layers.0.out");
    cJSON_AddNumberToObject(first, "index", 12);
    page_set(first, "block", "0x3f800000");
    page_set(first, "round", "0x3f800001");
    cJSON_ReplaceItemInObject(variant, "first_difference", first);
    page_set(item, "verdict", "FAIL");
    page_set(document, "verdict", "FAIL");
    char *page = page_render(document);
    FIRST_SCREEN(page, "FAIL", "Look at", "layers.0.out", "leaves the block", "round.all",
                 "value 12, 0x3f800001 instead of 0x3f800000");
    free(page);
}
END_TEST

START_TEST(a_gate_that_passes_is_told_by_the_case_nearest_to_a_bar) {
    page_without_gnuplot();
    cJSON *document = page_document("first"), *near = page_document("near"), *last = page_document("last");
    cJSON_SetNumberValue(cJSON_GetObjectItem(page_stage(near, "layers.1.out"), "headroom"), 0.31);
    page_add_case(document, near);
    page_add_case(document, last);
    char *page = page_render(document);
    FIRST_SCREEN(page, "PASS", "all 3 cases pass", "21 stages and 3 rounds of 3 cases", "near", "layers.1.out",
                 "31 % of it left");
    ck_assert_ptr_nonnull(strstr(page, "<section id=\"case-2\">"));
    ck_assert_ptr_null(strstr(page, "<section id=\"case-1\">"));
    ck_assert_ptr_nonnull(strstr(page, "<td class=\"n\">0.69</td>"));
    free(page);
}
END_TEST

START_TEST(a_refusal_among_failures_leads_a_page_whose_verdict_it_is) {
    page_without_gnuplot();
    cJSON *document = page_document("broken"), *refused = page_document("refused");
    page_break(document, "layers.0.out", 1e-3);
    page_refuse(refused, "geometry.field.differs", "no");
    page_add_case(document, refused);
    page_set(document, "verdict", "REFUSED");
    char *page = page_render(document);
    FIRST_SCREEN(page, "REFUSED", "2 of 2 cases do not pass; ", "refused", "geometry.field.differs",
                 "first leave their limits elsewhere");
    ck_assert_ptr_null(strstr(page, "href=\"#case-2-plots\""));
    ck_assert_ptr_nonnull(strstr(page, "href=\"#case-2-inputs\""));
    free(page);
}
END_TEST

START_TEST(a_wrong_id_is_told_without_an_error_size) {
    page_without_gnuplot();
    cJSON *document = page_document("x"), *stage = page_stage(document, "logits");
    page_break(document, "logits", 1e-3);
    page_isolate(document, "logits");
    cJSON_ReplaceItemInObject(stage, "exact", cJSON_CreateTrue());
    cJSON_ReplaceItemInObject(stage, "bar", cJSON_CreateNull());
    cJSON *isolated = cJSON_GetObjectItem(stage, "isolated"), *chained = cJSON_GetObjectItem(stage, "chained");
    cJSON_ReplaceItemInObject(isolated, "share", cJSON_CreateString("inf"));
    cJSON *worst = cJSON_Duplicate(cJSON_GetObjectItem(chained, "worst"), true);
    cJSON_AddNumberToObject(worst, "bound", 0);
    cJSON_ReplaceItemInObject(isolated, "worst", worst);
    cJSON_SetNumberValue(cJSON_GetObjectItem(chained, "mismatches"), 1);
    char *page = page_render(document);
    FIRST_SCREEN(page, "Look at", "it gives other ids than follow from them: the fault is in this stage",
                 "The first of them, [2, 3], is 1.5 instead of 1.25");
    ck_assert_ptr_null(strstr(page, "values that are not finite"));
    ck_assert_ptr_nonnull(strstr(page, "<td class=\"n\">differs</td>"));
    ck_assert_ptr_nonnull(strstr(page, "1 of 24 differs; [2, 3]: 1.5, reference 1.25"));
    free(page);
}
END_TEST

START_TEST(rows_are_told_as_spans_and_not_when_they_are_scattered) {
    static const struct {
        const char *off, *told; /* a digit a row: 1 is off */
    } rows[] = {{"0011", "Rows 2 to 3 of its 4 are off."},
                {"1010", "Rows 0 and 2 of its 4 are off."},
                {"11011001", "Rows 0 to 1, 3 to 4 and 7 of its 8 are off."},
                {"1111", "All of its 4 rows are off."},
                {"10101010", NULL},
                {"0000", NULL}};
    page_without_gnuplot();
    cJSON *document = page_document("x"), *stage = page_stage(document, "layers.1.attn.context");
    page_break(document, "layers.1.attn.context", 1e-3);
    cJSON *list = cJSON_CreateArray();
    for (const char *s = rows[_i].off; *s != '\0'; s++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(*s == '1' ? 1e-3 : 1e-7));
    cJSON_ReplaceItemInObject(stage, "rows", list);
    char *page = page_render(document);
    if (rows[_i].told != NULL)
        FIRST_SCREEN(page, "Look at", rows[_i].told);
    else
        ck_assert(strstr(page, " of its 8 are off") == NULL && strstr(page, " of its 4 are off") == NULL);
    free(page);
}
END_TEST

START_TEST(growth_is_told_of_the_layers_that_double_the_error) {
    static const struct {
        double factor[2];
        const char *told;
    } growth[] = {{{349494.24, 0.83}, "Layer 0 multiplies the error of the residual stream by 349,000; no later one"},
                  {{1.2, 9995.2}, "Layer 1 multiplies the error of the residual stream by 10,000."},
                  {{3, 4.3e9}, "Layer 0 multiplies the error of the residual stream by 3, layer 1 by 4.3e9."},
                  {{1.5, 1}, NULL}};
    page_without_gnuplot();
    cJSON *document = page_document("x"), *list = cJSON_GetObjectItem(page_only_case(document), "growth");
    page_break(document, "layers.0.attn.context", 1e-3);
    for (int i = 0; i < 2; i++) {
        cJSON *layer = cJSON_CreateObject();
        cJSON_AddNumberToObject(layer, "layer", i);
        cJSON_AddNumberToObject(layer, "in", 0);
        cJSON_AddNumberToObject(layer, "out", 1e-3);
        cJSON_AddNumberToObject(layer, "factor", growth[_i].factor[i]);
        page_set(layer, "source", "");
        cJSON_AddNumberToObject(layer, "source_share", 0.5);
        cJSON_AddItemToArray(list, layer);
    }
    char *page = page_render(document);
    if (growth[_i].told != NULL)
        FIRST_SCREEN(page, growth[_i].told);
    else
        ck_assert_ptr_null(strstr(page, "multiplies"));
    ck_assert_ptr_nonnull(strstr(page, "<td class=\"n\">0</td>"));
    free(page);
}
END_TEST

START_TEST(what_is_handed_on_of_a_nan_is_no_other_fault) {
    page_without_gnuplot();
    cJSON *document = page_document("x"), *stage;
    page_break(document, "layers.0.out", NAN);
    page_isolate(document, "layers.0.out");
    for (stage = page_stage(document, "layers.1.out"); stage != NULL; stage = stage->next) {
        cJSON *isolated = cJSON_GetObjectItem(stage, "isolated");
        cJSON_ReplaceItemInObject(isolated, "pass", cJSON_CreateFalse());
        cJSON_ReplaceItemInObject(isolated, "share", cJSON_CreateString("inf"));
        /* `final` had the oracle's inputs: it is a fault of its own. */
        if (stage != page_stage(document, "final")) cJSON_ReplaceItemInObject(isolated, "fed", cJSON_CreateFalse());
    }
    char *page = page_render(document);
    FIRST_SCREEN(page, "Run alone, 2 of them are not finite either, but had to be fed the run&#39;s own values",
                 "Another stage fails alone too: <code>final</code>.");
    free(page);
}
END_TEST

START_TEST(a_run_that_drafted_nothing_is_not_told_as_other_tokens) {
    page_without_gnuplot();
    cJSON *document = page_document("x"), *stage = page_stage(document, "logits");
    page_break(document, "layers.1.out", NAN);
    page_set(stage, "name", "markov.tokens");
    cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(stage, "chained"), "compared"), 0);
    cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(stage, "chained"), "nan"), 0);
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(page_only_case(document), "plots"), "tokens", cJSON_CreateNull());
    char *page = page_render(document);
    FIRST_SCREEN(page, "Look at", "No token was drafted.");
    ck_assert_ptr_null(strstr(page, "drafted tokens"));
    free(page);
}
END_TEST

START_TEST(a_stage_that_rounds_more_coarsely_than_its_bar_is_not_told_as_having_inherited_it) {
    page_without_gnuplot();
    for (int coarse = 0; coarse < 2; coarse++) {
        cJSON *document = page_document("tiny-plain"), *stage;
        page_break(document, "layers.1.attn.context", 1e-3);
        page_isolate(document, "none of them");
        cJSON_ArrayForEach(stage, cJSON_GetObjectItem(page_only_case(document), "stages")) {
            cJSON *alone = cJSON_GetObjectItem(cJSON_GetObjectItem(stage, "isolated"), "difference");
            cJSON_SetNumberValue(cJSON_GetObjectItem(alone, "rel_l2"), coarse != 0 ? 1e-4 : 1e-8);
            cJSON_SetNumberValue(cJSON_GetObjectItem(alone, "max_rel_rms"), 1e-8);
        }
        char *page = page_render(document);
        FIRST_SCREEN(page, "layers.1.attn.context",
                     coarse != 0 ? "rounds more coarsely than the limit allows"
                                 : "it received the error from its inputs");
        ck_assert_ptr_null(strstr(page, coarse == 0 ? "rounds more coarsely" : "received the error"));
        free(page);
    }
}
END_TEST

Suite *suite_summary(void) {
    Suite *suite = suite_create("story");
    TCase *tests = tcase_create("first screens");
    tcase_add_checked_fixture(tests, page_set_up, page_tear_down);
    tcase_add_test(tests, the_first_screen_of_a_failure_names_the_stage_and_the_command);
    tcase_add_test(tests, an_isolated_fault_is_told_as_the_cause_and_the_rest_as_carried_on);
    tcase_add_test(tests, a_stage_that_fails_at_its_noise_is_not_told_as_beyond_its_bound);
    tcase_add_test(tests, a_pass_says_so_and_names_the_stage_nearest_to_its_bar);
    tcase_add_test(tests, values_that_are_not_finite_are_named_as_such);
    tcase_add_test(tests, a_round_that_differs_is_a_failure_with_its_bits);
    tcase_add_test(tests, a_gate_that_passes_is_told_by_the_case_nearest_to_a_bar);
    tcase_add_test(tests, a_refusal_among_failures_leads_a_page_whose_verdict_it_is);
    tcase_add_test(tests, what_is_handed_on_of_a_nan_is_no_other_fault);
    tcase_add_test(tests, a_run_that_drafted_nothing_is_not_told_as_other_tokens);
    tcase_add_test(tests, a_wrong_id_is_told_without_an_error_size);
    tcase_add_loop_test(tests, rows_are_told_as_spans_and_not_when_they_are_scattered, 0, 6);
    tcase_add_loop_test(tests, growth_is_told_of_the_layers_that_double_the_error, 0, 4);
    tcase_add_test(tests, a_stage_that_rounds_more_coarsely_than_its_bar_is_not_told_as_having_inherited_it);
    suite_add_tcase(suite, tests);
    return suite;
}
