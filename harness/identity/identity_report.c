/* identity_report.c - see identity_report.h. */
#include "identity/identity_report.h"

#include "base/cli.h"
#include "base/coordinates.h"
#include "base/environment.h"

#include <string.h>

enum { COMMAND_TEXT = 8192 };

static double value_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static bool is_integer(const dp_pair_stage *stage) {
    dflash_stage kind;
    int layer;
    return dflash_stage_parse(stage->name, &kind, &layer) &&
           (kind == DFLASH_STAGE_SELECT_TOPK_IDS || kind == DFLASH_STAGE_SELECT_PATH ||
            kind == DFLASH_STAGE_MARKOV_TOKENS || kind == DFLASH_STAGE_CONFIDENCE_WINDOW);
}

/* "ulp <= 3" and the other classes by name. */
static void class_text(const dp_pair_stage *stage, char *text, size_t size) {
    if (stage->reached == DP_BITS_ULP)
        snprintf(text, size, "ulp <= %u", stage->ulp);
    else
        snprintf(text, size, "%s", dp_bit_class_name(stage->reached));
}

static void print_stage(FILE *to, const dp_pair_stage *stage) {
    char where[DP_DIMS_TEXT], reached[32];
    class_text(stage, reached, sizeof reached);
    fprintf(to, "      %-26s %-16s", stage->name, reached);
    if (stage->lacking) {
        fprintf(to, " one side does not show it, or not with the rows expected\n");
        return;
    }
    if (stage->differing == 0) {
        fprintf(to, " %lld of %lld values are not finite\n", (long long)stage->nonfinite, (long long)stage->compared);
        return;
    }
    dp_coordinates_text(stage->rank, stage->dim, stage->first, where);
    if (is_integer(stage))
        fprintf(to, " first at %s: %d, %d", where, (int32_t)stage->bits[0], (int32_t)stage->bits[1]);
    else
        fprintf(to, " first at %s: %.9g (0x%08x), %.9g (0x%08x)", where, value_of(stage->bits[0]), stage->bits[0],
                value_of(stage->bits[1]), stage->bits[1]);
    fprintf(to, "; %lld of %lld differ\n", (long long)stage->differing, (long long)stage->compared);
}

static void replay_command(const dp_identity_result *result, const dp_outcome *variant, const char *origin,
                           char command[COMMAND_TEXT]) {
    snprintf(command, COMMAND_TEXT, "dflash-parity identity %s --seed %llu --replay '%s'", origin,
             (unsigned long long)result->seed, variant->replay);
}

static void print_failure(FILE *to, const dp_identity_result *result, const dp_outcome *variant, const char *origin) {
    if (variant->state == DP_OUTCOME_REFUSED)
        fprintf(to, "      refused: %s: %s\n", variant->why.code, variant->why.message);
    for (int i = 0; i < variant->pair.count; i++)
        if (variant->pair.stage[i].reached != DP_BITS_IDENTICAL || variant->pair.stage[i].nonfinite > 0)
            print_stage(to, &variant->pair.stage[i]);
    if (variant->pair.count == 0 && variant->state == DP_OUTCOME_DIFFERS) fprintf(to, "      nothing was compared\n");
    if (variant->replay == NULL) return;
    char command[COMMAND_TEXT];
    replay_command(result, variant, origin, command);
    fprintf(to, "      replay: %s\n", command);
}

static void print_variant(FILE *to, const dp_identity_result *result, const dp_outcome *variant, const char *origin) {
    if (variant->state == DP_OUTCOME_NOT_RUN) {
        fprintf(to, "--    %-18s not run: %s\n", variant->name, variant->why.message);
        return;
    }
    const bool same = variant->state == DP_OUTCOME_IDENTICAL;
    const dp_pair_stage *first = dp_pair_first(&variant->pair);
    fprintf(to, "%-4s  %-18s ", same ? "ok" : "FAIL", variant->name);
    if (same)
        fprintf(to, "identical: %d stages, %lld values, every bit", variant->pair.count,
                (long long)dp_pair_compared(&variant->pair));
    else if (first != NULL)
        fprintf(to, "not identical: first at %s", first->name);
    else
        fprintf(to, "%s", variant->state == DP_OUTCOME_REFUSED ? "refused by the drafter" : "not identical");
    if (variant->histories > 0)
        fprintf(to, "; %d histor%s, %d block%s", variant->histories, variant->histories == 1 ? "y" : "ies",
                variant->drafts, dp_plural(variant->drafts));
    fprintf(to, ", %.2f s\n", variant->seconds);
    if (!same) print_failure(to, result, variant, origin);
}

void dp_identity_text(FILE *to, const dp_identity_result *result, const char *origin, bool failures_only) {
    const int same = result->compared - result->failed;
    fprintf(to, "%-8s %-22s %s, %s, ", dp_verdict_name(result->verdict), result->name,
            dflash_family_name(result->family), dflash_precision_name(result->precision));
    if (result->isa[0] != '\0')
        fprintf(to, "%s, %d thread%s: ", result->isa, result->threads, dp_plural(result->threads));
    else
        fprintf(to, "no engine: ");
    fprintf(to, "%d variant%s identical, %d not, %d not run, %.2f s\n", same, dp_plural(same), result->failed,
            result->not_run, result->seconds);
    if (result->verdict == DP_REFUSED || result->verdict == DP_ERROR)
        fprintf(to, "      %s: %s\n", result->error.code, result->error.message);
    for (int i = 0; i < result->variant_count; i++)
        if (!failures_only || result->variant[i].state != DP_OUTCOME_IDENTICAL)
            print_variant(to, result, &result->variant[i], origin);
}

/* ---- JSON ---- */

static cJSON *stage_json(const dp_pair_stage *stage) {
    char bits[16];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", stage->name);
    cJSON_AddStringToObject(object, "class", dp_bit_class_name(stage->reached));
    cJSON_AddNumberToObject(object, "compared", (double)stage->compared);
    if (stage->nonfinite > 0) cJSON_AddNumberToObject(object, "nonfinite", (double)stage->nonfinite);
    if (stage->lacking) cJSON_AddBoolToObject(object, "lacking", true);
    if (stage->differing == 0) return object;
    cJSON_AddNumberToObject(object, "differing", (double)stage->differing);
    if (!is_integer(stage)) cJSON_AddNumberToObject(object, "ulp_max", (double)stage->ulp);
    cJSON *first = cJSON_AddObjectToObject(object, "first_difference");
    cJSON *shape = cJSON_AddArrayToObject(first, "shape");
    for (int i = 0; i < stage->rank; i++) cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)stage->dim[i]));
    cJSON_AddNumberToObject(first, "index", (double)stage->first);
    snprintf(bits, sizeof bits, "0x%08x", stage->bits[0]);
    cJSON_AddStringToObject(first, "reference", bits);
    snprintf(bits, sizeof bits, "0x%08x", stage->bits[1]);
    cJSON_AddStringToObject(first, "arm", bits);
    return object;
}

static cJSON *variant_json(const dp_identity_result *result, const dp_outcome *variant, const char *origin) {
    static const char *const states[] = {"identical", "not identical", "refused", "not run"};
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", variant->name);
    cJSON_AddStringToObject(object, "state", states[variant->state]);
    if (variant->state == DP_OUTCOME_REFUSED || variant->state == DP_OUTCOME_NOT_RUN) {
        cJSON_AddStringToObject(object, "code", variant->why.code);
        cJSON_AddStringToObject(object, "message", variant->why.message);
    }
    if (variant->state != DP_OUTCOME_NOT_RUN)
        cJSON_AddStringToObject(object, "class", dp_bit_class_name(dp_pair_class(&variant->pair)));
    if (variant->state == DP_OUTCOME_DIFFERS && dp_pair_first(&variant->pair) != NULL)
        cJSON_AddStringToObject(object, "first_stage", dp_pair_first(&variant->pair)->name);
    cJSON_AddNumberToObject(object, "compared", (double)dp_pair_compared(&variant->pair));
    cJSON_AddNumberToObject(object, "histories", variant->histories);
    cJSON_AddNumberToObject(object, "blocks", variant->drafts);
    if (variant->replay != NULL) {
        char command[COMMAND_TEXT];
        replay_command(result, variant, origin, command);
        cJSON_AddStringToObject(object, "schedule", variant->replay);
        cJSON_AddStringToObject(object, "replay", command);
    }
    cJSON_AddNumberToObject(object, "seconds", variant->seconds);
    cJSON *stages = cJSON_AddArrayToObject(object, "stages");
    for (int i = 0; i < variant->pair.count; i++) cJSON_AddItemToArray(stages, stage_json(&variant->pair.stage[i]));
    return object;
}

cJSON *dp_identity_json(const dp_identity_result *result, const char *origin) {
    cJSON *object = cJSON_CreateObject();
    if (object == NULL) return NULL;
    cJSON_AddStringToObject(object, "case", result->name);
    cJSON_AddStringToObject(object, "checkpoint", result->checkpoint);
    cJSON_AddStringToObject(object, "verdict", dp_verdict_name(result->verdict));
    if (result->verdict == DP_REFUSED || result->verdict == DP_ERROR) {
        cJSON *error = cJSON_AddObjectToObject(object, "error");
        cJSON_AddStringToObject(error, "code", result->error.code);
        cJSON_AddStringToObject(error, "message", result->error.message);
    }
    cJSON_AddStringToObject(object, "family", dflash_family_name(result->family));
    cJSON_AddStringToObject(object, "precision", dflash_precision_name(result->precision));
    dp_add_device(object, &result->device);
    cJSON_AddStringToObject(object, "isa", result->isa);
    cJSON_AddNumberToObject(object, "threads", result->threads);
    cJSON_AddNumberToObject(object, "seed", (double)result->seed);
    cJSON_AddNumberToObject(object, "arms_compared", result->compared);
    cJSON_AddNumberToObject(object, "arms_failed", result->failed);
    cJSON_AddNumberToObject(object, "arms_not_run", result->not_run);
    cJSON_AddNumberToObject(object, "seconds", result->seconds);
    cJSON *variants = cJSON_AddArrayToObject(object, "arms");
    for (int i = 0; i < result->variant_count; i++)
        cJSON_AddItemToArray(variants, variant_json(result, &result->variant[i], origin));
    return object;
}
