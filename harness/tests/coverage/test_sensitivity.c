/*
 * test_sensitivity.c - every field of a config is asked about, and some stored case notices each; where none does, the
 * command fails.
 */
#include "suites.h"

#include "support/child.h"
#include "coverage/sensitivity.h"
#include "support/store_files.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether some line of the table is about the member, by its name alone or with a step after it. */
static bool is_asked_about(const char *prefix, const char *member, size_t length) {
    char name[96];
    const int n = snprintf(name, sizeof name, "%s%.*s", prefix, (int)length, member);
    for (int i = 0; i < dp_field_count(); i++) {
        const char *field = dp_field_at(i)->name;
        if (strncmp(field, name, (size_t)n) == 0 && strchr(", ", field[n]) != NULL) return true;
    }
    return false;
}

/* The members of `typedef struct NAME { ... }` in the text of a header without comments. */
static int members_of(const char *text, const char *name, const char *prefix) {
    char opening[96];
    int members = 0;
    snprintf(opening, sizeof opening, "typedef struct %s {", name);
    const char *at = strstr(text, opening);
    ck_assert_ptr_nonnull(at);
    at += strlen(opening);
    const char *end = strchr(at, '}');
    for (const char *mark = at; mark < end; mark++) {
        if (*mark != ';' && *mark != ',' && *mark != '[') continue;
        const char *first = mark;
        while (isalnum((unsigned char)first[-1]) || first[-1] == '_') first--;
        const size_t length = (size_t)(mark - first);
        if (*mark == '[')
            while (*mark != ']') mark++; /* what follows the size is the end of the same member */
        if (length == 0) continue;
        members++;
        if (strncmp(first, "rope", length) == 0 || strncmp(first, "layer", length) == 0) continue;
        ck_assert_msg(is_asked_about(prefix, first, length), "no field of the table is %s%.*s", prefix, (int)length,
                      first);
    }
    return members;
}

START_TEST(every_member_of_a_config_has_a_line) {
    FILE *file = fopen("impl/include/dflash/config.h", "rb");
    ck_assert_ptr_nonnull(file);
    char *text = calloc(1, 1 << 20);
    ck_assert_uint_gt(fread(text, 1, (1 << 20) - 1, file), 0);
    fclose(file);
    for (char *at = strstr(text, "/*"); at != NULL; at = strstr(at, "/*")) {
        char *end = strstr(at, "*/");
        ck_assert_ptr_nonnull(end);
        memset(at, ' ', (size_t)(end + 2 - at));
    }
    ck_assert_int_ge(members_of(text, "dflash_config", ""), 30);
    ck_assert_int_ge(members_of(text, "dflash_rope_config", "rope."), 12);
    ck_assert_int_ge(members_of(text, "dflash_layer_config", "layer."), 3);
    free(text);
}
END_TEST

START_TEST(some_stored_case_notices_every_field) {
    child run = CHILD("sensitivity");
    ck_assert_msg(strstr(run.out, "FAIL") == NULL, "%s", run.out);
    child_expect(run, 0, "PASS: ", "");
}
END_TEST

START_TEST(a_field_that_no_case_notices_fails) {
    child run = CHILD("sensitivity", "-k", "tiny-plain");
    const char *line = strstr(run.out, "rope.factor");
    ck_assert_msg(line != NULL && strncmp(line + 30, "not tried", 9) == 0, "%s", run.out);
    line = strstr(run.out, "\nrms_eps");
    ck_assert_msg(line != NULL && strstr(line, "values    tiny-plain") == line + 31, "%s", run.out);
    child_expect(run, 1, "FAIL: ", "");
}
END_TEST

/* Without an embedding table nothing is computed from the mask token: only the geometry record speaks of it. */
START_TEST(a_step_that_the_case_cannot_tell_is_not_noticed_in_values) {
    const dp_case plain = {
        .checkpoint = "fixtures/small/tiny-plain", .oracle = "oracles/tiny-plain.h5", .stored = true};
    int found = 0;
    for (int i = 0; i < dp_field_count(); i++) {
        const dp_field *field = dp_field_at(i);
        dp_sensitivity out;
        dflash_error err;
        bool applies;
        if (strcmp(field->name, "max_position") != 0 && strcmp(field->name, "mask_token_id") != 0) continue;
        ck_assert_int_eq(dp_sensitivity_of(&plain, field, &applies, &out, &err), DFLASH_OK);
        ck_assert(applies);
        const bool mask = strcmp(field->name, "mask_token_id") == 0;
        ck_assert_int_eq(out.noticed, mask ? DP_NOTICED_GEOMETRY : DP_NOTICED_NEVER);
        found++;
    }
    ck_assert_int_eq(found, 2);
}
END_TEST

START_TEST(nothing_to_ask_and_wrong_words_have_their_codes) {
    child_expect(CHILD("sensitivity", "-k", "no-such-case"), 5, "NOTHING COMPARED", "");
    child_expect(CHILD("sensitivity", "--fields"), 2, "", "--fields");
    child_expect(CHILD("sensitivity", "--cases", "no-such-file"), 4, "", "no-such-file");
}
END_TEST

Suite *suite_sensitivity(void) {
    Suite *suite = suite_create("sensitivity");
    TCase *tests = tcase_create("sensitivity");
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, every_member_of_a_config_has_a_line);
    tcase_add_test(tests, some_stored_case_notices_every_field);
    tcase_add_test(tests, a_field_that_no_case_notices_fails);
    tcase_add_test(tests, a_step_that_the_case_cannot_tell_is_not_noticed_in_values);
    tcase_add_test(tests, nothing_to_ask_and_wrong_words_have_their_codes);
    suite_add_tcase(suite, tests);
    return suite;
}
