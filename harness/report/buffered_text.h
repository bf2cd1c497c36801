/* buffered_text.h - words buffered first, so that what is set round them stands only where there are words. */
#ifndef DP_BUFFERED_TEXT_H
#define DP_BUFFERED_TEXT_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct dp_buffered_text {
    FILE *to;
    char *text; /* complete after dp_buffered_text_end; free it */
    size_t length;
} dp_buffered_text;

static inline bool dp_buffered_text_begin(dp_buffered_text *a) {
    *a = (dp_buffered_text){.text = NULL};
    a->to = open_memstream(&a->text, &a->length);
    return a->to != NULL;
}

/* False when nothing was written. */
static inline bool dp_buffered_text_end(dp_buffered_text *a) { return fclose(a->to) == 0 && a->length > 0; }

#endif
