/*
 * test_stored_results.c - results that were written long ago (fixtures/results/) still read, and say in every format
 * what they said: a pass, a failure, a refusal and values that are not finite. What these tests ask of a format is what
 * its readers look for, so that a change of the reader or of a renderer cannot lose it.
 */
#include "support/page_case.h"
#include "support/result_case.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 8 };

static const struct {
    const char *file;
    dp_report_format format;
    const char *word[MOST_WORDS]; /* in this order */
} list[] = {
    {"pass", DP_REPORT_TEXT, {"markov.logits", "round.chunk7", "filtered by '[mr]*'", "commit     unknown"}},
    {"pass", DP_REPORT_MARKDOWN, {"check: PASS", "filtered: not the whole verdict", "all 5 compared stages", "78 %"}},
    {"pass", DP_REPORT_JUNIT, {"tests=\"13\" failures=\"0\" errors=\"0\""}},
    {"pass", DP_REPORT_GITHUB, {"::notice title=dflash-parity PASS::1 of 1 cases passed"}},
    {"pass",
     DP_REPORT_HTML,
     {"tiny-dspark</code> passes", "is not the whole verdict", "Rotary frequencies", "Whether the error can change",
      "Drafted tokens", "identical", "rope.theta"}},
    {"fail", DP_REPORT_TEXT, {"FAIL  layers.1.attn.context", "Layer 1 attn.context adds"}},
    {"fail",
     DP_REPORT_MARKDOWN,
     {"31 of 64 compared stages are outside their limits", "1 of 63 run alone", "It began at `layers.1.attn.context`",
      "248,000 times the bound", "[0, 85], is -0.363807201 instead of -0.0891884131", "Rows 0 to 3 of its 5 are off",
      "they only carry the error on"}},
    {"fail", DP_REPORT_JUNIT, {"tests=\"130\" failures=\"32\" errors=\"0\""}},
    {"fail", DP_REPORT_GITHUB, {"::error title=tiny-dspark FAIL at layers.1.attn.context::"}},
    {"fail",
     DP_REPORT_HTML,
     {"Look at <b><code>layers.1.attn.context", "248,000 times the bound", "Error of each stage",
      "Got against reference", "Layer 1: 17 stages, <span class=\"verdict fail\">", "Growth, layer by layer",
      "Drafted tokens", "Rounds against the block"}},
    {"refused", DP_REPORT_TEXT, {"geometry.field.differs", "the checkpoint's config says 500000"}},
    {"refused", DP_REPORT_MARKDOWN, {"check: REFUSED", "the oracle claims 1000000"}},
    {"refused", DP_REPORT_JUNIT, {"tests=\"1\" failures=\"0\" errors=\"1\"", "geometry.field.differs"}},
    {"refused", DP_REPORT_GITHUB, {"::error title=theta REFUSED::Refused with geometry.field.differs"}},
    {"refused", DP_REPORT_HTML, {"No number was judged", "geometry.field.differs", "the oracle claims 1000000"}},
    {"nan", DP_REPORT_TEXT, {"FAIL  layers.1.mlp.act"}},
    {"nan",
     DP_REPORT_MARKDOWN,
     {"It began at `layers.1.mlp.act`", "values that are not finite: the fault is in this stage", "[0, 0], is NaN",
      "Only row 0 of its 5 is off"}},
    {"nan", DP_REPORT_JUNIT, {"tests=\"12\" failures=\"4\" errors=\"0\""}},
    {"nan", DP_REPORT_GITHUB, {"::error title=tiny-plain FAIL at layers.1.mlp.act::"}},
    {"nan",
     DP_REPORT_HTML,
     {"Look at <b><code>layers.1.mlp.act", "NaN instead of 0.0936651232", "not finite",
      "1 NaN; [0, 0]: nan, reference"}},
};
enum { COUNT = sizeof list / sizeof *list };

static cJSON *stored(const char *name) {
    char path[128];
    size_t length;
    snprintf(path, sizeof path, "fixtures/results/%s.json", name);
    char *text = scratch_read(path, &length);
    cJSON *document = cJSON_Parse(text);
    ck_assert_msg(document != NULL, "%s is no JSON", path);
    free(text);
    return document;
}

START_TEST(a_stored_result_says_what_it_said) {
    cJSON *document = stored(list[_i].file);
    char *text = result_render(document, list[_i].format);
    const char *at = text;
    for (int w = 0; w < MOST_WORDS && list[_i].word[w] != NULL; w++) {
        at = strstr(at, list[_i].word[w]);
        ck_assert_msg(at != NULL, "%s: \"%s\" is not there, or not in its place: %.3000s", list[_i].file,
                      list[_i].word[w], text);
    }
    if (list[_i].format == DP_REPORT_HTML) page_is_sound(text);
    free(text);
    cJSON_Delete(document);
}
END_TEST

START_TEST(a_stored_result_that_is_changed_is_refused) {
    static const struct {
        const char *file, *path, *json, *code, *word;
    } lies[] = {
        {"pass", "schema_version", "1", "result.version", "version 1"},
        {"pass", "cases/0/rounds/0/identical", "false", "result.key", "first_difference"},
        {"fail", "cases/0/stages_failed", "30", "result.counts", "stages_failed"},
        {"refused", "cases/0/error", "null", "result.key", "REFUSED and ERROR"},
        {"nan", "cases/0/first_divergence/stage", "\"layers.1.mlp.down\"", "result.counts", "layers.1.mlp.act"}};
    cJSON *document = stored(lies[_i].file);
    result_put(document, lies[_i].path, lies[_i].json);
    result_refused(document, lies[_i].code, lies[_i].word);
    cJSON_Delete(document);
}
END_TEST

Suite *suite_stored_results(void) {
    Suite *suite = suite_create("stored_results");
    TCase *tests = tcase_create("stored_results");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_stored_result_says_what_it_said, 0, COUNT);
    tcase_add_loop_test(tests, a_stored_result_that_is_changed_is_refused, 0, 5);
    suite_add_tcase(suite, tests);
    return suite;
}
