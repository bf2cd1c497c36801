/* escape.c - see escape.h. */
#include "base/escape.h"

#include "common/printable.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static bool xml_allows(uint32_t code) {
    return code == '\t' || code == '\n' || code == '\r' || (code >= 0x20 && code != 0xfffe && code != 0xffff);
}

void dp_escape_xml(FILE *to, const char *text) {
    static const char replacement[] = "\xef\xbf\xbd";
    for (const char *at = text; *at != '\0';) {
        uint32_t code = 0;
        const size_t length = df_utf8(at, &code);
        if (length == 0 || !xml_allows(code))
            fputs(replacement, to);
        else if (length == 1 && strchr("&<>\"'\t\n\r", *at) != NULL)
            fprintf(to, "&#%u;", (unsigned)code);
        else
            fwrite(at, 1, length, to);
        at += length > 0 ? length : 1;
    }
}

void dp_escape_markdown(FILE *to, const char *text) {
    for (const char *at = text; *at != '\0'; at++) {
        const unsigned char c = (unsigned char)*at;
        if (c < 0x20 || c == 0x7f)
            fputc(' ', to);
        else if (strchr("&<>@", c) != NULL)
            fprintf(to, "&#%u;", (unsigned)c);
        else if (strchr("\\`*_{}[]()#+-!|~$", c) != NULL)
            fprintf(to, "\\%c", c);
        else
            fputc(c, to);
    }
}

void dp_fence_markdown(FILE *to, const char *text) {
    size_t longest = 2, run = 0;
    for (const char *at = text; *at != '\0'; at++) {
        run = *at == '`' ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    for (size_t i = 0; i <= longest; i++) fputc('`', to);
    fprintf(to, "\n%s\n", text);
    for (size_t i = 0; i <= longest; i++) fputc('`', to);
    fputc('\n', to);
}

static void escape_percent(FILE *to, const char *text, const char *characters) {
    for (const char *at = text; *at != '\0'; at++)
        if (strchr(characters, *at) != NULL)
            fprintf(to, "%%%02X", (unsigned)(unsigned char)*at);
        else
            fputc(*at, to);
}

void dp_escape_github(FILE *to, const char *text) { escape_percent(to, text, "%\r\n"); }

void dp_escape_github_property(FILE *to, const char *text) { escape_percent(to, text, "%\r\n:,"); }
