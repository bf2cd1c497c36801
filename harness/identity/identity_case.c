/* identity_case.c - see identity_case.h. */
#include "identity/identity_case.h"

#include "base/cli.h"
#include "base/clock.h"
#include "common/error.h"
#include "common/fnv.h"
#include "identity/identity_variants.h"
#include "base/random.h"
#include "identity/identity_shrink.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char random_variant[] = "history.random", long_variant[] = "history.long", replay_variant[] = "replay";

enum {
    SHORTEST_HISTORY = 4, /* rounds of a random history: 4..15 */
    HISTORY_SPREAD = 12,
    LONG_HISTORY = 300,
    BRIEF_HISTORY = 3,
    SHRINK_BUDGET = 2000,
    BRIEF_SHRINK_BUDGET = 40
};

typedef struct run {
    const dp_identity_options *options;
    dp_subject subject;
    dp_reference reference;
    dp_identity_result *out;
    dflash_error *err;
} run;

static bool selected(const run *r, const char *name) {
    return r->options->filter == NULL || dp_glob(r->options->filter, name);
}

const char *dp_identity_variant_name(int index) {
    const int fixed = dp_identity_variant_count();
    if (index < fixed) return dp_identity_variant_at(index)->name;
    return index == fixed ? random_variant : index == fixed + 1 ? long_variant : NULL;
}

/* `within`: how much of the variant that is begun next is done, 0 to 1. */
static void show(const run *r, const char *name, double within) {
    double variants = 0.0;
    for (int i = 0; dp_identity_variant_name(i) != NULL; i++) variants += selected(r, dp_identity_variant_name(i));
    if (variants > 0.0)
        dp_progress_share(&r->options->progress, fmin(1.0, (r->out->variant_count + within) / variants), name);
}

static dp_outcome *begin(run *r, const char *name) {
    show(r, name, 0.0);
    dp_outcome *outcome = &r->out->variant[r->out->variant_count++];
    *outcome = (dp_outcome){.seconds = dp_seconds()};
    snprintf(outcome->name, sizeof outcome->name, "%s", name);
    return outcome;
}

static void finish(run *r, dp_outcome *outcome) {
    if (outcome->state == DP_OUTCOME_IDENTICAL && !dp_pair_passes(&outcome->pair)) outcome->state = DP_OUTCOME_DIFFERS;
    if (outcome->state == DP_OUTCOME_NOT_RUN)
        r->out->not_run++;
    else
        r->out->compared++;
    r->out->failed += outcome->state == DP_OUTCOME_DIFFERS || outcome->state == DP_OUTCOME_REFUSED;
    outcome->seconds = dp_seconds() - outcome->seconds;
}

/* ---- Variants with a fixed script ---- */

/* A drafter that refuses its own interface's steps has failed the variant; a processor without the instructions is no
 * verdict; anything else ends the case. */
static dflash_status judge(dflash_status status, dp_outcome *outcome, const dflash_error *err) {
    const bool cannot = status == DFLASH_ERR_DEVICE && strcmp(err->code, "engine.isa") == 0;
    if (status == DFLASH_OK || (!cannot && status != DFLASH_ERR_ARGUMENT && status != DFLASH_ERR_REFUSED))
        return status;
    outcome->state = cannot ? DP_OUTCOME_NOT_RUN : DP_OUTCOME_REFUSED;
    outcome->why = *err;
    return DFLASH_OK;
}

static dflash_status run_variants(run *r) {
    dflash_status status = DFLASH_OK;
    for (int i = 0; status == DFLASH_OK && i < dp_identity_variant_count(); i++) {
        const dp_identity_variant *variant = dp_identity_variant_at(i);
        if (!selected(r, variant->name) || !dp_identity_variant_applies(variant, &r->reference.options)) continue;
        dp_outcome *outcome = begin(r, variant->name);
        status = judge(variant->run(&r->reference, variant->argument, &outcome->pair, r->err), outcome, r->err);
        finish(r, outcome);
    }
    return status;
}

/* ---- Histories ---- */

/* Whether a schedule ends as the failing one did; a status that is no verdict stops the shrinking. */
typedef struct same_failure {
    run *r;
    dp_history_end end;
    char code[sizeof((dflash_error *)0)->code];
    dflash_status status;
} same_failure;

static bool fails_too(const dp_schedule *schedule, void *user) {
    same_failure *f = user;
    dp_pair pair = {.stage = NULL};
    dp_history_result result;
    if (f->status != DFLASH_OK) return false;
    f->status = dp_history_run(&f->r->reference.rig, &f->r->subject, f->r->reference.features, schedule, false, &pair,
                               &result, f->r->err);
    dp_pair_release(&pair);
    return f->status == DFLASH_OK && result.end == f->end &&
           (f->end != DP_HISTORY_REFUSED || strcmp(result.why.code, f->code) == 0);
}

/* The failing schedule made small, run once more with every stage looked at: that is what the variant reports. */
static dflash_status explain(run *r, dp_schedule *schedule, const dp_history_result *failed, dp_outcome *outcome) {
    same_failure f = {.r = r, .end = failed->end};
    snprintf(f.code, sizeof f.code, "%s", failed->end == DP_HISTORY_REFUSED ? failed->why.code : "");
    dflash_status status =
        dp_schedule_shrink(schedule, fails_too, &f, r->options->brief ? BRIEF_SHRINK_BUDGET : SHRINK_BUDGET,
                           &outcome->shrink_calls, r->err);
    if (status == DFLASH_OK) status = f.status;
    if (status != DFLASH_OK) return status;
    outcome->replay = dp_schedule_text(schedule);
    if (outcome->replay == NULL) return df_fail_memory(r->err, "a schedule's text", 0);
    dp_history_result again;
    dp_pair_release(&outcome->pair);
    status = dp_history_run(&r->reference.rig, &r->subject, r->reference.features, schedule, true, &outcome->pair,
                            &again, r->err);
    outcome->state = failed->end == DP_HISTORY_REFUSED ? DP_OUTCOME_REFUSED : DP_OUTCOME_DIFFERS;
    outcome->why = again.end == DP_HISTORY_REFUSED ? again.why : failed->why;
    return status;
}

static dflash_status run_history(run *r, dp_schedule *schedule, dp_outcome *outcome) {
    dp_history_result result;
    dflash_status status = dp_history_run(&r->reference.rig, &r->subject, r->reference.features, schedule, false,
                                          &outcome->pair, &result, r->err);
    if (status != DFLASH_OK) return status;
    outcome->histories++;
    outcome->drafts += result.drafts;
    return result.end == DP_HISTORY_SAME ? DFLASH_OK : explain(r, schedule, &result, outcome);
}

/* Every case has schedules of its own. */
static uint64_t schedule_random(const run *r, int index) {
    const uint64_t name = df_fnv(DF_FNV_START, r->out->name, strlen(r->out->name));
    return dp_random_state(r->options->seed, 0, name + (uint64_t)index);
}

static dflash_status run_random(run *r, dp_outcome *outcome) {
    const dflash_config *c = &r->subject.in.config;
    dflash_status status = DFLASH_OK;
    for (int i = 0; status == DFLASH_OK && outcome->state == DP_OUTCOME_IDENTICAL && i < r->options->schedules; i++) {
        show(r, random_variant, (double)i / r->options->schedules - 1.0); /* this variant is counted already */
        uint64_t random = schedule_random(r, i);
        dp_schedule schedule;
        const dp_schedule_plan plan = {
            .block = c->block,
            .window = dp_sliding_window(c),
            .rounds = r->options->brief ? BRIEF_HISTORY : SHORTEST_HISTORY + dp_random_below(&random, HISTORY_SPREAD)};
        status = dp_schedule_random(&plan, random, &schedule, r->err);
        if (status == DFLASH_OK) status = run_history(r, &schedule, outcome);
        dp_schedule_release(&schedule);
    }
    return status;
}

/* One long life. A brief one starts where old rows have to go, if they ever do. */
static dflash_status run_long(run *r, dp_outcome *outcome) {
    const dflash_config *c = &r->subject.in.config;
    const int window = dp_sliding_window(c);
    dp_schedule schedule;
    const dp_schedule_plan plan = {.block = c->block,
                                   .window = window,
                                   .prefill = r->options->brief && window > 0 ? window + c->block : 0,
                                   .rounds = r->options->brief ? BRIEF_HISTORY : LONG_HISTORY};
    dflash_status status = dp_schedule_random(&plan, schedule_random(r, -1), &schedule, r->err);
    if (status == DFLASH_OK && window > 0) schedule.cache_rows = window + 2 * c->block;
    if (status == DFLASH_OK) status = run_history(r, &schedule, outcome);
    dp_schedule_release(&schedule);
    return status;
}

static dflash_status run_replay(run *r, dp_outcome *outcome) {
    dp_schedule schedule;
    dp_history_result result;
    dflash_status status = dp_schedule_parse(r->options->replay, &schedule, r->err);
    if (status == DFLASH_OK)
        status = dp_history_run(&r->reference.rig, &r->subject, r->reference.features, &schedule, true, &outcome->pair,
                                &result, r->err);
    if (status == DFLASH_OK) {
        outcome->histories = 1;
        outcome->drafts = result.drafts;
        outcome->why = result.why;
        if (result.end == DP_HISTORY_REFUSED) outcome->state = DP_OUTCOME_REFUSED;
        if (result.end == DP_HISTORY_DIFFERS) outcome->state = DP_OUTCOME_DIFFERS;
    }
    dp_schedule_release(&schedule);
    return status;
}

static dflash_status run_one(run *r, const char *name, dflash_status (*body)(run *, dp_outcome *)) {
    dp_outcome *outcome = begin(r, name);
    const dflash_status status = body(r, outcome);
    finish(r, outcome);
    return status;
}

static dflash_status run_histories(run *r) {
    dflash_status status = DFLASH_OK;
    if (r->options->schedules > 0 && selected(r, random_variant)) status = run_one(r, random_variant, run_random);
    if (status == DFLASH_OK && selected(r, long_variant)) status = run_one(r, long_variant, run_long);
    return status;
}

/* ---- The whole ---- */

static bool any_selected(const run *r) {
    for (int i = 0; dp_identity_variant_name(i) != NULL; i++)
        if (selected(r, dp_identity_variant_name(i))) return true;
    return false;
}

static dflash_status run_all(run *r, const char *checkpoint, const char *oracle, dp_digest_list *digests) {
    dp_identity_result *out = r->out;
    const dflash_engine_options engine = {.backend = r->options->backend,
                                          .numeric_class = r->options->numeric_class,
                                          .products = r->options->products,
                                          .device = r->options->device,
                                          .threads = r->options->threads,
                                          .isa = r->options->isa};
    dflash_status status = dp_subject_open(out->name, checkpoint, oracle, out->precision, r->options->seed,
                                           r->options->hooks, &r->subject, r->err);
    r->subject.head = r->options->head;
    out->family = r->subject.in.config.family;
    if (status == DFLASH_OK) status = dp_reference_run(&r->subject, &engine, &r->reference, r->err);
    if (status != DFLASH_OK) return status;
    out->threads = dflash_engine_threads(r->reference.rig.engine);
    out->isa = dflash_engine_isa(r->reference.rig.engine);
    dflash_engine_describe(r->reference.rig.engine, &out->device);
    if (digests != NULL) status = dp_digests_add(digests, out->name, &r->reference.block, r->err);
    if (status != DFLASH_OK || r->options->digests_alone) return status;
    if (r->options->replay != NULL) return run_one(r, replay_variant, run_replay);
    status = run_variants(r);
    return status == DFLASH_OK ? run_histories(r) : status;
}

static dp_verdict verdict_of(const run *r, dflash_status status) {
    if (status == DFLASH_ERR_REFUSED || status == DFLASH_ERR_ARGUMENT) return DP_REFUSED;
    if (status != DFLASH_OK) return DP_ERROR;
    if (r->options->digests_alone) return DP_PASS; /* the digests are compared by whoever asked for them */
    if (r->out->compared == 0) return DP_NOTHING;
    return r->out->failed > 0 ? DP_FAIL : DP_PASS;
}

void dp_identity_case(const char *name, const char *checkpoint, const char *oracle, dflash_precision precision,
                      const dp_identity_options *options, dp_digest_list *digests, dp_identity_result *out) {
    *out = (dp_identity_result){.name = name,
                                .checkpoint = checkpoint,
                                .precision = precision,
                                .seed = options->seed,
                                .isa = "",
                                .device = {.backend = dflash_backend_name(options->backend),
                                           .numeric_class = dflash_class_name(options->numeric_class),
                                           .products = dflash_products_name(options->products)},
                                .seconds = dp_seconds()};
    run r = {.options = options, .out = out, .err = &out->error};
    const bool wanted = options->digests_alone || options->replay != NULL || any_selected(&r);
    const dflash_status status = wanted ? run_all(&r, checkpoint, oracle, digests) : DFLASH_OK;
    out->verdict = verdict_of(&r, status);
    dp_reference_release(&r.reference);
    dp_subject_release(&r.subject);
    out->seconds = dp_seconds() - out->seconds;
}

void dp_identity_release(dp_identity_result *result) {
    for (int i = 0; i < result->variant_count; i++) {
        dp_pair_release(&result->variant[i].pair);
        free(result->variant[i].replay);
    }
    result->variant_count = 0;
}
