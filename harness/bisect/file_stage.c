/* file_stage.c - see file_stage.h. */
#include "bisect/file_stage.h"

#include "common/dtype.h"
#include "common/error.h"
#include "preflight/ids.h"

#include <stdlib.h>
#include <string.h>

const char *dp_stage_fault_text(dp_stage_fault fault) {
    static const char *const text[] = {
        [DP_FAULT_NONE] = "",
        [DP_FAULT_LACKING_A] = "A lacks this stage",
        [DP_FAULT_LACKING_B] = "B lacks this stage",
        [DP_FAULT_LACKING_BOTH] = "both files lack this stage, which their geometry demands",
        [DP_FAULT_EXTRA_A] = "A holds this stage, which the geometry does not have",
        [DP_FAULT_EXTRA_B] = "B holds this stage, which the geometry does not have",
        [DP_FAULT_SHAPE_A] = "A holds another shape than the geometry demands",
        [DP_FAULT_SHAPE_B] = "B holds another shape than the geometry demands",
        [DP_FAULT_SAMPLING] = "the two files hold samples of other elements",
        [DP_FAULT_IDS_A] =
            "A holds integers that no run can have chosen: outside the vocabulary, twice or out of order",
        [DP_FAULT_IDS_B] =
            "B holds integers that no run can have chosen: outside the vocabulary, twice or out of order",
    };
    return text[fault];
}

static dp_stage_fault fault_of(const dp_stage_spec *spec, const dp_dataset_info *a, const dp_dataset_info *b) {
    if (a == NULL && b == NULL) return DP_FAULT_LACKING_BOTH;
    if (a == NULL) return DP_FAULT_LACKING_A;
    if (b == NULL) return DP_FAULT_LACKING_B;
    if (!dp_dims_equal(a->rank, a->dim, spec->rank, spec->dim)) return DP_FAULT_SHAPE_A;
    if (!dp_dims_equal(b->rank, b->dim, spec->rank, spec->dim)) return DP_FAULT_SHAPE_B;
    if (a->sampled && b->sampled && (a->stride != b->stride || a->offset != b->offset)) return DP_FAULT_SAMPLING;
    return DP_FAULT_NONE;
}

/* One stored element as float32, bit by bit where it is one. */
static float narrow(dp_logical dtype, const void *bytes, int64_t index) {
    if (dtype != DP_LOGICAL_F32) return (float)dp_logical_widen(dtype, bytes, index);
    float value;
    memcpy(&value, (const unsigned char *)bytes + (size_t)index * sizeof value, sizeof value);
    return value;
}

static void fill(dp_stage_sides *out, int side, const dp_dataset_info *info, const void *bytes) {
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t at = info->sampled ? i : out->offset + i * out->stride;
        out->wide[side][i] = dp_logical_widen(info->dtype, bytes, at);
        if (out->integer[side] != NULL) {
            out->integer[side][i] = (int32_t)out->wide[side][i];
            continue;
        }
        out->narrow[side][i] = narrow(info->dtype, bytes, at);
        out->rounded =
            out->rounded || (info->dtype == DP_LOGICAL_F64 && (double)out->narrow[side][i] != out->wide[side][i]);
    }
}

static dflash_status read_side(const dp_file_pair *pair, int side, const dp_dataset_info *info, dp_stage_sides *out,
                               dflash_error *err) {
    void *bytes = NULL;
    const size_t n = (size_t)out->count;
    out->wide[side] = malloc(n * sizeof(double));
    if (out->spec.exact)
        out->integer[side] = malloc(n * sizeof(int32_t));
    else
        out->narrow[side] = malloc(n * sizeof(float));
    if (out->wide[side] == NULL || (out->integer[side] == NULL && out->narrow[side] == NULL))
        return df_fail_memory(err, out->spec.name, n * (sizeof(double) + sizeof(float)));
    TRY(dp_oracle_stage_bytes(pair->file[side], DP_RUN_F64, out->spec.name, &bytes, err));
    fill(out, side, info, bytes);
    free(bytes);
    return DFLASH_OK;
}

/* An oracle's ids were checked when the pair was opened. */
static dflash_status check_recorded_ids(const dp_file_pair *pair, int side, dp_stage_sides *out, dflash_error *err) {
    const dp_ids_subject ids = {pair->file[side], &pair->config, &pair->stages, pair->vocab};
    if (!out->spec.exact || dp_oracle_kind(pair->file[side]) != DP_KIND_RECORDING) return DFLASH_OK;
    const dflash_status status = dp_ids_check_stage(&ids, DP_RUN_OWN, &out->spec, err);
    if (status != DFLASH_ERR_REFUSED) return status;
    out->fault = side == 0 ? DP_FAULT_IDS_A : DP_FAULT_IDS_B;
    return DFLASH_OK;
}

dflash_status dp_stage_sides_read(const dp_file_pair *pair, const dp_stage_spec *spec, dp_stage_sides *out,
                                  dflash_error *err) {
    const dp_dataset_info *info[2];
    for (int i = 0; i < 2; i++) info[i] = dp_oracle_stage_info(pair->file[i], DP_RUN_F64, spec->name);
    *out = (dp_stage_sides){.spec = *spec, .fault = fault_of(spec, info[0], info[1])};
    for (int i = 0; i < 2 && out->fault == DP_FAULT_NONE; i++) TRY(check_recorded_ids(pair, i, out, err));
    if (out->fault != DP_FAULT_NONE) return DFLASH_OK;
    const dp_dataset_info *sparse = info[0]->sampled ? info[0] : info[1];
    out->count = sparse->count;
    out->stride = sparse->stride;
    out->offset = sparse->offset;
    dflash_status status = DFLASH_OK;
    for (int i = 0; status == DFLASH_OK && i < 2; i++) status = read_side(pair, i, info[i], out, err);
    return status;
}

void dp_stage_sides_release(dp_stage_sides *sides) {
    for (int i = 0; i < 2; i++) {
        free(sides->wide[i]);
        free(sides->narrow[i]);
        free(sides->integer[i]);
    }
    *sides = (dp_stage_sides){.fault = DP_FAULT_NONE};
}
