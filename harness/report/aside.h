/* aside.h - words written aside first, so that what is set round them stands only where there are words. */
#ifndef DP_ASIDE_H
#define DP_ASIDE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct dp_aside {
    FILE *to;
    char *text; /* complete after dp_aside_end; free it */
    size_t length;
} dp_aside;

static inline bool dp_aside_begin(dp_aside *a) {
    *a = (dp_aside){.text = NULL};
    a->to = open_memstream(&a->text, &a->length);
    return a->to != NULL;
}

/* False when nothing was written. */
static inline bool dp_aside_end(dp_aside *a) { return fclose(a->to) == 0 && a->length > 0; }

#endif
