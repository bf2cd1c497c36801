/* test_cli_others.c - inspect, synth and bench from the command line. Bench is run for its form; no time is judged. */
#include "support/cli_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

START_TEST(inspect_shows_an_oracle_a_checkpoint_and_a_config) {
    child_expect(CHILD("inspect", "oracles/tiny-plain.h5"), 0, "layers.2.mlp.down", "");
    child_expect(CHILD("inspect", "oracles/tiny-plain.h5"), 0, "target_layer_ids                         [1,4,9]", "");
    child_expect(CHILD("inspect", "fixtures/small/tiny-plain"), 0, "layers.2.mlp.down_proj.weight", "");
    child_expect(CHILD("inspect", "fixtures/small/tiny-yarn/config.json"), 0, "rope.type ", "");
    child run = CHILD("inspect", "oracles/tiny-plain.h5", "-k", "final");
    ck_assert_ptr_null(strstr(run.out, "ctx.fc"));
    child_expect(run, 0, "final", "");
}
END_TEST

START_TEST(inspect_speaks_json) {
    static const char *const paths[] = {"oracles/tiny-plain.h5", "fixtures/small/tiny-plain",
                                        "fixtures/small/tiny-plain/config.json"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        cJSON *document = child_json(CHILD("inspect", paths[i], "--json"), 0);
        ck_assert(cJSON_IsObject(document) && document->child != NULL);
        cJSON_Delete(document);
    }
}
END_TEST

START_TEST(inspect_shows_a_recording) {
    char path[SCRATCH_PATH];
    scratch_path("run.h5", path);
    child_expect(CHILD("record", "--case", "tiny-dspark", "--out", path), 0, NULL, "");
    child_expect(CHILD("inspect", path), 0, "schema dflash-parity, version 2, kind recording", "");
    child_expect(CHILD("inspect", path), 0, "engine.isa ", "");
    child_expect(CHILD("inspect", path), 0, "target_layer_ids ", "");
    child_expect(CHILD("inspect", path, "-k", "nothing"), 5, "", "matches nothing");
    cJSON *document = child_json(CHILD("inspect", path, "--json", "-k", "markov.*"), 0);
    ck_assert_str_eq(child_text(document, "kind"), "recording");
    ck_assert(cJSON_IsObject(cJSON_GetObjectItem(cJSON_GetObjectItem(document, "provenance"), "engine")));
    const cJSON *stages = cJSON_GetObjectItem(document, "stages"), *first = cJSON_GetArrayItem(stages, 0);
    ck_assert_int_eq(cJSON_GetArraySize(stages), 2);
    ck_assert_str_eq(child_text(first, "name"), "markov.logits");
    ck_assert_uint_eq(strlen(child_text(first, "sha256")), 64);
    ck_assert_int_eq(cJSON_GetObjectItem(first, "nonfinite")->valueint, 0);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetArrayItem(stages, 1), "rms"))); /* ids have none */
    cJSON_Delete(document);
}
END_TEST

START_TEST(inspect_refuses_nonsense_by_its_kind) {
    char path[SCRATCH_PATH];
    scratch_write_text("notes.txt", "neither an oracle nor a checkpoint");
    child_expect(CHILD("inspect", scratch_path("notes.txt", path)), 3, "", "oracle.format");
    scratch_write_text("wrong.json", "{\"hidden_size\":");
    child_expect(CHILD("inspect", scratch_path("wrong.json", path)), 3, "", "config.json.syntax");
    child_expect(CHILD("inspect", "fixtures/small/tiny-plain/model.safetensors"), 2, "", "the folder that holds both");
    child_expect(CHILD("inspect", "oracles/vectors.h5"), 3, "", "isolated vectors");
    child_expect(CHILD("inspect", "no/such/path"), 4, "", "inspect.open: no/such/path");
    child_expect(CHILD("inspect", sf_folder), 4, "", "config.json");
    child_expect(CHILD("inspect", "oracles/tiny-plain.h5", "-k", "nothing"), 5, "", "matches nothing");
    scratch_copy_case("tiny-plain");
    ck_assert_int_eq(truncate(sf_path, 5000), 0);
    child_expect(CHILD("inspect", sf_path), 3, "", "oracle.damaged");
}
END_TEST

START_TEST(synth_writes_the_stored_checkpoint_again_or_nothing) {
    char out[SCRATCH_PATH], model[SCRATCH_PATH], empty[SCRATCH_PATH];
    size_t length, expected;
    scratch_path("out", out);
    scratch_path("out/model.safetensors", model);
    child_expect(CHILD("synth", "--config", "fixtures/small/tiny-edge/config.json", "--seed", "11", "--out", out), 0,
                 "model.safetensors: ", "");
    char *made = scratch_read(model, &length),
         *stored = scratch_read("fixtures/small/tiny-edge/model.safetensors", &expected);
    ck_assert_uint_eq(length, expected);
    ck_assert_int_eq(memcmp(made, stored, length), 0);
    free(made);
    free(stored);
    tf_remove_dir(out);
    scratch_write_text("empty.json", "{}");
    child_expect(CHILD("synth", "--config", scratch_path("empty.json", empty), "--seed", "1", "--out", out), 3, "",
                 "config.");
    child_expect(CHILD("synth", "--config", "no/such/config.json", "--seed", "1", "--out", out), 4, "",
                 "no/such/config.json");
    ck_assert_int_ne(access(out, F_OK), 0);
}
END_TEST

START_TEST(bench_measures_a_case_that_passes) {
    char path[SCRATCH_PATH];
    size_t length;
    scratch_path("bench.json", path);
    child run = CHILD("bench", "--case", "tiny-edge", "--context", "8", "--repeat", "1", "--json", "--out", path);
    char *written = scratch_read(path, &length);
    ck_assert_int_eq(strncmp(run.out, written, length), 0);
    free(written);
    cJSON *result = child_json(run, 0);
    ck_assert_str_eq(child_text(result, "case"), "tiny-edge");
    child_text(cJSON_GetObjectItemCaseSensitive(result, "environment"), "cpu");
    ck_assert_int_gt(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(result, "figures")), 0);
    const cJSON *figure;
    cJSON_ArrayForEach(figure, cJSON_GetObjectItemCaseSensitive(result, "figures")) {
        child_text(figure, "unit");
        ck_assert(cJSON_GetObjectItemCaseSensitive(figure, "value")->valuedouble > 0);
    }
    cJSON_Delete(result);
    child_expect(CHILD("bench", "--case", "tiny-edge", "--context", "8", "--repeat", "1"), 0, "forward_round", "");
}
END_TEST

START_TEST(bench_does_not_time_a_program_that_is_wrong) {
    char list[SCRATCH_PATH], text[1024];
    scratch_copy_case("tiny-edge");
    scratch_edit_config("rms_norm_eps", "1e-3");
    scratch_edit_record("geometry", "rms_norm_eps", "1e-3");
    snprintf(
        text, sizeof text,
        "{\"cases\":[{\"name\":\"wrong\",\"checkpoint\":\"%s\",\"oracle\":\"%s\",\"stored\":true,\"synth\":{\"config\":"
        "\"x\",\"seed\":1,\"dtype\":\"bf16\",\"profile\":\"unit\"}}]}",
        sf_folder, sf_path);
    scratch_write_text("cases.json", text);
    child_expect(CHILD("bench", "--cases", scratch_path("cases.json", list), "--case", "wrong"), 3, "",
                 "bench.verdict");
}
END_TEST

START_TEST(a_line_about_a_checkpoint_that_cannot_be_printed_is_an_error) {
    child_next.out = "/dev/full";
    child_expect(CHILD("synth", "--config", "fixtures/small/tiny-edge/config.json", "--seed", "1", "--out", sf_folder),
                 4, "", "output.write");
}
END_TEST

START_TEST(bench_figures_that_cannot_be_written_are_an_error) {
    char path[SCRATCH_PATH];
    child_expect(CHILD("bench", "--case", "tiny-edge", "--context", "8", "--repeat", "1", "--out",
                       scratch_path("missing/bench.json", path)),
                 4, "", "atomic.open");
    child_next.out = "/dev/full";
    child_expect(CHILD("bench", "--case", "tiny-edge", "--context", "8", "--repeat", "1"), 4, "", "output.write");
}
END_TEST

void cli_add_others(Suite *suite) {
    TCase *tests = cli_case("others");
    tcase_add_test(tests, inspect_shows_an_oracle_a_checkpoint_and_a_config);
    tcase_add_test(tests, inspect_speaks_json);
    tcase_add_test(tests, inspect_shows_a_recording);
    tcase_add_test(tests, inspect_refuses_nonsense_by_its_kind);
    tcase_add_test(tests, synth_writes_the_stored_checkpoint_again_or_nothing);
    tcase_add_test(tests, bench_measures_a_case_that_passes);
    tcase_add_test(tests, bench_does_not_time_a_program_that_is_wrong);
    tcase_add_test(tests, a_line_about_a_checkpoint_that_cannot_be_printed_is_an_error);
    tcase_add_test(tests, bench_figures_that_cannot_be_written_are_an_error);
    suite_add_tcase(suite, tests);
}
