/*
 * test_looks.c - how a page looks, as far as its text tells: contrast of every colour that words or curves have on
 * every ground they stand on, in light, in dark and in print; narrow windows; what unfolds on paper; the colours of
 * pictures.
 */
#include "report/html.h"
#include "support/scratch.h"
#include "suites.h"
#include "report/svg_inline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *page(void) {
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    ck_assert_ptr_nonnull(to);
    dp_html_begin(to, "t");
    dp_html_end(to);
    ck_assert_int_eq(fclose(to), 0);
    return text;
}

/* ---- Contrast ---- */

/* The value of --name in the rules that begin at `rules` and end at the next brace; relative luminance as WCAG 2 has
 * it.
 */
static double luminance(const char *rules, const char *name) {
    static const double share[] = {0.2126, 0.7152, 0.0722};
    char word[32];
    double sum = 0;
    snprintf(word, sizeof word, "--%s:#", name);
    const char *at = strstr(rules, word), *end = strchr(rules, '}');
    ck_assert_msg(at != NULL && end != NULL && at < end, "no colour --%s", name);
    at += strlen(word);
    const size_t digits = strspn(at, "0123456789abcdef");
    ck_assert_msg(digits == 3 || digits == 6, "--%s is no colour", name);
    for (size_t i = 0; i < 3; i++) {
        char hex[3] = {at[digits == 6 ? 2 * i : i], at[digits == 6 ? 2 * i + 1 : i], '\0'};
        const double value = (double)strtol(hex, NULL, 16) / 255;
        sum += share[i] * (value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4));
    }
    return sum;
}

static double contrast(const char *rules, const char *ink, const char *ground) {
    const double a = luminance(rules, ink), b = luminance(rules, ground);
    return (fmax(a, b) + 0.05) / (fmin(a, b) + 0.05);
}

START_TEST(words_and_curves_stand_out_from_their_ground) {
    /* Words: 4.5, what WCAG 2 AA asks; --p-blue is that of links too and --p-red of the name beside a dashed line.
     * Curves and points: 3. */
    static const char *const words[] = {"fg", "soft", "good", "bad", "stop", "p-blue", "p-red"};
    static const char *const curves[] = {"p-amber", "p-green", "p-pink", "p-sky"};
    static const char *const where[] = {"<style>\n:root{", "@media (prefers-color-scheme:dark){:root{",
                                        "@media print{:root{"};
    char *text = page();
    const char *rules = strstr(text, where[_i]);
    ck_assert_msg(rules != NULL, "no rules: %s", where[_i]);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int tint = 0; tint < 2; tint++) {
            const double found = contrast(rules, words[i], tint ? "tint" : "bg");
            ck_assert_msg(found >= 4.5, "%s: --%s has a contrast of %.2f", where[_i], words[i], found);
        }
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) {
        const double found = contrast(rules, curves[i], "bg");
        ck_assert_msg(found >= 3, "%s: --%s has a contrast of %.2f", where[_i], curves[i], found);
    }
    free(text);
}
END_TEST

/* ---- Windows and paper ---- */

START_TEST(a_page_fits_a_narrow_window_and_unfolds_on_paper) {
    static const char *const needed[] = {
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
        ".wide{overflow-x:auto;",                                    /* what is wider scrolls by itself, */
        "@media screen and (max-width:40rem){.wide th:first-child,", /* and the name of a line stays in sight */
        "pre{background:var(--tint);padding:.6rem .8rem;border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere}",
        "html,body{font-size:11px}", /* everything shrinks on paper, captions too */
        ".wide{overflow:visible}figure .wide svg{min-width:0}figure,tr,.look{break-inside:avoid}",
        "details::details-content{content-visibility:visible;block-size:auto}",
    };
    char *text = page();
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        ck_assert_msg(strstr(text, needed[i]) != NULL, "the page lacks: %s", needed[i]);
    free(text);
}
END_TEST

/* ---- Pictures ---- */

/* Every fixed colour of the scripts gets the page's own: one that is not replaced would vanish in the dark. The heat
 * map alone keeps its palette, which is the same in light and dark. */
START_TEST(every_colour_of_the_scripts_follows_the_page) {
    static const char *const scripts[] = {"stages", "heatmap", "scatter", "ulp", "rope", "margins", "drift", "ladder"};
    char path[64], svg[256];
    size_t length;
    dflash_error err = {.message = ""};
    snprintf(path, sizeof path, "reports/%s.gp", scripts[_i]);
    char *script = scratch_read(path, &length);
    const char *const colour = strcmp(scripts[_i], "heatmap") == 0 ? "rgb \"#" : "\"#";
    int colours = 0;
    for (const char *at = strstr(script, colour); at != NULL; at = strstr(at + 1, colour)) {
        unsigned r, g, b;
        char *out = NULL;
        ck_assert_int_eq(sscanf(at + strlen(colour), "%2x%2x%2x", &r, &g, &b), 3);
        snprintf(svg, sizeof svg, "<svg viewBox=\"0 0 9 4\"><path stroke='rgb(%3u, %3u, %3u)'/></svg>", r, g, b);
        FILE *to = open_memstream(&out, &length);
        ck_assert_ptr_nonnull(to);
        ck_assert_int_eq(dp_svg_inline(to, svg, "p", "l", &err), DFLASH_OK);
        ck_assert_int_eq(fclose(to), 0);
        ck_assert_msg(strstr(out, "var(--p-") != NULL, "%s: the page has no colour for #%02x%02x%02x", path, r, g, b);
        free(out);
        colours++;
    }
    ck_assert_int_gt(colours, 1);
    free(script);
}
END_TEST

Suite *suite_page_style(void) {
    Suite *suite = suite_create("looks");
    TCase *tests = tcase_create("looks");
    tcase_add_loop_test(tests, words_and_curves_stand_out_from_their_ground, 0, 3);
    tcase_add_test(tests, a_page_fits_a_narrow_window_and_unfolds_on_paper);
    tcase_add_loop_test(tests, every_colour_of_the_scripts_follows_the_page, 0, 8);
    suite_add_tcase(suite, tests);
    return suite;
}
