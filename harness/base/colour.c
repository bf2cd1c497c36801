/* colour.c - see colour.h. */
#include "base/colour.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GREEN "\033[32m"
#define RED "\033[31m"
#define YELLOW "\033[33m"
#define PLAIN "\033[0m"

static const struct {
    const char *word, *colour;
} words[] = {{"ok", GREEN},
             {"PASS", GREEN},
             {"FAIL", RED},
             {"REFUSED", RED},
             {"ERROR", RED},
             {"warn", YELLOW},
             {"NOTHING COMPARED", YELLOW}};

bool dp_colour_wanted(FILE *to) {
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return (none == NULL || none[0] == '\0') && (term == NULL || strcmp(term, "dumb") != 0) && isatty(fileno(to)) == 1;
}

/* The colour of a line that begins with one of the words; its length goes to *length. */
static const char *first_word(const char *line, size_t *length) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        *length = strlen(words[i].word);
        if (strncmp(line, words[i].word, *length) == 0 && strchr(" :\n", line[*length]) != NULL) return words[i].colour;
    }
    return NULL;
}

void dp_colour_write(FILE *to, const char *text) {
    static const char warn[] = "  warn";
    const size_t tail = sizeof warn - 1;
    while (*text != '\0') {
        size_t word = 0, line = strcspn(text, "\n");
        const char *colour = first_word(text, &word);
        const bool warns = line > tail && strncmp(text + line - tail, warn, tail) == 0;
        if (colour != NULL)
            fprintf(to, "%s%.*s%s", colour, (int)word, text, PLAIN);
        else
            word = 0;
        if (warns && line - tail >= word)
            fprintf(to, "%.*s" YELLOW "%s" PLAIN, (int)(line - tail - word), text + word, warn);
        else
            fprintf(to, "%.*s", (int)(line - word), text + word);
        text += line;
        if (*text == '\n') fputc(*text++, to);
    }
}

void dp_coloured_open(FILE *to, dp_coloured *out) {
    *out = (dp_coloured){.to = to, .table = to};
    if (!dp_colour_wanted(to)) return;
    FILE *memory = open_memstream(&out->text, &out->length);
    if (memory != NULL) out->table = memory; /* otherwise plain: colour is not worth an error */
}

void dp_coloured_close(dp_coloured *table) {
    if (table->table == table->to) return;
    if (fclose(table->table) == 0) dp_colour_write(table->to, table->text);
    free(table->text);
    *table = (dp_coloured){.to = NULL};
}
