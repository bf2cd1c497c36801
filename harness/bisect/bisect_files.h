/*
 * bisect_files.h - the first stage at which two files part, and where inside it, and as far as it can be told, why.
 */
#ifndef DP_BISECT_FILES_H
#define DP_BISECT_FILES_H

#include "bisect/narrow_cause.h"

typedef struct dp_bisection {
    dp_file_comparison comparison; /* owned */
    const dp_file_stage *first;    /* of the comparison; NULL: no stage diverges, or none was compared */
    bool narrowed;                 /* narrowing and cause are set; false: there are no values to look at */
    dp_narrowing narrowing;
    dp_cause cause;
} dp_bisection;

/*
 * `stage` names the stage to look into, which is a divergence whatever the comparison says of it (a stage may fail
 * alone and stay inside its limit); NULL: the comparison's first that does not pass. `checkpoint` is the folder whose
 * weights B ran, or NULL. What goes wrong is in the comparison's verdict and error. Release *out whatever the outcome.
 */
void dp_bisect_files(const dp_compare_options *options, const char *stage, const char *checkpoint, dp_bisection *out);
void dp_bisection_release(dp_bisection *bisection);

void dp_bisection_text(FILE *to, const dp_bisection *bisection);
/* Adds "first_divergent", "narrowing" and "cause". */
void dp_bisection_json(cJSON *object, const dp_bisection *bisection);

#endif
