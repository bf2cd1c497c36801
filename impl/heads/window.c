/*
 * window.c - how many tokens to verify next, from DSpark's confidence or from what was accepted last.
 *
 * The arithmetic is float32 and fixed: sigma = df_sigmoid(raw); survival multiplies from left to right, one rounding a
 * slot, and compares with tau by >=. The values come from dflash_confidence (confidence.c).
 */
#include "common/error.h"
#include "common/mathfn.h"

enum { SMALLEST_WINDOW = 2, SMALLEST_LADDER = 3 };

static dflash_status check_options(const dflash_window_options *options, dflash_error *err) {
    const bool ladder = options->policy == DFLASH_WINDOW_LADDER;
    if (!ladder && options->policy != DFLASH_WINDOW_SURVIVAL && options->policy != DFLASH_WINDOW_SLOT)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "window.policy",
                       "Window policy %d does not exist: there are survival (%d), slot (%d) and ladder (%d).",
                       (int)options->policy, (int)DFLASH_WINDOW_SURVIVAL, (int)DFLASH_WINDOW_SLOT,
                       (int)DFLASH_WINDOW_LADDER);
    const int smallest = ladder ? SMALLEST_LADDER : SMALLEST_WINDOW;
    if (options->cap < smallest)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "window.cap",
                       "The largest window is %d, below the smallest that the %s policy gives, %d (the anchor counts). "
                       "Raise the cap.",
                       options->cap, ladder ? "ladder" : "confidence", smallest);
    if (ladder && options->threshold != 0.0f) /* a NaN too */
        return df_fail(err, DFLASH_ERR_ARGUMENT, "window.contradiction",
                       "The ladder policy reads no confidence, but a threshold of %g was given. Give 0 with ladder, or "
                       "choose survival or slot.",
                       (double)options->threshold);
    if (ladder && options->accepted < 0)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "window.accepted",
                       "The ladder policy needs the number of tokens accepted last round, 0 or more: found %d.",
                       options->accepted);
    if (!ladder && options->accepted != -1)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "window.contradiction",
            "The survival and slot policies do not read what was accepted last round, but %d was given. Give "
            "-1 with them, or choose ladder.",
            options->accepted);
    if (!ladder && !(options->threshold > 0.0f && options->threshold < 1.0f))
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "window.threshold",
            "The threshold is %g; expected a probability above 0 and below 1 (usually 0.5). At the ends every "
            "window or none would pass, whatever the confidence says.",
            (double)options->threshold);
    return DFLASH_OK;
}

static dflash_status check_raw(const float *raw, int n, dflash_error *err) {
    if (raw == NULL || n < 1)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "window.slots",
                       "A window is taken from the confidence of at least one drafted slot: found %s for %d. Pass what "
                       "dflash_confidence gave.",
                       raw == NULL ? "no values" : "values", n);
    for (int i = 0; i < n; i++)
        if ((df_f32_to_bits(raw[i]) & 0x7f800000u) == 0x7f800000u)
            return df_fail(
                err, DFLASH_ERR_ARGUMENT, "window.nonfinite",
                "The confidence of slot %d is %g, from which no window can be taken; expected finite values. "
                "Look for the NaN or overflow in the rows that it was computed from.",
                i, (double)raw[i]);
    return DFLASH_OK;
}

/* Leading slots to verify, as many as the cap has room for beside the anchor. */
static int kept_slots(const dflash_window_options *options, const float *raw, int n) {
    const int room = options->cap - 1, most = n < room ? n : room;
    float survival = 1.0f;
    int kept = 0;
    for (; kept < most; kept++) {
        const float sigma = df_sigmoid(raw[kept]);
        survival = options->policy == DFLASH_WINDOW_SURVIVAL ? survival * sigma : sigma;
        if (!(survival >= options->threshold)) break;
    }
    return kept;
}

dflash_status dflash_verify_window(const dflash_window_options *options, const float *raw, int n, int *window,
                                   dflash_error *err) {
    if (options == NULL || window == NULL)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "window.argument",
                       "dflash_verify_window needs options and a place for the window; one of them is null.");
    dflash_status status = check_options(options, err);
    if (status != DFLASH_OK) return status;
    if (options->policy == DFLASH_WINDOW_LADDER) {
        const int next = options->accepted < options->cap - 2 ? options->accepted + 2 : options->cap;
        *window = next > SMALLEST_LADDER ? next : SMALLEST_LADDER;
        return DFLASH_OK;
    }
    status = check_raw(raw, n, err);
    if (status != DFLASH_OK) return status;
    const int next = 1 + kept_slots(options, raw, n);
    *window = next > SMALLEST_WINDOW ? next : SMALLEST_WINDOW;
    return DFLASH_OK;
}
