/*
 * source_digests.h - the files that this program was built from and is judged by, each with its SHA-256: what a record
 * made on one machine is held against on another. The Makefile writes the list (SOURCES_OF_RECORD says which files).
 */
#ifndef DP_SOURCE_DIGESTS_H
#define DP_SOURCE_DIGESTS_H

typedef struct dp_source {
    const char *path;   /* from the root of the repository */
    const char *sha256; /* 64 hexadecimal digits */
} dp_source;

int dp_source_count(void);
const dp_source *dp_source_at(int index); /* in the order of the paths */

#endif
