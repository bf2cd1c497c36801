/* postmortem_markdown.c - the story of a postmortem as a text to paste where Markdown is read. */
#include "history/postmortem.h"

#include "report/aside.h"
#include "common/error.h"
#include "report/story.h"

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

static df_status changes(FILE *to, const dp_postmortem *story, const dp_past_case *item, df_error *err) {
    dp_changes found;
    df_status status = dp_postmortem_changes(story, item, item->last_good, item->first_bad, &found, err);
    if (status == DF_OK)
        fputs(found.count > 0 ? "\n**Changed between them**\n\n| what | last good | first bad |\n|---|---|---|\n"
                              : "\nNothing on record changed between them.\n",
              to);
    for (int i = 0; status == DF_OK && i < found.count; i++) {
        fputs("| ", to);
        cell(to, found.change[i].name);
        fputs(" | ", to);
        cell(to, found.change[i].before);
        fputs(" | ", to);
        cell(to, found.change[i].after);
        fputs(" |\n", to);
    }
    if (status == DF_OK && found.missing[0] != '\0') {
        fputs("\nNeither run has on record: ", to);
        cell(to, found.missing);
        fputs(".\n", to);
    }
    dp_changes_release(&found);
    return status;
}

static df_status commits(FILE *to, const dp_postmortem *story, const dp_past_case *item, df_error *err) {
    dp_past_commits found;
    df_status status = dp_postmortem_commits(story, item->last_good, item->first_bad, &found, err);
    if (status == DF_OK && found.known) {
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

static void paragraph(FILE *to, dp_aside *words) {
    if (dp_aside_end(words)) fprintf(to, "\n%s\n", words->text[0] == ' ' ? words->text + 1 : words->text);
    free(words->text);
}

static void about_case(FILE *to, const dp_postmortem *story, const dp_past_case *item,
                       void (*words)(FILE *, const dp_postmortem *, const dp_past_case *)) {
    dp_aside aside;
    if (!dp_aside_begin(&aside)) return;
    words(aside.to, story, item);
    paragraph(to, &aside);
}

static void about_run(FILE *to, const dp_result_case *bad, void (*words)(FILE *, const dp_result_case *)) {
    dp_aside aside;
    if (!dp_aside_begin(&aside)) return;
    words(aside.to, bad);
    paragraph(to, &aside);
}

static df_status one_case(FILE *to, const dp_postmortem *story, const dp_past_case *item, df_error *err) {
    const dp_result_case *bad = item->in_run[item->first_bad];
    dp_aside bits;
    fprintf(to, "\n### %s\n", item->name);
    about_case(to, story, item, dp_postmortem_outcome);
    about_case(to, story, item, dp_postmortem_begin);
    if (dp_aside_begin(&bits)) {
        dp_postmortem_bits(bits.to, &story->run[item->first_bad]);
        paragraph(to, &bits);
    }
    about_run(to, bad, dp_story_growth);
    about_run(to, bad, dp_story_tokens);
    if (item->last_good >= 0) {
        TRY(changes(to, story, item, err));
        about_case(to, story, item, dp_postmortem_builds);
        TRY(commits(to, story, item, err));
    }
    fprintf(to, "\nTo see it again:\n\n    %s\n", bad->command);
    return DF_OK;
}

static void table_of_runs(FILE *to, const dp_postmortem *story) {
    fputs("\n| run | verdict | cases that pass |\n|---|---|---|\n", to);
    for (int r = 0; r < story->run_count; r++) {
        char name[DP_RUN_NAME];
        const dp_result_file *file = &story->run[r].file;
        int passed = 0;
        for (int i = 0; i < file->count; i++) passed += file->item[i].result.verdict == DP_PASS;
        fputs("| ", to);
        cell(to, dp_past_run_name(&story->run[r], name));
        fprintf(to, " | %s | %d of %d |\n", dp_verdict_name(file->verdict), passed, file->count);
    }
}

df_status dp_postmortem_markdown(const dp_postmortem *story, char **out, df_error *err) {
    const int bad = dp_postmortem_bad_cases(story);
    size_t length = 0;
    dp_aside notes;
    *out = NULL;
    FILE *to = open_memstream(out, &length);
    if (to == NULL) return df_fail_memory(err, "the text", 4096);
    df_status status = DF_OK;
    fprintf(to, "## Postmortem: %d of %d cases did not pass, over %d runs %s\n", bad, story->item_count,
            story->run_count, dp_order_text(story->options.order));
    table_of_runs(to, story);
    if (dp_aside_begin(&notes)) {
        dp_postmortem_notes(notes.to, story);
        paragraph(to, &notes);
    }
    for (int i = 0; status == DF_OK && i < bad && i < DP_MOST_TOLD; i++)
        status = one_case(to, story, &story->item[i], err);
    for (int i = DP_MOST_TOLD; i < bad; i++) {
        fputs(i == DP_MOST_TOLD ? "\nAlso:\n\n- " : "- ", to);
        dp_postmortem_outcome(to, story, &story->item[i]);
        fputs("\n", to);
    }
    const bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed) status = df_fail_memory(err, "the text", length);
    if (status == DF_OK) return DF_OK;
    free(*out);
    *out = NULL;
    return status;
}
