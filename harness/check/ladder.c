/* ladder.c - see ladder.h. */
#include "check/ladder.h"

#include "limits/compare.h"
#include "common/error.h"
#include "preflight/geometry.h"
#include "base/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Modes ---- */

bool dp_mode_parse(const char *name, dp_mode *out) {
    char precision[DP_MODE_NAME];
    const char *plus = strchr(name, '+');
    const size_t length = plus != NULL ? (size_t)(plus - name) : strlen(name);
    *out = (dp_mode){.products = DFLASH_PRODUCTS_F32};
    if (length >= sizeof precision) return false;
    memcpy(precision, name, length);
    precision[length] = '\0';
    return dflash_precision_parse(precision, &out->precision) &&
           (plus == NULL || dflash_products_parse(plus + 1, &out->products));
}

const char *dp_mode_name(dp_mode mode, char name[DP_MODE_NAME]) {
    const bool plain = mode.products == DFLASH_PRODUCTS_F32;
    snprintf(name, DP_MODE_NAME, "%s%s%s", dflash_precision_name(mode.precision), plain ? "" : "+",
             plain ? "" : dflash_products_name(mode.products));
    return name;
}

int dp_ladder_default(dp_mode mode[DP_LADDER_MOST]) {
    int count = 0;
    for (dflash_precision p = DFLASH_PRECISION_F32; p <= DFLASH_PRECISION_FC; p++)
        mode[count++] = (dp_mode){.precision = p};
    for (dflash_products p = DFLASH_PRODUCTS_TF32; p <= DFLASH_PRODUCTS_BF16; p++)
        mode[count++] = (dp_mode){.products = p};
    return count;
}

/* ---- What a run is held against ---- */

typedef struct truth {
    const dp_oracle *oracle;
    dp_array logits;  /* float64, [slots, vocab]; no value without a head */
    int vocab, slots; /* 0 without a head */
    int32_t *argmax;  /* owned, [slots]; NULL until it is known */
    double *margin;   /* owned, [slots] top-1 minus top-2; NULL when samples are all there is */
} truth;

int32_t dp_ladder_argmax(const float *row, int n) {
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        if (isnan(row[i])) return -1;
        if (row[i] > row[best]) best = i;
    }
    return best;
}

bool dp_ladder_endangered(const float *row, const double *want, int n, double margin) {
    double most = 0.0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(row[i])) return true;
        most = fmax(most, fabs((double)row[i] - want[i]));
    }
    return !(margin > most + most);
}

/* The argmax of a row of float64 logits and its lead over the second. */
static void read_row(const double *row, int n, int32_t *argmax, double *margin) {
    double second = -INFINITY;
    *argmax = 0;
    for (int32_t i = 1; i < n; i++) {
        if (row[i] > row[*argmax]) {
            second = row[*argmax];
            *argmax = i;
        } else if (row[i] > second) {
            second = row[i];
        }
    }
    *margin = row[*argmax] - second;
}

/* Reads the oracle's logits; with all of them there, what they choose and by how much. */
static dflash_status truth_read(truth *t, const dp_preflight *in, dflash_error *err) {
    const dp_stage_spec *spec = dp_stage_set_find(&in->stages, "logits");
    t->oracle = in->oracle;
    if (spec == NULL) return DFLASH_OK;
    t->slots = (int)spec->dim[0];
    t->vocab = (int)spec->dim[1];
    TRY(dp_oracle_stage(in->oracle, DP_RUN_F64, spec->name, &t->logits, err));
    if (t->logits.count != t->logits.total) return DFLASH_OK;
    t->argmax = malloc((size_t)t->slots * sizeof *t->argmax);
    t->margin = malloc((size_t)t->slots * sizeof *t->margin);
    if (t->argmax == NULL || t->margin == NULL)
        return df_fail_memory(err, "the truth's choices", (size_t)t->slots * 12);
    for (int i = 0; i < t->slots; i++)
        read_row(t->logits.value + (int64_t)i * t->vocab, t->vocab, &t->argmax[i], &t->margin[i]);
    return DFLASH_OK;
}

static void truth_release(truth *t) {
    dp_array_release(&t->logits);
    free(t->argmax);
    free(t->margin);
}

/* Without all of the oracle's logits the argmax of this program's own run of the stored weights stands in. */
static dflash_status truth_from_run(truth *t, const dp_run_record *run, dflash_error *err) {
    const dp_recorded *logits = dp_recording_find(&run->stages, DFLASH_STAGE_LOGITS, -1);
    if (t->slots == 0 || t->argmax != NULL || logits == NULL) return DFLASH_OK;
    t->argmax = malloc((size_t)t->slots * sizeof *t->argmax);
    if (t->argmax == NULL) return df_fail_memory(err, "the argmax of the stored weights", (size_t)t->slots * 4);
    for (int i = 0; i < t->slots; i++) t->argmax[i] = dp_ladder_argmax(logits->value + (int64_t)i * t->vocab, t->vocab);
    return DFLASH_OK;
}

/* ---- One rung ---- */

static dflash_status distance(const truth *t, const dp_run_record *run, dflash_stage stage, int layer,
                              dp_difference *out, dflash_error *err) {
    char name[DFLASH_STAGE_NAME_MAX];
    dp_array want = {.value = NULL};
    double *got = NULL;
    const dp_recorded *found = dp_recording_find(&run->stages, stage, layer);
    dflash_stage_name(stage, layer, name);
    *out = (dp_difference){.l2_rel = NAN, .max_abs = NAN};
    if (found == NULL) return DFLASH_OK;
    dflash_status status = dp_oracle_stage(t->oracle, DP_RUN_F64, name, &want, err);
    if (status == DFLASH_OK) status = dp_gather(found->value, &want, &got, err);
    if (status == DFLASH_OK) status = dp_compare(got, &want, dp_row_length(stage, want.rank, want.dim), out, err);
    if (status == DFLASH_OK && out->nonfinite > 0)
        out->l2_rel = out->max_abs = NAN; /* a run with a NaN has no distance */
    free(got);
    dp_array_release(&want);
    return status;
}

static void count_change(dp_changes *changes, int slot, bool same) {
    changes->count++;
    if (same) return;
    if (changes->changed++ == 0) changes->first = slot;
}

static void compare_argmax(const truth *t, const float *logits, dp_rung *rung) {
    rung->argmax = (dp_changes){.known = t->argmax != NULL, .first = -1};
    for (int i = 0; t->argmax != NULL && i < t->slots; i++) {
        const int32_t choice = dp_ladder_argmax(logits + (int64_t)i * t->vocab, t->vocab);
        count_change(&rung->argmax, i, choice >= 0 && choice == t->argmax[i]);
    }
}

static int count_endangered(const truth *t, const float *logits) {
    int endangered = 0;
    if (t->margin == NULL) return -1;
    for (int i = 0; i < t->slots; i++) {
        const int64_t row = (int64_t)i * t->vocab;
        endangered += dp_ladder_endangered(logits + row, t->logits.value + row, t->vocab, t->margin[i]);
    }
    return endangered;
}

static dflash_status compare_tokens(const truth *t, const dp_run_record *run, dp_rung *rung, dflash_error *err) {
    const dflash_stage stage =
        run->in.config.family == DFLASH_FAMILY_DFLASH2 ? DFLASH_STAGE_SELECT_PATH : DFLASH_STAGE_MARKOV_TOKENS;
    const dp_recorded *found = dp_recording_find(&run->stages, stage, -1);
    dp_array want = {.value = NULL};
    char name[DFLASH_STAGE_NAME_MAX];
    rung->token = rung->argmax; /* without a selector and a Markov head the argmax is what is drafted */
    if (dp_stage_set_find(&run->in.stages, dflash_stage_name(stage, -1, name)) == NULL) return DFLASH_OK;
    rung->token = (dp_changes){.known = found != NULL, .first = -1};
    if (found == NULL) return DFLASH_OK;
    TRY(dp_oracle_stage(t->oracle, DP_RUN_F64, name, &want, err));
    for (int64_t i = 0; i < want.count; i++) count_change(&rung->token, (int)i, found->integer[i] == want.value[i]);
    dp_array_release(&want);
    return DFLASH_OK;
}

static dflash_status measure(const truth *t, const dp_run_record *run, dp_rung *rung, dflash_error *err) {
    const int layers = run->in.config.n_layers;
    dp_difference d;
    rung->weight_bytes = dflash_draft_weight_bytes(run->draft);
    rung->layer = malloc((size_t)layers * sizeof *rung->layer);
    if (rung->layer == NULL) return df_fail_memory(err, "a rung of the ladder", (size_t)layers * sizeof *rung->layer);
    for (int i = 0; i < layers; i++) {
        TRY(distance(t, run, DFLASH_STAGE_LAYER_OUT, i, &d, err));
        rung->layer[i] = d.l2_rel;
    }
    TRY(distance(t, run, DFLASH_STAGE_FINAL, -1, &d, err));
    rung->final = d.l2_rel;
    const dp_recorded *logits = dp_recording_find(&run->stages, DFLASH_STAGE_LOGITS, -1);
    rung->head = t->slots > 0 && logits != NULL;
    if (!rung->head) return DFLASH_OK;
    TRY(distance(t, run, DFLASH_STAGE_LOGITS, -1, &d, err));
    rung->logits = d.l2_rel;
    rung->logit_error = d.max_abs;
    compare_argmax(t, logits->value, rung);
    rung->endangered = count_endangered(t, logits->value);
    return compare_tokens(t, run, rung, err);
}

/* ---- The ladder ---- */

static dflash_status run_mode(const dp_run_setup *setup, dp_mode mode, dp_run_record *run, dflash_error *err) {
    dp_run_setup with = *setup;
    with.has_precision = true;
    with.precision = mode.precision;
    with.engine.products = mode.products;
    return dp_run_and_record(&with, run, err);
}

/* The run of the stored weights comes first: it says whether the oracle is of this checkpoint, and it stands in for
 * what the oracle does not store. */
static dflash_status begin(const dp_run_setup *setup, truth *t, dp_run_record *run, dp_ladder *out, dflash_error *err) {
    dflash_precision claimed = DFLASH_PRECISION_STORED;
    TRY(dp_oracle_precision(setup->oracle, &claimed, err));
    if (claimed != DFLASH_PRECISION_STORED)
        return df_fail(err, DFLASH_ERR_REFUSED, "ladder.precision",
                       "%s was computed with %s weights: expected an oracle of the weights as they are stored, from "
                       "which every mode's drift is measured. Give the oracle of the stored weights.",
                       setup->oracle, dflash_precision_name(claimed));
    TRY(run_mode(setup, (dp_mode){.precision = DFLASH_PRECISION_STORED}, run, err));
    TRY(dp_provenance_check(run->draft, dp_oracle_provenance(run->in.oracle), setup->oracle,
                            dflash_engine_threads(run->handle), err));
    out->family = run->in.config.family;
    out->layers = run->in.config.n_layers;
    TRY(truth_read(t, &run->in, err));
    out->slots = t->slots;
    out->least_margin = -1.0;
    for (int i = 0; t->margin != NULL && i < t->slots; i++)
        if (i == 0 || t->margin[i] < out->least_margin) out->least_margin = t->margin[i], out->least_slot = i;
    return truth_from_run(t, run, err);
}

/* A refusal of the mode is a result; what else goes wrong ends the ladder. */
static dflash_status take_rung(const dp_run_setup *setup, const truth *t, dp_rung *rung, dflash_error *err) {
    dp_run_record run;
    dflash_status status = run_mode(setup, rung->mode, &run, &rung->error);
    if (status == DFLASH_OK) {
        rung->error.status = DFLASH_OK;
        status = measure(t, &run, rung, err);
    } else if (status == DFLASH_ERR_REFUSED) {
        status = DFLASH_OK;
    } else if (err != NULL) {
        *err = rung->error;
    }
    dp_run_record_release(&run);
    return status;
}

dflash_status dp_ladder_run(const dp_run_setup *setup, const dp_mode *mode, int count, dp_ladder *out,
                            dflash_error *err) {
    truth t = {.argmax = NULL};
    dp_run_record stored = {.handle = NULL};
    *out = (dp_ladder){.rung = calloc((size_t)count, sizeof *out->rung)};
    dflash_status status =
        out->rung != NULL ? DFLASH_OK : df_fail_memory(err, "the ladder", (size_t)count * sizeof *out->rung);
    dp_progress progress;
    dp_progress_begin(&progress, "ladder", "modes", count + 1); /* the stored weights are run first */
    dp_progress_update(&progress, 0, "the stored weights");
    if (status == DFLASH_OK) status = begin(setup, &t, &stored, out, err);
    for (int i = 0; status == DFLASH_OK && i < count; i++) {
        char name[DP_MODE_NAME];
        dp_progress_update(&progress, i + 1, dp_mode_name(mode[i], name));
        dp_rung *rung = &out->rung[out->count++];
        *rung = (dp_rung){.mode = mode[i], .endangered = -1};
        status = take_rung(setup, &t, rung, err);
        if (status == DFLASH_OK && rung->error.status == DFLASH_OK) out->ran++;
    }
    dp_progress_end(&progress);
    truth_release(&t);
    dp_run_record_release(&stored); /* last: the truth is borrowed from its oracle */
    return status;
}

void dp_ladder_release(dp_ladder *ladder) {
    for (int i = 0; i < ladder->count; i++) free(ladder->rung[i].layer);
    free(ladder->rung);
    *ladder = (dp_ladder){.rung = NULL};
}
