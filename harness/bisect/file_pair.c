/* file_pair.c - see file_pair.h. */
#include "bisect/file_pair.h"

#include "common/error.h"
#include "preflight/geometry.h"
#include "preflight/ids.h"
#include "store/store_dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two of the files, for messages. */
typedef struct two {
    const dp_oracle *a, *b;
} two;

static const cJSON *provenance(const dp_oracle *file, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(file), key);
}

const char *dp_file_precision(const dp_oracle *file) {
    const char *name = cJSON_GetStringValue(provenance(file, "precision"));
    return name != NULL ? name : dflash_precision_name(DFLASH_PRECISION_STORED);
}

const char *dp_file_describe(const dp_oracle *file, char text[DP_FILE_TEXT]) {
    if (dp_oracle_kind(file) == DP_KIND_ORACLE) {
        snprintf(text, DP_FILE_TEXT, "oracle, %s run, precision %s", dp_run_name(DP_RUN_F64), dp_file_precision(file));
        return text;
    }
    size_t at = (size_t)snprintf(text, DP_FILE_TEXT, "recording, precision %.16s, engine", dp_file_precision(file));
    static const char *const keys[] = {"name", "backend", "class", "isa", "commit"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *fact = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(provenance(file, "engine"), keys[i]));
        if (fact != NULL && at < DP_FILE_TEXT) at += (size_t)snprintf(text + at, DP_FILE_TEXT - at, " %.24s", fact);
    }
    return text;
}

/* ---- Inputs ---- */

static dflash_status check_input_shape(const dp_file_pair *pair, const char *name, const dp_dataset_info *info,
                                       dflash_error *err) {
    const dflash_config *c = &pair->config;
    char found[DP_DIMS_TEXT], expected[DP_DIMS_TEXT];
    const int64_t rows = (int64_t)pair->context + c->block;
    const struct {
        const char *name;
        int rank;
        int64_t dim[2];
    } form[] = {{"target_hidden", 2, {pair->context, (int64_t)c->n_taps * c->hidden}},
                {"noise_embedding", 2, {c->block, c->hidden}},
                {"positions", 1, {rows}},
                {"anchor", 1, {1}},
                {"block_ids", 1, {c->block}}};
    for (size_t i = 0; i < sizeof form / sizeof *form; i++)
        if (strcmp(name, form[i].name) == 0 && !dp_dims_equal(info->rank, info->dim, form[i].rank, form[i].dim))
            return df_fail(err, DFLASH_ERR_REFUSED, "compare.input.shape",
                           "Input %s of %s has shape %s, where its geometry demands %s. Write the file again.", name,
                           dp_oracle_path(pair->file[0]), dp_dims_text(info->rank, info->dim, found),
                           dp_dims_text(form[i].rank, form[i].dim, expected));
    return DFLASH_OK;
}

static dflash_status compare_values(two files, const char *name, dflash_error *err) {
    dp_array a = {.value = NULL}, b = {.value = NULL};
    char left[DP_DIMS_TEXT], right[DP_DIMS_TEXT];
    dflash_status status = dp_oracle_input(files.a, name, &a, err);
    if (status == DFLASH_OK) status = dp_oracle_input(files.b, name, &b, err);
    if (status == DFLASH_OK && !dp_dims_equal(a.rank, a.dim, b.rank, b.dim))
        status = df_fail(err, DFLASH_ERR_REFUSED, "compare.input.shape",
                         "Input %s has shape %s in %s and %s in %s: expected the same input. Record both runs on one "
                         "oracle's inputs.",
                         name, dp_dims_text(a.rank, a.dim, left), dp_oracle_path(files.a),
                         dp_dims_text(b.rank, b.dim, right), dp_oracle_path(files.b));
    for (int64_t i = 0; status == DFLASH_OK && i < a.count; i++)
        if (memcmp(&a.value[i], &b.value[i], sizeof *a.value) != 0)
            status =
                df_fail(err, DFLASH_ERR_REFUSED, "compare.input.differs",
                        "Input %s differs at element %lld: %.17g in %s, %.17g in %s. Runs on different inputs "
                        "cannot be held against each other; record both on one oracle's inputs.",
                        name, (long long)i, a.value[i], dp_oracle_path(files.a), b.value[i], dp_oracle_path(files.b));
    dp_array_release(&a);
    dp_array_release(&b);
    return status;
}

static dflash_status compare_inputs(two files, dflash_error *err) {
    for (int i = 0; i < DP_INPUT_COUNT; i++) {
        const char *name = dp_input_name(i);
        const bool in_a = dp_oracle_input_info(files.a, name) != NULL,
                   in_b = dp_oracle_input_info(files.b, name) != NULL;
        if (in_a != in_b)
            return df_fail(err, DFLASH_ERR_REFUSED, "compare.input.missing",
                           "Input %s is in %s and not in %s: one of the runs had an output head (anchor) or an "
                           "embedding table (block_ids) and the other did not. Record both with it, or both without.",
                           name, dp_oracle_path(in_a ? files.a : files.b), dp_oracle_path(in_a ? files.b : files.a));
        if (in_a) TRY(compare_values(files, name, err));
    }
    return DFLASH_OK;
}

/* ---- Weights ---- */

static dflash_status differs(two files, const char *code, const char *tensor, const char *field, const cJSON *a,
                             const cJSON *b, dflash_error *err) {
    char *left = cJSON_PrintUnformatted(a), *right = cJSON_PrintUnformatted(b);
    const dflash_status status = df_fail(
        err, DFLASH_ERR_REFUSED, code,
        "The %s of the tensor %s differs: %s in %s, %s in %s. The runs are of different weights, so a difference "
        "would say nothing of the engines. Record both from one checkpoint%s.",
        field, tensor, left != NULL ? left : "nothing", dp_oracle_path(files.a), right != NULL ? right : "nothing",
        dp_oracle_path(files.b),
        strcmp(field, "shape") != 0 ? ", or give --across-precisions if only the precision is another" : "");
    cJSON_free(left);
    cJSON_free(right);
    return status;
}

/* {dtype, shape, sha256} of both sides; *other when across_precisions lets a difference of the bytes pass. */
static dflash_status compare_tensor(two files, const char *code, const char *name, const cJSON *a, const cJSON *b,
                                    bool across, bool *other, dflash_error *err) {
    static const char *const fields[] = {"shape", "dtype", "sha256"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const cJSON *x = cJSON_GetObjectItemCaseSensitive(a, fields[i]),
                    *y = cJSON_GetObjectItemCaseSensitive(b, fields[i]);
        const bool present = i == 0 ? cJSON_IsArray(x) && cJSON_IsArray(y) : cJSON_IsString(x) && cJSON_IsString(y);
        if (present && cJSON_Compare(x, y, true)) continue;
        if (!present || i == 0 || !across) return differs(files, code, name, fields[i], x, y, err);
        *other = true;
    }
    return DFLASH_OK;
}

static dflash_status lacking(two files, const char *name, bool in_first, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_REFUSED, "compare.weights.missing",
                   "%s was computed with the tensor %s, and %s was not. The runs are of different checkpoints; record "
                   "both from one.",
                   dp_oracle_path(in_first ? files.a : files.b), name, dp_oracle_path(in_first ? files.b : files.a));
}

static dflash_status compare_weights(two files, bool across, int *others, dflash_error *err) {
    const cJSON *a = provenance(files.a, "tensors"), *b = provenance(files.b, "tensors"), *item;
    if (cJSON_GetArraySize(a) == 0 || cJSON_GetArraySize(b) == 0)
        return df_fail(err, DFLASH_ERR_REFUSED, "compare.weights.missing",
                       "%s names no tensor in its provenance record, so nothing ties the run to its weights: expected "
                       "the digest of every tensor. Write the file again as oracles/FORMAT.md says.",
                       dp_oracle_path(cJSON_GetArraySize(a) == 0 ? files.a : files.b));
    cJSON_ArrayForEach(item, b) {
        if (cJSON_GetObjectItemCaseSensitive(a, item->string) == NULL) return lacking(files, item->string, false, err);
    }
    cJSON_ArrayForEach(item, a) {
        const cJSON *twin = cJSON_GetObjectItemCaseSensitive(b, item->string);
        bool other = false;
        if (twin == NULL) return lacking(files, item->string, true, err);
        TRY(compare_tensor(files, "compare.weights.differs", item->string, item, twin, across, &other, err));
        *others += other;
    }
    return DFLASH_OK;
}

/* The output head and the embedding table are inputs: they are the target's and are never held in another mode. */
static dflash_status compare_tables(two files, dflash_error *err) {
    bool other = false;
    const cJSON *a = provenance(files.a, "head");
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(a, "tensor"));
    if (dp_oracle_input_info(files.a, "anchor") != NULL)
        TRY(compare_tensor(files, "compare.head.differs", name != NULL ? name : "lm_head.weight", a,
                           provenance(files.b, "head"), false, &other, err));
    if (dp_oracle_input_info(files.a, "block_ids") == NULL) return DFLASH_OK;
    return compare_tensor(files, "compare.embedding.differs", "embed_tokens.weight", provenance(files.a, "embedding"),
                          provenance(files.b, "embedding"), false, &other, err);
}

static dflash_status compare_precision(two files, bool across, dflash_error *err) {
    const char *a = dp_file_precision(files.a), *b = dp_file_precision(files.b);
    if (across || strcmp(a, b) == 0) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "compare.precision",
                   "%s was computed in precision %s and %s in %s. If the difference between the modes is what is "
                   "wanted, give --across-precisions; otherwise record both in one mode.",
                   dp_oracle_path(files.a), a, dp_oracle_path(files.b), b);
}

/* ---- The whole ---- */

static dflash_status compare_files(two files, bool across, int *others, dflash_error *err) {
    TRY(dp_geometry_compare(dp_oracle_geometry(files.a), dp_oracle_geometry(files.b), dp_oracle_path(files.a),
                            dp_oracle_path(files.b), err));
    TRY(compare_inputs(files, err));
    TRY(compare_precision(files, across, err));
    TRY(compare_weights(files, across, others, err));
    return compare_tables(files, err);
}

/* Sets config, context and vocab from the first file. */
static dflash_status read_subject(dp_file_pair *pair, dflash_error *err) {
    const dp_oracle *file = pair->file[0];
    TRY(dp_geometry_config(dp_oracle_geometry(file), dp_oracle_path(file), &pair->config, err));
    const int64_t rows = dp_oracle_input_info(file, "target_hidden")->dim[0];
    pair->context = (int)rows; /* the store has checked that it fits */
    for (int i = 0; i < DP_INPUT_COUNT; i++) {
        const dp_dataset_info *info = dp_oracle_input_info(file, dp_input_name(i));
        if (info != NULL) TRY(check_input_shape(pair, dp_input_name(i), info, err));
    }
    if (dp_oracle_input_info(file, "anchor") == NULL) return DFLASH_OK;
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(provenance(file, "head"), "shape");
    const double vocab = cJSON_GetNumberValue(cJSON_GetArrayItem(shape, 0));
    if (!(cJSON_GetArraySize(shape) == 2 && vocab >= 1 && vocab <= INT32_MAX))
        return df_fail(err, DFLASH_ERR_REFUSED, "compare.head.differs",
                       "%s holds an anchor and no complete provenance record head {tensor, dtype, shape, sha256}: "
                       "expected both or neither. Write the file again as oracles/FORMAT.md says.",
                       dp_oracle_path(file));
    pair->vocab = (int)vocab;
    return DFLASH_OK;
}

static dflash_status check_ids(const dp_file_pair *pair, const dp_oracle *file, dflash_error *err) {
    return dp_ids_check(&(dp_ids_subject){file, &pair->config, &pair->stages, pair->vocab}, err);
}

/* An oracle lends limits only if it is of the same run as A, or, across precisions, as B. */
static dflash_status open_limits(const dp_file_pair_options *options, dp_file_pair *pair, dflash_error *err) {
    int others = 0;
    for (int i = 1; i >= 0; i--)
        if (dp_oracle_kind(pair->file[i]) == DP_KIND_ORACLE) pair->limits = pair->file[i];
    if (options->limits != NULL) {
        TRY(dp_oracle_open(options->limits, &pair->lent, err));
        TRY(compare_files((two){pair->file[0], pair->lent}, options->across_precisions, &others, err));
        TRY(check_ids(pair, pair->lent, err));
        pair->limits = pair->lent;
    }
    if (pair->limits == NULL) return DFLASH_OK;
    const char *name = dp_file_precision(pair->limits);
    if (strcmp(name, pair->precision[0]) != 0 && strcmp(name, pair->precision[1]) != 0)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "compare.bars",
            "%s has the limits of precision %s, and the runs are in %s and %s. Give the oracle of one of these "
            "modes.",
            dp_oracle_path(pair->limits), name, pair->precision[0], pair->precision[1]);
    for (int i = 0; i < pair->stages.count; i++)
        if (!dp_oracle_has_stage(pair->limits, DP_RUN_F64, pair->stages.spec[i].name))
            return df_fail(
                err, DFLASH_ERR_REFUSED, "oracle.stage.missing",
                "%s lacks stage %s, which its geometry demands, so there is no limit for it. Write the oracle "
                "again.",
                dp_oracle_path(pair->limits), pair->stages.spec[i].name);
    dp_preflight judge = {.oracle = pair->limits, .config = pair->config, .stages = pair->stages};
    const dflash_status status = dp_preflight_spreads(&judge, err);
    pair->reference_spread = judge.reference_spread;
    pair->sketch = judge.sketch;
    return status;
}

dflash_status dp_file_pair_open(const dp_file_pair_options *options, dp_file_pair *out, dflash_error *err) {
    *out = (dp_file_pair){.file = {NULL, NULL}};
    TRY(dp_store_open(options->a, &out->file[0], err));
    TRY(dp_store_open(options->b, &out->file[1], err));
    TRY(read_subject(out, err));
    TRY(compare_files((two){out->file[0], out->file[1]}, options->across_precisions, &out->other_tensors, err));
    for (int i = 0; i < 2; i++) out->precision[i] = dp_file_precision(out->file[i]);
    const dp_stage_input input = {.context = out->context,
                                  .vocab = out->vocab,
                                  .embedded = dp_oracle_input_info(out->file[0], "block_ids") != NULL};
    TRY(dp_stage_set_create(&out->config, &input, &out->stages, err));
    for (int i = 0; i < 2; i++) TRY(check_ids(out, out->file[i], err));
    return open_limits(options, out, err);
}

void dp_file_pair_release(dp_file_pair *pair) {
    dp_oracle_close(pair->file[0]);
    dp_oracle_close(pair->file[1]);
    dp_oracle_close(pair->lent);
    dp_stage_set_release(&pair->stages);
    free(pair->reference_spread);
    free(pair->sketch);
    *pair = (dp_file_pair){.file = {NULL, NULL}};
}
