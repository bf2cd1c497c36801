/* clock.h - time for figures and dates in reports; nothing is decided by it. */
#ifndef DP_CLOCK_H
#define DP_CLOCK_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static inline double dp_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

enum { DP_WHEN_TEXT = 32 };

/* Now, in UTC: "2026-01-31T12:00:00Z". */
static inline const char *dp_now(char text[DP_WHEN_TEXT]) {
    struct tm utc;
    const time_t seconds = time(NULL);
    if (gmtime_r(&seconds, &utc) == NULL || strftime(text, DP_WHEN_TEXT, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        snprintf(text, DP_WHEN_TEXT, "1970-01-01T00:00:00Z");
    return text;
}

/* Whether the text is such a moment, of a day that there is; such texts order as the moments do. */
static inline bool dp_is_moment(const char *text) {
    char again[DP_WHEN_TEXT];
    struct tm utc = {.tm_mday = 0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    if (end == NULL || *end != '\0') return false;
    const time_t seconds = timegm(&utc); /* brings the 31st of February to March */
    return gmtime_r(&seconds, &utc) != NULL && strftime(again, sizeof again, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0 &&
           strcmp(again, text) == 0;
}

#endif
