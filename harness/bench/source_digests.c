/* source_digests.c - see source_digests.h; the list is build/source_digests.inc. */
#include "bench/source_digests.h"

static const dp_source sources[] = {
#include "source_digests.inc"
};

int dp_source_count(void) { return (int)(sizeof sources / sizeof *sources); }
const dp_source *dp_source_at(int index) { return &sources[index]; }
