/* compare_files.c - see compare_files.h. */
#include "bisect/compare_files.h"

#include "base/cli.h"
#include "common/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool dp_expectation_parse(const char *word, dp_compare_options *options) {
    long ulp = 0;
    options->expect = strcmp(word, "identical") == 0  ? DP_EXPECT_IDENTICAL
                      : strcmp(word, "equal") == 0    ? DP_EXPECT_EQUAL
                      : strcmp(word, "envelope") == 0 ? DP_EXPECT_ENVELOPE
                      : strncmp(word, "ulp:", 4) == 0 ? DP_EXPECT_ULP
                                                      : DP_EXPECT_DEFAULT;
    if (options->expect == DP_EXPECT_ULP && !dp_parse_int(word + 4, 1, INT32_MAX, &ulp)) return false;
    options->ulp = (uint32_t)ulp;
    return options->expect != DP_EXPECT_DEFAULT;
}

const char *dp_expectation_text(const dp_file_comparison *comparison, char text[32]) {
    switch (comparison->expect) {
    case DP_EXPECT_ULP:
        snprintf(text, 32, "ulp <= %u", comparison->options->ulp);
        return text;
    case DP_EXPECT_EQUAL:
        return "equal";
    case DP_EXPECT_ENVELOPE:
        return "inside envelope";
    case DP_EXPECT_DEFAULT:
    case DP_EXPECT_IDENTICAL:
        break;
    }
    return "identical";
}

/* ---- One stage ---- */

/* The limit of a stage that the geometry demands, which all that have values are. */
static dp_limit limit_of(const dp_file_pair *files, const dp_stage_spec *spec) {
    const dp_stage_spec *known = dp_stage_set_find(&files->stages, spec->name);
    return dp_limit_chained(known, &files->reference_spread[known - files->stages.spec], 1.0);
}

static bool all_finite(const float *value, int64_t count) { return dp_first_nonfinite(value, count) < 0; }

/* Samples do not tell how large their rows are; the oracle that holds them does. */
static dflash_status row_sizes(const dp_file_pair *files, const dp_stage_spec *spec, dp_array *want,
                               dflash_error *err) {
    for (int side = 0; side < 2 && want->rms == NULL; side++) {
        dp_array samples = {.value = NULL};
        if (!dp_oracle_stage_info(files->file[side], DP_RUN_F64, spec->name)->sampled) continue;
        TRY(dp_oracle_stage(files->file[side], DP_RUN_F64, spec->name, &samples, err));
        want->rms = samples.rms;
        samples.rms = NULL;
        dp_array_release(&samples);
    }
    return DFLASH_OK;
}

static dflash_status measure(const dp_file_pair *files, const dp_stage_sides *sides, dp_file_stage *out,
                             dflash_error *err) {
    const dp_stage_spec *spec = &sides->spec;
    dp_array want = {.rank = spec->rank,
                     .stride = sides->stride,
                     .offset = sides->offset,
                     .count = sides->count,
                     .value = sides->wide[0]};
    memcpy(want.dim, spec->dim, sizeof want.dim);
    out->measured = all_finite(sides->narrow[0], sides->count);
    if (!out->measured) return DFLASH_OK;
    TRY(row_sizes(files, spec, &want, err));
    const dflash_status status =
        dp_compare(sides->wide[1], &want, dp_row_length(spec->stage, spec->rank, spec->dim), &out->difference, err);
    free(want.rms);
    return status;
}

/* Both files hold float64: what looks identical in float32 may differ below it. */
static bool same_wide(const dp_stage_sides *sides) {
    return memcmp(sides->wide[0], sides->wide[1], (size_t)sides->count * sizeof(double)) == 0;
}

static dflash_status classify(const dp_file_pair *files, const dp_stage_sides *sides, dp_file_stage *out,
                              dflash_error *err) {
    const dp_stage_spec *spec = &sides->spec;
    dp_pair pair = {.stage = NULL};
    const int64_t dim = sides->count;
    const dflash_status status =
        spec->exact
            ? dp_pair_integers(spec->stage, spec->layer, 1, &dim, sides->integer[0], sides->integer[1], &pair, err)
            : dp_pair_floats(spec->stage, spec->layer, 1, &dim, sides->narrow[0], sides->narrow[1], NULL, &pair, err);
    if (status == DFLASH_OK) out->pair = pair.stage[0];
    dp_pair_release(&pair);
    if (status != DFLASH_OK) return status;
    out->pair.rank = spec->rank;
    memcpy(out->pair.dim, spec->dim, sizeof out->pair.dim);
    if (out->pair.first >= 0) out->pair.first = sides->offset + out->pair.first * sides->stride;
    out->rounded = sides->rounded;
    const dp_dataset_info *a = dp_oracle_stage_info(files->file[0], DP_RUN_F64, spec->name),
                          *b = dp_oracle_stage_info(files->file[1], DP_RUN_F64, spec->name);
    if (out->pair.reached <= DP_BITS_EQUAL && a->dtype == DP_LOGICAL_F64 && b->dtype == DP_LOGICAL_F64 &&
        !same_wide(sides))
        out->pair.reached = DP_BITS_ULP; /* less than one float32 unit apart */
    return DFLASH_OK;
}

static bool reaches(const dp_file_comparison *c, const dp_file_stage *stage) {
    if (stage->pair.compared == 0 || stage->pair.nonfinite > 0) return false;
    if (stage->spec.exact) return stage->pair.reached == DP_BITS_IDENTICAL;
    switch (c->expect) {
    case DP_EXPECT_EQUAL:
        return stage->pair.reached <= DP_BITS_EQUAL;
    case DP_EXPECT_ULP:
        return stage->pair.ulp <= c->options->ulp;
    case DP_EXPECT_ENVELOPE:
        return stage->barred && dp_headroom_passes(stage->headroom);
    case DP_EXPECT_DEFAULT:
    case DP_EXPECT_IDENTICAL:
        break;
    }
    return stage->pair.reached == DP_BITS_IDENTICAL;
}

/* Where one file is an oracle that holds samples, the other's whole stage is held against its sketch too. */
static dflash_status judge_sketch(const dp_file_pair *files, const dp_stage_spec *spec, dp_sketch_result *out,
                                  dflash_error *err) {
    const dp_difference *reference_spread =
        &files->sketch[dp_stage_set_find(&files->stages, spec->name) - files->stages.spec];
    for (int side = 0; side < 2; side++) {
        const dp_oracle *oracle = files->file[side], *run = files->file[1 - side];
        if (oracle != files->limits || !dp_oracle_stage_info(oracle, DP_RUN_F64, spec->name)->sampled ||
            dp_oracle_stage_info(run, DP_RUN_F64, spec->name)->sampled)
            continue;
        dp_array whole = {.value = NULL};
        TRY(dp_oracle_stage(run, DP_RUN_F64, spec->name, &whole, err));
        float *value = malloc((size_t)whole.count * sizeof *value);
        for (int64_t i = 0; value != NULL && i < whole.count; i++) value[i] = (float)whole.value[i];
        const dflash_status status = value != NULL
                                         ? dp_sketch_judge(oracle, spec, value, reference_spread, 1.0, out, err)
                                         : df_fail_memory(err, spec->name, (size_t)whole.count * sizeof *value);
        free(value);
        dp_array_release(&whole);
        return status;
    }
    return DFLASH_OK;
}

static dflash_status compare_values(const dp_file_comparison *c, const dp_stage_sides *sides, dp_file_stage *out,
                                    dflash_error *err) {
    TRY(classify(&c->files, sides, out, err));
    if (!sides->spec.exact) TRY(measure(&c->files, sides, out, err));
    if (c->files.limits != NULL && out->measured) {
        out->limit = limit_of(&c->files, &sides->spec);
        out->barred = true;
        TRY(judge_sketch(&c->files, &sides->spec, &out->sketch, err));
        if (out->sketch.judged) out->difference.l2_rel = out->sketch.l2_rel;
        out->headroom = dp_headroom(&out->limit, &out->difference);
        if (out->sketch.judged) out->headroom = fmin(out->headroom, out->sketch.headroom);
        if (out->pair.reached == DP_BITS_DIVERGENT && out->pair.nonfinite == 0 && dp_headroom_passes(out->headroom))
            out->pair.reached = DP_BITS_ENVELOPE;
    }
    if (c->expect == DP_EXPECT_ULP && out->pair.reached > DP_BITS_ULP && out->pair.nonfinite == 0 &&
        !sides->spec.exact && out->pair.ulp <= c->options->ulp)
        out->pair.reached = DP_BITS_ULP;
    out->pass = reaches(c, out);
    return DFLASH_OK;
}

static dflash_status compare_stage(const dp_file_comparison *c, const dp_stage_spec *spec, dp_file_stage *out,
                                   dflash_error *err) {
    dp_stage_sides sides;
    dflash_status status = dp_stage_sides_read(&c->files, spec, &sides, err);
    *out = (dp_file_stage){.spec = *spec, .fault = sides.fault, .pair = {.first = -1, .reached = DP_BITS_DIVERGENT}};
    if (status == DFLASH_OK && sides.fault == DP_FAULT_NONE) status = compare_values(c, &sides, out, err);
    dp_stage_sides_release(&sides);
    return status;
}

/* ---- The list ---- */

static bool selected(const dp_file_comparison *c, const char *name) {
    return c->options->filter == NULL || dp_glob(c->options->filter, name);
}

static void account(dp_file_comparison *c) {
    const dp_file_stage *stage = &c->stage[c->count++];
    if (!stage->pass) c->failed++;
    if (stage->pass && c->expect == DP_EXPECT_ENVELOPE && stage->barred && stage->headroom < DP_WARN_HEADROOM)
        c->warnings++;
}

/* Stages that a file holds and the geometry does not have. */
static void add_extra(dp_file_comparison *c) {
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < dp_oracle_stage_count(c->files.file[side]); i++) {
            const char *name = dp_oracle_stage_name(c->files.file[side], i);
            if (dp_stage_set_find(&c->files.stages, name) != NULL || !selected(c, name)) continue;
            dp_file_stage *stage = &c->stage[c->count];
            *stage = (dp_file_stage){.fault = side == 0 ? DP_FAULT_EXTRA_A : DP_FAULT_EXTRA_B,
                                     .pair = {.first = -1, .reached = DP_BITS_DIVERGENT}};
            snprintf(stage->spec.name, sizeof stage->spec.name, "%s", name);
            dflash_stage_parse(name, &stage->spec.stage, &stage->spec.layer);
            c->extra++;
            account(c);
        }
}

static dflash_status compare_all(dp_file_comparison *c, dflash_error *err) {
    const dp_stage_set *set = &c->files.stages;
    const size_t capacity = (size_t)set->count + (size_t)dp_oracle_stage_count(c->files.file[0]) +
                            (size_t)dp_oracle_stage_count(c->files.file[1]);
    c->stage = calloc(capacity, sizeof *c->stage);
    if (c->stage == NULL) return df_fail_memory(err, "the results", capacity * sizeof *c->stage);
    for (int i = 0; i < set->count; i++) {
        if (!selected(c, set->spec[i].name)) continue;
        TRY(compare_stage(c, &set->spec[i], &c->stage[c->count], err));
        account(c);
    }
    add_extra(c);
    return DFLASH_OK;
}

static dflash_status run(dp_file_comparison *c, dflash_error *err) {
    TRY(dp_file_pair_open(&c->options->files, &c->files, err));
    c->expect = c->options->expect;
    if (c->expect == DP_EXPECT_DEFAULT) c->expect = c->files.limits != NULL ? DP_EXPECT_ENVELOPE : DP_EXPECT_IDENTICAL;
    if (c->expect == DP_EXPECT_ENVELOPE && c->files.limits == NULL)
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "compare.expect",
            "Neither %s nor %s is an oracle, so there is no envelope to be inside of. Give --oracle FILE, or "
            "expect identical, equal or ulp:N.",
            c->options->files.a, c->options->files.b);
    return compare_all(c, err);
}

void dp_compare_files(const dp_compare_options *options, dp_file_comparison *out) {
    *out = (dp_file_comparison){.options = options};
    const dflash_status status = run(out, &out->error);
    out->verdict = status == DFLASH_ERR_REFUSED || status == DFLASH_ERR_ARGUMENT ? DP_REFUSED
                   : status != DFLASH_OK                                         ? DP_ERROR
                   : out->count == 0                                             ? DP_NOTHING
                   : out->failed > 0                                             ? DP_FAIL
                                                                                 : DP_PASS;
}

void dp_file_comparison_release(dp_file_comparison *comparison) {
    dp_file_pair_release(&comparison->files);
    free(comparison->stage);
    *comparison = (dp_file_comparison){.options = NULL};
}

const dp_file_stage *dp_first_divergent_file_stage(const dp_file_comparison *comparison) {
    for (int i = 0; i < comparison->count; i++)
        if (!comparison->stage[i].pass) return &comparison->stage[i];
    return NULL;
}
