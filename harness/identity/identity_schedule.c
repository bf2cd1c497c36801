/* identity_schedule.c - see identity_schedule.h. */
#include "identity/identity_schedule.h"

#include "common/error.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dp_schedule_release(dp_schedule *schedule) {
    free(schedule->step);
    *schedule = (dp_schedule){.step = NULL};
}

dflash_status dp_schedule_add(dp_schedule *schedule, char kind, int rows, dflash_error *err) {
    if (schedule->count == schedule->capacity) {
        const int capacity = schedule->capacity > 0 ? 2 * schedule->capacity : 64;
        dp_step *grown = realloc(schedule->step, (size_t)capacity * sizeof *grown);
        if (grown == NULL) return df_fail_memory(err, "a schedule", (size_t)capacity * sizeof *grown);
        schedule->step = grown;
        schedule->capacity = capacity;
    }
    schedule->step[schedule->count++] = (dp_step){.kind = kind, .rows = rows};
    return DFLASH_OK;
}

dflash_status dp_schedule_copy(const dp_schedule *from, dp_schedule *to, dflash_error *err) {
    dflash_status status = DFLASH_OK;
    to->count = 0;
    to->cache_rows = from->cache_rows;
    for (int i = 0; status == DFLASH_OK && i < from->count; i++)
        status = dp_schedule_add(to, from->step[i].kind, from->step[i].rows, err);
    return status;
}

dp_schedule_size dp_schedule_measure(const dp_schedule *schedule) {
    dp_schedule_size size = {.possible = true};
    int64_t committed = 0, most = 0, ingested = 0;
    for (int i = 0; i < schedule->count; i++) {
        const dp_step step = schedule->step[i];
        if (step.kind == 'i') committed += step.rows, ingested += step.rows;
        if (step.kind == 't') committed -= step.rows;
        if (step.kind == 'd') size.drafts++;
        if (committed < 0 || ingested > DP_SCHEDULE_MOST_ROWS) size.possible = false;
        if (committed > most) most = committed;
    }
    size.committed = size.possible ? (int)most : 0;
    size.ingested = size.possible ? (int)ingested : 0;
    size.possible = size.possible && size.drafts > 0;
    return size;
}

/* ---- Text ---- */

/* One word of `length` characters. False: there is no such word. */
static bool parse_word(const char *word, size_t length, char *kind, int *rows) {
    int64_t number = 0;
    *kind = word[0];
    *rows = 0;
    if (*kind == 'd' || *kind == 'x') return length == 1;
    if ((*kind != 'i' && *kind != 't' && *kind != 'c') || length < 2 || length > 8 || word[1] == '0') return false;
    for (size_t i = 1; i < length; i++) {
        if (word[i] < '0' || word[i] > '9') return false;
        number = 10 * number + (word[i] - '0');
    }
    if (number > DP_SCHEDULE_MOST_ROWS) return false;
    *rows = (int)number;
    return true;
}

static dflash_status parse_words(const char *text, dp_schedule *out, dflash_error *err) {
    for (const char *at = text + strspn(text, " "); *at != '\0'; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        char kind;
        int rows;
        if (!parse_word(at, length, &kind, &rows) || (kind == 'c' && (out->count > 0 || out->cache_rows > 0)))
            return df_fail(
                err, DFLASH_ERR_ARGUMENT, "schedule.word",
                "The schedule has the word '%.*s', which is none of iN (ingest N rows), tN (roll N back), d "
                "(draft), x (export and import) and, once and first, cN (room for N rows), with N from 1 to %d.",
                (int)(length < 60 ? length : 60), at, DP_SCHEDULE_MOST_ROWS);
        if (out->count >= DP_SCHEDULE_MOST_STEPS)
            return df_fail(err, DFLASH_ERR_ARGUMENT, "schedule.word", "The schedule has more than %d words.",
                           DP_SCHEDULE_MOST_STEPS);
        if (kind == 'c') {
            out->cache_rows = rows;
        } else {
            const dflash_status status = dp_schedule_add(out, kind, rows, err);
            if (status != DFLASH_OK) return status;
        }
        at += length;
    }
    return DFLASH_OK;
}

dflash_status dp_schedule_parse(const char *text, dp_schedule *out, dflash_error *err) {
    *out = (dp_schedule){.step = NULL};
    dflash_status status = parse_words(text, out, err);
    const dp_schedule_size size = dp_schedule_measure(out);
    if (status == DFLASH_OK && !size.possible)
        status =
            size.drafts == 0
                ? df_fail(err, DFLASH_ERR_ARGUMENT, "schedule.draft",
                          "The schedule '%.80s' drafts no block before it is over, so it would compare nothing. Add "
                          "the word d.",
                          text)
                : df_fail(err, DFLASH_ERR_ARGUMENT, "schedule.rows",
                          "The schedule '%.80s' rolls back more rows than it has committed, or ingests more than %d. "
                          "Correct its numbers.",
                          text, DP_SCHEDULE_MOST_ROWS);
    if (status != DFLASH_OK) dp_schedule_release(out);
    return status;
}

char *dp_schedule_text(const dp_schedule *schedule) {
    enum { LONGEST_WORD = 16 };
    const size_t size = (size_t)LONGEST_WORD * ((size_t)schedule->count + 1) + 1;
    char *text = malloc(size), *at = text;
    if (text == NULL) return NULL;
    *at = '\0';
    if (schedule->cache_rows > 0) at += snprintf(at, LONGEST_WORD, "c%d ", schedule->cache_rows);
    for (int i = 0; i < schedule->count; i++) {
        const dp_step step = schedule->step[i];
        at += step.rows > 0 ? snprintf(at, LONGEST_WORD, "%c%d ", step.kind, step.rows)
                            : snprintf(at, LONGEST_WORD, "%c ", step.kind);
    }
    if (at > text) at[-1] = '\0';
    return text;
}

/* ---- At random ---- */

/* A history in the making. Rows up to `furthest` have been committed at some time; going back is always possible to a
 * block before that. */
typedef struct maker {
    dp_schedule *schedule;
    uint64_t random;
    int committed, furthest;
    dflash_error *err;
} maker;

static dflash_status ingest(maker *m, int rows) {
    m->committed += rows;
    if (m->committed > m->furthest) m->furthest = m->committed;
    return dp_schedule_add(m->schedule, 'i', rows, m->err);
}

static dflash_status roll_back(maker *m, int rows) {
    m->committed -= rows;
    return rows > 0 ? dp_schedule_add(m->schedule, 't', rows, m->err) : DFLASH_OK;
}

static dflash_status ingest_in_chunks(maker *m, int rows) {
    static const int sizes[] = {0, 1, 7, -1}; /* at once, one, seven, random */
    const int size = sizes[dp_random_below(&m->random, 4)];
    dflash_status status = DFLASH_OK;
    while (status == DFLASH_OK && rows > 0) {
        const int wanted = size == 0 ? rows : size > 0 ? size : 1 + dp_random_below(&m->random, rows);
        const int chunk = wanted < rows ? wanted : rows;
        status = ingest(m, chunk);
        rows -= chunk;
    }
    return status;
}

/* The target has verified: 1..B rows of the block stay. */
static dflash_status accept_some(maker *m, int block) {
    const int stay = 1 + dp_random_below(&m->random, block);
    dflash_status status = DFLASH_OK;
    if (dp_random_below(&m->random, 2) == 0) { /* the whole block first */
        status = ingest_in_chunks(m, block);
        if (status == DFLASH_OK) status = roll_back(m, block - stay);
    } else {
        status = ingest_in_chunks(m, stay);
    }
    if (status == DFLASH_OK && dp_random_below(&m->random, 8) == 0) {
        const int lowest = m->furthest > block ? m->furthest - block : 0;
        if (m->committed > lowest) status = roll_back(m, dp_random_below(&m->random, m->committed - lowest) + 1);
    }
    return status;
}

dflash_status dp_schedule_random(const dp_schedule_plan *plan, uint64_t random, dp_schedule *out, dflash_error *err) {
    *out = (dp_schedule){.step = NULL};
    maker m = {.schedule = out, .random = random, .err = err};
    const int smallest = plan->window + 2 * plan->block, span = plan->window + plan->block + 1;
    if (plan->window > 0 && dp_random_below(&m.random, 8) != 0)
        out->cache_rows = smallest + dp_random_below(&m.random, span);
    const int prefill = plan->prefill > 0 ? plan->prefill : 1 + dp_random_below(&m.random, 6 * plan->block);
    dflash_status status = ingest_in_chunks(&m, prefill);
    for (int round = 0; status == DFLASH_OK && round < plan->rounds; round++) {
        status = dp_schedule_add(out, 'd', 0, err);
        if (status == DFLASH_OK && round + 1 < plan->rounds) status = accept_some(&m, plan->block);
        if (status == DFLASH_OK && round + 1 < plan->rounds && dp_random_below(&m.random, 12) == 0)
            status = dp_schedule_add(out, 'x', 0, err);
    }
    if (status != DFLASH_OK) dp_schedule_release(out);
    return status;
}
