/* compare_report.c - see compare_report.h. */
#include "bisect/compare_report.h"

#include "base/coordinates.h"
#include "common/dtype.h"
#include "base/environment.h"
#include "base/json_out.h"
#include "report/report.h"

#include <math.h>
#include <string.h>

/* ---- Text ---- */

static void class_text(const dp_file_stage *stage, char text[32]) {
    const char *name = dp_bit_class_name(stage->pair.reached);
    if (stage->fault != DP_FAULT_NONE)
        snprintf(text, 32, "not compared");
    else if (stage->pair.reached == DP_BITS_ULP)
        snprintf(text, 32, "ulp <= %u%s", stage->pair.ulp, stage->rounded ? "*" : "");
    else
        snprintf(text, 32, "%s%s", name, stage->rounded && stage->pair.reached < DP_BITS_ULP ? "*" : "");
}

void dp_file_stage_text(FILE *to, const dp_file_stage *stage) {
    char where[DP_DIMS_TEXT], worst[DP_DIMS_TEXT];
    const dp_pair_stage *p = &stage->pair;
    if (stage->fault != DP_FAULT_NONE) {
        fprintf(to, "      %s (%s)\n", dp_stage_fault_text(stage->fault),
                dp_dims_text(stage->spec.rank, stage->spec.dim, where));
        return;
    }
    if (p->first < 0) {
        if (p->nonfinite > 0)
            fprintf(to, "      the same bits, but %lld values are not finite\n", (long long)p->nonfinite);
        return;
    }
    dp_coordinates_text(p->rank, p->dim, p->first, where);
    if (stage->spec.exact) {
        fprintf(to, "      first at %s: A %d, B %d; %lld of %lld differ\n", where, (int32_t)p->bits[0],
                (int32_t)p->bits[1], (long long)p->differing, (long long)p->compared);
        return;
    }
    fprintf(to, "      first at %s: A %.9g (0x%08x), B %.9g (0x%08x); %lld of %lld differ, %lld not finite\n", where,
            (double)df_bits_to_f32(p->bits[0]), p->bits[0], (double)df_bits_to_f32(p->bits[1]), p->bits[1],
            (long long)p->differing, (long long)p->compared, (long long)p->nonfinite);
    if (!stage->measured) return;
    const dp_difference *d = &stage->difference;
    fprintf(to, "      worst at %s: A %.17g, B %.9g; %lld signs flipped, ULP p50 %.3g p99 %.3g max %.3g\n",
            dp_coordinates_text(p->rank, p->dim, d->worst, worst), d->worst_want, d->worst_got,
            (long long)d->sign_flips, d->ulp_median, d->ulp_p99, d->ulp_max);
    if (stage->sketch.judged && !stage->sketch.pass) {
        char text[DP_SKETCH_TEXT];
        fprintf(to, "      %s\n", dp_sketch_text(&stage->sketch, text));
    }
    if (stage->barred)
        fprintf(to, "      limit: %s = L2 %.2e, max %.2e; the distance is %.3g and %.3g times that\n",
                stage->limit.origin, stage->limit.l2_rel, stage->limit.max_rel, d->l2_rel / stage->limit.l2_rel,
                d->max_rel / stage->limit.max_rel);
}

static void print_stage(FILE *to, const dp_file_stage *stage) {
    char reached[32];
    class_text(stage, reached);
    fprintf(to, "%-4s  %-26s %-16s %7lld/%-8lld", stage->pass ? "ok" : "FAIL", stage->spec.name, reached,
            (long long)stage->pair.differing, (long long)stage->pair.compared);
    if (stage->measured)
        fprintf(to, " %9.2e %9.2e", stage->difference.l2_rel, stage->difference.max_rel);
    else
        fprintf(to, " %9s %9s", "-", "-");
    if (!stage->barred)
        fprintf(to, "\n");
    else if (isfinite(stage->headroom))
        fprintf(to, " %7.0f %%%s\n", 100.0 * stage->headroom,
                stage->headroom >= 0 && stage->headroom < DP_WARN_HEADROOM ? "  warn" : "");
    else
        fprintf(to, " %9s\n", "none");
    if (!stage->pass) dp_file_stage_text(to, stage);
}

static void print_head(FILE *to, const dp_file_comparison *c) {
    char text[DP_FILE_TEXT], expected[32];
    for (int i = 0; i < 2; i++)
        fprintf(to, "%c  %s (%s)\n", "AB"[i], i == 0 ? c->options->files.a : c->options->files.b,
                dp_file_describe(c->files.file[i], text));
    fprintf(to, "expected: %s", dp_expectation_text(c, expected));
    if (c->files.limits != NULL) fprintf(to, ", limits of %s", dp_oracle_path(c->files.limits));
    fprintf(to, "\n");
    if (c->options->files.across_precisions)
        fprintf(to, "across precisions: %s against %s; %d tensors of other bytes let pass\n", c->files.precision[0],
                c->files.precision[1], c->files.other_tensors);
}

static void print_verdict(FILE *to, const dp_file_comparison *c) {
    const dp_file_stage *first = dp_first_divergent_file_stage(c);
    if (c->verdict == DP_REFUSED || c->verdict == DP_ERROR) {
        fprintf(to, "%s: %s: %s\n", dp_verdict_name(c->verdict), c->error.code, c->error.message);
        return;
    }
    if (c->verdict == DP_NOTHING) {
        fprintf(to, "NOTHING COMPARED: the filter '%s' matches no stage; see --list for their names.\n",
                c->options->filter != NULL ? c->options->filter : "");
        return;
    }
    fprintf(to, "%s: %d of %d stages compared, %d do not pass", dp_verdict_name(c->verdict), c->count - c->extra,
            c->files.stages.count, c->failed);
    if (first != NULL) fprintf(to, "; first at %s", first->spec.name);
    if (c->warnings > 0) fprintf(to, "; %d warnings: headroom under %.0f %%", c->warnings, 100.0 * DP_WARN_HEADROOM);
    if (c->options->filter != NULL) fprintf(to, "; filtered by '%s', not the whole comparison", c->options->filter);
    fprintf(to, "\n");
}

void dp_comparison_text(FILE *to, const dp_file_comparison *c) {
    bool rounded = false;
    if (c->count > 0) {
        print_head(to, c);
        fprintf(to, "%-4s  %-26s %-16s %16s %9s %9s%s\n", "", "stage", "class", "differing/all", "rel L2", "max/rms",
                c->files.limits != NULL ? "  headroom" : "");
    }
    for (int i = 0; i < c->count; i++) {
        print_stage(to, &c->stage[i]);
        rounded = rounded || c->stage[i].rounded;
    }
    if (rounded) fprintf(to, "(* of the values rounded to float32)\n");
    print_verdict(to, c);
}

/* ---- JSON ---- */

static void add_first(cJSON *object, const dp_file_stage *stage) {
    const dp_pair_stage *p = &stage->pair;
    cJSON *first = cJSON_AddObjectToObject(object, "first_difference");
    cJSON_AddNumberToObject(first, "index", (double)p->first);
    dp_json_coordinates(first, "at", p->rank, p->dim, p->first);
    if (stage->spec.exact) {
        cJSON_AddNumberToObject(first, "a", (int32_t)p->bits[0]);
        cJSON_AddNumberToObject(first, "b", (int32_t)p->bits[1]);
        return;
    }
    dp_json_bits(first, "a", p->bits[0]);
    dp_json_bits(first, "b", p->bits[1]);
}

static void add_measures(cJSON *object, const dp_file_stage *stage) {
    const dp_difference *d = &stage->difference;
    dp_json_add_number(object, "rel_l2", d->l2_rel);
    dp_json_add_number(object, "max_rel_rms", d->max_rel);
    dp_json_add_number(object, "max_abs", d->max_abs);
    dp_json_add_number(object, "cosine", d->cosine);
    dp_json_add_number(object, "ulp_median", d->ulp_median);
    dp_json_add_number(object, "ulp_p99", d->ulp_p99);
    dp_json_add_number(object, "ulp_max", d->ulp_max);
    cJSON_AddNumberToObject(object, "sign_flips", (double)d->sign_flips);
    cJSON_AddNumberToObject(object, "worst_index", (double)d->worst);
    dp_json_add_number(object, "worst_a", d->worst_want);
    dp_json_add_number(object, "worst_b", d->worst_got);
}

cJSON *dp_file_stage_json(const dp_file_stage *stage) {
    const dp_pair_stage *p = &stage->pair;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", stage->spec.name);
    dp_json_dims(object, "shape", stage->spec.rank, stage->spec.dim);
    cJSON_AddBoolToObject(object, "pass", stage->pass);
    if (stage->fault != DP_FAULT_NONE) {
        cJSON_AddStringToObject(object, "fault", dp_stage_fault_text(stage->fault));
        return object;
    }
    cJSON_AddStringToObject(object, "class", dp_bit_class_name(p->reached));
    cJSON_AddBoolToObject(object, "rounded", stage->rounded);
    cJSON_AddBoolToObject(object, "exact", stage->spec.exact);
    cJSON_AddNumberToObject(object, "compared", (double)p->compared);
    cJSON_AddNumberToObject(object, "differing", (double)p->differing);
    cJSON_AddNumberToObject(object, "nonfinite", (double)p->nonfinite);
    cJSON_AddNumberToObject(object, "ulp", p->ulp);
    if (p->first >= 0) add_first(object, stage);
    if (stage->measured) add_measures(object, stage);
    if (stage->barred) {
        dp_json_add_number(object, "bar_rel_l2", stage->limit.l2_rel);
        dp_json_add_number(object, "bar_max_rel_rms", stage->limit.max_rel);
        cJSON_AddStringToObject(object, "bar_origin", stage->limit.origin);
        dp_json_add_number(object, "headroom", stage->headroom);
    }
    return object;
}

static void add_file(cJSON *object, const char *key, const char *path, const dp_oracle *file) {
    cJSON *item = cJSON_AddObjectToObject(object, key);
    cJSON_AddStringToObject(item, "path", path);
    if (file == NULL) return;
    cJSON_AddStringToObject(item, "kind", dp_kind_name(dp_oracle_kind(file)));
    cJSON_AddStringToObject(item, "precision", dp_file_precision(file));
    const cJSON *engine = cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(file), "engine");
    if (engine != NULL) cJSON_AddItemToObject(item, "engine", cJSON_Duplicate(engine, true));
}

cJSON *dp_comparison_json(const dp_file_comparison *c, const char *command) {
    char expected[32];
    const dp_file_stage *first = dp_first_divergent_file_stage(c);
    cJSON *object = cJSON_CreateObject();
    if (object == NULL) return NULL;
    cJSON_AddStringToObject(object, "schema", "dflash-parity-compare");
    cJSON_AddNumberToObject(object, "schema_version", DP_RESULT_VERSION);
    cJSON_AddStringToObject(object, "verdict", dp_verdict_name(c->verdict));
    cJSON_AddNumberToObject(object, "exit_code", dp_verdict_exit_code(c->verdict));
    if (c->verdict == DP_REFUSED || c->verdict == DP_ERROR) {
        cJSON *error = cJSON_AddObjectToObject(object, "error");
        cJSON_AddStringToObject(error, "code", c->error.code);
        cJSON_AddStringToObject(error, "message", c->error.message);
    }
    cJSON_AddStringToObject(object, "command", command);
    add_file(object, "a", c->options->files.a, c->files.file[0]);
    add_file(object, "b", c->options->files.b, c->files.file[1]);
    cJSON_AddStringToObject(object, "expected", dp_expectation_text(c, expected));
    if (c->files.limits != NULL) cJSON_AddStringToObject(object, "bars", dp_oracle_path(c->files.limits));
    cJSON_AddBoolToObject(object, "across_precisions", c->options->files.across_precisions);
    if (c->options->files.across_precisions) cJSON_AddNumberToObject(object, "other_tensors", c->files.other_tensors);
    if (c->options->filter != NULL) cJSON_AddStringToObject(object, "filter", c->options->filter);
    cJSON_AddNumberToObject(object, "stages_known", c->files.stages.count);
    cJSON_AddNumberToObject(object, "stages_compared", c->count - c->extra);
    cJSON_AddNumberToObject(object, "stages_failed", c->failed);
    cJSON_AddNumberToObject(object, "warnings", c->warnings);
    if (first != NULL) cJSON_AddStringToObject(object, "first_divergent", first->spec.name);
    cJSON *stages = cJSON_AddArrayToObject(object, "stages");
    for (int i = 0; i < c->count; i++) cJSON_AddItemToArray(stages, dp_file_stage_json(&c->stage[i]));
    cJSON_AddItemToObject(object, "environment", dp_environment());
    return object;
}
