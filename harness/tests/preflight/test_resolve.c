/*
 * test_resolve.c - what a config says, read twice: by the drafter and by the harness. The two agree on every stored
 * config and on every way to write a fact; where the drafter's reading is spoilt, the check fails and names the field.
 */
#include "support/result_case.h"
#include "suites.h"

#include "config/config.h"
#include "preflight/geometry.h"
#include "preflight/resolve.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cJSON *resolve(const char *text) {
    dflash_error err = {0};
    cJSON *record = NULL;
    ck_assert_msg(dp_resolve(text, "config.json", &record, &err) == DFLASH_OK, "%s", err.message);
    return record;
}

static dflash_config drafters(const char *text) {
    dflash_error err = {0};
    dflash_config config;
    ck_assert_msg(df_config_parse(text, strlen(text), "config.json", &config, &err) == DFLASH_OK, "%s", err.message);
    return config;
}

static void expect_agreement(const char *text) {
    dflash_error err = {0};
    const dflash_config config = drafters(text);
    cJSON *record = resolve(text);
    ck_assert_msg(dp_geometry_check_reading(record, &config, "config.json", &err) == DFLASH_OK, "%s\n%s", err.message,
                  text);
    cJSON_Delete(record);
}

static int expect_agreement_below(const char *folder) {
    DIR *listing = opendir(folder);
    int count = 0;
    ck_assert_ptr_nonnull(listing);
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        char path[SCRATCH_PATH];
        size_t length;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%.60s/config.json", folder, entry->d_name);
        char *text = scratch_read(path, &length);
        expect_agreement(text);
        free(text);
        count++;
    }
    closedir(listing);
    return count;
}

START_TEST(both_readings_of_every_stored_config_agree) {
    ck_assert_int_ge(expect_agreement_below("fixtures/configs"), 15);
    ck_assert_int_ge(expect_agreement_below("fixtures/small"), 10);
}
END_TEST

/* ---- Ways to write a fact ---- */

/* The keys that any config has; %s: more of the top level. */
#define CONFIG(architecture, more)                                                                                     \
    "{\"architectures\":[\"" architecture "\"],\"hidden_size\":96,\"num_attention_heads\":6,"                          \
    "\"num_key_value_heads\":2,\"intermediate_size\":100,\"num_hidden_layers\":2,\"rms_norm_eps\":1e-6,"               \
    "\"vocab_size\":300,\"target_layer_ids\":[1,5],\"mask_token_id\":7," more "}"
#define PLAIN(more) CONFIG("DFlashDraftModel", "\"block_size\":4," more)
#define YARN(more)                                                                                                     \
    PLAIN("\"rope_theta\":1e6,\"max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"yarn\"," more "}")

/* A config, a field of its record and what that must be. */
static const struct {
    const char *text, *field, *value;
} written[] = {
    {PLAIN("\"rope_theta\":10000"), "head_dim", "16"},
    {PLAIN("\"rope_theta\":10000,\"head_dim\":20"), "head_dim", "20"},
    {PLAIN("\"rope_theta\":10000"), "layer_types", "[\"full_attention\",\"full_attention\"]"},
    {PLAIN("\"rope_theta\":10000"), "is_causal", "[false,false]"},
    {PLAIN("\"rope_theta\":10000,\"is_causal\":true"), "is_causal", "[true,true]"},
    {PLAIN("\"rope_theta\":10000,\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"sliding_window\":9,"
           "\"use_sliding_window\":true"),
     "is_causal", "[true,false]"},
    {PLAIN("\"rope_theta\":10000,\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"sliding_window\":9,"
           "\"use_sliding_window\":true"),
     "sliding_window", "[9,0]"},
    {PLAIN("\"rope_theta\":10000,\"use_swa\":true,\"swa_window_size\":5,\"is_causal\":false"), "sliding_window",
     "[5,5]"},
    {PLAIN("\"rope_parameters\":{\"rope_theta\":77}"), "rope/theta", "77"},
    {PLAIN("\"rope_parameters\":{\"full_attention\":{\"rope_theta\":78,\"rope_type\":\"default\"}}"), "rope/theta",
     "78"},
    {PLAIN("\"layer_types\":[\"sliding_attention\",\"sliding_attention\"],\"sliding_window\":9,\"use_sliding_window\":"
           "true,\"rope_parameters\":{\"full_attention\":{\"rope_theta\":78,\"rope_type\":\"default\"},"
           "\"sliding_attention\":{\"rope_theta\":79,\"rope_type\":\"default\"}}"),
     "rope/theta", "79"},
    {PLAIN("\"rope_theta\":10000,\"partial_rotary_factor\":0.7,\"head_dim\":20,\"rope_scaling\":{\"type\":\"linear\","
           "\"factor\":2}"),
     "rope/rotary_dim", "14"},
    {PLAIN("\"rope_theta\":10000,\"dflash_config\":{\"output_multiplier\":0.5}"), "output_multiplier", "0.5"},
    {PLAIN("\"rope_theta\":10000"), "vocab_size", "300"},
    {YARN("\"factor\":4"), "rope/original_max_position_embeddings", "4096"},
    {YARN("\"factor\":null,\"original_max_position_embeddings\":1024"), "rope/factor", "4"},
    {YARN("\"factor\":4"), "rope/truncate", "true"},
    {YARN("\"factor\":4,\"truncate\":false"), "rope/truncate", "false"},
    {YARN("\"factor\":4,\"beta_fast\":0"), "rope/beta_fast", "32"},
    {YARN("\"factor\":4,\"attention_factor\":0.9"), "rope/attention_scaling", "0.9"},
    {YARN("\"factor\":4,\"attention_factor\":0.9,\"mscale\":1,\"mscale_all_dim\":0.5"), "rope/attention_scaling",
     "0.9"},
    {YARN("\"factor\":1"), "rope/attention_scaling", "1"},
    {CONFIG("DFlash2DraftModel", "\"block_size\":4,\"rope_theta\":10000,\"conv_kernel_size\":2,\"conv_group_size\":8,"
                                 "\"selector_rank\":4,\"selector_top_k\":3"),
     "selector_vocab_size", "300"},
    {CONFIG("DFlash2DraftModel", "\"block_size\":4,\"rope_theta\":10000,\"conv_kernel_size\":2,\"conv_group_size\":8,"
                                 "\"selector_rank\":4,\"selector_top_k\":3,\"selector_vocab_size\":200"),
     "selector_vocab_size", "200"},
    {CONFIG("DFlash2DraftModel", "\"block_size\":4,\"rope_theta\":10000,\"conv_kernel_size\":2,\"conv_group_size\":8,"
                                 "\"selector_rank\":4,\"selector_top_k\":3"),
     "harvest", "\"mask_fill\""},
    {CONFIG("DFlashDraftModel", "\"block_size\":4,\"rope_theta\":10000,\"projector_type\":\"dspark\""), "harvest",
     "\"shifted\""},
    {CONFIG("DSparkDraftModel", "\"block_size\":4,\"rope_theta\":10000,\"markov_rank\":8"), "markov", "\"vanilla\""},
    {CONFIG("DSparkDraftModel", "\"block_size\":4,\"rope_theta\":10000,\"markov_rank\":8,\"markov_head_type\":\"RNN\""),
     "markov", "\"rnn\""},
    {CONFIG("DSparkDraftModel", "\"block_size\":4,\"rope_theta\":10000"), "markov", "\"none\""},
    {CONFIG("DSparkDraftModel", "\"block_size\":4,\"rope_theta\":10000,\"confidence_head_alpha\":0.5"), "confidence",
     "true"},
    {CONFIG("DSparkDraftModel",
            "\"block_size\":4,\"rope_theta\":10000,\"use_confidence_head\":false,\"confidence_head_alpha\":0.5"),
     "confidence", "false"},
};
enum { WRITTEN = sizeof written / sizeof *written };

START_TEST(a_fact_is_resolved_wherever_and_however_it_is_written) {
    expect_agreement(written[_i].text);
    cJSON *record = resolve(written[_i].text);
    char *found = cJSON_PrintUnformatted(result_at(record, written[_i].field));
    ck_assert_msg(strcmp(found, written[_i].value) == 0, "%s is %s, expected %s", written[_i].field, found,
                  written[_i].value);
    free(found);
    cJSON_Delete(record);
}
END_TEST

START_TEST(a_pair_of_mscales_makes_a_quotient_and_one_alone_does_not) {
    const double stretch = log(4.0);
    cJSON *pair = resolve(YARN("\"factor\":4,\"mscale\":0.7,\"mscale_all_dim\":0.3"));
    cJSON *one = resolve(YARN("\"factor\":4,\"mscale\":0.7"));
    ck_assert_double_eq_tol(result_at(pair, "rope/attention_scaling")->valuedouble,
                            (1 + 0.07 * stretch) / (1 + 0.03 * stretch), 1e-15);
    ck_assert_double_eq_tol(result_at(one, "rope/attention_scaling")->valuedouble, 1 + 0.1 * stretch, 1e-15);
    cJSON_Delete(pair);
    cJSON_Delete(one);
}
END_TEST

START_TEST(a_key_that_the_record_needs_is_named_when_it_is_missing) {
    static const struct {
        const char *text, *key;
    } lacking[] = {{"[]", "\"architectures\""},
                   {"{\"architectures\":[\"DFlashDraftModel\"]}", "\"hidden_size\""},
                   {PLAIN("\"is_causal\":true"), "\"rope_theta\""},
                   {PLAIN("\"rope_theta\":1e4,\"rope_scaling\":{\"type\":\"linear\"}"), "\"factor\""},
                   {PLAIN("\"rope_theta\":1e4,\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2}"),
                    "\"original_max_position_embeddings\""},
                   {CONFIG("DFlash2DraftModel", "\"block_size\":4,\"rope_theta\":10000"), "\"conv_kernel_size\""}};
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++) {
        dflash_error err = {0};
        cJSON *record = NULL;
        ck_assert_int_eq(dp_resolve(lacking[i].text, "config.json", &record, &err), DFLASH_ERR_REFUSED);
        ck_assert_str_eq(err.code, "resolve.config");
        ck_assert_msg(strstr(err.message, lacking[i].key) != NULL, "%s", err.message);
        ck_assert_ptr_null(record);
    }
}
END_TEST

/* ---- A drafter that misreads its config ---- */

static void no_attention_factor(dflash_config *c) { c->rope.has_attention_factor = false; }
static void truncated(dflash_config *c) { c->rope.truncate = true; }
static void other_beta(dflash_config *c) { c->rope.beta_fast = 32; }
static void whole_heads(dflash_config *c) { c->rope.rotary_dim = c->head_dim; }
static void other_base(dflash_config *c) { c->rope.theta += 1; }
static void other_table(dflash_config *c) { c->rope.type = DFLASH_ROPE_DEFAULT; }
static void never_causal(dflash_config *c) { c->layer[0].causal = false; }
static void causal_everywhere(dflash_config *c) { c->layer[1].causal = true; }
static void wider(dflash_config *c) { c->layer[0].window += 1; }
static void full(dflash_config *c) { c->layer[2].sliding = false; }
static void other_epsilon(dflash_config *c) { c->rms_eps *= 1 + 1e-9; }
static void other_heads(dflash_config *c) { c->head_dim *= 2; }
static void whole_vocabulary(dflash_config *c) { c->selector_vocab = 0; }
static void no_multiplier(dflash_config *c) { c->output_multiplier = 1; }
static void no_softcap(dflash_config *c) { c->logit_softcap = 0; }
static void scaled(dflash_config *c) { c->input_embedding_scale = 2; }
static void other_harvest(dflash_config *c) { c->harvest = DFLASH_HARVEST_MASK_FILL; }
static void other_markov(dflash_config *c) { c->markov = DFLASH_MARKOV_VANILLA; }
static void taps_turned(dflash_config *c) { c->taps[0] = c->taps[1]; }
static void other_mask(dflash_config *c) { c->mask_token_id++; }

static const struct {
    const char *fixture;
    void (*fault)(dflash_config *);
    const char *field, *says, *resolved;
} misread[] = {
    {"tiny-yarn-explicit", no_attention_factor, " rope.attention_scaling ", "config.json says 0.9,",
     "the drafter resolved 1.2079"},
    {"tiny-yarn-explicit", truncated, " rope.truncate ", "says false,", "resolved true."},
    {"tiny-yarn-explicit", other_beta, " rope.beta_fast ", "says 16,", "resolved 32."},
    {"tiny-partial", whole_heads, " rope.rotary_dim ", "says 12,", "resolved 24."},
    {"tiny-plain", other_base, " rope.theta ", "says 1000000,", "resolved 1000001."},
    {"tiny-linear", other_table, " rope.type ", "says \"linear\",", "resolved \"default\"."},
    {"tiny-causal", never_causal, " is_causal[0] ", "says true,", "resolved false."},
    {"tiny-causal", causal_everywhere, " is_causal[1] ", "says false,", "resolved true."},
    {"tiny-causal", wider, " sliding_window[0] ", "says 16,", "resolved 17."},
    {"tiny-causal", full, " layer_types[2] ", "says \"sliding_attention\",", "resolved \"full_attention\"."},
    {"tiny-plain", other_epsilon, " rms_norm_eps ", "says 1e-06,", "resolved 1.000000001e-06."},
    {"tiny-plain", other_heads, " head_dim ", "says 16,", "resolved 32."},
    {"tiny-dflash2-k3", whole_vocabulary, " selector_vocab_size ", "says 371,", "resolved 384."},
    {"tiny-dflash2", no_multiplier, " output_multiplier ", "says 0.1961161", "resolved 1."},
    {"tiny-dflash2", no_softcap, " final_logit_softcapping ", "says 20,", "resolved 0."},
    {"tiny-plain", scaled, " input_embedding_scale ", "says 1,", "resolved 2."},
    {"tiny-dspark", other_harvest, " harvest ", "says \"shifted\",", "resolved \"mask_fill\"."},
    {"tiny-dspark-rnn", other_markov, " markov ", "says \"rnn\",", "resolved \"vanilla\"."},
    {"tiny-plain", taps_turned, " target_layer_ids[0] ", "says 1,", "resolved 4."},
    {"tiny-plain", other_mask, " mask_token_id ", "says 1000,", "resolved 1001."},
};
enum { MISREAD = sizeof misread / sizeof *misread };

START_TEST(a_drafter_that_misreads_its_config_fails_and_is_not_refused) {
    dp_result result;
    scratch_copy_case(misread[_i].fixture);
    scratch_options.fault = misread[_i].fault;
    scratch_check(NULL, &result);
    ck_assert_msg(result.verdict == DP_FAIL, "%s: %s", dp_verdict_name(result.verdict), result.error.message);
    ck_assert_int_eq(dp_verdict_exit_code(result.verdict), 1);
    ck_assert_str_eq(result.error.code, DP_MISREAD);
    const char *const words[] = {misread[_i].field, misread[_i].says, misread[_i].resolved, "correct how it reads"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ck_assert_msg(strstr(result.error.message, words[i]) != NULL, "\"%s\" is not in: %s", words[i],
                      result.error.message);
    ck_assert_int_eq(result.stage_count + result.variant_count, 0);
    ck_assert(dp_stopped(&result));
    dp_result_release(&result);
}
END_TEST

START_TEST(an_oracle_that_disagrees_too_is_refused_first) {
    scratch_copy_case("tiny-plain");
    scratch_options.fault = other_base;
    scratch_edit_record("geometry", "rms_norm_eps", "1e-5");
    scratch_expect_stop(DP_REFUSED, "geometry.field.differs", "rms_norm_eps", "the oracle claims 1e-05", NULL);
}
END_TEST

/* Every renderer shows the failure with its cause, and the result reads back as it was written. */
START_TEST(a_misread_config_is_shown_by_every_renderer) {
    static const char *const kept[] = {"rope.theta", "geometry.misread"};
    cJSON *document = result_check(RESULT_MISREAD);
    for (int format = DP_REPORT_TEXT; format <= DP_REPORT_HTML; format++) {
        char *text = result_render(document, (dp_report_format)format);
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
            ck_assert_msg(strstr(text, kept[i]) != NULL, "format %d lacks %s: %s", format, kept[i], text);
        free(text);
    }
    char *junit = result_render(document, DP_REPORT_JUNIT);
    ck_assert_ptr_nonnull(strstr(junit, "failures=\"1\" errors=\"0\""));
    free(junit);
    result_put(document, "cases/0/error", "null");
    result_refused(document, "result.key", "error");
    cJSON_Delete(document);
}
END_TEST

Suite *suite_resolve(void) {
    Suite *suite = suite_create("resolve");
    TCase *tests = tcase_create("resolve");
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_add_test(tests, both_readings_of_every_stored_config_agree);
    tcase_add_loop_test(tests, a_fact_is_resolved_wherever_and_however_it_is_written, 0, WRITTEN);
    tcase_add_test(tests, a_pair_of_mscales_makes_a_quotient_and_one_alone_does_not);
    tcase_add_test(tests, a_key_that_the_record_needs_is_named_when_it_is_missing);
    tcase_add_loop_test(tests, a_drafter_that_misreads_its_config_fails_and_is_not_refused, 0, MISREAD);
    tcase_add_test(tests, an_oracle_that_disagrees_too_is_refused_first);
    tcase_add_test(tests, a_misread_config_is_shown_by_every_renderer);
    suite_add_tcase(suite, tests);
    return suite;
}
