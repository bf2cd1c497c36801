/* page_case.h - small result documents for the tests of pages, plots and postmortems, and checks of a page's form. */
#ifndef DP_TESTS_PAGE_CASE_H
#define DP_TESTS_PAGE_CASE_H

#include "report/result_file.h"

/* A whole document of a check of one case, `name`, with these stages in order: ctx.features, layers.0.attn.context,
 * layers.0.out, layers.1.attn.context, layers.1.out, final, logits. They pass with an error of 1e-7 against a limit of
 * 1e-6, every second row of ctx.features without error. */
cJSON *page_document(const char *name);
cJSON *page_only_case(cJSON *document);
cJSON *page_stage(cJSON *document, const char *name);

/* The stage and those after it get this error, or NaN; the verdict becomes FAIL and the stage the first divergence. */
void page_break(cJSON *document, const char *stage, double error);
/* Every stage was run alone, and all but this one pass. */
void page_isolate(cJSON *document, const char *stage);
/* REFUSED, without stages. */
void page_refuse(cJSON *document, const char *code, const char *message);
void page_set(cJSON *object, const char *key, const char *text); /* replaces or adds */

/* Reads a document that a test has changed: counts, exit codes and the first divergence are made to follow from its
 * stages, rounds and verdicts, and the tool from the number of its cases; whatever else is wrong fails the test. */
void page_read(cJSON *document, dp_result_file *file);

void page_add_case(cJSON *document, cJSON *other); /* makes it a gate's */

/* The page of a document, which is released; it is sound. Free it. */
char *page_render(cJSON *document);
/* Words in this order, all before the first table or picture: what is seen without scrolling. */
void page_first_screen_holds(const char *page, const char *const *words, int count);
#define FIRST_SCREEN(page, ...)                                                                                        \
    page_first_screen_holds(page, (const char *const[]){__VA_ARGS__},                                                  \
                            (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

/* A fixture: a scratch folder, and PATH as it was before. */
void page_set_up(void);
void page_tear_down(void);
/* As on a machine without gnuplot. */
void page_without_gnuplot(void);

/* The form of a page: tags are balanced, every id is used once, every local link leads to one, and nothing on it leads
 * to another file or the network or runs; a cell of a number is narrow. */
void page_is_sound(const char *page);
/* The first of these alone; of XML without its declaration too. */
void page_tags_are_balanced(const char *page);

#endif
