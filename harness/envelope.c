/* envelope.c - see envelope.h. */
#include "envelope.h"

#include <math.h>
#include <stdio.h>

/*
 * Factors from bracket to bar.
 *
 * Relative L2 averages over a whole stage, so two correct float32 programs land close together; 4 leaves room for a
 * program that rounds twice where the reference rounds once in every step (a factor of 2) and for the scatter of small
 * stages (another 2). The largest element is a maximum over many draws: for errors of one distribution the maxima of
 * two runs differ by more than their norms, and 8 doubles the room again.
 */
static const double l2_factor = 4.0, max_factor = 8.0;

/* Half a unit in the last place of float32, relative to the value. */
static const double unit_roundoff = 0x1p-24;

/* What a measure's bar is a multiple of. */
static const char *basis(double bracket, double floor) {
    return bracket < floor ? "one float32 rounding of the result" : "the reference's float32 error";
}

dp_bar dp_bar_chained(const dp_difference *bracket) {
    dp_bar bar = {.bracket_l2_rel = bracket->l2_rel, .bracket_max_rel = bracket->max_rel};
    const double l2_floor = unit_roundoff, max_floor = unit_roundoff * bracket->largest_in_row;
    bar.l2_rel = l2_factor * fmax(bracket->l2_rel, l2_floor);
    bar.max_rel = max_factor * fmax(bracket->max_rel, max_floor);
    snprintf(bar.origin, sizeof bar.origin, "%g x %s (L2), %g x %s (max)", l2_factor, basis(bracket->l2_rel, l2_floor),
             max_factor, basis(bracket->max_rel, max_floor));
    return bar;
}

/* A measure that is not finite, or is held against a bar that is none, leaves nothing. */
static double share_left(double error, double bar) {
    if (error == 0.0) return 1.0;
    return isfinite(error) && isfinite(bar) && bar > 0.0 ? 1.0 - error / bar : -INFINITY;
}

double dp_headroom(const dp_bar *bar, const dp_difference *difference) {
    if (difference->nonfinite > 0) return -INFINITY;
    const double l2 = share_left(difference->l2_rel, bar->l2_rel), max = share_left(difference->max_rel, bar->max_rel);
    return l2 < max ? l2 : max;
}
