/* printable.c - see printable.h. */
#include "common/printable.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t df_utf8(const char *text, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = (const unsigned char *)text, first = byte[0];
    const size_t length = first < 0x80 ? 1 : first >> 5 == 0x6 ? 2 : first >> 4 == 0xe ? 3 : first >> 3 == 0x1e ? 4 : 0;
    if (length == 0) return 0;
    *code = length == 1 ? first : first & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if (byte[i] >> 6 != 0x2) return 0; /* the terminator ends the text here too */
        *code = *code << 6 | (byte[i] & 0x3fU);
    }
    const bool surrogate = *code >= 0xd800 && *code <= 0xdfff;
    return *code >= least[length] && *code <= 0x10ffff && !surrogate ? length : 0;
}

size_t df_printable(const char *text, char *out, size_t size) {
    size_t total = 0, stored = 0;
    for (const char *at = text; *at != '\0';) {
        uint32_t code = 0;
        const size_t length = df_utf8(at, &code), taken = length > 0 ? length : 1;
        const bool plain = length > 0 && code >= 0x20 && (code < 0x7f || code > 0x9f);
        char piece[4 * 4 + 1];
        for (size_t i = 0; i < taken; i++) {
            if (plain)
                piece[i] = at[i];
            else
                snprintf(piece + 4 * i, 5, "\\x%02x", (unsigned)(unsigned char)at[i]);
        }
        const size_t width = plain ? taken : 4 * taken;
        if (stored == total && total + width < size) {
            memcpy(out + stored, piece, width);
            stored += width;
        }
        total += width;
        at += taken;
    }
    if (size > 0) out[stored] = '\0';
    return total;
}
