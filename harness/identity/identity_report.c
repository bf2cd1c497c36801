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
    df_stage kind;
    int layer;
    return df_stage_parse(stage->name, &kind, &layer) &&
           (kind == DF_STAGE_SELECT_TOPK_IDS || kind == DF_STAGE_SELECT_PATH || kind == DF_STAGE_MARKOV_TOKENS ||
            kind == DF_STAGE_CONFIDENCE_WINDOW);
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

static void replay_command(const dp_identity_result *result, const dp_outcome *arm, const char *origin,
                           char command[COMMAND_TEXT]) {
    snprintf(command, COMMAND_TEXT, "dflash-parity identity %s --seed %llu --replay '%s'", origin,
             (unsigned long long)result->seed, arm->replay);
}

static void print_failure(FILE *to, const dp_identity_result *result, const dp_outcome *arm, const char *origin) {
    if (arm->state == DP_OUTCOME_REFUSED) fprintf(to, "      refused: %s: %s\n", arm->why.code, arm->why.message);
    for (int i = 0; i < arm->pair.count; i++)
        if (arm->pair.stage[i].reached != DP_BITS_IDENTICAL || arm->pair.stage[i].nonfinite > 0)
            print_stage(to, &arm->pair.stage[i]);
    if (arm->pair.count == 0 && arm->state == DP_OUTCOME_DIFFERS) fprintf(to, "      nothing was compared\n");
    if (arm->replay == NULL) return;
    char command[COMMAND_TEXT];
    replay_command(result, arm, origin, command);
    fprintf(to, "      replay: %s\n", command);
}

static void print_arm(FILE *to, const dp_identity_result *result, const dp_outcome *arm, const char *origin) {
    if (arm->state == DP_OUTCOME_NOT_RUN) {
        fprintf(to, "--    %-18s not run: %s\n", arm->name, arm->why.message);
        return;
    }
    const bool same = arm->state == DP_OUTCOME_IDENTICAL;
    const dp_pair_stage *first = dp_pair_first(&arm->pair);
    fprintf(to, "%-4s  %-18s ", same ? "ok" : "FAIL", arm->name);
    if (same)
        fprintf(to, "identical: %d stages, %lld values, every bit", arm->pair.count,
                (long long)dp_pair_compared(&arm->pair));
    else if (first != NULL)
        fprintf(to, "not identical: first at %s", first->name);
    else
        fprintf(to, "%s", arm->state == DP_OUTCOME_REFUSED ? "refused by the drafter" : "not identical");
    if (arm->histories > 0)
        fprintf(to, "; %d histor%s, %d block%s", arm->histories, arm->histories == 1 ? "y" : "ies", arm->drafts,
                dp_plural(arm->drafts));
    fprintf(to, ", %.2f s\n", arm->seconds);
    if (!same) print_failure(to, result, arm, origin);
}

void dp_identity_text(FILE *to, const dp_identity_result *result, const char *origin, bool failures_only) {
    const int same = result->compared - result->failed;
    fprintf(to, "%-8s %-22s %s, %s, ", dp_verdict_name(result->verdict), result->name, df_family_name(result->family),
            df_precision_name(result->precision));
    if (result->isa[0] != '\0')
        fprintf(to, "%s, %d thread%s: ", result->isa, result->threads, dp_plural(result->threads));
    else
        fprintf(to, "no engine: ");
    fprintf(to, "%d arm%s identical, %d not, %d not run, %.2f s\n", same, dp_plural(same), result->failed,
            result->not_run, result->seconds);
    if (result->verdict == DP_REFUSED || result->verdict == DP_ERROR)
        fprintf(to, "      %s: %s\n", result->error.code, result->error.message);
    for (int i = 0; i < result->arm_count; i++)
        if (!failures_only || result->arm[i].state != DP_OUTCOME_IDENTICAL)
            print_arm(to, result, &result->arm[i], origin);
}

/* ---- JSON
 * --------------------------------------------------------------------------------------------------------------- */

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

static cJSON *arm_json(const dp_identity_result *result, const dp_outcome *arm, const char *origin) {
    static const char *const states[] = {"identical", "not identical", "refused", "not run"};
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", arm->name);
    cJSON_AddStringToObject(object, "state", states[arm->state]);
    if (arm->state == DP_OUTCOME_REFUSED || arm->state == DP_OUTCOME_NOT_RUN) {
        cJSON_AddStringToObject(object, "code", arm->why.code);
        cJSON_AddStringToObject(object, "message", arm->why.message);
    }
    if (arm->state != DP_OUTCOME_NOT_RUN)
        cJSON_AddStringToObject(object, "class", dp_bit_class_name(dp_pair_class(&arm->pair)));
    if (arm->state == DP_OUTCOME_DIFFERS && dp_pair_first(&arm->pair) != NULL)
        cJSON_AddStringToObject(object, "first_stage", dp_pair_first(&arm->pair)->name);
    cJSON_AddNumberToObject(object, "compared", (double)dp_pair_compared(&arm->pair));
    cJSON_AddNumberToObject(object, "histories", arm->histories);
    cJSON_AddNumberToObject(object, "blocks", arm->drafts);
    if (arm->replay != NULL) {
        char command[COMMAND_TEXT];
        replay_command(result, arm, origin, command);
        cJSON_AddStringToObject(object, "schedule", arm->replay);
        cJSON_AddStringToObject(object, "replay", command);
    }
    cJSON_AddNumberToObject(object, "seconds", arm->seconds);
    cJSON *stages = cJSON_AddArrayToObject(object, "stages");
    for (int i = 0; i < arm->pair.count; i++) cJSON_AddItemToArray(stages, stage_json(&arm->pair.stage[i]));
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
    cJSON_AddStringToObject(object, "family", df_family_name(result->family));
    cJSON_AddStringToObject(object, "precision", df_precision_name(result->precision));
    dp_add_device(object, &result->device);
    cJSON_AddStringToObject(object, "isa", result->isa);
    cJSON_AddNumberToObject(object, "threads", result->threads);
    cJSON_AddNumberToObject(object, "seed", (double)result->seed);
    cJSON_AddNumberToObject(object, "arms_compared", result->compared);
    cJSON_AddNumberToObject(object, "arms_failed", result->failed);
    cJSON_AddNumberToObject(object, "arms_not_run", result->not_run);
    cJSON_AddNumberToObject(object, "seconds", result->seconds);
    cJSON *arms = cJSON_AddArrayToObject(object, "arms");
    for (int i = 0; i < result->arm_count; i++) cJSON_AddItemToArray(arms, arm_json(result, &result->arm[i], origin));
    return object;
}
