/* render_text.c - a result file as the tables that check and gate print, with where it came from below. */
#include "report/render.h"

#include "report/report.h"

#include <math.h>
#include <string.h>

void dp_render_case(FILE *to, const char *name, const dp_result *result) {
    const dp_stage_result *worst = dp_worst_stage(result);
    const bool vectors = result->options->checkpoint[0] == '\0'; /* its values come from many checkpoints (vectors.h) */
    fprintf(to, "%-8s %-22s %3d %s, %d rounds, %6.2f s", dp_verdict_name(result->verdict), name, result->stage_count,
            vectors ? "values" : "stages", result->variant_count, result->total_seconds);
    if (worst != NULL && isfinite(worst->headroom))
        fprintf(to, ", least headroom %3.0f %% at %s", 100.0 * worst->headroom, worst->name);
    fprintf(to, "\n");
    dp_report_text(to, result, true);
    if (result->verdict == DP_PASS || (result->verdict == DP_FAIL && !dp_stopped(result))) return;
    fprintf(to, "      ");
    dp_report_verdict(to, result);
}

void dp_render_text(FILE *to, const dp_result_file *file) {
    int passed = 0;
    for (int i = 0; i < file->count; i++) {
        const dp_result_case *item = &file->item[i];
        passed += item->result.verdict == DP_PASS;
        if (strcmp(file->tool, "check") != 0) {
            dp_render_case(to, item->name, &item->result);
            continue;
        }
        dp_report_text(to, &item->result, false);
        dp_report_verdict(to, &item->result);
    }
    if (strcmp(file->tool, "check") != 0)
        fprintf(to, "%s: %d of %d cases passed\n", dp_verdict_name(file->verdict), passed, file->count);
    fprintf(to, "\nrun        %s\ncommit     %s%s\ncompiler   %s\ncpu        %s\nreproduce  %s\n", file->when,
            dp_result_fact(file, "commit"),
            cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(file->environment, "dirty")) ? ", with local changes" : "",
            dp_result_fact(file, "compiler"), dp_result_fact(file, "cpu"), file->command);
}
