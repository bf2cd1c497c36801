/* clock.h - wall time for figures in reports; nothing is decided by it. */
#ifndef DP_CLOCK_H
#define DP_CLOCK_H

#include <time.h>

static inline double dp_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
