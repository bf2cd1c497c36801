/* seen.c - see seen.h. */
#include "check/seen.h"

#include <stdio.h>
#include <string.h>

void dp_seen_add(dp_seen *c, const dp_result *result) {
    for (int i = 0; i < result->stage_count; i++) {
        const dp_stage_result *stage = &result->stage[i];
        if (stage->difference.count == 0)
            c->unseen++;
        else if (!stage->sketch.judged)
            c->whole++;
        else {
            c->sketched++;
            c->values += dp_dims_product(stage->rank, stage->dim);
            c->compared += stage->difference.count;
            c->rows += stage->sketch.rows;
        }
        if (!stage->isolated.judged) continue;
        if (stage->isolated.fed)
            c->fed++;
        else if (stage->isolated.fed_count > 0)
            c->fed_partly++;
        else
            c->unfed++;
    }
}

dp_seen dp_seen_of(const dp_result *result) {
    dp_seen c = {.whole = 0};
    dp_seen_add(&c, result);
    return c;
}

const char *dp_seen_text(const dp_seen *c, char text[DP_SEEN_TEXT]) {
    int at = snprintf(text, DP_SEEN_TEXT, "%s: %d stages whole", c->unseen > 0 ? "seen" : "every row and column seen",
                      c->whole);
    if (c->sketched > 0)
        at +=
            snprintf(text + at, DP_SEEN_TEXT - (size_t)at, ", %d by sketches of %lld rows and %.2g %% of their values",
                     c->sketched, (long long)c->rows, 100.0 * (double)c->compared / (double)c->values);
    if (c->unseen > 0) at += snprintf(text + at, DP_SEEN_TEXT - (size_t)at, ", %d not shown", c->unseen);
    if (c->fed + c->fed_partly + c->unfed > 0)
        snprintf(text + at, DP_SEEN_TEXT - (size_t)at, "; alone: %d fed by the oracle, %d partly, %d by the run",
                 c->fed, c->fed_partly, c->unfed);
    return text;
}
