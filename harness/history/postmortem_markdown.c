/* postmortem_markdown.c - the story of a postmortem as a text to paste where Markdown is read. */
#include "history/postmortem.h"

#include "report/buffered_text.h"
#include "common/error.h"
#include "report/summary.h"

#include <stdlib.h>

/* A cell of a table: a pipe would end it, a line break would end the row. */
static void cell(FILE *to, const char *text) {
    fputs("`", to);
    for (; *text != '\0'; text++) {
        if (*text == '|')
            fputs("\\|", to);
        else
            fputc(*text == '`' ? '\'' : (unsigned char)*text < 0x20 ? ' ' : *text, to);
    }
    fputs("`", to);
}

static dflash_status changes(FILE *to, const dp_postmortem *summary, const dp_past_case *item, dflash_error *err) {
    dp_changes found;
    dflash_status status = dp_postmortem_changes(summary, item, item->last_good, item->first_bad, &found, err);
    if (status == DFLASH_OK)
        fputs(found.count > 0 ? "\n**Changed between them**\n\n| what | last good | first bad |\n|---|---|---|\n"
                              : "\nNothing on record changed between them.\n",
              to);
    for (int i = 0; status == DFLASH_OK && i < found.count; i++) {
        fputs("| ", to);
        cell(to, found.change[i].name);
        fputs(" | ", to);
        cell(to, found.change[i].before);
        fputs(" | ", to);
        cell(to, found.change[i].after);
        fputs(" |\n", to);
    }
    if (status == DFLASH_OK && found.missing[0] != '\0') {
        fputs("\nNeither run has on record: ", to);
        cell(to, found.missing);
        fputs(".\n", to);
    }
    dp_changes_release(&found);
    return status;
}

static dflash_status commits(FILE *to, const dp_postmortem *summary, const dp_past_case *item, dflash_error *err) {
    dp_past_commits found;
    dflash_status status = dp_postmortem_commits(summary, item->last_good, item->first_bad, &found, err);
    if (status == DFLASH_OK && found.known) {
        fputs("\n**Commits between them**\n\n", to);
        dp_postmortem_history(to, &found);
        fputs(found.count > 0 ? "\n\n" : "\n", to);
        for (int i = 0; i < found.count && i < DP_MOST_COMMITS; i++) {
            fprintf(to, "- `%.12s` ", found.commit[i].hash);
            cell(to, found.commit[i].subject);
            fputs("\n", to);
        }
        if (found.count > DP_MOST_COMMITS) fprintf(to, "- and %d more\n", found.count - DP_MOST_COMMITS);
    }
    dp_past_commits_release(&found);
    return status;
}

static void paragraph(FILE *to, dp_buffered_text *words) {
    if (dp_buffered_text_end(words)) fprintf(to, "\n%s\n", words->text[0] == ' ' ? words->text + 1 : words->text);
    free(words->text);
}

static void about_case(FILE *to, const dp_postmortem *summary, const dp_past_case *item,
                       void (*words)(FILE *, const dp_postmortem *, const dp_past_case *)) {
    dp_buffered_text buffered_text;
    if (!dp_buffered_text_begin(&buffered_text)) return;
    words(buffered_text.to, summary, item);
    paragraph(to, &buffered_text);
}

static void about_run(FILE *to, const dp_result_case *bad, void (*words)(FILE *, const dp_result_case *)) {
    dp_buffered_text buffered_text;
    if (!dp_buffered_text_begin(&buffered_text)) return;
    words(buffered_text.to, bad);
    paragraph(to, &buffered_text);
}

static dflash_status one_case(FILE *to, const dp_postmortem *summary, const dp_past_case *item, dflash_error *err) {
    const dp_result_case *bad = item->in_run[item->first_bad];
    dp_buffered_text bits;
    fprintf(to, "\n### %s\n", item->name);
    about_case(to, summary, item, dp_postmortem_outcome);
    about_case(to, summary, item, dp_postmortem_begin);
    if (dp_buffered_text_begin(&bits)) {
        dp_postmortem_bits(bits.to, &summary->run[item->first_bad]);
        paragraph(to, &bits);
    }
    about_run(to, bad, dp_summary_growth);
    about_run(to, bad, dp_summary_tokens);
    if (item->last_good >= 0) {
        TRY(changes(to, summary, item, err));
        about_case(to, summary, item, dp_postmortem_builds);
        TRY(commits(to, summary, item, err));
    }
    fprintf(to, "\nTo see it again:\n\n    %s\n", bad->command);
    return DFLASH_OK;
}

static void table_of_runs(FILE *to, const dp_postmortem *summary) {
    fputs("\n| run | verdict | cases that pass |\n|---|---|---|\n", to);
    for (int r = 0; r < summary->run_count; r++) {
        char name[DP_RUN_NAME];
        const dp_result_file *file = &summary->run[r].file;
        int passed = 0;
        for (int i = 0; i < file->count; i++) passed += file->item[i].result.verdict == DP_PASS;
        fputs("| ", to);
        cell(to, dp_past_run_name(&summary->run[r], name));
        fprintf(to, " | %s | %d of %d |\n", dp_verdict_name(file->verdict), passed, file->count);
    }
}

dflash_status dp_postmortem_markdown(const dp_postmortem *summary, char **out, dflash_error *err) {
    const int bad = dp_postmortem_bad_cases(summary);
    size_t length = 0;
    dp_buffered_text notes;
    *out = NULL;
    FILE *to = open_memstream(out, &length);
    if (to == NULL) return df_fail_memory(err, "the text", 4096);
    dflash_status status = DFLASH_OK;
    fprintf(to, "## Postmortem: %d of %d cases did not pass, over %d runs %s\n", bad, summary->item_count,
            summary->run_count, dp_order_text(summary->options.order));
    table_of_runs(to, summary);
    if (dp_buffered_text_begin(&notes)) {
        dp_postmortem_notes(notes.to, summary);
        paragraph(to, &notes);
    }
    for (int i = 0; status == DFLASH_OK && i < bad && i < DP_MOST_TOLD; i++)
        status = one_case(to, summary, &summary->item[i], err);
    for (int i = DP_MOST_TOLD; i < bad; i++) {
        fputs(i == DP_MOST_TOLD ? "\nAlso:\n\n- " : "- ", to);
        dp_postmortem_outcome(to, summary, &summary->item[i]);
        fputs("\n", to);
    }
    const bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed) status = df_fail_memory(err, "the text", length);
    if (status == DFLASH_OK) return DFLASH_OK;
    free(*out);
    *out = NULL;
    return status;
}
