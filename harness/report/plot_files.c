/* plot_files.c - see plot_files.h; the heat map is in plot_heatmap.c. */
#include "report/plot_files.h"

#include "check/divergence.h"
#include "common/error.h"
#include "report/plot_parts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_LABELS = 72, /* names that find room below an axis: of more stages every second, third, ... is named */
    MOST_POINTS = 800 /* of a scatter: more make the page larger and the picture no clearer */
};

const char *dp_plot_script(dp_plot plot) {
    static const char *const names[] = {"stages", "heatmap", "scatter", "ulp", "rope", "margins"};
    return names[plot];
}

/* ---- Shared by the plots ---- */

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

void dp_plot_groups(FILE *to, const dp_result *result, double low, double high, double label) {
    const int count = result->stage_count;
    int start = 0, rows = 0, last = -1;
    bool layers = false;
    for (int x = 0; x < count; x++) {
        const int layer = dp_stage_layer(&result->stage[x]);
        if (x > 0 && layer != last) {
            dp_plot_block(to, "borders", &rows);
            fprintf(to, "%g %g\n%g %g\n\n", x - 0.5, low, x - 0.5, high);
        }
        last = layer;
    }
    dp_plot_block_end(to, rows);
    fputs("# groups\n", to);
    for (int x = 0; x < count; x++) {
        const int layer = dp_stage_layer(&result->stage[x]);
        char name[32];
        layers = layers || layer >= 0;
        if (x + 1 < count && dp_stage_layer(&result->stage[x + 1]) == layer) continue;
        if (layer >= 0)
            snprintf(name, sizeof name, "layer %d", layer);
        else
            snprintf(name, sizeof name, layers ? "end" : "start");
        fprintf(to, "%g %g \"%s\"\n", 0.5 * (start + x), label, name);
        start = x + 1;
    }
    fputs("\n\n", to);
}

int dp_plot_first(const dp_result *result) {
    dp_divergence_by by;
    const dp_stage_result *first = dp_first_divergence(result, &by);
    return first != NULL ? (int)(first - result->stage) : -1;
}

const char *dp_plot_focus(const dp_result *result) {
    const int first = dp_plot_first(result);
    if (result->plot.scatter.count > 0) return result->plot.scatter.stage;
    return first >= 0 ? result->stage[first].name : "";
}

/* ---- Stages ---- */

/* Integers have no error size: none differs, or the share of them that do. */
static double chained_error(const dp_stage_result *stage) {
    const dp_difference *d = &stage->difference;
    if (d->count == 0 || d->nonfinite > 0) return NAN;
    return stage->exact ? (double)d->mismatches / (double)d->count : d->l2_rel;
}

static double isolated_error(const dp_stage_result *stage) {
    if (!stage->isolated.judged) return NAN;
    if (stage->exact) return stage->isolated.pass ? 0 : 1; /* how far an id is from another says nothing */
    return stage->isolated.difference.count == 0 ? NAN : stage->isolated.difference.l2_rel;
}

/* A stage that was not shown was given no limit. */
static double envelope(const dp_stage_result *stage) {
    return stage->exact || stage->difference.count == 0 ? NAN : stage->limit.l2_rel;
}

/* NaN in a curve is a gap; the gaps of the chained one are marked by the series not-finite. */
static void curve(FILE *to, const char *name, const dp_result *result, double (*of)(const dp_stage_result *)) {
    fprintf(to, "# %s\n", name);
    for (int x = 0; x < result->stage_count; x++) {
        const double value = of(&result->stage[x]);
        if (isfinite(value))
            fprintf(to, "%d %.6g\n", x, dp_plot_height(value));
        else
            fprintf(to, "%d NaN\n", x);
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

static bool write_stages(FILE *to, const dp_result *result) {
    const int count = result->stage_count, first = dp_plot_first(result);
    const int step = (count + MOST_LABELS - 1) / MOST_LABELS;
    if (count == 0) return false;
    int failed = 0, marked = 0;
    fputs("# names\n", to);
    for (int x = 0; x < count; x++) {
        fprintf(to, "%d %g ", x, DP_PLOT_FLOOR);
        short_name(to, x % step == 0 ? result->stage[x].name : "");
        fputc('\n', to);
    }
    fputs("\n\n", to);
    curve(to, "chained", result, chained_error);
    curve(to, "isolated", result, isolated_error);
    curve(to, "envelope", result, envelope);
    for (int x = 0; x < count; x++) {
        const double error = chained_error(&result->stage[x]);
        if (result->stage[x].pass || !isfinite(error)) continue;
        dp_plot_block(to, "failed", &failed);
        fprintf(to, "%d %.6g\n", x, dp_plot_height(error));
    }
    dp_plot_block_end(to, failed);
    for (int x = 0; x < count; x++) {
        if (isfinite(chained_error(&result->stage[x]))) continue;
        dp_plot_block(to, "not-finite", &marked);
        fprintf(to, "%d %g\n", x, DP_PLOT_CEILING);
    }
    dp_plot_block_end(to, marked);
    dp_plot_groups(to, result, DP_PLOT_FLOOR / 10, DP_PLOT_CEILING * 20, DP_PLOT_CEILING * 6);
    if (first < 0) return true;
    /* The line ends below the names of the layers; its own name stands between the floor and the errors of a correct
     * run, where next to nothing is drawn. */
    fprintf(to, "# first\n%d %g\n%d %g\n\n\n", first, DP_PLOT_FLOOR / 10, first, DP_PLOT_CEILING * 2.5);
    fprintf(to, "# first-name-%s\n%d %g ", first > count / 2 ? "left" : "right", first, DP_PLOT_FLOOR * 20);
    dp_plot_label(to, result->stage[first].name);
    fputs("\n\n\n", to);
    return true;
}

/* ---- One stage ---- */

static bool write_scatter(FILE *to, const dp_result *result) {
    const dp_scatter *scatter = &result->plot.scatter;
    const double *got = scatter->got, *want = scatter->want;
    const int count = scatter->count, step = 1 + (count - 1) / MOST_POINTS;
    double low = INFINITY, high = -INFINITY;
    int points = 0, marked = 0;
    if (count == 0) return false;
    for (int i = 0; i < count; i++) {
        low = fmin(low, want[i]);
        high = fmax(high, want[i]);
        if (isfinite(got[i])) low = fmin(low, got[i]);
        if (isfinite(got[i])) high = fmax(high, got[i]);
    }
    fprintf(to, "# diagonal\n%.9g %.9g\n%.9g %.9g\n\n\n", low, low, high, high);
    for (int i = 0; i < count; i += step) {
        if (!isfinite(got[i])) continue;
        dp_plot_block(to, "points", &points);
        fprintf(to, "%.9g %.9g\n", want[i], got[i]);
    }
    dp_plot_block_end(to, points);
    for (int i = 0; i < count; i++) {
        if (isfinite(got[i])) continue;
        dp_plot_block(to, "not-finite", &marked);
        fprintf(to, "%.9g %.9g\n", want[i], isfinite(high) ? high : 0.0);
    }
    dp_plot_block_end(to, marked);
    const dp_stage_result *stage = dp_stage_named(result, scatter->stage);
    if (stage != NULL && stage->difference.worst >= 0 && isfinite(stage->difference.worst_got))
        fprintf(to, "# worst\n%.9g %.9g\n\n\n", stage->difference.worst_want, stage->difference.worst_got);
    return true;
}

static void ulp_label(int bin, char text[32]) {
    if (bin == 0)
        snprintf(text, 32, "0, bit-equal");
    else if (bin == DP_ULP_BINS - 2)
        snprintf(text, 32, "2^24 and more");
    else
        snprintf(text, 32, bin >= 18 ? "< 2^%.0f" : "< %.3g", bin >= 18 ? bin - 9.0 : ldexp(1, bin - 9));
}

static bool write_ulp(FILE *to, const dp_result *result) {
    const dp_stage_result *stage = dp_stage_named(result, dp_plot_focus(result));
    if (stage == NULL) return false;
    const int64_t *bin = result->plot.stage[stage - result->stage].ulp;
    double total = 0;
    int last = 0, from = DP_ULP_BINS;
    for (int i = 0; i < DP_ULP_BINS; i++) {
        total += (double)bin[i];
        if (i > 0 && i < DP_ULP_BINS - 1 && bin[i] > 0) {
            last = i;
            if (i < from) from = i;
        }
    }
    if (!(total > 0)) return false;
    /* The empty bins on both sides are left out; that of no error always stands at the left. */
    int x = 1;
    fprintf(to, "# bins\n0 %.6g \"0, bit-equal\"\n", 100 * (double)bin[0] / total);
    for (int i = from; i <= last; i++) {
        char text[32];
        ulp_label(i, text);
        fprintf(to, "%d %.6g \"%s\"\n", x++, 100 * (double)bin[i] / total, text);
    }
    fputs("\n\n", to);
    if (bin[DP_ULP_BINS - 1] > 0)
        fprintf(to, "# not-finite\n%d %.6g \"not finite\"\n\n\n", x + 1, 100 * (double)bin[DP_ULP_BINS - 1] / total);
    return true;
}

static bool write_rope(FILE *to, const dp_result *result) {
    const dp_rope_plot *rope = &result->plot.rope;
    for (int marked = 0; marked < 2; marked++) {
        int rows = 0;
        for (int x = 0; x < rope->count; x++) {
            const double off = fabs(rope->relative[x]);
            if (isfinite(off) != (marked == 0)) continue;
            dp_plot_block(to, marked == 0 ? "difference" : "not-finite", &rows);
            fprintf(to, "%d %.6g\n", x, marked == 0 ? dp_plot_height(off) : DP_PLOT_CEILING);
        }
        dp_plot_block_end(to, rows);
    }
    return rope->count > 0;
}

/* ---- Tokens ---- */

/* 0: the same token, 1: another one, 2: a value that is not finite. */
static void margins_of(FILE *to, const dp_margins *margins, int wanted) {
    static const char *const names[] = {"same", "flipped", "not-finite"};
    int rows = 0;
    for (int i = 0; i < margins->rows; i++) {
        const double lead = margins->margin[i], off = margins->error[i];
        const bool other = margins->want != NULL && margins->got[i] != margins->want[i];
        const int kind = !isfinite(lead) || !isfinite(off) ? 2 : other ? 1 : 0;
        if (kind != wanted) continue;
        dp_plot_block(to, names[kind], &rows);
        fprintf(to, "%.6g %.6g \"position %d\"\n", kind == 2 ? 1e3 : dp_plot_height(off),
                isfinite(lead) ? dp_plot_height(lead) : 1.0, i);
    }
    dp_plot_block_end(to, rows);
}

const dp_margins *dp_plot_margins(const dp_result *result) {
    const int count = result->plot.margins_count;
    return count > 0 ? &result->plot.margins[count - 1] : NULL;
}

static bool write_margins(FILE *to, const dp_result *result) {
    const dp_margins *margins = dp_plot_margins(result);
    if (margins == NULL) return false;
    fputs("# limit\n1e-12 2e-12\n5e2 1e3\n\n\n", to);
    for (int kind = 0; kind < 3; kind++) margins_of(to, margins, kind);
    return true;
}

/* ---- Files ---- */

static dflash_status open_data(const dp_plots *plots, const char *name, char path[DP_PLOT_PATH], FILE **to,
                               dflash_error *err) {
    snprintf(path, DP_PLOT_PATH, "%s/%s.dat", plots->folder, name);
    *to = fopen(path, "w");
    if (*to != NULL) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_IO, "plot.data", "Cannot write the plot data %s: %s. Check the folder.", path,
                   strerror(errno));
}

static dflash_status close_data(FILE *to, const char *path, dflash_error *err) {
    const bool failed = ferror(to) != 0;
    if (fclose(to) == 0 && !failed) return DFLASH_OK;
    remove(path);
    return df_fail(err, DFLASH_ERR_IO, "plot.data", "Writing the plot data %s failed. Free space on that disk.", path);
}

dflash_status dp_plot_write(const dp_plots *plots, dp_plot plot, const dp_result *result, const char *name, bool *any,
                            dflash_error *err) {
    static bool (*const write[])(FILE *, const dp_result *) = {
        [DP_PLOT_STAGES] = write_stages, [DP_PLOT_SCATTER] = write_scatter, [DP_PLOT_ULP] = write_ulp,
        [DP_PLOT_ROPE] = write_rope,     [DP_PLOT_MARGINS] = write_margins,
    };
    bool failed = false;
    char path[DP_PLOT_PATH];
    FILE *to;
    TRY(open_data(plots, name, path, &to, err));
    *any = plot == DP_PLOT_HEATMAP ? dp_plot_write_heatmap(to, result, &failed) : write[plot](to, result);
    TRY(close_data(to, path, err));
    if (!*any) remove(path);
    return failed ? df_fail_memory(err, "the heat map", 1 << 16) : DFLASH_OK;
}

dflash_status dp_plot_write_curves(const dp_plots *plots, const char *name, const dp_plot_curve *list, int count,
                                   bool shares, dflash_error *err) {
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
