/* identity_subject.c - see identity_subject.h. */
#include "identity/identity_subject.h"

#include "common/error.h"
#include "run/head_source.h"
#include "base/random.h"
#include "run/proposal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 4096, MADE_CONTEXT = 24, MADE_START = 1000 };
enum { STREAM_TAPS = 1, STREAM_NOISE, STREAM_ROWS, STREAM_DRAFTS }; /* of random numbers */

static dflash_status path_in(const dp_subject *s, const char *file, char path[PATH_SIZE], dflash_error *err) {
    if (snprintf(path, PATH_SIZE, "%s/%s", s->checkpoint, file) < PATH_SIZE) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_ARGUMENT, "path.long", "The checkpoint path is longer than %d characters.",
                   PATH_SIZE);
}

/* Inputs for a checkpoint without an oracle. */
static dflash_status make_inputs(dp_subject *s, dflash_error *err) {
    char path[PATH_SIZE];
    dp_preflight *in = &s->in;
    dflash_status status = path_in(s, "config.json", path, err);
    if (status == DFLASH_OK) status = dflash_config_read(path, &in->config, err);
    if (status != DFLASH_OK) return status;
    const dflash_config *c = &in->config;
    const size_t taps = (size_t)MADE_CONTEXT * (size_t)c->n_taps * (size_t)c->hidden,
                 noise = (size_t)c->block * (size_t)c->hidden, rows = (size_t)MADE_CONTEXT + (size_t)c->block;
    in->context = MADE_CONTEXT;
    in->taps = malloc(taps * sizeof *in->taps);
    in->noise = malloc(noise * sizeof *in->noise);
    in->pos = malloc(rows * sizeof *in->pos);
    if (in->taps == NULL || in->noise == NULL || in->pos == NULL) return df_fail_memory(err, "the inputs", taps * 4);
    const size_t width = (size_t)c->hidden;
    for (size_t i = 0; i < taps / width; i++)
        dp_random_values(dp_random_state(s->seed, STREAM_TAPS, i), 2.0f, in->taps + i * width, c->hidden);
    for (size_t i = 0; i < (size_t)c->block; i++)
        dp_random_values(dp_random_state(s->seed, STREAM_NOISE, i), 1.0f, in->noise + i * width, c->hidden);
    for (size_t i = 0; i < rows; i++) in->pos[i] = MADE_START + (int32_t)i;
    return DFLASH_OK;
}

dflash_status dp_subject_open(const char *name, const char *checkpoint, const char *oracle, dflash_precision precision,
                              uint64_t seed, const dp_identity_hooks *hooks, dp_subject *out, dflash_error *err) {
    *out = (dp_subject){.name = name,
                        .checkpoint = checkpoint,
                        .precision = precision,
                        .seed = seed,
                        .hooks = hooks,
                        .row_scale = 1.0f};
    const dflash_status status =
        oracle != NULL ? dp_preflight_run(checkpoint, oracle, precision, &out->in, err) : make_inputs(out, err);
    if (status == DFLASH_OK)
        out->noise_scale = dp_even_range(out->in.noise, (size_t)out->in.config.block * (size_t)out->in.config.hidden);
    return status;
}

void dp_subject_release(dp_subject *subject) { dp_preflight_release(&subject->in); }

float dp_even_range(const float *values, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)values[i] * (double)values[i];
    return n > 0 ? (float)sqrt(3.0 * sum / (double)n) : 1.0f;
}

/* ---- Rows ---- */

int32_t dp_subject_position(const dp_subject *subject, int row) {
    const dp_preflight *in = &subject->in;
    return row < in->context ? in->pos[row] : in->pos[in->context] + (row - in->context);
}

void dp_subject_row(const dp_subject *subject, const float *features, int serial, float *row) {
    const int hidden = subject->in.config.hidden;
    if (serial < subject->in.context)
        memcpy(row, features + (size_t)serial * (size_t)hidden, (size_t)hidden * sizeof *row);
    else
        dp_random_values(dp_random_state(subject->seed, STREAM_ROWS, (uint64_t)serial), subject->row_scale, row,
                         hidden);
}

void dp_subject_noise(const dp_subject *subject, int index, float *noise) {
    const dflash_config *c = &subject->in.config;
    const int n = c->block * c->hidden;
    if (index == 0)
        memcpy(noise, subject->in.noise, (size_t)n * sizeof *noise);
    else
        dp_random_values(dp_random_state(subject->seed, STREAM_DRAFTS, (uint64_t)index), subject->noise_scale, noise,
                         n);
}

/* ---- Drafters ---- */

/* With an oracle, the head that its reference ran; without one, the one that was given or the checkpoint's own. */
static dflash_status load_head(const dp_subject *s, dp_rig *rig, dflash_error *err) {
    if (s->in.oracle != NULL && s->in.vocab == 0) return DFLASH_OK;
    return s->in.oracle != NULL && !s->head_known
               ? dp_head_load(rig->engine, s->checkpoint, s->head, s->in.oracle, &rig->head, err)
               : dp_head_open(rig->engine, s->checkpoint, s->head, &rig->head, err);
}

dflash_status dp_rig_open(const dp_subject *subject, const dflash_engine_options *options, dp_rig *out,
                          dflash_error *err) {
    *out = (dp_rig){.engine = NULL};
    dflash_status status = dflash_engine_create(options, &out->engine, err);
    if (status == DFLASH_OK)
        status = dflash_draft_load_as(out->engine, subject->checkpoint, subject->precision, &out->draft, err);
    if (status == DFLASH_OK) status = load_head(subject, out, err);
    if (status == DFLASH_OK && subject->hooks != NULL && subject->hooks->opened != NULL)
        subject->hooks->opened(out->draft, subject->hooks->user);
    return status;
}

void dp_rig_release(dp_rig *rig) {
    dflash_table_destroy(rig->head);
    dflash_draft_destroy(rig->draft);
    dflash_engine_destroy(rig->engine);
    *rig = (dp_rig){.engine = NULL};
}
