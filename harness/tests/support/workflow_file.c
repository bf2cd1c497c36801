/* workflow_file.c - see workflow_file.h. */
#include "support/workflow_file.h"

#include "support/scratch.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS_AT = 4, STEP_AT = 6, KEY_AT = 8, VALUE_AT = 10 };

typedef struct reader {
    workflow *out;
    workflow_step *step;
    bool in_steps, in_block, in_with;
    char section[32]; /* of the job: env, defaults, ... */
    int number;
} reader;

static void set(char *to, size_t size, const char *value, const reader *r) {
    ck_assert_msg(to[0] == '\0', "line %d: given twice", r->number);
    ck_assert_msg(strlen(value) < size && value[0] != '\0', "line %d: too long, or empty", r->number);
    strcpy(to, value);
}

/* "key: value", the value "" for a key alone. */
static void split(const char *text, char key[64], char value[256], const reader *r) {
    const char *colon = strchr(text, ':');
    ck_assert_msg(colon != NULL && colon - text < 64 && (colon[1] == ' ' || colon[1] == '\0'), "line %d: %s", r->number,
                  text);
    snprintf(key, 64, "%.*s", (int)(colon - text), text);
    snprintf(value, 256, "%s", colon[1] == ' ' ? colon + 2 : "");
}

static void take_step_key(reader *r, const char *key, const char *value) {
    workflow_step *s = r->step;
    ck_assert_msg(s != NULL, "line %d: before any step", r->number);
    r->in_with = strcmp(key, "with") == 0;
    r->in_block = false;
    if (strcmp(key, "name") == 0)
        set(s->name, sizeof s->name, value, r);
    else if (strcmp(key, "uses") == 0)
        set(s->uses, sizeof s->uses, value, r);
    else if (strcmp(key, "run") == 0 && strcmp(value, "|") == 0)
        r->in_block = true;
    else if (strcmp(key, "run") == 0)
        set(s->run, sizeof s->run, value, r);
    else if (strcmp(key, "if") == 0 && strcmp(value, "always()") == 0)
        s->always = true;
    else
        ck_assert_msg(r->in_with && value[0] == '\0', "line %d: the key %s: %s is not known here", r->number, key,
                      value);
}

static void take_with(reader *r, const char *key, const char *value) {
    static const char *const ignored[] = {"name", "restore-keys", "if-no-files-found"};
    if (strcmp(key, "path") == 0) return set(r->step->path, sizeof r->step->path, value, r);
    if (strcmp(key, "key") == 0) return set(r->step->key, sizeof r->step->key, value, r);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (strcmp(key, ignored[i]) == 0) return;
    ck_abort_msg("line %d: the key %s of an action is not known here", r->number, key);
}

static void take_in_steps(reader *r, const char *line, int indent) {
    char key[64], value[256];
    if (indent == STEP_AT && strncmp(line + indent, "- ", 2) == 0) {
        ck_assert_int_lt(r->out->count, WORKFLOW_STEPS);
        r->step = &r->out->step[r->out->count++];
        split(line + indent + 2, key, value, r);
        take_step_key(r, key, value);
    } else if (indent == KEY_AT) {
        split(line + indent, key, value, r);
        take_step_key(r, key, value);
    } else if (indent >= VALUE_AT && r->in_block) {
        char *run = r->step->run;
        ck_assert_uint_lt(strlen(run) + strlen(line), WORKFLOW_TEXT - 2);
        sprintf(run + strlen(run), "%s\n", line + VALUE_AT);
    } else if (indent == VALUE_AT && r->in_with) {
        split(line + indent, key, value, r);
        take_with(r, key, value);
    } else {
        ck_abort_msg("line %d stands where nothing is known: %s", r->number, line);
    }
}

/* What comes before the steps: of interest are the job's variable and its shell. */
static void take_head(reader *r, const char *line, int indent) {
    char key[64], value[256];
    split(line + indent, key, value, r);
    if (indent == STEPS_AT) snprintf(r->section, sizeof r->section, "%.31s", key);
    if (indent == STEPS_AT && strcmp(key, "steps") == 0)
        r->in_steps = true;
    else if (indent == STEP_AT && strcmp(r->section, "env") == 0) {
        set(r->out->env_name, sizeof r->out->env_name, key, r);
        set(r->out->env_value, sizeof r->out->env_value, value, r);
    } else if (strcmp(key, "shell") == 0)
        set(r->out->shell, sizeof r->out->shell, value, r);
}

void workflow_read(const char *path, workflow *out) {
    size_t length;
    char *text = scratch_read(path, &length);
    reader r = {.out = out};
    *out = (workflow){.count = 0};
    ck_assert_ptr_null(strchr(text, '\t'));
    for (char *line = text, *next; *line != '\0'; line = next) {
        next = line + strcspn(line, "\n");
        if (*next == '\n') *next++ = '\0';
        r.number++;
        const int indent = (int)strspn(line, " ");
        if (line[indent] == '\0' || line[indent] == '#') continue; /* inside a block too: a comment runs nothing */
        if (r.in_steps)
            take_in_steps(&r, line, indent);
        else
            take_head(&r, line, indent);
    }
    for (int i = 0; i < out->count; i++)
        ck_assert_msg((out->step[i].uses[0] == '\0') != (out->step[i].run[0] == '\0'),
                      "step %d neither runs nor uses, or both", i + 1);
    free(text);
}
