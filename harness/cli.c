/* cli.c - see cli.h. */
#include "cli.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int dp_exit_code(df_status status) {
    switch (status) {
    case DF_OK:
        return DP_EXIT_PASS;
    case DF_ERR_ARGUMENT:
        return DP_EXIT_USAGE;
    case DF_ERR_REFUSED:
        return DP_EXIT_REFUSED;
    case DF_ERR_IO:
    case DF_ERR_MEMORY:
    case DF_ERR_DEVICE:
        break;
    }
    return DP_EXIT_RUNTIME;
}

int dp_report_error(const char *command, const df_error *err) {
    fprintf(stderr, "dflash-parity %s: %s: %s\n", command, err->code, err->message);
    return dp_exit_code(err->status);
}

int dp_usage_error(const char *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "dflash-parity %s: ", command);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (see dflash-parity %s --help)\n", command);
    va_end(args);
    return DP_EXIT_USAGE;
}

bool dp_glob(const char *pattern, const char *text) { return fnmatch(pattern, text, 0) == 0; }

bool dp_parse_int(const char *text, long low, long high, long *out) {
    char *end = NULL;
    errno = 0;
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9')) return false; /* strtol would take spaces and '+' */
    const long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high) return false;
    *out = value;
    return true;
}
