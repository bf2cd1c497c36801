/* embedding.c - see embedding.h. */
#include "preflight/embedding.h"

#include "common/error.h"
#include "run/hosted.h"
#include "run/proposal.h"
#include "store/store_dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 4096 };

static const char ids_input[] = "block_ids";

static dflash_status check_ids(const dp_preflight *in, dflash_error *err) {
    for (int row = 0; row < in->config.block; row++) {
        const int64_t wanted = row > 0 ? in->config.mask_token_id : in->vocab > 0 ? in->anchor : in->ids[0];
        if (in->ids[row] != wanted)
            return df_fail(
                err, DFLASH_ERR_REFUSED, "oracle.block_ids",
                "Input block_ids of %s holds token %d in row %d: expected %lld, the %s. The block is [anchor, "
                "MASK, ...]; generate the oracle again.",
                dp_oracle_path(in->oracle), in->ids[row], row, (long long)wanted,
                row > 0 ? "config's mask token" : "input anchor");
    }
    return DFLASH_OK;
}

dflash_status dp_embedding_preflight(dp_preflight *in, dflash_error *err) {
    dp_array array = {.value = NULL};
    const bool recorded = cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(in->oracle), "embedding") != NULL;
    const bool given = dp_oracle_input_info(in->oracle, ids_input) != NULL;
    if (!recorded && !given) return DFLASH_OK;
    if (recorded != given)
        return df_fail(err, DFLASH_ERR_REFUSED, "provenance.embedding.missing",
                       "%s holds %s: expected the input block_ids and a provenance record embedding {tensor, dtype, "
                       "shape, sha256} together, or neither. Write the oracle again as oracles/FORMAT.md says.",
                       dp_oracle_path(in->oracle),
                       given ? "block_ids and no embedding record" : "an embedding record and no block_ids");
    dflash_status status = dp_oracle_input(in->oracle, ids_input, &array, err);
    if (status == DFLASH_OK && (array.rank != 1 || array.count != in->config.block))
        status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.shape",
                         "Input block_ids of %s must be one token id for each of the %d rows of the block: found %lld "
                         "values in rank %d. Generate the oracle again.",
                         dp_oracle_path(in->oracle), in->config.block, (long long)array.count, array.rank);
    if (status == DFLASH_OK) {
        in->ids = malloc((size_t)array.count * sizeof *in->ids);
        if (in->ids == NULL) status = df_fail_memory(err, "the block's tokens", (size_t)array.count * sizeof *in->ids);
    }
    for (int64_t i = 0; status == DFLASH_OK && i < array.count; i++) in->ids[i] = (int32_t)array.value[i];
    dp_array_release(&array);
    return status == DFLASH_OK ? check_ids(in, err) : status;
}

dflash_status dp_embedding_agrees(const dp_preflight *in, dflash_error *err) {
    dp_array array = {.value = NULL};
    char name[DFLASH_STAGE_NAME_MAX];
    if (in->ids == NULL) return DFLASH_OK;
    dflash_status status =
        dp_oracle_stage(in->oracle, DP_RUN_F32, dflash_stage_name(DFLASH_STAGE_INPUT, -1, name), &array, err);
    for (int64_t i = 0; status == DFLASH_OK && i < array.count; i++) {
        const int64_t at = array.offset + i * array.stride;
        if (array.value[i] != (double)in->noise[at])
            status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.input.embedding",
                             "Input noise_embedding of %s holds %.9g at element %lld, where the stage input of its "
                             "float32 run holds %.9g: expected the same values. Generate the oracle again.",
                             dp_oracle_path(in->oracle), (double)in->noise[at], (long long)at, array.value[i]);
    }
    dp_array_release(&array);
    return status;
}

dflash_status dp_embedding_load(dflash_engine *engine, const char *checkpoint, const dp_preflight *in,
                                dflash_table **out, dflash_error *err) {
    char path[PATH_SIZE];
    *out = NULL;
    if (in->ids == NULL) return DFLASH_OK;
    if (snprintf(path, sizeof path, "%s/model.safetensors", checkpoint) >= PATH_SIZE)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "path.long", "The checkpoint path is longer than %d characters.",
                       PATH_SIZE);
    dflash_status status = dflash_table_load(engine, path, "embed_tokens.weight", out, err);
    if (status == DFLASH_OK) status = dp_embedding_check(*out, in->oracle, err);
    if (status != DFLASH_OK) {
        dflash_table_destroy(*out);
        *out = NULL;
    }
    return status;
}

dflash_status dp_embedding_run(dflash_draft *draft, const dflash_table *embedding, const dp_preflight *in, float *noise,
                               dflash_error *err) {
    if (embedding != NULL) return dp_embed_block(draft, embedding, in->ids[0], noise, err);
    memcpy(noise, in->noise, (size_t)in->config.block * (size_t)in->config.hidden * sizeof *noise);
    return DFLASH_OK;
}
