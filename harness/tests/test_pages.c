/*
 * test_pages.c - the page of a result: its form, its first screen, escaping, and pages without plots.
 */
#include "html.h"
#include "page_case.h"
#include "render_html.h"
#include "scratch.h"
#include "suites.h"
#include "svg_inline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *render(cJSON *document) {
    const dp_html_options options = {.keep = NULL};
    dp_result_file file;
    char *page = NULL;
    df_error err = {.message = ""};
    page_read(document, &file);
    ck_assert_msg(dp_render_html(&file, &options, &page, &err) == DF_OK, "%s", err.message);
    dp_result_file_release(&file);
    cJSON_Delete(document);
    page_is_sound(page);
    return page;
}

/* Words in this order, all before the first table or picture: what is seen without scrolling. */
static void first_screen_holds(const char *page, const char *const *words, int count) {
    const char *at = strstr(page, "<h1>"), *end = strstr(page, "<nav");
    ck_assert(at != NULL && end != NULL);
    for (int i = 0; i < count; i++) {
        const char *found = strstr(at, words[i]);
        ck_assert_msg(found != NULL && found < end, "the first screen lacks: %s", words[i]);
        at = found;
    }
}
#define FIRST_SCREEN(page, ...)                                                                                        \
    first_screen_holds(page, (const char *const[]){__VA_ARGS__},                                                       \
                       (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

/* What PATH was: a test that runs in the suite's own process gives it back. */
static char *path_before;

static void set_up(void) {
    path_before = strdup(getenv("PATH"));
    scratch_open();
}

static void tear_down(void) {
    scratch_close();
    ck_assert_int_eq(setenv("PATH", path_before, 1), 0);
    free(path_before);
}

/* As on a machine without gnuplot. */
static void without_gnuplot(void) { ck_assert_int_eq(setenv("PATH", sf_folder, 1), 0); }

START_TEST(the_first_screen_of_a_failure_names_the_stage_and_the_command) {
    without_gnuplot();
    cJSON *document = page_document("tiny-plain");
    page_break(document, "layers.1.attn.context", 1e-3);
    char *page = render(document);
    FIRST_SCREEN(page, "FAIL", "tiny-plain", "Look at", "layers.1.attn.context",
                 "the softmax-weighted values over the visible keys", "4 of 7 compared stages are outside their bars",
                 "1,000 times the bar", "[2, 3], is 1.5 instead of 1.25", "Only row 2 of its 4 is off",
                 "No stage was run alone", "Of the 3 stages after it, 3", "1 of 3 drafted tokens differs",
                 "dflash-parity check --checkpoint &#39;a b&#39;");
    free(page);
}
END_TEST

START_TEST(an_isolated_fault_is_told_as_the_cause_and_the_rest_as_carried_on) {
    without_gnuplot();
    cJSON *document = page_document("tiny-plain");
    page_break(document, "layers.1.attn.context", 1e-3);
    page_isolate(document, "layers.1.attn.context");
    char *page = render(document);
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
    without_gnuplot();
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
    char *page = render(document);
    FIRST_SCREEN(page, "Look at", "layers.1.attn.context", "each element is inside the bound of its own arithmetic",
                 "together their errors are 2 times the rounding noise", "the fault is in this stage");
    ck_assert_ptr_null(strstr(page, "0.29 times the bound"));
    free(page);
}
END_TEST

START_TEST(a_pass_says_so_and_names_the_stage_nearest_to_its_bar) {
    without_gnuplot();
    char *page = render(page_document("tiny-plain"));
    FIRST_SCREEN(page, "PASS", "passes", "all 7 compared stages", "90 % of it left");
    ck_assert_ptr_null(strstr(page, "Look at"));
    free(page);
}
END_TEST

START_TEST(values_that_are_not_finite_are_named_as_such) {
    without_gnuplot();
    cJSON *document = page_document("tiny-plain");
    page_break(document, "layers.0.out", NAN);
    char *page = render(document);
    FIRST_SCREEN(page, "FAIL", "Look at", "layers.0.out", "NaN or infinite: 2 of its 32", "not finite");
    ck_assert_ptr_null(strstr(page, "is nan"));
    ck_assert_ptr_nonnull(strstr(page, "2 NaN"));
    free(page);
}
END_TEST

START_TEST(a_refusal_shows_its_message_and_no_number) {
    without_gnuplot();
    cJSON *document = page_document("tiny-plain");
    page_refuse(document, "geometry.field.differs", "the field <rope/theta> differs & more");
    char *page = render(document);
    FIRST_SCREEN(page, "REFUSED", "No number was judged", "geometry.field.differs",
                 "the field &lt;rope/theta&gt; differs &amp; more");
    ck_assert_ptr_null(strstr(page, "<figure"));
    free(page);
}
END_TEST

START_TEST(a_round_that_differs_is_a_failure_with_its_bits) {
    without_gnuplot();
    cJSON *document = page_document("tiny-plain"), *item = page_only_case(document), *arm, *first;
    arm = cJSON_GetObjectItem(item, "rounds")->child;
    cJSON_ReplaceItemInObject(arm, "identical", cJSON_CreateFalse());
    first = cJSON_CreateObject();
    page_set(first, "stage", "layers.0.out");
    cJSON_AddNumberToObject(first, "index", 12);
    page_set(first, "block", "0x3f800000");
    page_set(first, "round", "0x3f800001");
    cJSON_ReplaceItemInObject(arm, "first_difference", first);
    page_set(item, "verdict", "FAIL");
    page_set(document, "verdict", "FAIL");
    char *page = render(document);
    FIRST_SCREEN(page, "FAIL", "Look at", "layers.0.out", "leaves the block", "round.all",
                 "value 12, 0x3f800001 instead of 0x3f800000");
    free(page);
}
END_TEST

START_TEST(everything_from_outside_is_escaped) {
    static const char evil[] = "</style><script>alert('1')</script>\"&\x01\xff`";
    without_gnuplot();
    cJSON *document = page_document(evil), *item = page_only_case(document);
    page_break(document, "layers.0.out", 1e-3);
    page_set(document, "command", evil);
    page_set(document, "filter", evil);
    page_set(document, "when", evil);
    page_set(item, "command", evil);
    page_set(cJSON_GetObjectItem(document, "environment"), "compiler", evil);
    page_set(cJSON_GetObjectItem(document, "environment"), "<b>", "x");
    page_set(cJSON_GetObjectItem(item, "checkpoint"), "path", evil);
    char *page = render(document);
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
    without_gnuplot();
    cJSON *document = page_document("tiny-plain");
    page_break(document, "layers.0.out", 1e-3);
    char *page = render(document);
    ck_assert_ptr_nonnull(strstr(page, "Plots are missing. gnuplot is not installed"));
    ck_assert_ptr_null(strstr(page, "<figure"));
    ck_assert_ptr_nonnull(strstr(page, "layers.1.attn.context</code></td>"));
    ck_assert_int_eq(sf_files_in_folder(), 0);
    free(page);
}
END_TEST

START_TEST(a_gate_lists_every_case_and_tells_the_failing_ones) {
    without_gnuplot();
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
    char *page = render(document);
    FIRST_SCREEN(page, "FAIL", "11 of 12 cases do not pass; ", "bad-0", "Look at", "layers.0.out",
                 "All 10 other cases that do not pass are first off at the same stage");
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

/* Another case, under the document's own. */
static void add_case(cJSON *document, cJSON *other) {
    cJSON_AddItemToArray(cJSON_GetObjectItem(document, "cases"),
                         cJSON_DetachItemFromArray(cJSON_GetObjectItem(other, "cases"), 0));
    cJSON_Delete(other);
}

START_TEST(a_gate_that_passes_is_told_by_the_case_nearest_to_a_bar) {
    without_gnuplot();
    cJSON *document = page_document("first"), *near = page_document("near"), *last = page_document("last");
    cJSON_SetNumberValue(cJSON_GetObjectItem(page_stage(near, "layers.1.out"), "headroom"), 0.31);
    add_case(document, near);
    add_case(document, last);
    char *page = render(document);
    FIRST_SCREEN(page, "PASS", "all 3 cases pass", "21 stages and 3 rounds of 3 cases", "near", "layers.1.out",
                 "31 % of it left");
    ck_assert_ptr_nonnull(strstr(page, "<section id=\"case-2\">"));
    ck_assert_ptr_null(strstr(page, "<section id=\"case-1\">"));
    ck_assert_ptr_nonnull(strstr(page, "<td class=\"n\">0.69</td>"));
    free(page);
}
END_TEST

START_TEST(a_refusal_among_failures_leads_a_page_whose_verdict_it_is) {
    without_gnuplot();
    cJSON *document = page_document("broken"), *refused = page_document("refused");
    page_break(document, "layers.0.out", 1e-3);
    page_refuse(refused, "geometry.field.differs", "no");
    add_case(document, refused);
    page_set(document, "verdict", "REFUSED");
    char *page = render(document);
    FIRST_SCREEN(page, "REFUSED", "2 of 2 cases do not pass; ", "refused", "geometry.field.differs",
                 "first off elsewhere");
    ck_assert_ptr_null(strstr(page, "href=\"#case-2-plots\""));
    ck_assert_ptr_nonnull(strstr(page, "href=\"#case-2-inputs\""));
    free(page);
}
END_TEST

START_TEST(a_wrong_id_is_told_without_an_error_size) {
    without_gnuplot();
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
    char *page = render(document);
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
    without_gnuplot();
    cJSON *document = page_document("x"), *stage = page_stage(document, "layers.1.attn.context");
    page_break(document, "layers.1.attn.context", 1e-3);
    cJSON *list = cJSON_CreateArray();
    for (const char *s = rows[_i].off; *s != '\0'; s++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(*s == '1' ? 1e-3 : 1e-7));
    cJSON_ReplaceItemInObject(stage, "rows", list);
    char *page = render(document);
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
    without_gnuplot();
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
    char *page = render(document);
    if (growth[_i].told != NULL)
        FIRST_SCREEN(page, growth[_i].told);
    else
        ck_assert_ptr_null(strstr(page, "multiplies"));
    ck_assert_ptr_nonnull(strstr(page, "<td class=\"n\">0</td>"));
    free(page);
}
END_TEST

START_TEST(what_is_handed_on_of_a_nan_is_no_other_fault) {
    without_gnuplot();
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
    char *page = render(document);
    FIRST_SCREEN(page, "Run alone, 2 of them are not finite either, but had to be fed the run&#39;s own values",
                 "Another stage fails alone too: <code>final</code>.");
    free(page);
}
END_TEST

START_TEST(a_run_that_drafted_nothing_is_not_told_as_other_tokens) {
    without_gnuplot();
    cJSON *document = page_document("x"), *stage = page_stage(document, "logits");
    page_break(document, "layers.1.out", NAN);
    page_set(stage, "name", "markov.tokens");
    cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(stage, "chained"), "compared"), 0);
    cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(stage, "chained"), "nan"), 0);
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(page_only_case(document), "plots"), "tokens", cJSON_CreateNull());
    char *page = render(document);
    FIRST_SCREEN(page, "Look at", "No token was drafted.");
    ck_assert_ptr_null(strstr(page, "drafted tokens"));
    free(page);
}
END_TEST

START_TEST(a_page_stays_small_whatever_its_cases) {
    enum { LAYERS = 1000, CASES = 12 };
    without_gnuplot();
    cJSON *document = page_document("bad");
    page_break(document, "layers.0.out", 1e-3);
    cJSON *item = page_only_case(document), *stages = cJSON_GetObjectItem(item, "stages");
    for (int i = 0; i < LAYERS; i++) cJSON_AddItemToArray(stages, cJSON_Duplicate(page_stage(document, "final"), true));
    cJSON *const one = cJSON_Duplicate(document, true);
    for (int i = 0; i < CASES - 2; i++) add_case(document, cJSON_Duplicate(one, true));
    /* The case that the page is about has its table though it is the last. */
    cJSON_Delete(one);
    cJSON *last = page_document("last");
    page_break(last, "layers.0.out", 1e-3);
    page_set(page_only_case(last), "verdict", "ERROR");
    cJSON_ReplaceItemInObject(page_only_case(last), "error", cJSON_Parse("{\"code\":\"a.b\",\"message\":\"c\"}"));
    add_case(document, last);
    page_set(document, "verdict", "ERROR");
    char *page = render(document); /* asks for less than 1.5 MB */
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
    char *page = render(document);
    ck_assert_ptr_nonnull(strstr(page, "aria-label=\"Error after each layer, by precision: tiny-plain\""));
    ck_assert_ptr_nonnull(strstr(page, "href=\"#precisions\""));
    free(page);
    page = render(alone);
    ck_assert_ptr_nonnull(strstr(page, "aria-label=\"Error of each stage"));
    ck_assert_ptr_null(strstr(page, "Error after each layer"));
    ck_assert_ptr_null(strstr(page, "#precisions"));
    free(page);
    cJSON_Delete(other);
}
END_TEST

START_TEST(a_result_without_a_case_is_no_pass_on_the_page_either) {
    without_gnuplot();
    cJSON *document = page_document("x");
    cJSON_ReplaceItemInObject(document, "cases", cJSON_CreateArray());
    page_set(document, "verdict", "NOTHING COMPARED");
    char *page = render(document);
    FIRST_SCREEN(page, "NOTHING COMPARED", "no case was run", "That is no pass");
    free(page);
}
END_TEST

/* ---- Pictures in a page
 * ---------------------------------------------------------------------------------------------- */

static df_status inlined(const char *svg, char **out, df_error *err) {
    size_t length = 0;
    FILE *to = open_memstream(out, &length);
    ck_assert_ptr_nonnull(to);
    const df_status status = dp_svg_inline(to, svg, "p1", "a <label>", err);
    ck_assert_int_eq(fclose(to), 0);
    return status;
}

START_TEST(a_picture_gets_its_own_names_and_the_page_s_colours) {
    df_error err = {.message = ""};
    char *out = NULL;
    ck_assert_int_eq(
        inlined("<?xml?><svg viewBox=\"0 0 9 4\"\n>\n<title>x</title><g id=\"a\" stroke='rgb(  0, 114, 178)'>"
                "<use xlink:href='#a' fill=\"black\"/></g><desc>d</desc><filter id='f'><a/></filter>"
                "<g fill=\"none\" stroke=\"black\">\n\t</g></svg>",
                &out, &err),
        DF_OK);
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
    df_error err = {.message = ""};
    char *out = NULL;
    const df_status status = inlined(bad[_i], &out, &err);
    ck_assert_int_eq(status, DF_ERR_REFUSED);
    ck_assert_str_eq(err.code, "svg.form");
    ck_assert_str_eq(out, "");
    free(out);
}
END_TEST

Suite *suite_pages(void) {
    Suite *suite = suite_create("pages");
    TCase *tests = tcase_create("pages");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, the_first_screen_of_a_failure_names_the_stage_and_the_command);
    tcase_add_test(tests, an_isolated_fault_is_told_as_the_cause_and_the_rest_as_carried_on);
    tcase_add_test(tests, a_stage_that_fails_at_its_noise_is_not_told_as_beyond_its_bound);
    tcase_add_test(tests, a_pass_says_so_and_names_the_stage_nearest_to_its_bar);
    tcase_add_test(tests, values_that_are_not_finite_are_named_as_such);
    tcase_add_test(tests, a_refusal_shows_its_message_and_no_number);
    tcase_add_test(tests, a_round_that_differs_is_a_failure_with_its_bits);
    tcase_add_test(tests, everything_from_outside_is_escaped);
    tcase_add_test(tests, what_no_page_may_hold_is_replaced);
    tcase_add_test(tests, without_gnuplot_the_page_says_so_and_is_complete);
    tcase_add_test(tests, a_gate_lists_every_case_and_tells_the_failing_ones);
    tcase_add_test(tests, a_checkpoint_in_two_precisions_gets_a_ladder_and_in_one_none);
    tcase_add_test(tests, a_result_without_a_case_is_no_pass_on_the_page_either);
    tcase_add_test(tests, a_picture_gets_its_own_names_and_the_page_s_colours);
    tcase_add_test(tests, a_gate_that_passes_is_told_by_the_case_nearest_to_a_bar);
    tcase_add_test(tests, a_refusal_among_failures_leads_a_page_whose_verdict_it_is);
    tcase_add_test(tests, what_is_handed_on_of_a_nan_is_no_other_fault);
    tcase_add_test(tests, a_run_that_drafted_nothing_is_not_told_as_other_tokens);
    tcase_add_test(tests, a_page_stays_small_whatever_its_cases);
    tcase_add_test(tests, a_wrong_id_is_told_without_an_error_size);
    tcase_add_loop_test(tests, rows_are_told_as_spans_and_not_when_they_are_scattered, 0, 6);
    tcase_add_loop_test(tests, growth_is_told_of_the_layers_that_double_the_error, 0, 4);
    tcase_add_loop_test(tests, a_picture_that_reaches_outside_is_refused, 0, 6);
    suite_add_tcase(suite, tests);
    return suite;
}
