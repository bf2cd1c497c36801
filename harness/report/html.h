/*
 * html.h - the frame of a self-contained page: escaping, styles, contents.
 *
 * A page needs no script, no network and no other file; its styles follow the reader's light or dark setting, and what
 * is folded is unfolded in print. All text goes through dp_html_text or dp_html_marked.
 */
#ifndef DP_HTML_H
#define DP_HTML_H

#include <stdio.h>

/* Writes text with & < > " ' as entities; control characters other than tab and newline become U+FFFD, and so do bytes
 * that are no UTF-8, so that the page stays valid whatever a path or a message held. NULL writes nothing. */
void dp_html_text(FILE *to, const char *text);

/* The same, with `ticked` words set as code. */
void dp_html_marked(FILE *to, const char *text);

/* Head and styles, up to and including <body><main>. */
void dp_html_begin(FILE *to, const char *title);
void dp_html_end(FILE *to);

/* A line of text to paste: <pre> that wraps. */
void dp_html_command(FILE *to, const char *text);

/* A verdict as a coloured word: class names are fixed, the word is what readers of any sight get. */
void dp_html_verdict(FILE *to, const char *verdict);

#endif
