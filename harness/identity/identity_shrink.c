/* identity_shrink.c - see identity_shrink.h. */
#include "identity/identity_shrink.h"

typedef struct shrinker {
    dp_schedule *best, trial;
    dp_schedule_fails fails;
    void *user;
    int budget, calls;
    dflash_status status;
    dflash_error *err;
} shrinker;

static bool spent(const shrinker *s) { return s->status != DFLASH_OK || s->calls >= s->budget; }

static bool begin_trial(shrinker *s) {
    if (spent(s)) return false;
    s->status = dp_schedule_copy(s->best, &s->trial, s->err);
    return s->status == DFLASH_OK;
}

/* True when the trial fails too: it is the best from now on. */
static bool keep_trial(shrinker *s) {
    if (!dp_schedule_measure(&s->trial).possible) return false;
    s->calls++;
    if (!s->fails(&s->trial, s->user)) return false;
    const dp_schedule replaced = *s->best;
    *s->best = s->trial;
    s->trial = replaced;
    return true;
}

static void remove_steps(dp_schedule *schedule, int first, int count) {
    for (int i = first; i + count < schedule->count; i++) schedule->step[i] = schedule->step[i + count];
    schedule->count -= count;
}

static bool drop_steps(shrinker *s) {
    bool any = false;
    for (int size = s->best->count / 2; size >= 1; size /= 2)
        for (int first = s->best->count - size; first >= 0 && !spent(s);) {
            if (!begin_trial(s)) return any;
            remove_steps(&s->trial, first, size);
            const bool kept = keep_trial(s);
            any = any || kept;
            first -= kept ? size : 1;
            if (first > s->best->count - size) first = s->best->count - size;
        }
    return any;
}

static bool merge_ingests(shrinker *s) {
    bool any = false;
    for (int i = 0; i + 1 < s->best->count && !spent(s);) {
        const bool pair = s->best->step[i].kind == 'i' && s->best->step[i + 1].kind == 'i';
        bool kept = false;
        if (pair && begin_trial(s)) {
            s->trial.step[i].rows += s->trial.step[i + 1].rows;
            remove_steps(&s->trial, i + 1, 1);
            kept = keep_trial(s);
        }
        any = any || kept;
        if (!kept) i++;
    }
    return any;
}

/* Lowers step i to `rows`, and step j (after i; -1: none) by as many; a step without rows goes. */
static bool lower_to(shrinker *s, int i, int j, int rows) {
    if (!begin_trial(s)) return false;
    const int less = s->trial.step[i].rows - rows;
    if (j >= 0 && s->trial.step[j].rows < less) return false;
    s->trial.step[i].rows = rows;
    if (j >= 0) {
        s->trial.step[j].rows -= less;
        if (s->trial.step[j].rows == 0) remove_steps(&s->trial, j, 1);
    }
    if (rows == 0) remove_steps(&s->trial, i, 1);
    return keep_trial(s);
}

static bool lower_rows(shrinker *s) {
    bool any = false;
    for (int i = 0; i < s->best->count && !spent(s); i++)
        while (i < s->best->count && s->best->step[i].rows > 1 && !spent(s)) {
            const int rows = s->best->step[i].rows;
            if (!lower_to(s, i, -1, 1) && !(rows > 3 && lower_to(s, i, -1, rows / 2)) && !lower_to(s, i, -1, rows - 1))
                break;
            any = true;
        }
    return any;
}

/* A rollback and an ingest before it cancel each other, in whole or by one row. */
static bool lower_pairs(shrinker *s) {
    bool any = false;
    for (int j = 0; j < s->best->count && !spent(s); j++)
        for (int i = 0; i < j && j < s->best->count && s->best->step[j].kind == 't' && !spent(s); i++) {
            if (s->best->step[i].kind != 'i') continue;
            const int rows = s->best->step[i].rows, back = s->best->step[j].rows, both = rows < back ? rows : back;
            if (lower_to(s, i, j, rows - both) || (both > 1 && lower_to(s, i, j, rows - 1))) {
                any = true;
                i = j; /* the numbers of the steps have changed */
            }
        }
    return any;
}

/* Drafts go behind steps that need not come after them, which then may merge. */
static bool delay_drafts(shrinker *s) {
    bool any = false;
    for (int i = 0; i + 1 < s->best->count && !spent(s); i++) {
        if (s->best->step[i].kind != 'd' || s->best->step[i + 1].kind == 'd' || !begin_trial(s)) continue;
        const dp_step draft = s->trial.step[i];
        s->trial.step[i] = s->trial.step[i + 1];
        s->trial.step[i + 1] = draft;
        any = keep_trial(s) || any;
    }
    return any;
}

static bool resize_to(shrinker *s, int rows) {
    if (!begin_trial(s)) return false;
    s->trial.cache_rows = rows;
    return keep_trial(s);
}

static bool resize_cache(shrinker *s) {
    if (s->best->cache_rows == 0 || spent(s)) return false;
    if (resize_to(s, 0)) return true;
    bool any = false;
    while (s->best->cache_rows > 1 && resize_to(s, s->best->cache_rows - 1)) any = true;
    return any;
}

dflash_status dp_schedule_shrink(dp_schedule *schedule, dp_schedule_fails fails, void *user, int budget, int *calls,
                                 dflash_error *err) {
    shrinker s = {.best = schedule, .fails = fails, .user = user, .budget = budget, .err = err};
    bool smaller = true;
    while (smaller && !spent(&s)) {
        smaller = drop_steps(&s);
        smaller = merge_ingests(&s) || smaller;
        smaller = lower_rows(&s) || smaller;
        smaller = lower_pairs(&s) || smaller;
        smaller = delay_drafts(&s) || smaller;
        smaller = resize_cache(&s) || smaller;
    }
    dp_schedule_release(&s.trial);
    *calls = s.calls;
    return s.status;
}
