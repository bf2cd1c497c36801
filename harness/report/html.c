/* html.c - see html.h. */
#include "report/html.h"

#include <stdbool.h>
#include <string.h>

/* ---- Text ---- */

/* Length of the well-formed UTF-8 sequence at `s`, 0 when there is none. */
static size_t sequence(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    const size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    /* Overlong forms, surrogates and what lies beyond U+10FFFF. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

static void escape(FILE *to, const char *text, size_t length) {
    const unsigned char *s = (const unsigned char *)text, *end = s + length;
    while (s < end) {
        const size_t n = sequence(s);
        if (*s == '&')
            fputs("&amp;", to);
        else if (*s == '<')
            fputs("&lt;", to);
        else if (*s == '>')
            fputs("&gt;", to);
        else if (*s == '"')
            fputs("&quot;", to);
        else if (*s == '\'')
            fputs("&#39;", to);
        else if (n == 0 || *s == 0x7f || (*s < 0x20 && *s != '\t' && *s != '\n'))
            fputs("&#xfffd;", to);
        else
            fwrite(s, 1, n, to);
        s += n > 0 ? n : 1;
    }
}

void dp_html_text(FILE *to, const char *text) {
    if (text != NULL) escape(to, text, strlen(text));
}

void dp_html_marked(FILE *to, const char *text) {
    bool code = false;
    while (text != NULL && *text != '\0') {
        const size_t n = strcspn(text, "`");
        escape(to, text, n);
        text += n;
        if (*text != '`') break;
        if (!code && strchr(text + 1, '`') == NULL) { /* a tick of its own is a tick */
            fputc('`', to);
        } else {
            fputs(code ? "</code>" : "<code>", to);
            code = !code;
        }
        text++;
    }
}

void dp_html_command(FILE *to, const char *text) {
    fputs("<pre class=\"command\">", to);
    dp_html_text(to, text);
    fputs("</pre>\n", to);
}

void dp_html_verdict(FILE *to, const char *verdict) {
    const char *name = strcmp(verdict, "PASS") == 0 ? "pass" : strcmp(verdict, "FAIL") == 0 ? "fail" : "stop";
    fprintf(to, "<span class=\"verdict %s\">", name);
    dp_html_text(to, verdict);
    fputs("</span>", to);
}

/* ---- The frame ---- */

/* The names --p-* are the colours of the plots; svg_inline.c puts them in place of the scripts' fixed ones. */
static const char styles[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1c1e21;--soft:#5b6068;--line:#d5d8dd;--tint:#f3f4f6;"
    "--good:#0b6b4f;--bad:#b3261e;--stop:#8a5200;"
    "--p-blue:#0072b2;--p-red:#b84f00;--p-amber:#a87000;--p-green:#00805c;--p-pink:#b0568a;--p-sky:#2f8fc9;"
    "--p-grid:#9a9a9a;--shade:#0003}\n"
    "@media (prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e6e7ea;--soft:#a3a8b0;--line:#3a3e45;--tint:#202327;"
    "--good:#5fd3a8;--bad:#ff8d80;--stop:#f0b45a;"
    "--p-blue:#5db4ec;--p-red:#ff8a47;--p-amber:#f0bd4a;--p-green:#3fcf9f;--p-pink:#e59ac4;--p-sky:#8ccdf5;"
    "--p-grid:#777d86;--shade:#fff3}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}\n"
    "main{max-width:72rem;margin:0 auto;padding:1rem}\n"
    "h1{font-size:1.55rem;line-height:1.25;margin:.2rem 0 .6rem;overflow-wrap:anywhere}\n"
    "h2{font-size:1.25rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line);overflow-wrap:anywhere}\n"
    "h3{font-size:1.05rem;margin:1.4rem 0 .4rem}\n"
    "p{max-width:46rem;margin:.5rem 0}\n"
    ".lede{font-size:1.08rem}\n"
    ".soft{color:var(--soft)}\n"
    "a{color:var(--p-blue)}\n"
    "code,pre{font:0.9em/1.4 ui-monospace,monospace}\n"
    "code{overflow-wrap:anywhere}\n"
    "pre{background:var(--tint);padding:.6rem .8rem;border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere}\n"
    ".verdict{font-weight:700}\n"
    ".verdict.pass{color:var(--good)}.verdict.fail{color:var(--bad)}.verdict.stop{color:var(--stop)}\n"
    ".look{border-left:5px solid var(--bad);background:var(--tint);padding:.6rem .9rem;margin:.8rem "
    "0;max-width:46rem}\n"
    ".look.pass{border-color:var(--good)}.look.stop{border-color:var(--stop)}\n"
    ".look b{font-size:1.15rem;overflow-wrap:anywhere}\n"
    "nav{background:var(--tint);padding:.5rem .9rem;border-radius:6px;max-width:46rem}\n"
    "nav ul{margin:.2rem 0;padding-left:1.2rem}\n"
    /* What scrolls sideways has a shade at the edge where more of it lies: the outer two layers move with the content
     * and cover the inner two where there is no more. */
    ".wide{overflow-x:auto;margin:.5rem 0;background:linear-gradient(to right,var(--bg) 40%,transparent) left/2.5rem "
    "100% no-repeat local,linear-gradient(to left,var(--bg) 40%,transparent) right/2.5rem 100% no-repeat local,"
    "linear-gradient(to right,var(--shade),transparent) left/1rem 100% no-repeat,"
    "linear-gradient(to left,var(--shade),transparent) right/1rem 100% no-repeat}\n"
    "table{border-collapse:collapse;font-size:.82rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.2rem .5rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}\n"
    "th{color:var(--soft);font-weight:600}\n"
    "td.n,th.n{text-align:right;white-space:nowrap}\n"
    "td code{overflow-wrap:normal}\n"
    "td.r{min-width:9rem}\n"
    "td.v{overflow-wrap:anywhere;min-width:12rem}\n"
    "tr.bad td:first-child{box-shadow:inset 3px 0 var(--bad)}\n"
    "tr.bad .mark{color:var(--bad);font-weight:700}\n"
    "tr.warn .mark{color:var(--stop);font-weight:700}\n"
    "tr.first td{background:var(--tint)}\n"
    "@media screen and (max-width:40rem){.wide th:first-child,.wide td:first-child{position:sticky;left:0;"
    "background:var(--bg)}.wide tr.first td:first-child{background:var(--tint)}td.r{white-space:nowrap}}\n"
    "summary{cursor:pointer;padding:.25rem 0;font-weight:600}\n"
    "figure{margin:1rem 0}\n"
    "figure .wide svg{display:block;width:100%;min-width:40rem;height:auto}\n"
    "figcaption{color:var(--soft);font-size:.9rem;max-width:46rem}\n"
    "svg image{image-rendering:pixelated}\n"
    "@media print{:root{--bg:#fff;--fg:#000;--soft:#444;--line:#bbb;--tint:#f3f3f3;--good:#0b6b4f;--bad:#b3261e;"
    "--stop:#8a5200;--p-blue:#0072b2;--p-red:#b84f00;--p-amber:#a87000;--p-green:#00805c;--p-pink:#b0568a;"
    "--p-sky:#2f8fc9;--p-grid:#9a9a9a;--shade:transparent}"
    "html,body{font-size:11px}main{max-width:none;padding:0}table{font-size:8px}th,td{padding:.1rem .3rem}"
    ".wide{overflow:visible}figure .wide svg{min-width:0}figure,tr,.look{break-inside:avoid}"
    "details::details-content{content-visibility:visible;block-size:auto}h2,h3,summary{break-after:avoid}}\n";

void dp_html_begin(FILE *to, const char *title) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          to);
    dp_html_text(to, title);
    fprintf(to, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", styles);
}

void dp_html_end(FILE *to) { fputs("</main>\n</body>\n</html>\n", to); }
