/*
 * svg_inline.h - a picture that gnuplot drew, made part of a page.
 *
 * Identifiers get a prefix, since one page holds many pictures that all define the same names; the scripts' colours
 * become the page's variables, so that the picture follows light and dark; black becomes the page's text colour.
 */
#ifndef DP_SVG_INLINE_H
#define DP_SVG_INLINE_H

#include "dflash.h"

#include <stdio.h>

/* Writes the picture. `label` is its text for readers who cannot see it. Code: "svg.form" (no <svg ...> with a viewBox,
 * no end, or something that a picture of ours never holds: a script, a handler, a reference to elsewhere). */
dflash_status dp_svg_inline(FILE *to, const char *svg, const char *prefix, const char *label, dflash_error *err);

#endif
