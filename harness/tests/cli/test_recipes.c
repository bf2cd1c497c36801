/*
 * test_recipes.c - the recipes of reports/ci do what they say: ci.sh and the run blocks of the workflow file are run as
 * they stand, on small lists of cases that pass, fail, are refused, or hold nothing, and the exit codes and files that
 * a CI sees are looked at.
 *
 * A recipe runs in a tree of links to this repository, with a build folder of its own. make and sudo are stand-ins that
 * write down how they were called: the program is built already.
 */
#include "support/page_case.h"
#include "support/scratch.h"
#include "suites.h"
#include "support/workflow_file.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT = 8192 };

static char root[SCRATCH_PATH], tree[SCRATCH_PATH], results[SCRATCH_PATH], cache[SCRATCH_PATH], list[SCRATCH_PATH];

#define RECIPE(name, seed)                                                                                             \
    "{\"cases\":[{\"name\":\"" name "\",\"checkpoint\":\"build/checkpoints/" name                                      \
    "\",\"oracle\":\"oracles/tiny-edge.h5\",\"stored\":false,\"synth\":{\"config\":\"fixtures/small/tiny-edge/"        \
    "config.json\",\"seed\":" seed ",\"dtype\":\"bf16\",\"profile\":\"unit\"}}]}"

/* ---- The tree ---- */

static void shell(const char *format, ...) {
    char command[TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    ck_assert_msg(system(command) == 0, "failed: %s", command);
}

static void write_script(const char *path, const char *text) {
    scratch_write_text(path, text);
    char full[SCRATCH_PATH];
    ck_assert_int_eq(chmod(scratch_path(path, full), 0755), 0);
}

static void make_tree(void) {
    ck_assert_ptr_nonnull(getcwd(root, sizeof root));
    scratch_path("tree", tree);
    scratch_path("results", results);
    scratch_path("cache", cache);
    scratch_path("cases.json", list);
    shell("mkdir -p '%s/build' '%s/bin' && cd '%s' && ln -s '%s/fixtures' '%s/oracles' '%s/reports' '%s/.ci' .", tree,
          tree, tree, root, root, root, root);
    shell("ln -s '%s/" DP_BUILD_DIR "/dflash-parity' '%s/build/dflash-parity'", root, tree);
    write_script("tree/bin/make", "#!/bin/sh\necho \"make $*\" >> calls\n");
    write_script("tree/bin/sudo", "#!/bin/sh\necho \"sudo $*\" >> calls\nexec \"$@\"\n");
}

static void set_up(void) {
    scratch_open();
    make_tree();
}

static void tear_down(void) {
    shell("rm -rf '%s' '%s' '%s'", tree, results, cache);
    scratch_close();
}

static char *text_of(const char *folder, const char *name) {
    char path[2 * SCRATCH_PATH];
    size_t length;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ck_assert_msg(access(path, F_OK) == 0, "there is no %s", path);
    return scratch_read(path, &length);
}

static bool has(const char *folder, const char *name) {
    char path[2 * SCRATCH_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void holds(const char *folder, const char *name, const char *word) {
    char *text = text_of(folder, name);
    ck_assert_msg(strstr(text, word) != NULL, "%s holds no \"%s\": %.2000s", name, word, text);
    free(text);
}

/* ---- What is run ---- */

typedef struct outcome {
    const char *name; /* for write_list */
    int code;
    const char *verdict, *stage;
} outcome;

static const outcome outcomes[] = {{"pass", 0, "PASS", NULL},
                                   {"fail", 1, "FAIL", "layers.1.attn.norm"},
                                   {"refused", 3, "REFUSED", "geometry.field.differs"},
                                   {"lost", 4, "ERROR", "oracle.open"}};
enum { OUTCOMES = sizeof outcomes / sizeof *outcomes };

/* A case that passes, and one more of the kind. */
static void write_list(const char *kind) {
    char text[TEXT], folder[SCRATCH_PATH];
    const char *checkpoint = "fixtures/small/tiny-edge", *oracle = "oracles/tiny-edge.h5";
    char copied[SCRATCH_PATH];
    if (strcmp(kind, "fail") == 0) { /* a weight is another one, and the oracle's record of it too */
        scratch_copy_case("tiny-plain");
        scratch_flip_weight("layers.1.input_layernorm.weight", 3, 7, true);
        snprintf(folder, sizeof folder, "%s", sf_folder);
        snprintf(copied, sizeof copied, "%s", sf_path);
        checkpoint = folder;
        oracle = copied;
    } else if (strcmp(kind, "refused") == 0)
        oracle = "oracles/tiny-plain.h5";
    else if (strcmp(kind, "lost") == 0)
        oracle = "oracles/no-such-oracle.h5";
    static const char synth[] =
        "\"stored\":true,\"synth\":{\"config\":\"fixtures/small/tiny-edge/config.json\",\"seed\":11,\"dtype\":\"bf16\","
        "\"profile\":\"unit\"}}";
    snprintf(text, sizeof text,
             "{\"cases\":[{\"name\":\"good\",\"checkpoint\":\"fixtures/small/tiny-edge\",\"oracle\":"
             "\"oracles/tiny-edge.h5\",%s,{\"name\":\"other\",\"checkpoint\":\"%s\",\"oracle\":\"%s\",%s]}",
             synth, checkpoint, oracle, synth);
    scratch_write_text("cases.json", text);
}

/* The reports of one run are there, whole, and tell its verdict; a failure is told with its stage. */
static void reports_are_right(const outcome *o, const char *summary_folder, const char *summary) {
    char word[64];
    snprintf(word, sizeof word, "\"verdict\":\t\"%s\"", o->verdict);
    holds(results, "result.json", word);
    snprintf(word, sizeof word, "## dflash-parity gate: %s", o->verdict);
    holds(summary_folder, summary, word);
    if (o->stage != NULL) holds(summary_folder, summary, o->stage);
    char *junit = text_of(results, "junit.xml"), *page = text_of(results, "report.html");
    page_tags_are_balanced(strstr(junit, "<testsuites>"));
    ck_assert_msg((strstr(junit, "<failure ") != NULL) == (o->code == 1), "failures of %s", o->name);
    ck_assert_msg((strstr(junit, "<error ") != NULL) == (o->code > 1), "errors of %s", o->name);
    page_is_sound(page);
    free(junit);
    free(page);
}

/* ---- ci.sh ---- */

/* Runs ci.sh by a shell with these words after RESULTS; its streams go to out and err in the scratch folder. */
static int run_script(const char *environment, const char *words) {
    char command[TEXT];
    snprintf(command, sizeof command,
             "cd '%s' && %s PATH='%s/bin':\"$PATH\" sh reports/ci/ci.sh '%s' %s >'%s/out' 2>'%s/err'", tree,
             environment, tree, results, words, tree, tree);
    const int status = system(command);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static char *with_list(char words[TEXT], const char *more) {
    snprintf(words, TEXT, "--cases '%s' %s", list, more);
    return words;
}

START_TEST(the_script_ends_with_the_gates_code_and_leaves_every_report) {
    const outcome *o = &outcomes[_i];
    char words[TEXT];
    write_list(o->name);
    ck_assert_int_eq(run_script("", with_list(words, "")), o->code);
    reports_are_right(o, results, "summary.md");
    holds(tree, "out", o->verdict);
    holds(tree, "calls", "make -j");
    holds(results, "history.jsonl", o->verdict);
}
END_TEST

START_TEST(nothing_compared_and_no_list_are_no_pass_either) {
    char words[TEXT];
    write_list("pass");
    ck_assert_int_eq(run_script("", with_list(words, "-k 'none*'")), 5);
    holds(results, "summary.md", "## dflash-parity gate: NOTHING COMPARED");
    holds(results, "junit.xml", "<error ");
    /* The next run stops before its first case: no report is there to be taken for its own. */
    ck_assert_int_eq(run_script("", with_list(words, "--wrong")), 2);
    holds(tree, "err", "unknown word '--wrong'");
    static const char *const left[] = {"result.json", "summary.md", "junit.xml", "report.html"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) ck_assert_msg(!has(results, left[i]), "%s", left[i]);
    scratch_write_text("cases.json", "{\"cases\":[]}");
    ck_assert_int_eq(run_script("", with_list(words, "")), 3);
    holds(tree, "err", "cases.json: ");
    ck_assert(!has(results, "result.json"));
    shell("cd '%s' && { sh reports/ci/ci.sh 2>err; [ $? -eq 2 ]; }", tree);
    holds(tree, "err", "usage: ");
    shell("cd '%s' && { sh reports/ci/ci.sh --help 2>err; [ $? -eq 2 ]; }", tree);
    holds(tree, "err", "usage: ");
}
END_TEST

START_TEST(a_report_that_cannot_be_written_is_no_pass) {
    char words[TEXT];
    write_list("pass");
    shell("printf '#!/bin/sh\\n[ \"$1\" != report ] || exit 4\\n"
          "exec build/dflash-parity \"$@\"\\n' >'%s/bin/program' && chmod +x '%s/bin/program'",
          tree, tree);
    ck_assert_int_eq(run_script("PROGRAM=bin/program", with_list(words, "")), 4);
    ck_assert(!has(tree, "calls")); /* a program that is given is not built */
}
END_TEST

static ino_t inode_of(const char *name) {
    char path[2 * SCRATCH_PATH];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", cache, name);
    ck_assert_msg(stat(path, &info) == 0, "there is no %s", path);
    return info.st_ino;
}

START_TEST(the_cache_keeps_checkpoints_and_history_from_run_to_run) {
    char words[TEXT], environment[SCRATCH_PATH + 16];
    scratch_write_text("cases.json", RECIPE("made", "11"));
    snprintf(environment, sizeof environment, "CACHE='%s'", cache);
    ck_assert_int_eq(run_script(environment, with_list(words, "")), 0);
    const ino_t made = inode_of("checkpoints/made/model.safetensors");
    shell("rm -rf '%s/build/checkpoints' '%s'", tree, results); /* a fresh clone */
    ck_assert_int_eq(run_script(environment, with_list(words, "")), 0);
    ck_assert(inode_of("checkpoints/made/model.safetensors") == made);
    char *history = text_of(cache, "history.jsonl");
    ck_assert_ptr_nonnull(strchr(strchr(history, '\n') + 1, '\n'));
    free(history);
    ck_assert(!has(results, "history.jsonl"));
    /* A folder of somebody's own stays, and is used. */
    shell("rm '%s/build/checkpoints' && mkdir '%s/build/checkpoints'", tree, tree);
    ck_assert_int_eq(run_script(environment, with_list(words, "")), 0);
    ck_assert(has(tree, "build/checkpoints/made/model.safetensors"));
    /* A cache that was spoilt is refused and passes nothing. */
    shell("rm -r '%s/build/checkpoints' && printf x | dd of='%s/checkpoints/made/model.safetensors' bs=1 seek=9000 "
          "conv=notrunc 2>/dev/null",
          tree, cache);
    ck_assert_int_eq(run_script(environment, with_list(words, "")), 3);
    holds(results, "summary.md", "provenance.tensor.differs");
}
END_TEST

/* ---- The workflow ---- */

/* Runs one step as Actions runs it: `shell: bash` means `bash --noprofile --norc -eo pipefail FILE`. */
static int run_step(const workflow *w, const workflow_step *step) {
    char command[TEXT];
    ck_assert_str_eq(w->shell, "bash");
    scratch_write_text("step.sh", step->run);
    snprintf(command, sizeof command,
             "cd '%s' && GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY='%s/summary' %s='%s' PATH='%s/bin':\"$PATH\" "
             "bash --noprofile --norc -eo pipefail '%s/step.sh' >>'%s/log' 2>&1",
             tree, tree, w->env_name, list, tree, sf_folder, tree);
    const int status = system(command);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The job: the name of the step that failed first and its code, or NULL and 0. */
static const char *run_job(const workflow *w, int *code) {
    const char *failed = NULL;
    *code = 0;
    for (int i = 0; i < w->count; i++) {
        const workflow_step *step = &w->step[i];
        if (step->run[0] == '\0' || (failed != NULL && !step->always)) continue;
        const int now = run_step(w, step);
        if (now == 0 || failed != NULL) continue;
        failed = step->name;
        *code = now;
    }
    return failed;
}

static void read_workflow(workflow *w) {
    workflow_read("reports/ci/github-actions.yml", w);
    ck_assert_str_eq(w->env_name, "CASES");
    snprintf(results, sizeof results, "%.200s/results", tree);
}

START_TEST(the_workflow_fails_at_its_gate_and_reports_all_the_same) {
    const outcome *o = &outcomes[_i];
    workflow w;
    int code;
    write_list(o->name);
    read_workflow(&w);
    const char *failed = run_job(&w, &code);
    ck_assert_int_eq(code, o->code);
    ck_assert_str_eq(failed != NULL ? failed : "", o->code != 0 ? "Gate" : "");
    reports_are_right(o, tree, "summary");
    holds(tree, "log", o->code == 0 ? "\n::notice title=dflash-parity PASS::" : "\n::error title=other ");
    holds(tree, "history.jsonl", o->verdict);
    holds(tree, "calls", "sudo .ci/setup\nmake -j");
    holds(tree, "calls", " build\n");
}
END_TEST

START_TEST(a_workflow_whose_gate_never_began_fails_without_reports) {
    workflow w;
    int code;
    scratch_write_text("cases.json", "{\"cases\":[]}");
    read_workflow(&w);
    ck_assert_str_eq(run_job(&w, &code), "Gate");
    ck_assert_int_eq(code, 3);
    holds(tree, "log", "cases.json: ");
    ck_assert(!has(tree, "summary") && !has(results, "result.json"));
}
END_TEST

/* The step of the name; fails when there is none. */
static const workflow_step *step_of(const workflow *w, const char *name) {
    for (int i = 0; i < w->count; i++)
        if (strcmp(w->step[i].name, name) == 0) return &w->step[i];
    ck_abort_msg("there is no step %s", name);
    return NULL;
}

START_TEST(the_workflow_keeps_what_the_gate_leaves_and_injects_nothing) {
    static const char *const kept[][2] = {{"Keep the reports", "results/"}, {"Keep the history", "history.jsonl"}};
    workflow w;
    read_workflow(&w);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        ck_assert(step_of(&w, kept[i][0])->always);
        ck_assert_str_eq(step_of(&w, kept[i][0])->path, kept[i][1]);
    }
    ck_assert(step_of(&w, "Reports")->always && !step_of(&w, "Gate")->always);
    ck_assert_str_eq(step_of(&w, "History")->path, step_of(&w, "Keep the history")->path);
    ck_assert_str_eq(step_of(&w, "History")->key, step_of(&w, "Keep the history")->key);
    ck_assert_str_eq(step_of(&w, "Checkpoints")->path, "build/checkpoints");
    /* Every file that the key names is there, or a later one would change checkpoints without changing the key. */
    static const char *const names[] = {"fixtures/cases.json", "fixtures/configs/**", "harness/store/synth*"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_ptr_nonnull(strstr(step_of(&w, "Checkpoints")->key, names[i]));
    ck_assert(access("harness/store/synth_plan.c", F_OK) == 0 && access(w.env_value, F_OK) == 0);
    /* Expressions are put into a script as text, so a branch's name could be a command. */
    for (int i = 0; i < w.count; i++) ck_assert_ptr_null(strstr(w.step[i].run, "${{"));
    /* An action by a tag of its major version, from its own owner. */
    for (int i = 0; i < w.count; i++)
        if (w.step[i].uses[0] != '\0')
            ck_assert_msg(strncmp(w.step[i].uses, "actions/", 8) == 0 && strstr(w.step[i].uses, "@v") != NULL, "%s",
                          w.step[i].uses);
}
END_TEST

Suite *suite_recipes(void) {
    Suite *suite = suite_create("recipes");
    TCase *tests = tcase_create("recipes");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, the_script_ends_with_the_gates_code_and_leaves_every_report, 0, OUTCOMES);
    tcase_add_test(tests, nothing_compared_and_no_list_are_no_pass_either);
    tcase_add_test(tests, a_report_that_cannot_be_written_is_no_pass);
    tcase_add_test(tests, the_cache_keeps_checkpoints_and_history_from_run_to_run);
    tcase_add_loop_test(tests, the_workflow_fails_at_its_gate_and_reports_all_the_same, 0, OUTCOMES);
    tcase_add_test(tests, a_workflow_whose_gate_never_began_fails_without_reports);
    tcase_add_test(tests, the_workflow_keeps_what_the_gate_leaves_and_injects_nothing);
    suite_add_tcase(suite, tests);
    return suite;
}
