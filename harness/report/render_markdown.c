/*
 * render_markdown.c - a result file as Markdown for a job summary or a comment.
 *
 * What does not pass comes first, details are folded, and the whole stays under DP_MARKDOWN_MOST bytes: sections that
 * do not fit are left out from the end, and the text says how many.
 */
#include "report/render.h"

#include "check/divergence.h"
#include "common/error.h"
#include "base/escape.h"
#include "report/report.h"
#include "report/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* So few rows keep a table of stages under 15 kB. */
enum { FOOTER = 6000, MOST_COMMAND = 1500, MOST_ROWS = 100 };

static void cell(FILE *to, const char *text) {
    dp_escape_markdown(to, text);
    fputs(" | ", to);
}

static void percent(FILE *to, double share) {
    if (isfinite(share))
        fprintf(to, "%.0f %% | ", 100.0 * share);
    else
        fputs("none | ", to);
}

/* ---- Overview ---- */

static void overview_row(FILE *to, const dp_result_case *item) {
    const dp_result *r = &item->result;
    dp_divergence_by by;
    const dp_stage_result *at = dp_first_divergence(r, &by), *least = dp_worst_stage(r);
    if (at == NULL) at = least;
    const bool stopped = dp_stopped(r);
    fprintf(to, "| %s%s%s | ", r->verdict == DP_PASS ? "" : "**", dp_verdict_name(r->verdict),
            r->verdict == DP_PASS ? "" : "**");
    cell(to, item->name);
    fprintf(to, "%d | %d | ", r->stage_count, r->variant_count);
    percent(to, least != NULL ? least->headroom : -INFINITY);
    fprintf(to, "%s |\n", stopped ? r->error.code : at != NULL ? at->name : "");
}

/* The cases in two passes: those that do not pass, then the rest. */
static int in_order(const dp_result_file *file, const dp_result_case **out) {
    int count = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < file->count; i++)
            if ((file->item[i].result.verdict == DP_PASS) == (pass == 1)) out[count++] = &file->item[i];
    return count;
}

/* ---- One case ---- */

static void number(FILE *to, double value) { fprintf(to, "%.2e | ", value); }

static void stage_row(FILE *to, const dp_stage_result *stage) {
    fprintf(to, "| %s | %s | ", dp_stage_failed(stage) ? "**FAIL**" : stage->warn ? "warn" : "ok", stage->name);
    number(to, dp_shown(&stage->difference, stage->difference.l2_rel));
    number(to, stage->limit.l2_rel);
    number(to, dp_shown(&stage->difference, stage->difference.max_rel));
    number(to, stage->limit.max_rel);
    percent(to, stage->headroom);
    if (stage->isolated.judged)
        fprintf(to, "%.3g |\n", stage->isolated.share);
    else
        fputs(" |\n", to);
}

static void stage_table(FILE *to, const dp_result *r, bool failing) {
    int rows = 0, listed = 0;
    for (int i = 0; i < r->stage_count; i++) rows += dp_stage_failed(&r->stage[i]) == failing;
    if (rows == 0) return;
    fprintf(to, "<details%s><summary>%d stages %s</summary>\n\n", failing ? " open" : "", rows,
            failing ? "that fail" : "inside their limits");
    fputs("| | stage | rel L2 | limit | max/rms | limit | headroom | alone, of its bound |\n"
          "|---|---|--:|--:|--:|--:|--:|--:|\n",
          to);
    for (int i = 0; i < r->stage_count && listed < MOST_ROWS; i++) {
        if (dp_stage_failed(&r->stage[i]) != failing) continue;
        stage_row(to, &r->stage[i]);
        listed++;
    }
    if (listed < rows) fprintf(to, "\nThese are the first %d; the result file holds all %d.\n", listed, rows);
    fputs("\n</details>\n\n", to);
}

static void rounds(FILE *to, const dp_result *r) {
    for (int i = 0; i < r->variant_count; i++) {
        const dp_variant_result *variant = &r->variant[i];
        if (variant->identical) continue;
        fprintf(to, "- %s is not identical to the block run: first at %s, value %lld (0x%08x, 0x%08x)\n", variant->name,
                variant->stage[0] != '\0' ? variant->stage : "nothing compared", (long long)variant->index,
                (unsigned)variant->block_bits, (unsigned)variant->round_bits);
    }
    if (r->failed_variants > 0) fputc('\n', to);
}

/* What happened to it, without tables. */
static void summary(FILE *to, const dp_result_case *item) {
    const dp_result *r = &item->result;
    char sentence[DP_SENTENCE];
    fputs("### ", to);
    dp_escape_markdown(to, item->name);
    fprintf(to, ": %s\n\n", dp_verdict_name(r->verdict));
    if (dp_stopped(r)) {
        /* A message holds words from anywhere, and a story takes them as they are. */
        dp_escape_markdown(to, dp_result_sentence(r, sentence));
        fputs("\n\n", to);
        dp_escape_markdown(to, r->error.message);
    } else {
        dp_summary_begin(to, item);
    }
    if (r->verdict == DP_FAIL && !dp_stopped(r)) {
        fputc(' ', to);
        dp_summary_growth(to, item);
        fputc(' ', to);
        dp_summary_tokens(to, item);
    }
    fputs("\n\n", to);
    rounds(to, r);
    if (r->verdict != DP_PASS && strlen(item->command) < MOST_COMMAND) dp_fence_markdown(to, item->command);
}

static void failing_stages(FILE *to, const dp_result_case *item) { stage_table(to, &item->result, true); }

static void passing_stages(FILE *to, const dp_result_case *item) { stage_table(to, &item->result, false); }

/* ---- The whole ---- */

static void facts(FILE *to, const dp_result_file *file) {
    const cJSON *fact;
    fputs("<details><summary>Environment and how to run it again</summary>\n\n| | |\n|---|---|\n| run | ", to);
    cell(to, file->when);
    fputc('\n', to);
    cJSON_ArrayForEach(fact, file->environment) {
        char value[201];
        fputs("| ", to);
        cell(to, fact->string);
        snprintf(value, sizeof value, "%s", dp_result_fact(file, fact->string));
        cell(to, value);
        fputc('\n', to);
    }
    fputc('\n', to);
    if (strlen(file->command) < MOST_COMMAND) dp_fence_markdown(to, file->command);
    fputs("\n</details>\n", to);
}

static void footer(FILE *to, const dp_result_file *file) {
    char *text = NULL;
    size_t length = 0;
    FILE *part = open_memstream(&text, &length);
    if (part == NULL) return;
    facts(part, file);
    if (fclose(part) == 0 && length <= FOOTER)
        fwrite(text, 1, length, to);
    else
        fputs("The environment is too long to be shown here; the result file holds it.\n", to);
    free(text);
}

static void head(FILE *to, const dp_result_file *file, int passed) {
    fprintf(to, "## dflash-parity %s: %s\n\n%d of %d cases passed%s.\n\n", file->tool, dp_verdict_name(file->verdict),
            passed, file->count, file->filter != NULL ? ", filtered: not the whole verdict" : "");
}

/* Writes the section unless it would burst the page. */
static bool section(FILE *to, void (*write)(FILE *, const dp_result_case *), const dp_result_case *item, size_t *used) {
    char *text = NULL;
    size_t length = 0;
    FILE *part = open_memstream(&text, &length);
    if (part == NULL) return false;
    write(part, item);
    const bool whole = fclose(part) == 0, fits = whole && *used + length + FOOTER <= DP_MARKDOWN_MOST;
    if (fits) fwrite(text, 1, length, to);
    if (fits) *used += length;
    free(text);
    return fits;
}

void dp_render_markdown(FILE *to, const dp_result_file *file) {
    const dp_result_case **item = calloc((size_t)file->count + 1, sizeof *item);
    size_t used = 1000; /* what head() and the lines between the sections can take */
    int passed = 0, rows = 0, shown = 0;
    for (int i = 0; i < file->count; i++) passed += file->item[i].result.verdict == DP_PASS;
    head(to, file, passed);
    const int count = item != NULL ? in_order(file, item) : 0;
    if (count > 1) {
        fputs("| verdict | case | stages | rounds | least headroom | at |\n|---|---|--:|--:|--:|---|\n", to);
        while (rows < count && used < DP_MARKDOWN_MOST / 2 && section(to, overview_row, item[rows], &used)) rows++;
        if (rows < count) fprintf(to, "\n%d more cases are not listed.\n", count - rows);
        fputc('\n', to);
    }
    for (; shown < count && section(to, summary, item[shown], &used); shown++)
        if (section(to, failing_stages, item[shown], &used)) section(to, passing_stages, item[shown], &used);
    if (shown < file->count)
        fprintf(to, "%d of %d cases are not shown in detail, to keep this short; the result file holds them.\n\n",
                file->count - shown, file->count);
    footer(to, file);
    free(item);
}
