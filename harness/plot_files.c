/* plot_files.c - see plot_files.h; the heat map is in plot_heatmap.c. */
#include "plot_files.h"

#include "error.h"
#include "plot_parts.h"
#include "result_view.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_LABELS = 72,  /* names that find room below an axis: of more stages every second, third, ... is named */
    MOST_POINTS = 800, /* of a scatter: more make the page larger and the picture no clearer */
    ULP_BINS = 36
};

const char *dp_plot_script(dp_plot plot) {
    static const char *const names[] = {"stages", "heatmap", "scatter", "ulp", "rope", "margins"};
    return names[plot];
}

/* ---- Shared by the plots ------------------------------------------------------------------------------------------
 */

double dp_plot_height(double error) { return error == 0 ? DP_PLOT_FLOOR : fmax(error, 2 * DP_PLOT_FLOOR); }

void dp_plot_label(FILE *to, const char *text) {
    fputc('"', to);
    for (; *text != '\0'; text++) fputc((unsigned char)*text < 0x20 || *text == '"' || *text == '\\' ? '_' : *text, to);
    fputc('"', to);
}

void dp_plot_block(FILE *to, const char *name, int *rows) {
    if ((*rows)++ == 0) fprintf(to, "# %s\n", name);
}

void dp_plot_block_end(FILE *to, int rows) {
    if (rows > 0) fputs("\n\n", to);
}

void dp_plot_groups(FILE *to, const cJSON *stages, double low, double high, double label) {
    const cJSON *stage;
    int x = 0, start = 0, rows = 0;
    long last = -2;
    bool layers = false;
    cJSON_ArrayForEach(stage, stages) {
        const long layer = dp_view(stage, "layer") != NULL ? dp_view_count(stage, "layer") : -1;
        if (x > 0 && layer != last) {
            dp_plot_block(to, "borders", &rows);
            fprintf(to, "%g %g\n%g %g\n\n", x - 0.5, low, x - 0.5, high);
        }
        last = layer;
        x++;
    }
    dp_plot_block_end(to, rows);
    fputs("# groups\n", to);
    x = 0;
    cJSON_ArrayForEach(stage, stages) {
        const long layer = dp_view(stage, "layer") != NULL ? dp_view_count(stage, "layer") : -1;
        const cJSON *next = stage->next;
        const long after = next == NULL ? -2 : dp_view(next, "layer") != NULL ? dp_view_count(next, "layer") : -1;
        layers = layers || layer >= 0;
        if (after != layer) {
            char name[32];
            if (layer >= 0)
                snprintf(name, sizeof name, "layer %ld", layer);
            else
                snprintf(name, sizeof name, layers ? "end" : "start");
            fprintf(to, "%g %g \"%s\"\n", 0.5 * (start + x), label, name);
            start = x + 1;
        }
        x++;
    }
    fputs("\n\n", to);
}

int dp_plot_first(const cJSON *item) {
    const char *name = dp_view_text(dp_view(item, "first_divergence"), "stage");
    const cJSON *stage;
    int x = 0;
    cJSON_ArrayForEach(stage, dp_view(item, "stages")) {
        if (name[0] != '\0' && strcmp(dp_view_text(stage, "name"), name) == 0) return x;
        x++;
    }
    return -1;
}

const char *dp_plot_focus(const cJSON *item) {
    const char *of_scatter = dp_view_text(dp_view(dp_view(item, "plots"), "scatter"), "stage");
    return of_scatter[0] != '\0' ? of_scatter : dp_view_text(dp_view(item, "first_divergence"), "stage");
}

/* ---- Stages ------------------------------------------------------------------------------------------------------ */

/* Integers have no error size: none differs, or the share of them that do. */
static double chained_error(const cJSON *stage) {
    const cJSON *chained = dp_view(stage, "chained");
    if (dp_view_count(chained, "compared") == 0 || dp_view_nonfinite(stage) > 0) return NAN;
    if (dp_view_true(stage, "exact"))
        return (double)dp_view_count(chained, "mismatches") / (double)dp_view_count(chained, "compared");
    return dp_view_number(chained, "rel_l2");
}

static double isolated_error(const cJSON *stage) {
    if (dp_view_true(stage, "exact") && dp_view(stage, "isolated") != NULL)
        return dp_view_isolated_failed(stage) ? 1 : 0; /* how far an id is from another says nothing */
    const cJSON *difference = dp_view(dp_view(stage, "isolated"), "difference");
    return dp_view_number(difference, "compared") == 0 ? NAN : dp_view_number(difference, "rel_l2");
}

/* A stage that was not shown was given no bar. */
static double envelope(const cJSON *stage) {
    const bool shown = dp_view_count(dp_view(stage, "chained"), "compared") > 0;
    return shown ? dp_view_number(dp_view(stage, "bar"), "rel_l2") : NAN;
}

/* NaN in a curve is a gap; the gaps of the chained one are marked by the series not-finite. */
static void curve(FILE *to, const char *name, const cJSON *stages, double (*of)(const cJSON *)) {
    const cJSON *stage;
    int x = 0;
    fprintf(to, "# %s\n", name);
    cJSON_ArrayForEach(stage, stages) {
        const double value = of(stage);
        if (isfinite(value))
            fprintf(to, "%d %.6g\n", x, dp_plot_height(value));
        else
            fprintf(to, "%d NaN\n", x);
        x++;
    }
    fputs("\n\n", to);
}

/* "1.context" for layers.1.attn.context: what fits below an axis. */
static void short_name(FILE *to, const char *name) {
    char text[64];
    const char *part;
    if (strncmp(name, "layers.", 7) == 0) name += 7;
    part = strstr(name, ".attn.") != NULL ? strstr(name, ".attn.") : strstr(name, ".mlp.");
    if (part != NULL)
        snprintf(text, sizeof text, "%.*s%s", (int)(part - name), name, strchr(part + 1, '.'));
    else
        snprintf(text, sizeof text, "%s", name);
    dp_plot_label(to, text);
}

static bool write_stages(FILE *to, const cJSON *item) {
    const cJSON *stages = dp_view(item, "stages"), *stage;
    const int count = cJSON_GetArraySize(stages), first = dp_plot_first(item);
    const int step = (count + MOST_LABELS - 1) / MOST_LABELS;
    if (count == 0) return false;
    int x = 0, failed = 0, marked = 0;
    fputs("# names\n", to);
    cJSON_ArrayForEach(stage, stages) {
        fprintf(to, "%d %g ", x, DP_PLOT_FLOOR);
        short_name(to, x++ % step == 0 ? dp_view_text(stage, "name") : "");
        fputc('\n', to);
    }
    fputs("\n\n", to);
    curve(to, "chained", stages, chained_error);
    curve(to, "isolated", stages, isolated_error);
    curve(to, "envelope", stages, envelope);
    x = 0;
    cJSON_ArrayForEach(stage, stages) {
        const double error = chained_error(stage);
        if (!dp_view_true(stage, "pass") && isfinite(error)) {
            dp_plot_block(to, "failed", &failed);
            fprintf(to, "%d %.6g\n", x, dp_plot_height(error));
        }
        x++;
    }
    dp_plot_block_end(to, failed);
    x = 0;
    cJSON_ArrayForEach(stage, stages) {
        if (!isfinite(chained_error(stage))) {
            dp_plot_block(to, "not-finite", &marked);
            fprintf(to, "%d %g\n", x, DP_PLOT_CEILING);
        }
        x++;
    }
    dp_plot_block_end(to, marked);
    dp_plot_groups(to, stages, DP_PLOT_FLOOR / 10, DP_PLOT_CEILING * 20, DP_PLOT_CEILING * 6);
    if (first < 0) return true;
    /* The line ends below the names of the layers; its own name stands between the floor and the errors of a correct
     * run, where next to nothing is drawn. */
    fprintf(to, "# first\n%d %g\n%d %g\n\n\n", first, DP_PLOT_FLOOR / 10, first, DP_PLOT_CEILING * 2.5);
    fprintf(to, "# first-name-%s\n%d %g ", first > count / 2 ? "left" : "right", first, DP_PLOT_FLOOR * 20);
    dp_plot_label(to, dp_view_text(dp_view(item, "first_divergence"), "stage"));
    fputs("\n\n\n", to);
    return true;
}

/* ---- One stage --------------------------------------------------------------------------------------------------- */

static bool write_scatter(FILE *to, const cJSON *item) {
    const cJSON *scatter = dp_view(dp_view(item, "plots"), "scatter");
    const cJSON *got = dp_view(scatter, "got"), *want = dp_view(scatter, "want");
    const cJSON *stage = dp_view_stage(item, dp_view_text(scatter, "stage"));
    const cJSON *worst = dp_view(dp_view(stage, "chained"), "worst");
    const int count = cJSON_GetArraySize(want), step = 1 + (count - 1) / MOST_POINTS;
    double low = INFINITY, high = -INFINITY;
    if (count == 0 || cJSON_GetArraySize(got) != count) return false;
    const cJSON *w = want->child, *g = got->child;
    for (; w != NULL && g != NULL; w = w->next, g = g->next) {
        low = fmin(low, dp_view_value(w));
        high = fmax(high, dp_view_value(w));
        if (isfinite(dp_view_value(g))) low = fmin(low, dp_view_value(g));
        if (isfinite(dp_view_value(g))) high = fmax(high, dp_view_value(g));
    }
    fprintf(to, "# diagonal\n%.9g %.9g\n%.9g %.9g\n\n\n", low, low, high, high);
    int i = 0, points = 0, marked = 0;
    for (w = want->child, g = got->child; w != NULL && g != NULL; w = w->next, g = g->next, i++)
        if (i % step == 0 && isfinite(dp_view_value(g))) {
            dp_plot_block(to, "points", &points);
            fprintf(to, "%.9g %.9g\n", dp_view_value(w), dp_view_value(g));
        }
    dp_plot_block_end(to, points);
    for (w = want->child, g = got->child; w != NULL && g != NULL; w = w->next, g = g->next)
        if (!isfinite(dp_view_value(g))) {
            dp_plot_block(to, "not-finite", &marked);
            fprintf(to, "%.9g %.9g\n", dp_view_value(w), isfinite(high) ? high : 0.0);
        }
    dp_plot_block_end(to, marked);
    if (worst != NULL && isfinite(dp_view_number(worst, "got")))
        fprintf(to, "# worst\n%.9g %.9g\n\n\n", dp_view_number(worst, "want"), dp_view_number(worst, "got"));
    return true;
}

static void ulp_label(int bin, char text[32]) {
    if (bin == 0)
        snprintf(text, 32, "0, bit-equal");
    else if (bin == ULP_BINS - 2)
        snprintf(text, 32, "2^24 and more");
    else
        snprintf(text, 32, bin >= 18 ? "< 2^%.0f" : "< %.3g", bin >= 18 ? bin - 9.0 : ldexp(1, bin - 9));
}

static bool write_ulp(FILE *to, const cJSON *item) {
    const cJSON *ulp = dp_view(dp_view_stage(item, dp_plot_focus(item)), "ulp");
    double count[ULP_BINS], total = 0;
    int last = 0, from = ULP_BINS;
    if (cJSON_GetArraySize(ulp) != ULP_BINS) return false;
    for (int i = 0; i < ULP_BINS; i++) {
        count[i] = dp_view_value(cJSON_GetArrayItem(ulp, i));
        total += count[i];
        if (i > 0 && i < ULP_BINS - 1 && count[i] > 0) {
            last = i;
            if (i < from) from = i;
        }
    }
    if (!(total > 0)) return false;
    /* The empty bins on both sides are left out; that of no error always stands at the left. */
    int x = 1;
    fprintf(to, "# bins\n0 %.6g \"0, bit-equal\"\n", 100 * count[0] / total);
    for (int i = from; i <= last; i++) {
        char text[32];
        ulp_label(i, text);
        fprintf(to, "%d %.6g \"%s\"\n", x++, 100 * count[i] / total, text);
    }
    fputs("\n\n", to);
    if (count[ULP_BINS - 1] > 0)
        fprintf(to, "# not-finite\n%d %.6g \"not finite\"\n\n\n", x + 1, 100 * count[ULP_BINS - 1] / total);
    return true;
}

static bool write_rope(FILE *to, const cJSON *item) {
    const cJSON *relative = dp_view(dp_view(dp_view(item, "plots"), "rope"), "relative"), *value;
    if (cJSON_GetArraySize(relative) == 0) return false;
    for (int marked = 0; marked < 2; marked++) {
        int x = 0, rows = 0;
        cJSON_ArrayForEach(value, relative) {
            const double off = fabs(dp_view_value(value));
            if (isfinite(off) == (marked == 0)) {
                dp_plot_block(to, marked == 0 ? "difference" : "not-finite", &rows);
                fprintf(to, "%d %.6g\n", x, marked == 0 ? dp_plot_height(off) : DP_PLOT_CEILING);
            }
            x++;
        }
        dp_plot_block_end(to, rows);
    }
    return true;
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* 0: the same token, 1: another one, 2: a value that is not finite. */
static void margins_of(FILE *to, const cJSON *margins, int wanted) {
    static const char *const names[] = {"same", "flipped", "not-finite"};
    int rows = 0;
    const cJSON *margin = dp_view(margins, "margin"), *error = dp_view(margins, "error");
    const cJSON *got = dp_view(margins, "got"), *want = dp_view(margins, "want");
    for (int i = 0; i < cJSON_GetArraySize(margin); i++) {
        const double lead = dp_view_value(cJSON_GetArrayItem(margin, i));
        const double off = dp_view_value(cJSON_GetArrayItem(error, i));
        const bool other =
            want != NULL && dp_view_value(cJSON_GetArrayItem(got, i)) != dp_view_value(cJSON_GetArrayItem(want, i));
        const int kind = !isfinite(lead) || !isfinite(off) ? 2 : other ? 1 : 0;
        if (kind != wanted) continue;
        dp_plot_block(to, names[kind], &rows);
        fprintf(to, "%.6g %.6g \"position %d\"\n", kind == 2 ? 1e3 : dp_plot_height(off),
                isfinite(lead) ? dp_plot_height(lead) : 1.0, i);
    }
    dp_plot_block_end(to, rows);
}

const cJSON *dp_plot_margins(const cJSON *item) {
    const cJSON *list = dp_view(dp_view(item, "plots"), "margins");
    const int count = cJSON_GetArraySize(list);
    return count > 0 ? cJSON_GetArrayItem(list, count - 1) : NULL;
}

static bool write_margins(FILE *to, const cJSON *item) {
    const cJSON *margins = dp_plot_margins(item);
    if (margins == NULL) return false;
    fputs("# limit\n1e-12 2e-12\n5e2 1e3\n\n\n", to);
    for (int kind = 0; kind < 3; kind++) margins_of(to, margins, kind);
    return cJSON_GetArraySize(dp_view(margins, "margin")) > 0;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static df_status open_data(const dp_plots *plots, const char *name, char path[DP_PLOT_PATH], FILE **to, df_error *err) {
    snprintf(path, DP_PLOT_PATH, "%s/%s.dat", plots->folder, name);
    *to = fopen(path, "w");
    if (*to != NULL) return DF_OK;
    return df_fail(err, DF_ERR_IO, "plot.data", "Cannot write the plot data %s: %s. Check the folder.", path,
                   strerror(errno));
}

static df_status close_data(FILE *to, const char *path, df_error *err) {
    const bool failed = ferror(to) != 0;
    if (fclose(to) == 0 && !failed) return DF_OK;
    remove(path);
    return df_fail(err, DF_ERR_IO, "plot.data", "Writing the plot data %s failed. Free space on that disk.", path);
}

df_status dp_plot_write(const dp_plots *plots, dp_plot plot, const cJSON *item, const char *name, bool *any,
                        df_error *err) {
    static bool (*const write[])(FILE *, const cJSON *) = {
        [DP_PLOT_STAGES] = write_stages, [DP_PLOT_SCATTER] = write_scatter, [DP_PLOT_ULP] = write_ulp,
        [DP_PLOT_ROPE] = write_rope,     [DP_PLOT_MARGINS] = write_margins,
    };
    bool failed = false;
    char path[DP_PLOT_PATH];
    FILE *to;
    TRY(open_data(plots, name, path, &to, err));
    *any = plot == DP_PLOT_HEATMAP ? dp_plot_write_heatmap(to, item, &failed) : write[plot](to, item);
    TRY(close_data(to, path, err));
    if (!*any) remove(path);
    return failed ? df_fail_memory(err, "the heat map", 1 << 16) : DF_OK;
}

df_status dp_plot_write_curves(const dp_plots *plots, const char *name, const dp_plot_curve *list, int count,
                               bool shares, df_error *err) {
    const double floor_at = shares ? DP_PLOT_SHARE_FLOOR : DP_PLOT_FLOOR;
    const double ceiling = shares ? DP_PLOT_SHARE_CEILING : DP_PLOT_CEILING;
    char path[DP_PLOT_PATH];
    FILE *to;
    TRY(open_data(plots, name, path, &to, err));
    for (int i = 0; i < count; i++) {
        dp_plot_label(to, list[i].label);
        fputc('\n', to);
        for (int j = 0; j < list[i].count; j++) {
            const double value = list[i].value[j];
            fprintf(to, "%d %.6g ", list[i].x[j],
                    !isfinite(value) ? ceiling
                    : value <= 0     ? floor_at
                                     : fmin(fmax(value, 2 * floor_at), ceiling / 2));
            dp_plot_label(to, list[i].point[j]);
            fputc('\n', to);
        }
        fputs("\n\n", to);
    }
    return close_data(to, path, err);
}
