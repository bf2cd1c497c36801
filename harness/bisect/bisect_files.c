/* bisect_files.c - see bisect_files.h. */
#include "bisect/bisect_files.h"

#include "bisect/compare_report.h"
#include "base/coordinates.h"
#include "common/error.h"
#include "preflight/geometry.h"

#include <stdlib.h>
#include <string.h>

/* The weights, when they are those that the file's run had; NULL otherwise, which leaves products unexamined. */
static dflash_status load_weights(const char *checkpoint, const dp_oracle *file, dflash_engine **engine,
                                  dflash_draft **draft, dflash_error *err) {
    dflash_error why;
    *draft = NULL;
    TRY(dflash_engine_create(&(dflash_engine_options){.threads = 0}, engine, err));
    dflash_status status = dflash_draft_load(*engine, checkpoint, draft, &why);
    if (status == DFLASH_OK)
        status = dp_provenance_check(*draft, dp_oracle_provenance(file), dp_oracle_path(file),
                                     dflash_engine_threads(*engine), &why);
    if (status == DFLASH_OK) return DFLASH_OK;
    dflash_draft_destroy(*draft);
    *draft = NULL;
    if (status == DFLASH_ERR_REFUSED) return DFLASH_OK;
    if (err != NULL) *err = why;
    return status;
}

static dflash_status find_cause(const dp_bisection *b, const char *checkpoint, const dp_stage_sides *sides,
                                const bool *off, dp_cause *out, dflash_error *err) {
    const dp_file_pair *files = &b->comparison.files;
    dflash_engine *engine = NULL;
    dflash_draft *draft = NULL;
    dflash_status status = DFLASH_OK;
    if (checkpoint != NULL) status = load_weights(checkpoint, files->file[1], &engine, &draft, err);
    const dp_cause_source source = {
        .run = files->file[1], .config = &files->config, .context = files->context, .draft = draft};
    if (status == DFLASH_OK) status = dp_narrow_cause(&source, sides, off, out, err);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
    return status;
}

static dflash_status look_inside(dp_bisection *b, const char *checkpoint, dflash_error *err) {
    const dp_file_pair *files = &b->comparison.files;
    dp_stage_sides sides;
    bool *off = NULL;
    dflash_status status = dp_stage_sides_read(files, &b->first->spec, &sides, err);
    if (status == DFLASH_OK) status = dp_narrow_mask(&b->comparison, b->first, &sides, &off, err);
    if (status == DFLASH_OK) status = dp_narrow(&files->config, files->context, &sides, off, &b->narrowing, err);
    if (status == DFLASH_OK && b->narrowing.differing > 0) {
        status = find_cause(b, checkpoint, &sides, off, &b->cause, err);
        b->narrowed = status == DFLASH_OK;
    }
    free(off);
    dp_stage_sides_release(&sides);
    return status;
}

void dp_bisect_files(const dp_compare_options *options, const char *stage, const char *checkpoint, dp_bisection *out) {
    *out = (dp_bisection){.first = NULL};
    dp_file_comparison *c = &out->comparison;
    dp_compare_files(options, c);
    if (c->verdict != DP_PASS && c->verdict != DP_FAIL) return;
    out->first = dp_first_divergent_file_stage(c);
    for (int i = 0; stage != NULL && i < c->count; i++)
        if (strcmp(c->stage[i].spec.name, stage) == 0) out->first = &c->stage[i];
    if (out->first == NULL || out->first->fault != DP_FAULT_NONE) return;
    const dflash_status status = look_inside(out, checkpoint, &c->error);
    if (status != DFLASH_OK) c->verdict = status == DFLASH_ERR_REFUSED ? DP_REFUSED : DP_ERROR;
}

void dp_bisection_release(dp_bisection *bisection) {
    dp_file_comparison_release(&bisection->comparison);
    bisection->first = NULL;
}

static int agreeing_before(const dp_bisection *b) {
    int agreeing = 0;
    for (const dp_file_stage *s = b->comparison.stage; s < b->first; s++) agreeing += s->pass;
    return agreeing;
}

void dp_bisection_text(FILE *to, const dp_bisection *b) {
    const dp_file_comparison *c = &b->comparison;
    char shape[DP_DIMS_TEXT], expected[32];
    if (c->verdict == DP_REFUSED || c->verdict == DP_ERROR) {
        fprintf(to, "%s: %s: %s\n", dp_verdict_name(c->verdict), c->error.code, c->error.message);
        return;
    }
    if (b->first == NULL) {
        if (c->verdict == DP_NOTHING)
            fprintf(to, "NOTHING COMPARED: the filter '%s' matches no stage.\n", c->options->filter);
        else
            fprintf(to, "no divergence: all %d stages compared are %s\n", c->count, dp_expectation_text(c, expected));
        return;
    }
    fprintf(to, "first divergent stage: %s %s, after %d stages that are %s\n", b->first->spec.name,
            dp_dims_text(b->first->spec.rank, b->first->spec.dim, shape), agreeing_before(b),
            dp_expectation_text(c, expected));
    dp_file_stage_text(to, b->first);
    if (b->first->pass) fprintf(to, "  it fails when it is run alone: dflash-parity check says by how much\n");
    if (!b->narrowed) return;
    dp_narrowing_text(to, &b->narrowing);
    fprintf(to, "  cause:     %s\n", b->cause.text);
}

void dp_bisection_json(cJSON *object, const dp_bisection *b) {
    if (b->first == NULL) return;
    cJSON_AddItemToObject(object, "first_divergent", dp_file_stage_json(b->first));
    if (!b->narrowed) return;
    cJSON_AddItemToObject(object, "narrowing", dp_narrowing_json(&b->narrowing));
    cJSON *cause = cJSON_AddObjectToObject(object, "cause");
    cJSON_AddStringToObject(cause, "text", b->cause.text);
    cJSON_AddNumberToObject(cause, "index", (double)b->cause.index);
    cJSON_AddNumberToObject(cause, "examined", b->cause.examined);
    cJSON_AddBoolToObject(cause, "bitwise", b->cause.bitwise);
}
