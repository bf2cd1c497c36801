/*
 * render_github.c - a result file as workflow commands, which GitHub shows as annotations of a run.
 *
 * One error for every case that does not pass, at its first divergence; one warning for every case with a stage of low
 * headroom; one notice when everything passed. GitHub shows ten errors and ten warnings of a step, so those beyond are
 * counted in the last line and not printed.
 */
#include "report/render.h"

#include "check/divergence.h"
#include "base/escape.h"

#include <stdlib.h>

enum { MOST_SHOWN = 10, TITLE = 512 };

static void command(FILE *to, const char *level, const char *title, const char *message) {
    fprintf(to, "::%s title=", level);
    dp_escape_github_property(to, title);
    fputs("::", to);
    dp_escape_github(to, message);
    fputc('\n', to);
}

static void one_error(FILE *to, const dp_result_case *item) {
    char title[TITLE], sentence[DP_SENTENCE], message[DP_SENTENCE + sizeof item->result.error.message];
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(&item->result, &by);
    const dp_verdict verdict = item->result.verdict;
    const bool stopped = dp_stopped(&item->result);
    snprintf(title, sizeof title, "%s %s%s%s", item->name, dp_verdict_name(verdict), first != NULL ? " at " : "",
             first != NULL ? first->name : "");
    snprintf(message, sizeof message, "%s%s%s", dp_result_sentence(&item->result, sentence), stopped ? " " : "",
             stopped ? item->result.error.message : "");
    command(to, "error", title, message);
    fputs("reproduce: ", to);
    dp_escape_github(to, item->command); /* a line break in a path must not begin a workflow command */
    fputc('\n', to);
}

static void one_warning(FILE *to, const dp_result_case *item) {
    char title[TITLE], message[DP_SENTENCE];
    const dp_stage_result *least = dp_worst_stage(&item->result);
    snprintf(title, sizeof title, "%s low headroom at %s", item->name, least->name);
    snprintf(message, sizeof message,
             "%d stages pass with less than %.0f %% of their limit left; the least is %.0f %% at %s (limit: %s).",
             item->result.warnings, 100.0 * DP_WARN_HEADROOM, 100.0 * least->headroom, least->name,
             least->limit.origin);
    command(to, "warning", title, message);
}

void dp_render_github(FILE *to, const dp_result_file *file) {
    int errors = 0, warnings = 0;
    char text[TITLE];
    for (int i = 0; i < file->count; i++) {
        const dp_result_case *item = &file->item[i];
        if (item->result.verdict != DP_PASS) {
            if (errors++ < MOST_SHOWN) one_error(to, item);
        } else if (item->result.warnings > 0 && warnings++ < MOST_SHOWN)
            one_warning(to, item);
    }
    if (file->count == 0) command(to, "error", dp_verdict_name(file->verdict), "The filter matches no case.");
    if (errors == 0 && file->count > 0) {
        snprintf(text, sizeof text, "%d of %d cases passed%s.", file->count, file->count,
                 file->filter != NULL ? ", filtered: not the whole verdict" : "");
        command(to, "notice", "dflash-parity PASS", text);
    }
    if (errors > MOST_SHOWN || warnings > MOST_SHOWN)
        fprintf(to, "%d cases do not pass and %d have low headroom; annotations stand for the first %d of each\n",
                errors, warnings, MOST_SHOWN);
}
