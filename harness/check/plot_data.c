/* plot_data.c - see plot_data.h. */
#include "check/plot_data.h"

#include <math.h>
#include <stdlib.h>

void dp_plot_data_release(dp_plot_data *data) {
    for (int i = 0; i < data->stage_count; i++) free(data->stage[i].row);
    free(data->stage);
    free(data->scatter.index);
    free(data->scatter.got);
    free(data->scatter.want);
    free(data->scatter.error);
    free(data->rope.got);
    free(data->rope.want);
    free(data->rope.relative);
    for (int i = 0; i < DP_MARGIN_STAGES; i++) {
        free(data->margins[i].margin);
        free(data->margins[i].error);
        free(data->margins[i].got);
        free(data->margins[i].want);
    }
    free(data->tokens.got);
    free(data->tokens.want);
    *data = (dp_plot_data){.stage = NULL};
}

int dp_ulp_bin(double ulps) {
    int exponent = 0;
    if (!isfinite(ulps)) return DP_ULP_BINS - 1;
    if (ulps == 0.0) return 0;
    frexp(ulps, &exponent); /* ulps in [2^(e-1), 2^e) */
    const int octave = exponent - 1 - DP_ULP_LOWEST;
    if (octave < 0) return 1;
    return octave < DP_ULP_OCTAVES ? 2 + octave : 2 + DP_ULP_OCTAVES;
}
