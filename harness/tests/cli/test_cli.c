/*
 * test_cli.c - the words of every command: what is taken, what is a usage error, and with which exit code each ends.
 *
 * What check prints and writes is test_cli_results.c's, the gate over lists of cases test_cli_gate.c's, inspect, synth
 * and bench test_cli_others.c's.
 */
#include "support/cli_case.h"

#include "base/cli.h"

#include <stdlib.h>
#include <string.h>

TCase *cli_case(const char *name) {
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_set_timeout(tests, 60);
    return tests;
}

START_TEST(no_command_and_a_wrong_one_are_usage_errors) {
    child_expect(child_words(NULL, 0), 2, "", "usage: dflash-parity COMMAND");
    child_expect(CHILD("chekc"), 2, "", "no command 'chekc'");
    child_expect(CHILD(""), 2, "", "usage:");
}
END_TEST

START_TEST(help_is_a_result_and_goes_to_standard_output) {
    static const char *const commands[] = {"check",   "gate",   "identity",   "record",  "compare",      "bisect",
                                           "soak",    "report", "history",    "explain", "postmortem",   "ladder",
                                           "inspect", "synth",  "gpu-record", "bench",   "release-check"};
    child_expect(CHILD("--help"), 0, "usage: dflash-parity COMMAND", "");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        child run = CHILD(commands[i], "--help"), brief = CHILD(commands[i], "-h");
        ck_assert_str_eq(brief.out, run.out);
        ck_assert_int_eq(strncmp(run.out, "usage: dflash-parity ", 21), 0);
        ck_assert_ptr_nonnull(strstr(run.out, "  --help "));
        ck_assert_ptr_nonnull(strstr(run.out, "Exit codes: 0 "));
        for (const char *line = run.out; *line != '\0'; line += strcspn(line, "\n") + 1)
            ck_assert_msg(strcspn(line, "\n") <= 120, "%s: a line of %zu columns", commands[i], strcspn(line, "\n"));
        child_expect(brief, 0, NULL, "");
        child_expect(run, 0, commands[i], "");
    }
}
END_TEST

START_TEST(version_tells_what_was_built) {
    static const char *const facts[] = {"commit ", "\ncompiler ", "\nflags ", "-ffp-contract=off",
                                        "\nhdf5 ", "\ncpu ",      "\ncuda "};
    child run = CHILD("--version");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        ck_assert_msg(strstr(run.out, facts[i]) != NULL, "no \"%s\" in %s", facts[i], run.out);
    child_expect(run, 0, "dflash-parity ", "");
}
END_TEST

static const struct {
    const char *word[8];
    const char *complaint;
} usage[] = {
    {{"check"}, "--checkpoint and --oracle are both needed"},
    {{"check", "--checkpoint", "fixtures/small/tiny-plain"}, "both needed"},
    {{"check", "--oracle", "oracles/tiny-plain.h5"}, "both needed"},
    {{"check", CLI_PLAIN, "--fast"}, "unknown word '--fast'"},
    {{"check", CLI_PLAIN, "--oracle", "oracles/tiny-hot.h5"}, "--oracle is given twice"},
    {{"check", CLI_PLAIN, "--json", "--json"}, "--json is given twice"},
    {{"gate", "-k", "a", "-k", "b"}, "-k is given twice"},
    {{"identity", "--seed", "1", "--seed", "2"}, "--seed is given twice"},
    {{"explain", "final", "logits"}, "one STAGE at a time"},
    {{"explain", "--all"}, "unknown word '--all'"},
    {{"check", CLI_PLAIN, "tiny-plain"}, "unknown word 'tiny-plain'"},
    {{"check", "--oracle", "oracles/tiny-plain.h5", "--checkpoint"}, "--checkpoint needs a value"},
    {{"check", CLI_PLAIN, "--threads"}, "--threads needs a value"},
    {{"check", CLI_PLAIN, "--threads", "0"}, "from 1 to 1024, found '0'"},
    {{"check", CLI_PLAIN, "--threads", "two"}, "found 'two'"},
    {{"check", CLI_PLAIN, "--threads", "2x"}, "found '2x'"},
    {{"check", CLI_PLAIN, "--threads", "99999999999999999999"}, "found '99999999999999999999'"},
    {{"check", CLI_PLAIN, "--device", "-1"}, "--device takes the number of a CUDA device, from 0 on, found '-1'"},
    {{"gate", "--device", "first"}, "found 'first'"},
    {{"gate", "--device", "1", "--device", "1"}, "--device is given twice"},
    {{"compare", "oracles/tiny-plain.h5", "oracles/tiny-plain.h5", "--device", "1"}, "--device does not apply"},
    {{"check", CLI_PLAIN, "--isa", "sse2"}, "generic, avx2 or avx512, found 'sse2'"},
    {{"check", CLI_PLAIN, "-k"}, "-k needs a value"},
    {{"check", CLI_PLAIN, "--out"}, "--out needs a value"},
    {{"check", CLI_PLAIN, "--lm-head"}, "--lm-head needs a value"},
    {{"check", CLI_PLAIN, "--precision"}, "--precision needs a value"},
    {{"check", CLI_PLAIN, "--precision", "q5_0"},
     "--precision takes stored, f32, bf16, q8_0, q4_0, mixed or fc, found 'q5_0'"},
    {{"check", CLI_PLAIN, "--precision", "Q8_0"}, "found 'Q8_0'"},
    {{"check", CLI_PLAIN, "--precision", ""}, "found ''"},
    {{"gate", "--precision", "q8_0"}, "unknown word '--precision'"},
    {{"gate", "--lm-head", "x"}, "unknown word '--lm-head'"},
    {{"gate", "--cases"}, "--cases needs a value"},
    {{"gate", "tiny-plain"}, "unknown word 'tiny-plain'"},
    {{"gate", "--threads", "-1"}, "found '-1'"},
    {{"bench", "--repeat", "0"}, "from 1 to 1000, found '0'"},
    {{"bench", "--context", "many"}, "found 'many'"},
    {{"bench", "--case", "no-such-case"}, "no case 'no-such-case'"},
    {{"bench", "-k", "tiny*"}, "-k does not apply here"},
    {{"bench", "--list"}, "--list does not apply here"},
    {{"bench", "--quick"}, "unknown word '--quick'"},
    {{"inspect"}, "PATH is missing"},
    {{"inspect", "oracles/tiny-plain.h5", "oracles/tiny-hot.h5"}, "one PATH at a time"},
    {{"inspect", "--yaml", "oracles/tiny-plain.h5"}, "unknown word '--yaml'"},
    {{"synth", "--seed", "1"}, "all needed"},
    {{"inspect", "a", "-k", "x", "-k", "y"}, "-k is given twice"},
    {{"inspect", "a", "--json", "--json"}, "--json is given twice"},
    {{"synth", "--config", "x", "--out", "y", "--seed", "-1"}, "found '-1'"},
    {{"synth", "--config", "x", "--config", "y"}, "--config is given twice"},
    {{"synth", "--lm-head", "--lm-head"}, "--lm-head is given twice"},
    {{"synth", "--fast"}, "unknown word '--fast'"},
    {{"identity", "--report", "text=x"}, "--report belongs to check and gate"},
    {{"soak", "--runs", "1", "--runs", "2"}, "--runs is given twice"},
    {{"soak", "--seed"}, "--seed needs a value"},
    {{"soak", "--runs", "0"}, "--runs takes a whole number from 1 to 10000000, found '0'"},
    {{"soak", "--seed", "-1"}, "--seed takes a whole number from 0 to 10000000, found '-1'"},
    {{"soak", "--quick"}, "unknown word '--quick'"},
    {{"gpu-record", "--name", "a", "--name", "b"}, "--name is given twice"},
    {{"gpu-record", "--results"}, "--results needs a value"},
    {{"gpu-record", "--results", "a", "--name", "b"}, "--results, --name and --out are all needed"},
    {{"gpu-record", "x"}, "unknown word 'x'"},
    {{"release-check", "--records", "a", "--records", "b"}, "--records is given twice"},
    {{"release-check", "x"}, "unknown word 'x'"},
    {{"history", "x", "--last", "3", "--last", "4"}, "--last is given twice"},
    {{"history", "x", "y"}, "unknown word 'y'"},
    {{"postmortem", "x", "--out", "a", "--out", "b"}, "--out is given twice"},
    {{"postmortem", "x", "--order"}, "--order needs a value"},
    {{"report", "x", "--as", "text", "--as", "html"}, "--as is given twice"},
    {{"record", "--case"}, "--case needs a value"},
    {{"bisect", "--a", "isa=generic", "--a", "isa=avx2"}, "--a is given twice"},
    {{"compare", "a", "b", "--expect"}, "--expect needs a value"},
};
enum { USAGE = sizeof usage / sizeof *usage };

START_TEST(a_wrong_word_is_a_usage_error_that_repeats_it) {
    int count = 0;
    while (count < 8 && usage[_i].word[count] != NULL) count++;
    child run = child_words(usage[_i].word, count);
    ck_assert_ptr_nonnull(strstr(run.err, "--help"));
    child_expect(run, 2, "", usage[_i].complaint);
}
END_TEST

START_TEST(list_names_what_would_be_compared_and_compares_nothing) {
    child run = CHILD("check", CLI_PLAIN, "--list");
    int lines = 0;
    for (const char *c = run.out; *c != '\0'; c++) lines += *c == '\n';
    ck_assert_int_eq(lines, 59 + 9);
    ck_assert_int_eq(strncmp(run.out, "ctx.fc\nctx.features\nrope.inv_freq\n", 34), 0);
    ck_assert_ptr_null(strstr(run.out, "PASS"));
    child_expect(
        run, 0,
        "kv.v\nround.all\nround.chunk1\nround.chunk7\nround.taps\nround.tail\nround.floor\nround.pin\nround.rollback\n",
        "");
    run = CHILD("check", CLI_PLAIN, "--list", "-k", "round.*");
    ck_assert_str_eq(
        run.out,
        "round.all\nround.chunk1\nround.chunk7\nround.taps\nround.tail\nround.floor\nround.pin\nround.rollback\n");
    child_expect(run, 0, NULL, "");
    child_expect(CHILD("check", CLI_PLAIN, "--list", "-k", "nothing"), 5, "", "matches no stage and no round");
    child_expect(
        CHILD("check", "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-hot.h5", "--list"), 3, "",
        "geometry.field.differs");
    child_expect(CHILD("gate", "--list", "-k", "tiny-[lw]*"), 0, "tiny-linear\ntiny-llama3\ntiny-windowed\n", "");
    child_expect(CHILD("gate", "--list", "-k", "nothing"), 5, "", "matches no case");
}
END_TEST

START_TEST(the_exit_code_of_a_check_is_its_verdict) {
    scratch_copy_case("tiny-plain");
    child_expect(CHILD("check", "--checkpoint", sf_folder, "--oracle", sf_path), 0, "\nPASS: 59 of 59 stages compared",
                 "");
    scratch_edit_config("rope_theta", "10000");
    child_expect(CHILD("check", "--checkpoint", sf_folder, "--oracle", sf_path), 3,
                 "REFUSED: geometry.field.differs: ", "");
    scratch_edit_record("geometry", "rope/theta", "10000");
    child run = CHILD("check", "--checkpoint", sf_folder, "--oracle", sf_path);
    ck_assert_ptr_nonnull(strstr(run.out, "\nFAIL  rope.inv_freq "));
    ck_assert_ptr_nonnull(strstr(run.out, "worst at [7]: got "));
    ck_assert_ptr_nonnull(strstr(run.out, "one float32 rounding of the result"));
    child_expect(run, 1, "\nFAIL: 59 of 59 stages compared", "");
    child_expect(CHILD("check", "--checkpoint", sf_folder, "--oracle", sf_path, "-k", "no.stage"), 5,
                 "NOTHING COMPARED: the filter 'no.stage'", "");
    child_expect(CHILD("check", "--checkpoint", "fixtures", "--oracle", sf_path), 4, "ERROR: config.file.open", "");
}
END_TEST

START_TEST(a_filtered_pass_says_that_it_is_one) {
    child_expect(CHILD("check", CLI_PLAIN, "-k", "final"), 0,
                 "PASS: 1 of 59 stages compared, 0 outside their limits; 0 rounds, 0 not identical\n"
                 "      1 alone, 0 outside their bounds; ",
                 "");
    child_expect(CHILD("check", CLI_PLAIN, "-k", "final"), 0, "; filtered by 'final'\n", "");
}
END_TEST

START_TEST(limits_are_explained) {
    child run = CHILD("explain");
    ck_assert_ptr_nonnull(strstr(run.out, "chained L2 factor = 4"));
    ck_assert_ptr_nonnull(strstr(run.out, "Numbers of the bounds"));
    child_expect(run, 0, "source: ", "");
    child_expect(CHILD("explain", "layers.0.attn.q_*"), 0, "layers.0.attn.q_norm       alone: ", "");
    child_expect(CHILD("explain", "layers.9.attn.q_proj"), 5, "", "no stage matches");
    child_expect(CHILD("check", CLI_PLAIN, "-k", "final", "--explain"), 0, "x max(reference spread ", "");
    run = CHILD("check", CLI_PLAIN, "-k", "final", "--full");
    ck_assert_ptr_nonnull(strstr(run.out, "ULP p99"));
    ck_assert_ptr_nonnull(strstr(run.out, "origin of the limit"));
    child_expect(run, 0, "4 x the reference's float32 spread", "");
}
END_TEST

START_TEST(a_command_line_can_be_pasted_back_into_a_shell) {
    char check[] = "check", plain[] = "--oracle=a/b.h5", glob[] = "layers.[0-2].*", space[] = "two words",
         quote[] = "it's", empty[] = "", more[] = "a;b&c|d", dollar[] = "$HOME";
    char *argv[] = {check, plain, glob, space, quote, empty, more, dollar};
    char *line = dp_command_line(8, argv);
    ck_assert_str_eq(line, "dflash-parity check --oracle=a/b.h5 'layers.[0-2].*' 'two words' 'it'\\''s' '' 'a;b&c|d' "
                           "'$HOME'");
    free(line);
}
END_TEST

Suite *suite_cli(void) {
    Suite *suite = suite_create("cli");
    TCase *tests = cli_case("words");
    tcase_add_test(tests, no_command_and_a_wrong_one_are_usage_errors);
    tcase_add_test(tests, help_is_a_result_and_goes_to_standard_output);
    tcase_add_test(tests, version_tells_what_was_built);
    tcase_add_loop_test(tests, a_wrong_word_is_a_usage_error_that_repeats_it, 0, USAGE);
    tcase_add_test(tests, list_names_what_would_be_compared_and_compares_nothing);
    tcase_add_test(tests, the_exit_code_of_a_check_is_its_verdict);
    tcase_add_test(tests, a_filtered_pass_says_that_it_is_one);
    tcase_add_test(tests, limits_are_explained);
    tcase_add_test(tests, a_command_line_can_be_pasted_back_into_a_shell);
    suite_add_tcase(suite, tests);
    cli_add_results(suite);
    cli_add_gate(suite);
    cli_add_others(suite);
    cli_add_heads(suite);
    cli_add_inputs(suite);
    return suite;
}
