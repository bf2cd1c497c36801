/* store_inputs.c - the inputs of an oracle or a recording: their form when a file is opened, and their values. */
#include "common/error.h"
#include "store/store_h5.h"
#include "store/store_parts.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int rank;
    bool integer, optional;
} input_form[DP_INPUT_COUNT] = {{"target_hidden", 2, false, false},
                                {"noise_embedding", 2, false, false},
                                {"positions", 1, true, false},
                                {"anchor", 1, true, true},
                                {"block_ids", 1, true, true}};
enum { TARGET_HIDDEN = 0, NOISE_EMBEDDING, POSITIONS };

const char *dp_input_name(int index) { return input_form[index].name; }

static dflash_status check_positions(const dp_oracle *oracle, dflash_error *err) {
    dp_array positions = {0};
    dflash_status status = dp_store_fetch(oracle, "/inputs", input_form[POSITIONS].name, &oracle->input[POSITIONS],
                                          false, &positions, err);
    if (status != DFLASH_OK) return status;
    const int64_t context = oracle->input[TARGET_HIDDEN].dim[0], block = oracle->input[NOISE_EMBEDDING].dim[0];
    if (context > INT32_MAX || block > INT32_MAX || positions.count != context + block)
        status =
            df_fail(err, DFLASH_ERR_REFUSED, "oracle.positions",
                    "%s: /inputs/positions has %lld entries; the context of %lld rows and the block of %lld rows need "
                    "one a row. Write the file again.",
                    oracle->path, (long long)positions.count, (long long)context, (long long)block);
    double before = -1;
    for (int64_t i = 0; status == DFLASH_OK && i < positions.count; i++) {
        if (positions.value[i] <= before)
            status =
                df_fail(err, DFLASH_ERR_REFUSED, "oracle.positions",
                        "%s: /inputs/positions[%lld] is %.0f after %.0f; expected non-negative and strictly increasing "
                        "positions. Write the file again.",
                        oracle->path, (long long)i, positions.value[i], before);
        before = positions.value[i];
    }
    dp_array_release(&positions);
    return status;
}

dflash_status dp_store_load_inputs(dp_oracle *oracle, dflash_error *err) {
    const char *allowed[DP_INPUT_COUNT];
    for (int i = 0; i < DP_INPUT_COUNT; i++) allowed[i] = input_form[i].name;
    dflash_status status = dp_store_check_closed(oracle, "/inputs", allowed, DP_INPUT_COUNT, err);
    for (int i = 0; status == DFLASH_OK && i < DP_INPUT_COUNT; i++) {
        dp_dataset_info *info = &oracle->input[i];
        char path[64];
        snprintf(path, sizeof path, "/inputs/%s", input_form[i].name);
        const bool absent = H5Lexists(oracle->file, path, H5P_DEFAULT) <= 0;
        if (absent && input_form[i].optional) continue;
        if (absent)
            return df_fail(err, DFLASH_ERR_REFUSED, "oracle.input.missing",
                           "%s: the input %s is missing. Write the file again as oracles/FORMAT.md says.", oracle->path,
                           path);
        status =
            dp_store_visit(oracle, "/inputs", input_form[i].name, info, &(dp_destination){.any = false}, true, err);
        if (status != DFLASH_OK) break;
        if (info->sampled || info->rank != input_form[i].rank)
            status =
                df_fail(err, DFLASH_ERR_REFUSED, "oracle.dataset.shape",
                        "%s: %s has rank %d%s; expected rank %d and every element. Write the file again.", oracle->path,
                        path, info->rank, info->sampled ? " and is sampled" : "", input_form[i].rank);
        else if ((info->dtype == DP_LOGICAL_I32) != input_form[i].integer)
            status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.dataset.type",
                             "%s: %s is %s; expected %s. Write the file again.", oracle->path, path,
                             dp_logical_name(info->dtype), input_form[i].integer ? "int32" : "a floating type");
    }
    if (status == DFLASH_OK) status = check_positions(oracle, err);
    return status;
}

const dp_dataset_info *dp_oracle_input_info(const dp_oracle *oracle, const char *name) {
    for (int i = 0; i < DP_INPUT_COUNT; i++)
        if (strcmp(input_form[i].name, name) == 0) return oracle->input[i].rank > 0 ? &oracle->input[i] : NULL;
    return NULL;
}

dflash_status dp_oracle_input(const dp_oracle *oracle, const char *name, dp_array *out, dflash_error *err) {
    *out = (dp_array){0};
    const dp_dataset_info *info = dp_oracle_input_info(oracle, name);
    if (info == NULL)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "oracle.input.missing",
            "%s: there is no input \"%s\"; expected target_hidden, noise_embedding, positions or (with an output head) "
            "anchor.",
            oracle->path, name);
    return dp_store_fetch(oracle, "/inputs", name, info, false, out, err);
}
