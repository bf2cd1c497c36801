/*
 * test_pages.c - the page of a result: its form, escaping, pages without plots, and what a gate's page lists. What its
 * first screen tells is in test_story.c.
 */
#include "report/html.h"
#include "support/page_case.h"
#include "report/render_html.h"
#include "support/scratch.h"
#include "suites.h"
#include "report/svg_inline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

START_TEST(a_refusal_shows_its_message_and_no_number) {
    page_without_gnuplot();
    cJSON *document = page_document("tiny-plain");
    page_refuse(document, "geometry.field.differs", "the field <rope/theta> differs & more");
    char *page = page_render(document);
    FIRST_SCREEN(page, "REFUSED", "No number was judged", "geometry.field.differs",
                 "the field &lt;rope/theta&gt; differs &amp; more");
    ck_assert_ptr_null(strstr(page, "<figure"));
    free(page);
}
END_TEST

START_TEST(everything_from_outside_is_escaped) {
    static const char evil[] = "</style><script>alert('1')</script>\"&\x01\xff`";
    page_without_gnuplot();
    cJSON *document = page_document(evil), *item = page_only_case(document);
    page_break(document, "layers.0.out", 1e-3);
    page_set(document, "command", evil);
    page_set(document, "filter", evil);
    page_set(document, "when", evil);
    page_set(item, "command", evil);
    page_set(cJSON_GetObjectItem(document, "environment"), "compiler", evil);
    page_set(cJSON_GetObjectItem(document, "environment"), "<b>", "x");
    page_set(cJSON_GetObjectItem(item, "checkpoint"), "path", evil);
    char *page = page_render(document);
    ck_assert_ptr_nonnull(strstr(page, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;\\x01\\xff`"));
    ck_assert_ptr_nonnull(strstr(page, "&lt;b&gt;"));
    ck_assert_ptr_null(strchr(page, '\x01'));
    ck_assert_ptr_null(strchr(page, '\xff'));
    free(page);
}
END_TEST

START_TEST(what_no_page_may_hold_is_replaced) {
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    ck_assert_ptr_nonnull(to);
    dp_html_text(to, "a\x01\xff<");
    ck_assert_int_eq(fclose(to), 0);
    ck_assert_str_eq(text, "a&#xfffd;&#xfffd;&lt;");
    free(text);
}
END_TEST

START_TEST(without_gnuplot_the_page_says_so_and_is_complete) {
    page_without_gnuplot();
    cJSON *document = page_document("tiny-plain");
    page_break(document, "layers.0.out", 1e-3);
    char *page = page_render(document);
    ck_assert_ptr_nonnull(strstr(page, "Plots are missing. gnuplot is not installed"));
    ck_assert_ptr_null(strstr(page, "<figure"));
    ck_assert_ptr_nonnull(strstr(page, "layers.1.attn.context</code></td>"));
    ck_assert_int_eq(sf_files_in_folder(), 0);
    free(page);
}
END_TEST

START_TEST(a_gate_lists_every_case_and_tells_the_failing_ones) {
    page_without_gnuplot();
    cJSON *document = page_document("first-good"), *cases = cJSON_GetObjectItem(document, "cases");
    for (int i = 0; i < 11; i++) {
        char name[32];
        snprintf(name, sizeof name, "bad-%d", i);
        cJSON *bad = page_document(name);
        page_break(bad, "layers.0.out", 1e-3);
        cJSON_AddItemToArray(cases, cJSON_DetachItemFromArray(cJSON_GetObjectItem(bad, "cases"), 0));
        cJSON_Delete(bad);
    }
    page_set(document, "verdict", "FAIL");
    char *page = page_render(document);
    FIRST_SCREEN(page, "FAIL", "11 of 12 cases do not pass; ", "bad-0", "Look at", "layers.0.out",
                 "All 10 other cases that do not pass are first outside their limits at the same stage");
    ck_assert_ptr_nonnull(strstr(page, "3 more that do not pass"));
    ck_assert_ptr_nonnull(strstr(page, "href=\"#case-2-plots\""));
    ck_assert_ptr_null(strstr(page, "href=\"#case-6-plots\""));
    ck_assert_ptr_nonnull(strstr(page, "href=\"#case-9-stages\""));
    ck_assert_ptr_null(strstr(page, "href=\"#case-10-stages\""));
    ck_assert_ptr_nonnull(strstr(page, "<td>first-good</td>"));
    ck_assert_ptr_nonnull(strstr(page, "href=\"#case-12\""));
    ck_assert_ptr_null(strstr(page, "href=\"#case-1\""));
    ck_assert_ptr_nonnull(strstr(page, "Stages are listed for the first 8 cases"));
    free(page);
}
END_TEST

START_TEST(a_page_stays_small_whatever_its_cases) {
    enum { LAYERS = 1000, CASES = 12 };
    page_without_gnuplot();
    cJSON *document = page_document("bad");
    page_break(document, "layers.0.out", 1e-3);
    cJSON *item = page_only_case(document), *stages = cJSON_GetObjectItem(item, "stages");
    for (int i = 0; i < LAYERS; i++) cJSON_AddItemToArray(stages, cJSON_Duplicate(page_stage(document, "final"), true));
    cJSON *const one = cJSON_Duplicate(document, true);
    for (int i = 0; i < CASES - 2; i++) page_add_case(document, cJSON_Duplicate(one, true));
    /* The case that the page is about has its table though it is the last. */
    cJSON_Delete(one);
    cJSON *last = page_document("last");
    page_break(last, "layers.0.out", 1e-3);
    page_set(page_only_case(last), "verdict", "ERROR");
    cJSON_ReplaceItemInObject(page_only_case(last), "error", cJSON_Parse("{\"code\":\"a.b\",\"message\":\"c\"}"));
    page_add_case(document, last);
    page_set(document, "verdict", "ERROR");
    char *page = page_render(document); /* asks for less than 1.5 MB */
    ck_assert_ptr_nonnull(strstr(page, "href=\"#case-12-stages\""));
    ck_assert_ptr_nonnull(strstr(page, "href=\"#case-2-stages\""));
    ck_assert_ptr_null(strstr(page, "href=\"#case-7-stages\""));
    free(page);
}
END_TEST

START_TEST(a_checkpoint_in_two_precisions_gets_a_ladder_and_in_one_none) {
    cJSON *document = page_document("tiny-plain"), *other = page_document("tiny-plain-q8_0");
    page_set(cJSON_GetObjectItem(page_only_case(document), "checkpoint"), "path", "fixtures/small/tiny-plain");
    page_set(cJSON_GetObjectItem(page_only_case(other), "checkpoint"), "path", "fixtures/small/tiny-plain");
    page_set(page_only_case(other), "precision", "q8_0");
    cJSON_AddItemToArray(cJSON_GetObjectItem(document, "cases"),
                         cJSON_DetachItemFromArray(cJSON_GetObjectItem(other, "cases"), 0));
    cJSON *alone = cJSON_Duplicate(document, true);
    page_set(page_only_case(alone), "precision", "q8_0");
    char *page = page_render(document);
    ck_assert_ptr_nonnull(strstr(page, "aria-label=\"Error after each layer, by precision: tiny-plain\""));
    ck_assert_ptr_nonnull(strstr(page, "href=\"#precisions\""));
    free(page);
    page = page_render(alone);
    ck_assert_ptr_nonnull(strstr(page, "aria-label=\"Error of each stage"));
    ck_assert_ptr_null(strstr(page, "Error after each layer"));
    ck_assert_ptr_null(strstr(page, "#precisions"));
    free(page);
    cJSON_Delete(other);
}
END_TEST

START_TEST(a_result_without_a_case_is_no_pass_on_the_page_either) {
    page_without_gnuplot();
    cJSON *document = page_document("x");
    cJSON_ReplaceItemInObject(document, "cases", cJSON_CreateArray());
    page_set(document, "verdict", "NOTHING COMPARED");
    char *page = page_render(document);
    FIRST_SCREEN(page, "NOTHING COMPARED", "no case was run", "That is no pass");
    free(page);
}
END_TEST

/* ---- Pictures in a page ---- */

static dflash_status inlined(const char *svg, char **out, dflash_error *err) {
    size_t length = 0;
    FILE *to = open_memstream(out, &length);
    ck_assert_ptr_nonnull(to);
    const dflash_status status = dp_svg_inline(to, svg, "p1", "a <label>", err);
    ck_assert_int_eq(fclose(to), 0);
    return status;
}

START_TEST(a_picture_gets_its_own_names_and_the_page_s_colours) {
    dflash_error err = {.message = ""};
    char *out = NULL;
    ck_assert_int_eq(
        inlined("<?xml?><svg viewBox=\"0 0 9 4\"\n>\n<title>x</title><g id=\"a\" stroke='rgb(  0, 114, 178)'>"
                "<use xlink:href='#a' fill=\"black\"/></g><desc>d</desc><filter id='f'><a/></filter>"
                "<g fill=\"none\" stroke=\"black\">\n\t</g></svg>",
                &out, &err),
        DFLASH_OK);
    ck_assert_str_eq(out, "<svg viewBox=\"0 0 9 4\" role=\"img\" aria-label=\"a &lt;label&gt;\">\n"
                          "<g id=\"p1-a\" stroke='var(--p-blue)'><use xlink:href='#p1-a' fill=\"currentColor\"/></g>"
                          "</svg>\n");
    free(out);
}
END_TEST

START_TEST(a_picture_that_reaches_outside_is_refused) {
    static const char *const bad[] = {"<svg viewBox=\"0 0 1 1\"><script>x</script></svg>",
                                      "<svg viewBox=\"0 0 1 1\"><image xlink:href='http://a/b.png'/></svg>",
                                      "<svg viewBox=\"0 0 1 1\"><g onload=\"x\"/></svg>",
                                      "<svg width=\"1\"></svg>",
                                      "<svg viewBox=\"0 0 1 1\"><g>",
                                      ""};
    dflash_error err = {.message = ""};
    char *out = NULL;
    const dflash_status status = inlined(bad[_i], &out, &err);
    ck_assert_int_eq(status, DFLASH_ERR_REFUSED);
    ck_assert_str_eq(err.code, "svg.form");
    ck_assert_str_eq(out, "");
    free(out);
}
END_TEST

Suite *suite_pages(void) {
    Suite *suite = suite_create("pages");
    TCase *tests = tcase_create("pages");
    tcase_add_checked_fixture(tests, page_set_up, page_tear_down);
    tcase_add_test(tests, a_refusal_shows_its_message_and_no_number);
    tcase_add_test(tests, everything_from_outside_is_escaped);
    tcase_add_test(tests, what_no_page_may_hold_is_replaced);
    tcase_add_test(tests, without_gnuplot_the_page_says_so_and_is_complete);
    tcase_add_test(tests, a_gate_lists_every_case_and_tells_the_failing_ones);
    tcase_add_test(tests, a_checkpoint_in_two_precisions_gets_a_ladder_and_in_one_none);
    tcase_add_test(tests, a_result_without_a_case_is_no_pass_on_the_page_either);
    tcase_add_test(tests, a_picture_gets_its_own_names_and_the_page_s_colours);
    tcase_add_test(tests, a_page_stays_small_whatever_its_cases);
    tcase_add_loop_test(tests, a_picture_that_reaches_outside_is_refused, 0, 6);
    suite_add_tcase(suite, tests);
    return suite;
}
