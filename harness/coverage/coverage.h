/*
 * coverage.h - do the stored cases reach past every size in the code?
 *
 * A tile, a segment or a chunk that no case fills hides whatever is wrong behind its edge. Each constant of the sources
 * (constants.h) is tied to a quantity of a case, such as the keys that a query sees, and some case must exceed it, and
 * not by whole multiples; or it has a reason for being no such size. A constant with neither is a failure, so a new one
 * cannot be forgotten.
 */
#ifndef DP_COVERAGE_H
#define DP_COVERAGE_H

#include "store/cases.h"
#include "coverage/constants.h"

/* One constant held against one quantity. */
typedef struct dp_reach {
    const dp_source_constant *constant;
    const char *quantity; /* NULL: no size, for `reason` */
    const char *reason;   /* NULL: neither quantity nor reason is known */
    int64_t threshold;    /* the constant in units of the quantity */
    int64_t value;        /* of the case that exceeds it, else the largest of all */
    const char *by;       /* the first such case, borrowed from the list; NULL: none exceeds it */
    int cases;            /* how many exceed it */
    bool good;
} dp_reach;

/* What the cases span in one quantity. */
typedef struct dp_range {
    const char *quantity, *least_of, *most_of; /* the cases are NULL when none has it */
    int64_t least, most;
} dp_range;
enum { DP_RANGES = 22 };

typedef struct dp_coverage {
    dp_reach *reach; /* owned */
    dp_range range[DP_RANGES];
    int count, failed, cases;
} dp_coverage;

/* Measures the stored cases of the list by their configs and the positions in their oracles. Borrows the constants and
 * the list. Codes: those of dflash_config_read and dp_oracle_open. Release *out whatever the outcome. */
dflash_status dp_coverage_measure(const dp_constant_list *constants, const dp_case_list *list, dp_coverage *out,
                                  dflash_error *err);
void dp_coverage_release(dp_coverage *coverage);

#endif
