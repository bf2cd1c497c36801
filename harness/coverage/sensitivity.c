/* sensitivity.c - see sensitivity.h. */
#include "coverage/sensitivity.h"

#include "common/error.h"
#include "preflight/geometry.h"
#include "check/run_check.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 4096 };

const char *dp_noticed_name(dp_noticed noticed) {
    static const char *const names[] = {"never", "geometry", "census", "values"};
    return names[noticed];
}

/* ---- Steps ---- */

static bool whole_up(dflash_config *c, int part) {
    int32_t *const at[] = {&c->hidden,        &c->n_heads,         &c->n_kv_heads,  &c->head_dim,
                           &c->intermediate,  &c->n_layers,        &c->n_taps,      &c->taps[0],
                           &c->vocab,         &c->n_target_layers, &c->conv_kernel, &c->conv_group,
                           &c->selector_rank, &c->selector_top_k,  &c->markov_rank, &c->sliding_window};
    if (*at[part] == 0) return false;
    *at[part] += 1;
    return true;
}

static bool block_down(dflash_config *c, int part) {
    (void)part;
    if (c->block == 1) return false;
    c->block--;
    return true;
}

static bool selector_vocab_down(dflash_config *c, int part) {
    (void)part;
    if (c->selector_vocab == 0) return false;
    c->selector_vocab--;
    return true;
}

static bool wide_up(dflash_config *c, int part) {
    int64_t *const at[] = {&c->max_position, &c->mask_token_id, &c->rope.original_max_position};
    if (*at[part] == 0 || (part == 2 && c->rope.type != DFLASH_ROPE_YARN && c->rope.type != DFLASH_ROPE_LLAMA3))
        return false;
    *at[part] += 1;
    return true;
}

/* A real number moves by a sixteenth of itself. */
static bool real_up(dflash_config *c, int part) {
    const bool yarn = c->rope.type == DFLASH_ROPE_YARN, llama3 = c->rope.type == DFLASH_ROPE_LLAMA3;
    const bool mscales =
        yarn && !c->rope.has_attention_factor && c->rope.mscale != 0.0 && c->rope.mscale_all_dim != 0.0;
    const struct {
        double *value;
        bool there;
    } at[] = {{&c->rms_eps, true},
              {&c->rope.theta, true},
              {&c->rope.factor, c->rope.type != DFLASH_ROPE_DEFAULT},
              {&c->rope.beta_fast, yarn},
              {&c->rope.beta_slow, yarn},
              {&c->rope.attention_factor, yarn && c->rope.has_attention_factor},
              {&c->rope.mscale, mscales},
              {&c->rope.mscale_all_dim, mscales},
              {&c->rope.low_freq_factor, llama3},
              {&c->rope.high_freq_factor, llama3},
              {&c->input_embedding_scale, true},
              {&c->output_multiplier, true},
              {&c->logit_softcap, c->logit_softcap != 0.0}};
    if (!at[part].there) return false;
    *at[part].value *= 17.0 / 16.0;
    return true;
}

static bool flip(dflash_config *c, int part) {
    const bool yarn = c->rope.type == DFLASH_ROPE_YARN;
    const struct {
        bool *value, there;
    } at[] = {{&c->attention_bias, true},
              {&c->rope.truncate, yarn},
              {&c->rope.has_attention_factor, yarn && c->rope.has_attention_factor},
              {&c->confidence, c->family == DFLASH_FAMILY_DSPARK},
              {&c->confidence_with_markov, c->confidence}};
    if (!at[part].there) return false;
    *at[part].value = !*at[part].value;
    return true;
}

/* The next member of an enumeration. */
static bool other_family(dflash_config *c, int part) {
    (void)part;
    c->family = (dflash_family)((c->family + 1) % (DFLASH_FAMILY_DFLASH2 + 1));
    return true;
}

static bool other_rope(dflash_config *c, int part) {
    (void)part;
    if (c->rope.type == DFLASH_ROPE_DEFAULT) c->rope.factor = 2.0;
    c->rope.type = c->rope.type == DFLASH_ROPE_DEFAULT ? DFLASH_ROPE_LINEAR : DFLASH_ROPE_DEFAULT;
    return true;
}

static bool other_harvest(dflash_config *c, int part) {
    (void)part;
    if (c->family == DFLASH_FAMILY_DFLASH) return false; /* its oracles have no output head, and nothing is drafted */
    c->harvest = c->harvest == DFLASH_HARVEST_SHIFTED ? DFLASH_HARVEST_MASK_FILL : DFLASH_HARVEST_SHIFTED;
    return true;
}

static bool other_markov(dflash_config *c, int part) {
    (void)part;
    if (c->family != DFLASH_FAMILY_DSPARK) return false;
    c->markov = (dflash_markov_kind)((c->markov + 1) % (DFLASH_MARKOV_RNN + 1));
    return true;
}

static bool fewer_rotated(dflash_config *c, int part) {
    (void)part;
    c->rope.rotary_dim -= 2;
    return c->rope.rotary_dim > 0;
}

static bool taps_swapped(dflash_config *c, int part) {
    (void)part;
    if (c->n_taps < 2) return false;
    const int32_t first = c->taps[0];
    c->taps[0] = c->taps[1];
    c->taps[1] = first;
    return true;
}

/* What a step of a layer changes: the first layer that is so. */
typedef enum layer_part {
    FULL_CAUSAL,
    FULL_LOOSE,
    SLIDING_CAUSAL,
    SLIDING_LOOSE,
    WINDOW_UP,
    WINDOW_DOWN,
    KIND
} layer_part;

static bool layer_step(dflash_config *c, int part) {
    for (int i = 0; i < c->n_layers; i++) {
        dflash_layer_config *layer = &c->layer[i];
        const bool slides = part != FULL_CAUSAL && part != FULL_LOOSE;
        if (part == KIND) {
            layer->sliding = !layer->sliding;
            return true;
        }
        if ((layer->window > 0) != slides) continue;
        if (part == WINDOW_UP || part == WINDOW_DOWN) {
            layer->window += part == WINDOW_UP ? 1 : -1;
            return layer->window > 0;
        }
        if (layer->causal != (part == FULL_CAUSAL || part == SLIDING_CAUSAL)) continue;
        layer->causal = !layer->causal;
        return true;
    }
    return false;
}

/* What no value can depend on: the reference's taps are given as an input, and a layer's kind is in its window. */
static const dp_field fields[] = {
    {"family", DP_NOTICED_CENSUS, other_family, 0},
    {"hidden", DP_NOTICED_CENSUS, whole_up, 0},
    {"n_heads", DP_NOTICED_CENSUS, whole_up, 1},
    {"n_kv_heads", DP_NOTICED_CENSUS, whole_up, 2},
    {"head_dim", DP_NOTICED_CENSUS, whole_up, 3},
    {"intermediate", DP_NOTICED_CENSUS, whole_up, 4},
    {"n_layers", DP_NOTICED_CENSUS, whole_up, 5},
    {"block", DP_NOTICED_VALUES, block_down, 0},
    {"vocab", DP_NOTICED_CENSUS, whole_up, 8},
    {"max_position", DP_NOTICED_NEVER, wide_up, 0},
    {"n_target_layers", DP_NOTICED_NEVER, whole_up, 9},
    {"n_taps", DP_NOTICED_CENSUS, whole_up, 6},
    {"taps", DP_NOTICED_GEOMETRY, whole_up, 7},
    {"taps, order", DP_NOTICED_GEOMETRY, taps_swapped, 0},
    {"mask_token_id", DP_NOTICED_VALUES, wide_up, 1},
    {"rms_eps", DP_NOTICED_VALUES, real_up, 0},
    {"attention_bias", DP_NOTICED_CENSUS, flip, 0},
    {"sliding_window", DP_NOTICED_NEVER, whole_up, 15},
    {"layer.sliding", DP_NOTICED_GEOMETRY, layer_step, KIND},
    {"layer.causal, full, true", DP_NOTICED_VALUES, layer_step, FULL_CAUSAL},
    {"layer.causal, full, false", DP_NOTICED_VALUES, layer_step, FULL_LOOSE},
    {"layer.causal, sliding, true", DP_NOTICED_VALUES, layer_step, SLIDING_CAUSAL},
    {"layer.causal, sliding, false", DP_NOTICED_VALUES, layer_step, SLIDING_LOOSE},
    {"layer.window + 1", DP_NOTICED_VALUES, layer_step, WINDOW_UP},
    {"layer.window - 1", DP_NOTICED_VALUES, layer_step, WINDOW_DOWN},
    {"rope.type", DP_NOTICED_VALUES, other_rope, 0},
    {"rope.theta", DP_NOTICED_VALUES, real_up, 1},
    {"rope.rotary_dim", DP_NOTICED_VALUES, fewer_rotated, 0},
    {"rope.factor", DP_NOTICED_VALUES, real_up, 2},
    {"rope.original_max_position", DP_NOTICED_VALUES, wide_up, 2},
    {"rope.beta_fast", DP_NOTICED_VALUES, real_up, 3},
    {"rope.beta_slow", DP_NOTICED_VALUES, real_up, 4},
    {"rope.truncate", DP_NOTICED_VALUES, flip, 1},
    {"rope.has_attention_factor", DP_NOTICED_VALUES, flip, 2},
    {"rope.attention_factor", DP_NOTICED_VALUES, real_up, 5},
    {"rope.mscale", DP_NOTICED_VALUES, real_up, 6},
    {"rope.mscale_all_dim", DP_NOTICED_VALUES, real_up, 7},
    {"rope.low_freq_factor", DP_NOTICED_VALUES, real_up, 8},
    {"rope.high_freq_factor", DP_NOTICED_VALUES, real_up, 9},
    {"harvest", DP_NOTICED_VALUES, other_harvest, 0},
    {"input_embedding_scale", DP_NOTICED_VALUES, real_up, 10},
    {"output_multiplier", DP_NOTICED_VALUES, real_up, 11},
    {"logit_softcap", DP_NOTICED_VALUES, real_up, 12},
    {"conv_kernel", DP_NOTICED_CENSUS, whole_up, 10},
    {"conv_group", DP_NOTICED_CENSUS, whole_up, 11},
    {"selector_rank", DP_NOTICED_CENSUS, whole_up, 12},
    {"selector_top_k", DP_NOTICED_VALUES, whole_up, 13},
    {"selector_vocab", DP_NOTICED_VALUES, selector_vocab_down, 0},
    {"markov", DP_NOTICED_CENSUS, other_markov, 0},
    {"markov_rank", DP_NOTICED_CENSUS, whole_up, 14},
    {"confidence", DP_NOTICED_CENSUS, flip, 3},
    {"confidence_with_markov", DP_NOTICED_CENSUS, flip, 4},
};

int dp_field_count(void) { return (int)(sizeof fields / sizeof *fields); }

const dp_field *dp_field_at(int index) { return &fields[index]; }

/* ---- Judging ---- */

/* The first thing that a failing run shows. */
static void first_failure(const dp_result *result, dp_sensitivity *out) {
    for (int i = 0; i < result->stage_count; i++) {
        const dp_stage_result *stage = &result->stage[i];
        if (!dp_stage_failed(stage)) continue;
        snprintf(out->where, sizeof out->where, "%s%s", stage->name, stage->pass ? " alone" : "");
        return;
    }
    for (int i = 0; i < result->variant_count; i++)
        if (!result->variant[i].identical) snprintf(out->where, sizeof out->where, "%s", result->variant[i].name);
}

static dflash_status read_config(const dp_case *item, dflash_config *config, dflash_error *err) {
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/config.json", item->checkpoint);
    return dflash_config_read(path, config, err);
}

/* The record of the oracle's file against the changed config. */
static dflash_status ask_geometry(const dp_case *item, const dflash_config *altered, dp_sensitivity *out,
                                  dflash_error *err) {
    dp_oracle *oracle = NULL;
    dflash_error found;
    cJSON *record = dp_geometry_of(altered);
    dflash_status status = record != NULL ? dp_oracle_open(item->oracle, &oracle, err)
                                          : df_fail_memory(err, "a geometry record", sizeof *altered);
    if (status == DFLASH_OK &&
        dp_geometry_check(record, dp_oracle_geometry(oracle), item->oracle, &found) != DFLASH_OK) {
        out->noticed = DP_NOTICED_GEOMETRY;
        snprintf(out->where, sizeof out->where, "%s", found.code);
    }
    dp_oracle_close(oracle);
    cJSON_Delete(record);
    return status;
}

dflash_status dp_sensitivity_of(const dp_case *item, const dp_field *field, bool *applies, dp_sensitivity *out,
                                dflash_error *err) {
    dflash_config altered;
    *out = (dp_sensitivity){.noticed = DP_NOTICED_NEVER};
    *applies = false;
    const dflash_status status = read_config(item, &altered, err);
    if (status != DFLASH_OK) return status;
    *applies = field->step(&altered, field->part);
    if (!*applies) return DFLASH_OK;
    const dp_check_options options = {.checkpoint = item->checkpoint,
                                      .head = item->head,
                                      .oracle = item->oracle,
                                      .precision = item->precision,
                                      .altered = &altered};
    dp_result result;
    dp_check(&options, &result);
    const bool loaded = result.stages_known > 0 && result.provenance_seconds > 0.0;
    if (result.verdict == DP_FAIL) {
        out->noticed = DP_NOTICED_VALUES;
        first_failure(&result, out);
    } else if (result.verdict != DP_PASS) {
        out->noticed = loaded ? DP_NOTICED_VALUES : DP_NOTICED_CENSUS;
        snprintf(out->where, sizeof out->where, "%.*s", (int)sizeof out->where - 1, result.error.code);
    }
    const bool passed = result.verdict == DP_PASS, broken = result.verdict == DP_ERROR;
    if (broken) *err = result.error;
    dp_result_release(&result);
    if (broken) return err->status;
    return passed ? ask_geometry(item, &altered, out, err) : DFLASH_OK;
}
