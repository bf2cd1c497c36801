/* vectors.c - see vectors.h. Here: the file from part to part, one group's drafter and memory, and the verdict. */
#include "vectors/vectors_parts.h"

#include "base/clock.h"
#include "engine/engine.h"
#include "common/error.h"
#include "base/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    dflash_status (*judge)(dp_vectors_run *run);
} parts[] = {{"confidence", dp_vectors_confidence}, {"conv", dp_vectors_conv},
             {"logits", dp_vectors_logits},         {"markov", dp_vectors_markov},
             {"proposal", dp_vectors_proposal},     {"selector", dp_vectors_selector},
             {"verify", dp_vectors_verify},         {"yarn", dp_vectors_yarn}};
enum { PARTS = sizeof parts / sizeof *parts };

/* ---- Memory of a group ---- */

/* The group frees it at its end; at once when it cannot be noted. */
static dflash_status own(dp_vectors_run *run, void *memory) {
    if (run->owned_count == run->owned_capacity) {
        const int capacity = 2 * run->owned_capacity + 32;
        void **grown = realloc(run->owned, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            free(memory);
            return df_fail_memory(run->err, "a group of vectors", (size_t)capacity * sizeof *grown);
        }
        run->owned = grown;
        run->owned_capacity = capacity;
    }
    run->owned[run->owned_count++] = memory;
    return DFLASH_OK;
}

void *dp_vector_take(dp_vectors_run *run, int64_t count, size_t size) {
    void *memory = calloc((size_t)count + 1, size);
    if (memory == NULL) {
        df_fail_memory(run->err, "a group of vectors", (size_t)count * size);
        return NULL;
    }
    return own(run, memory) == DFLASH_OK ? memory : NULL;
}

dflash_status dp_vector_read_doubles(dp_vectors_run *run, const char *name, const int64_t dim[4], double **out) {
    TRY(dp_vector_doubles(run->group, name, dim, out, run->err));
    return own(run, *out);
}

dflash_status dp_vector_read_floats(dp_vectors_run *run, const char *name, const int64_t dim[4], float **out) {
    TRY(dp_vector_floats(run->group, name, dim, out, run->err));
    return own(run, *out);
}

dflash_status dp_vector_read_ints(dp_vectors_run *run, const char *name, const int64_t dim[4], int32_t **out) {
    TRY(dp_vector_ints(run->group, name, dim, out, run->err));
    return own(run, *out);
}

/* ---- The drafter of a group ---- */

static void unload(dp_vectors_run *run) {
    if (run->host_copy != run->draft) dflash_draft_destroy(run->host_copy);
    dflash_draft_destroy(run->draft);
    run->draft = run->host_copy = NULL;
    run->checkpoint[0] = '\0';
}

/* The tensors that took part are those of the reference. */
static dflash_status check_tensors(const dp_vectors_run *run) {
    const cJSON *wanted;
    cJSON_ArrayForEach(wanted, cJSON_GetObjectItemCaseSensitive(run->group->params, "tensors")) {
        const char *digest = cJSON_GetStringValue(wanted);
        char found[65] = "no such tensor";
        for (int i = 0; i < dflash_draft_tensor_count(run->draft); i++) {
            const dflash_tensor_view view = dflash_draft_tensor(run->draft, i);
            if (strcmp(view.name, wanted->string) == 0) dp_sha256_of(view.data, view.bytes, found);
        }
        if (digest == NULL || strcmp(digest, found) != 0)
            return df_fail(run->err, DFLASH_ERR_REFUSED, "vectors.tensor",
                           "%s was computed with the tensor %s of SHA-256 %s; %s has %s. Write the vectors again, or "
                           "give them the checkpoint that they were made from.",
                           run->group->path, wanted->string, digest != NULL ? digest : "(no string)", run->checkpoint,
                           found);
    }
    return DFLASH_OK;
}

static dflash_status load(dp_vectors_run *run) {
    const cJSON *named = cJSON_GetObjectItemCaseSensitive(run->group->params, "checkpoint");
    const char *entry, *root = run->options->root != NULL ? run->options->root : "";
    char path[sizeof run->checkpoint];
    if (named == NULL) return DFLASH_OK;
    TRY(dp_vector_text(run->group, "checkpoint", &entry, run->err));
    if (snprintf(path, sizeof path, "%s%s", root, entry) >= (int)sizeof path)
        return df_fail(run->err, DFLASH_ERR_REFUSED, "path.long",
                       "%s: the checkpoint's path %s%s is longer than %zu characters. Choose a shorter one.",
                       run->group->path, root, entry, sizeof path - 1);
    if (run->draft == NULL || strcmp(path, run->checkpoint) != 0) {
        unload(run);
        snprintf(run->checkpoint, sizeof run->checkpoint, "%s", path);
        TRY(dflash_draft_load(run->engine, path, &run->draft, run->err));
        run->host_copy = run->draft;
        if (run->host_engine != NULL) {
            run->host_copy = NULL;
            TRY(dflash_draft_load(run->host_engine, path, &run->host_copy, run->err));
        }
    }
    return check_tensors(run);
}

/* ---- The file ---- */

static dflash_status judge_group(dp_vectors_run *run, const dp_vectors_file *file, int part, const char *name) {
    dp_vector_group group;
    run->group = &group;
    dflash_status status = dp_vector_open(file, parts[part].name, name, &group, run->err);
    if (status == DFLASH_OK) status = load(run);
    if (status == DFLASH_OK) status = parts[part].judge(run);
    const char *left = status == DFLASH_OK ? dp_vector_untaken(&group) : NULL;
    if (left != NULL)
        status = df_fail(run->err, DFLASH_ERR_REFUSED, "vectors.untaken",
                         "%s/%s is a dataset that nothing judges. Remove it from the file, or write the file with the "
                         "oracles/vectors.py of this version.",
                         group.path, left);
    for (int i = 0; i < run->owned_count; i++) free(run->owned[i]);
    run->owned_count = 0;
    dp_vector_close(&group);
    run->group = NULL;
    return status;
}

static dflash_status judge_part(dp_vectors_run *run, const dp_vectors_file *file, const char *name) {
    dp_h5_names groups;
    int part = 0;
    if (strcmp(name, "provenance") == 0) return DFLASH_OK;
    while (part < PARTS && strcmp(parts[part].name, name) != 0) part++;
    if (part == PARTS)
        return df_fail(
            run->err, DFLASH_ERR_REFUSED, "vectors.part",
            "%s holds the part \"%.60s\", which nothing here judges. Use the version of dflash-parity that it "
            "was written for.",
            file->path, name);
    dflash_status status = dp_vectors_groups(file, name, &groups, run->err);
    for (int i = 0; status == DFLASH_OK && i < groups.count; i++) status = judge_group(run, file, part, groups.name[i]);
    dp_h5_names_release(&groups);
    return status;
}

static dflash_status judge_file(dp_vectors_run *run) {
    dp_vectors_file file;
    dflash_status status = dp_vectors_open(run->options->oracle, &file, run->err);
    for (int i = 0; status == DFLASH_OK && i < file.parts.count; i++) {
        dp_progress_share(&run->options->progress, (double)i / file.parts.count, file.parts.name[i]);
        status = judge_part(run, &file, file.parts.name[i]);
    }
    dp_vectors_close(&file);
    return status;
}

static dflash_status start_engines(dp_vectors_run *run) {
    const dp_check_options *o = run->options;
    const dflash_engine_options engine = {.backend = o->backend,
                                          .numeric_class = o->numeric_class,
                                          .products = o->products,
                                          .threads = o->threads,
                                          .isa = o->isa,
                                          .poison_scratch = true};
    const dflash_engine_options cpu = {.threads = o->threads};
    TRY(dflash_engine_create(&engine, &run->engine, run->err));
    run->out->threads = dflash_engine_threads(run->engine);
    run->out->isa = dflash_engine_isa(run->engine);
    dflash_engine_describe(run->engine, &run->out->device);
    return dflash_engine_on_host(run->engine) ? DFLASH_OK : dflash_engine_create(&cpu, &run->host_engine, run->err);
}

void dp_vectors_check(const dp_check_options *options, dp_result *out) {
    const double start = dp_seconds();
    *out = (dp_result){.options = options,
                       .isa = "",
                       .device = {.backend = dflash_backend_name(options->backend),
                                  .numeric_class = dflash_class_name(options->numeric_class),
                                  .products = dflash_products_name(options->products)}};
    dp_vectors_run run = {.options = options,
                          .out = out,
                          .err = &out->error,
                          .model = dp_class_model_of(options->backend, options->numeric_class, options->products),
                          .reference = dp_class_model_reference()};
    dflash_status status = start_engines(&run);
    if (status == DFLASH_OK) status = judge_file(&run);
    unload(&run);
    dflash_engine_destroy(run.host_engine);
    dflash_engine_destroy(run.engine);
    free(run.owned);
    out->stages_known = out->stage_count;
    out->verdict = dp_verdict_of(status, out);
    out->total_seconds = dp_seconds() - start;
}
