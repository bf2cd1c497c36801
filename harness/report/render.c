/* render.c - see render.h: the formats by name, and which renderer makes which. */
#include "report/render.h"

#include "common/error.h"
#include "report/render_html.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*render)(FILE *to, const dp_result_file *file); /* NULL: not through a stream */
} formats[] = {[DP_REPORT_TEXT] = {"text", dp_render_text},
               [DP_REPORT_MARKDOWN] = {"markdown", dp_render_markdown},
               [DP_REPORT_JUNIT] = {"junit", dp_render_junit},
               [DP_REPORT_GITHUB] = {"github", dp_render_github},
               [DP_REPORT_HTML] = {"html", NULL}};

bool dp_report_format_parse(const char *name, size_t length, dp_report_format *out) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strlen(formats[i].name) != length || strncmp(formats[i].name, name, length) != 0) continue;
        *out = (dp_report_format)i;
        return true;
    }
    return false;
}

dflash_status dp_render(const dp_result_file *file, dp_report_format format, const char *keep, char **out,
                        dflash_error *err) {
    size_t length = 0;
    *out = NULL;
    if (formats[format].render == NULL) {
        const dp_html_options options = {.keep = keep};
        return dp_render_html(file, &options, out, err);
    }
    FILE *to = open_memstream(out, &length);
    if (to == NULL) return df_fail_memory(err, "the report", 0);
    formats[format].render(to, file);
    const bool whole = fflush(to) == 0 && !ferror(to);
    if (fclose(to) == 0 && whole) return DFLASH_OK;
    free(*out);
    *out = NULL;
    return df_fail_memory(err, "the report", length);
}
