/* svg_inline.c - see svg_inline.h. */
#include "report/svg_inline.h"

#include "common/error.h"
#include "report/html.h"

#include <string.h>

/* What gnuplot writes, and what stands for it in a page. The colours are those of reports/(name).gp. */
static const struct {
    const char *from, *to;
} words[] = {
    {"rgb(  0, 114, 178)", "var(--p-blue)"},
    {"rgb(213,  94,   0)", "var(--p-red)"},
    {"rgb(230, 159,   0)", "var(--p-amber)"},
    {"rgb(  0, 158, 115)", "var(--p-green)"},
    {"rgb(204, 121, 167)", "var(--p-pink)"},
    {"rgb( 86, 180, 233)", "var(--p-sky)"},
    {"rgb(154, 154, 154)", "var(--p-grid)"},
    /* Of a label. */
    {"rgb(213,94,0)", "var(--p-red)"},
    {"fill=\"#ffffff\"", "fill=\"none\""}, /* the background */
    {"fill=\"black\"", "fill=\"currentColor\""},
    {"stroke='black'", "stroke='currentColor'"},
    {"color=\"black\"", ""},
    {"color=\"white\"", ""},
};

/* Where a name follows that must be the page's own. */
static const char *const names[] = {"id=\"", "id='", "href='#", "href=\"#", "url(#"};

/* A reference that leaves the page, or something that runs. */
static const char *const foreign[] = {"<script",   "<foreignObject", "href='http", "href=\"http", "href='//",
                                      "href=\"//", "url(http",       " onload=",   " onclick=",   "@import"};

static size_t skip_element(const char *at, const char *open, const char *close) {
    const char *end = strncmp(at, open, strlen(open)) == 0 ? strstr(at, close) : NULL;
    return end != NULL ? (size_t)(end - at) + strlen(close) : 0;
}

/* A group that sets colours and widths for nothing: gnuplot writes three for every mark of an axis, a third of a file.
 */
static size_t skip_empty_group(const char *at) {
    static const char open[] = "<g fill=\"none\"", close[] = "</g>";
    const char *end = strncmp(at, open, strlen(open)) == 0 ? strchr(at, '>') : NULL;
    if (end == NULL) return 0;
    end += 1 + strspn(end + 1, " \t\n");
    return strncmp(end, close, strlen(close)) == 0 ? (size_t)(end - at) + strlen(close) : 0;
}

/* What a page does without: names of curves that are shown on hover, a note on the program, shades that no script uses.
 */
static size_t skip(const char *at) {
    size_t taken = skip_element(at, "<title>", "</title>");
    if (taken == 0) taken = skip_element(at, "<desc>", "</desc>");
    if (taken == 0) taken = skip_element(at, "<filter ", "</filter>");
    return taken > 0 ? taken : skip_empty_group(at);
}

/* Bytes consumed at `at` after writing what replaces them; 0 when nothing is replaced there. */
static size_t replace(FILE *to, const char *at, const char *prefix) {
    const size_t taken = skip(at);
    if (taken > 0) return taken;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(at, words[i].from, strlen(words[i].from)) == 0) {
            fputs(words[i].to, to);
            return strlen(words[i].from);
        }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(at, names[i], strlen(names[i])) == 0) {
            fprintf(to, "%s%s-", names[i], prefix);
            return strlen(names[i]);
        }
    return 0;
}

dflash_status dp_svg_inline(FILE *to, const char *svg, const char *prefix, const char *label, dflash_error *err) {
    const char *start = strstr(svg, "<svg"), *head = start != NULL ? strchr(start, '>') : NULL;
    const char *box = start != NULL ? strstr(start, "viewBox=\"") : NULL, *end = strstr(svg, "</svg>");
    const char *found = "no <svg> with a viewBox and an end";
    bool sound = head != NULL && box != NULL && box < head && end != NULL && end > head;
    for (size_t i = 0; sound && i < sizeof foreign / sizeof *foreign; i++)
        if (strstr(head, foreign[i]) != NULL) {
            sound = false;
            found = foreign[i];
        }
    if (!sound)
        return df_fail(err, DFLASH_ERR_REFUSED, "svg.form",
                       "The picture %s: expected a drawing of gnuplot that refers to nothing outside itself, found %s. "
                       "Draw it with the scripts of this version.",
                       prefix, found);
    box += strlen("viewBox=\"");
    fprintf(to, "<svg viewBox=\"%.*s\" role=\"img\" aria-label=\"", (int)strcspn(box, "\""), box);
    dp_html_text(to, label);
    fputs("\">", to);
    for (const char *at = head + 1; at < end;) {
        const size_t taken = replace(to, at, prefix);
        if (taken == 0) {
            /* The indentation of gnuplot is a tenth of the file. */
            if (*at != '\t' && !(*at == '\n' && at[1] == '\n')) fputc(*at, to);
            at++;
        } else {
            at += taken;
        }
    }
    fputs("</svg>\n", to);
    return DFLASH_OK;
}
