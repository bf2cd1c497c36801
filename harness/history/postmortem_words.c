/* postmortem_words.c - the sentences of a postmortem that are about runs rather than about one case of one run. */
#include "history/postmortem.h"

#include "base/coordinates.h"
#include "check/divergence.h"
#include "common/dtype.h"
#include "report/stage_words.h"
#include "report/summary.h"

#include <stdlib.h>
#include <string.h>

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* A path in `ticks`, which nothing in it can end. */
static void ticked(FILE *to, const char *name) {
    fputc('`', to);
    for (; *name != '\0'; name++) fputc(*name == '`' ? '\'' : (unsigned char)*name < 0x20 ? ' ' : *name, to);
    fputc('`', to);
}

bool dp_past_dirty(const dp_past_run *run) {
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(run->environment, "dirty"));
}

const char *dp_past_commit(const dp_past_run *run) {
    const char *commit = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(run->environment, "commit"));
    return commit != NULL ? commit : "";
}

const char *dp_past_commit_name(const dp_past_run *run) {
    return dp_past_commit(run)[0] != '\0' ? dp_past_commit(run) : "no commit";
}

const char *dp_past_run_name(const dp_past_run *run, char name[DP_RUN_NAME]) {
    const bool named = dp_past_commit(run)[0] != '\0';
    snprintf(name, DP_RUN_NAME, "%.40s%s %s %.40s", named ? dp_past_commit_name(run) : last_part(run->path),
             dp_past_dirty(run) ? "+" : "", run->is_recording ? "recorded" : "of", run->when);
    return name;
}

static void run_name(FILE *to, const dp_postmortem *summary, int run) {
    char name[DP_RUN_NAME];
    ticked(to, dp_past_run_name(&summary->run[run], name));
}

/* ---- The outcome ---- */

void dp_postmortem_outcome(FILE *to, const dp_postmortem *summary, const dp_past_case *item) {
    ticked(to, item->name);
    if (item->last_bad < 0) {
        fputs(item->last_good < 0 ? " was not judged in any of these runs." : " passes in every run that has it.", to);
        return;
    }
    if (item->last_good >= 0) {
        fputs(" last passed in ", to);
        run_name(to, summary, item->last_good);
        fputs("; first bad is ", to);
    } else
        fputs(" has no good run here; the first bad one is ", to);
    run_name(to, summary, item->first_bad);
    fputs(", where it ", to);
    dp_summary_headline(to, item->in_run[item->first_bad]);
    fputs(".", to);
    if (item->bad_before > 0) {
        fprintf(to, " It comes and goes: before that it did not pass in %d run%s, ", item->bad_before,
                item->bad_before == 1 ? "" : "s, the first of them");
        run_name(to, summary, item->first_before);
        fputs(".", to);
    }
    if (item->good_again < 0) return;
    fputs(" It passes again in ", to);
    run_name(to, summary, item->good_again);
    fputs(".", to);
}

/* ---- Bits ---- */

/* The first stage that fails, as the recording's comparison has it; NULL when none does. */
static const dp_pair_stage *first_failure(const dp_past_run *run, bool *integer) {
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(&run->file.item[0].result, &by);
    *integer = first != NULL && first->exact;
    for (int i = 0; first != NULL && i < run->recording.stage_count; i++)
        if (strcmp(run->recording.stage[i].name, first->name) == 0) return &run->recording.stage[i];
    return NULL;
}

static void first_element(FILE *to, const dp_pair_stage *stage, bool integer) {
    char where[DP_DIMS_TEXT];
    if (stage->lacking || stage->first < 0) return;
    fprintf(to, " %lld of the %lld values of `%s` differ, the first at %s: ", (long long)stage->differing,
            (long long)stage->compared, stage->name, dp_coordinates_text(stage->rank, stage->dim, stage->first, where));
    if (integer) {
        fprintf(to, "%d instead of %d.", (int32_t)stage->bits[1], (int32_t)stage->bits[0]);
        return;
    }
    fprintf(to, "%.9g (0x%08x) instead of %.9g (0x%08x)", (double)df_bits_to_f32(stage->bits[1]), stage->bits[1],
            (double)df_bits_to_f32(stage->bits[0]), stage->bits[0]);
    if (stage->nonfinite > 0)
        fprintf(to, "; %lld are not finite.", (long long)stage->nonfinite);
    else
        fprintf(to, "; the largest distance is %u units in the last place.", stage->ulp);
}

void dp_postmortem_bits(FILE *to, const dp_past_run *run) {
    int reached[DP_BIT_CLASSES] = {0}, lacking = 0;
    bool any = false, integer;
    if (!run->is_recording) return;
    for (int i = 0; i < run->recording.stage_count; i++) {
        const dp_pair_stage *stage = &run->recording.stage[i];
        lacking += stage->lacking;
        if (!stage->lacking) reached[stage->reached]++;
    }
    fputs("The recording against ", to);
    ticked(to, last_part(run->recording.against));
    fputs(", stage by stage:", to);
    for (int i = 0; i < DP_BIT_CLASSES; i++) {
        if (reached[i] == 0) continue;
        fprintf(to, "%s %d %s", any ? "," : "", reached[i], dp_bit_class_name((dp_bit_class)i));
        if (i == DP_BITS_ULP) fprintf(to, " (at most %d units in the last place)", DP_ULP_MOST);
        any = true;
    }
    if (lacking > 0) fprintf(to, "%s %d that could not be compared", any ? "," : "", lacking);
    fputs(".", to);
    if (!run->recording.by_bits) return; /* beside an oracle's float64 nearly every element differs */
    const dp_pair_stage *first = first_failure(run, &integer);
    if (first != NULL) first_element(to, first, integer);
}

void dp_postmortem_begin(FILE *to, const dp_postmortem *summary, const dp_past_case *item) {
    const dp_past_run *run = &summary->run[item->first_bad];
    const dp_result *result = &item->in_run[item->first_bad]->result;
    bool integer;
    const dp_pair_stage *first = run->is_recording && run->recording.by_bits ? first_failure(run, &integer) : NULL;
    if (first == NULL) {
        dp_summary_begin(to, item->in_run[item->first_bad]);
        return;
    }
    ticked(to, item->name);
    fputs(" does not give the bits of ", to);
    ticked(to, last_part(run->recording.against));
    fprintf(to, ", which is what its limit is here: %d of %d stages differ. It began at `%s`, %s",
            result->failed_stages, result->stage_count, first->name, dp_stage_words(first->name));
    fputs(first->lacking ? ", which is not there in the shape expected." : ".", to);
}

/* ---- Caveats ---- */

void dp_postmortem_notes(FILE *to, const dp_postmortem *summary) {
    const dp_past_run *recorded = NULL;
    for (int r = 0; r < summary->run_count; r++)
        if (summary->run[r].is_recording) recorded = &summary->run[r];
    if (recorded == NULL) return;
    fputs("A recording does not say when it was made, so its time is that of its file. ", to);
    fputs(recorded->recording.by_bits ? "Recordings are held, bit for bit, against the first of them, "
                                      : "Recordings are held against the limits of ",
          to);
    ticked(to, last_part(recorded->recording.against));
    fputs(recorded->recording.by_bits ? ", which the pictures call the reference" : "", to);
    fputs("; nothing of them was run alone, and no round.", to);
}

void dp_postmortem_builds(FILE *to, const dp_postmortem *summary, const dp_past_case *item) {
    const bool good = dp_past_dirty(&summary->run[item->last_good]),
               bad = dp_past_dirty(&summary->run[item->first_bad]);
    if (!good && !bad) return;
    fprintf(to, "%s built from a tree that differed from the commit, so the commit does not say all of what was built.",
            good && bad ? "Both runs were"
            : good      ? "The last good run was"
                        : "The first bad run was");
}

void dp_postmortem_history(FILE *to, const dp_past_commits *found) {
    if (found->left_behind > 0)
        fprintf(to,
                "The first bad run's commit does not descend from the last good run's: %d %s only in its history, "
                "and %d only in the other's.",
                found->count, found->count == 1 ? "commit is" : "commits are", found->left_behind);
    else if (found->count == 0)
        fputs("Both runs are of the same commit.", to);
    else
        fprintf(to, "%d commit%s after the last good run's, up to the first bad run's, oldest first.", found->count,
                found->count == 1 ? "" : "s");
}
