/*
 * identity_schedule.h - a history of one draft cache as text: what was ingested, drafted and rolled back, in order.
 *
 * Words: iN ingest the next N rows of the stream, tN roll back the last N rows, d draft a block and compare, x export
 * the cache and import it into a new one; first of all, cN: the cache has room for N rows (absent: for all). "c40 i3 d
 * i2 t1 d". Rows after a rollback take the same positions and are other rows, as with tokens that a target rejected.
 * Pure code; a schedule is run by identity_history.h and made smaller by identity_shrink.h.
 */
#ifndef DP_IDENTITY_SCHEDULE_H
#define DP_IDENTITY_SCHEDULE_H

#include "dflash.h"

typedef struct dp_step {
    char kind; /* i, t, d, x */
    int rows;  /* i and t: at least 1 */
} dp_step;

typedef struct dp_schedule {
    dp_step *step; /* owned */
    int count, capacity;
    int cache_rows; /* 0: room for all */
} dp_schedule;

enum { DP_SCHEDULE_MOST_ROWS = 1 << 20, DP_SCHEDULE_MOST_STEPS = 1 << 16 };

void dp_schedule_release(dp_schedule *schedule);
dflash_status dp_schedule_add(dp_schedule *schedule, char kind, int rows, dflash_error *err);
dflash_status dp_schedule_copy(const dp_schedule *from, dp_schedule *to, dflash_error *err);

/* Codes: "schedule.word", "schedule.rows" (more rolled back than committed, or too many rows), "schedule.draft"
 * (nothing is drafted). */
dflash_status dp_schedule_parse(const char *text, dp_schedule *out, dflash_error *err);
/* The caller frees it; NULL when out of memory. */
char *dp_schedule_text(const dp_schedule *schedule);

typedef struct dp_schedule_size {
    int committed; /* rows, at most at any time */
    int ingested;  /* rows in all */
    int drafts;
    bool possible; /* nothing is rolled back that is not there, and something is drafted */
} dp_schedule_size;
dp_schedule_size dp_schedule_measure(const dp_schedule *schedule);

/* What a random history is like. */
typedef struct dp_schedule_plan {
    int block;   /* B */
    int window;  /* the largest window when every layer slides; 0 otherwise */
    int prefill; /* rows ingested before the first draft; 0: up to a few blocks, at random */
    int rounds;
} dp_schedule_plan;

/* A server's life: a prompt, ingested in chunks of some size, then rounds of drafting and accepting 1..B rows, of which
 * some ingest the whole block first and roll back what was rejected, some go back further, some move the cache. When
 * every layer slides, the cache is so small that old rows must go, in most schedules. */
dflash_status dp_schedule_random(const dp_schedule_plan *plan, uint64_t random, dp_schedule *out, dflash_error *err);

#endif
