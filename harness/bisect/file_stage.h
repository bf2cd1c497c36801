/*
 * file_stage.h - one stage of two files, element beside element: the values that both hold.
 */
#ifndef DP_FILE_STAGE_H
#define DP_FILE_STAGE_H

#include "bisect/file_pair.h"
#include "store/store_dataset.h"

/* Why a stage of two files cannot be compared. */
typedef enum dp_stage_fault {
    DP_FAULT_NONE = 0,
    DP_FAULT_LACKING_A,    /* the geometry demands it and the first file lacks it */
    DP_FAULT_LACKING_B,    /* the second lacks it */
    DP_FAULT_LACKING_BOTH, /* neither has it */
    DP_FAULT_EXTRA_A,      /* the geometry does not demand it */
    DP_FAULT_EXTRA_B,
    DP_FAULT_SHAPE_A, /* another shape than the geometry demands */
    DP_FAULT_SHAPE_B,
    DP_FAULT_SAMPLING, /* both hold samples, of other elements */
    DP_FAULT_IDS_A,    /* ids that no run can have chosen (ids.h) */
    DP_FAULT_IDS_B
} dp_stage_fault;
const char *dp_stage_fault_text(dp_stage_fault fault);

/* Element i of an array here is element offset + i * stride of the flattened tensor. */
typedef struct dp_stage_sides {
    dp_stage_spec spec;
    dp_stage_fault fault;
    int64_t count, stride, offset;
    double *wide[2];     /* owned, [count]: every value, exact but for the payload of a NaN */
    float *narrow[2];    /* owned, [count]: the bits as float32, rounded where a file holds float64 */
    int32_t *integer[2]; /* owned, [count]; of an integer stage, which has no narrow */
    bool rounded;        /* a file holds float64 values that float32 cannot */
} dp_stage_sides;

/* A fault is a result, not an error; there are no values then. Release *out whatever the outcome. */
dflash_status dp_stage_sides_read(const dp_file_pair *pair, const dp_stage_spec *spec, dp_stage_sides *out,
                                  dflash_error *err);
void dp_stage_sides_release(dp_stage_sides *sides);

#endif
