/*
 * identity_shrink.h - makes a failing schedule as small as it gets while it still fails.
 *
 * Pure code: what failing means is the caller's. It drops steps (many at a time, then one), merges neighbouring
 * ingests, lowers the rows of a step, and of an ingest together with a rollback, drafts later, and widens or narrows
 * the cache, until nothing of this leaves a schedule that fails.
 */
#ifndef DP_IDENTITY_SHRINK_H
#define DP_IDENTITY_SHRINK_H

#include "identity/identity_schedule.h"

/* Called with possible schedules only (dp_schedule_measure). */
typedef bool (*dp_schedule_fails)(const dp_schedule *schedule, void *user);

/* *schedule, which fails, becomes a smaller one that does. At most `budget` calls of fails; *calls counts them. When
 * memory runs out the schedule is what was reached so far. */
dflash_status dp_schedule_shrink(dp_schedule *schedule, dp_schedule_fails fails, void *user, int budget, int *calls,
                                 dflash_error *err);

#endif
