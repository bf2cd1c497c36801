/* plot_collect.h - takes the plot data of a check while the oracle and the run's recording are both there. */
#ifndef DP_PLOT_COLLECT_H
#define DP_PLOT_COLLECT_H

#include "check/run_check.h"
#include "store/store.h"

/* Fills result->plot for the stages that result->stage holds; dp_result_release releases it. Codes: "memory" and those
 * of dp_oracle_stage. */
dflash_status dp_plot_collect(const dp_oracle *oracle, const dp_recording *run, dp_result *result, dflash_error *err);

#endif
