/* ladder_report.c - see ladder_report.h. */
#include "report/ladder_report.h"

#include "base/environment.h"
#include "base/json_out.h"

#include <math.h>
#include <string.h>

enum { CELL = 13 };

static bool ran(const dp_rung *rung) { return rung->error.status == DFLASH_OK; }

static void cell(FILE *to, const char *text) { fprintf(to, "%*s", CELL, text); }

static void number_cell(FILE *to, const dp_rung *rung, bool known, double value) {
    char text[32] = "-";
    if (ran(rung) && known) {
        if (isfinite(value))
            snprintf(text, sizeof text, "%.2e", value);
        else
            snprintf(text, sizeof text, "not finite");
    }
    cell(to, text);
}

static void changes_cell(FILE *to, const dp_rung *rung, const dp_changes *changes) {
    char text[32] = "-";
    if (ran(rung) && changes->known) snprintf(text, sizeof text, "%d of %d", changes->changed, changes->count);
    cell(to, text);
}

static void slot_cell(FILE *to, const dp_rung *rung, const dp_changes *changes) {
    char text[32] = "-";
    if (ran(rung) && changes->known && changes->first >= 0) snprintf(text, sizeof text, "slot %d", changes->first);
    cell(to, text);
}

#define ROW(label, call)                                                                                               \
    do {                                                                                                               \
        fprintf(to, "%-22s", label);                                                                                   \
        for (int i = 0; i < ladder->count; i++) {                                                                      \
            const dp_rung *rung = &ladder->rung[i];                                                                    \
            call;                                                                                                      \
        }                                                                                                              \
        fprintf(to, "\n");                                                                                             \
    } while (0)

static void head_text(FILE *to, const dp_ladder *ladder) {
    char text[32];
    ROW("logits", number_cell(to, rung, true, rung->logits));
    ROW("largest logit error", number_cell(to, rung, true, rung->logit_error));
    ROW("argmax changed", changes_cell(to, rung, &rung->argmax));
    ROW("  first", slot_cell(to, rung, &rung->argmax));
    ROW(ladder->family == DFLASH_FAMILY_DFLASH2 ? "path (tokens) changed" : "tokens changed",
        changes_cell(to, rung, &rung->token));
    ROW("  first", slot_cell(to, rung, &rung->token));
    if (ladder->least_margin < 0.0) {
        fprintf(to, "The oracle stores samples of the logits: the argmax is held against this program's run of the "
                    "stored weights, and margins are not known.\n");
        return;
    }
    ROW("margin within error", snprintf(text, sizeof text, "%d of %d", rung->endangered, ladder->slots);
        cell(to, ran(rung) ? text : "-"));
    fprintf(to,
            "The truth's least margin, top-1 minus top-2, is %.3g, at slot %d. \"Margin within error\" counts the "
            "slots whose\nmargin is at most twice the slot's largest logit error: there the choice may change.\n",
            ladder->least_margin, ladder->least_slot);
}

void dp_ladder_text(FILE *to, const dp_ladder *ladder) {
    char text[DP_MODE_NAME], label[40];
    ROW("relative L2", cell(to, dp_mode_name(rung->mode, text)));
    ROW("weights, MB", snprintf(label, sizeof label, "%.4g", 1e-6 * (double)rung->weight_bytes);
        cell(to, ran(rung) ? label : "refused"));
    for (int layer = 0; layer < ladder->layers; layer++) {
        snprintf(label, sizeof label, "layers.%d.out", layer);
        ROW(label, number_cell(to, rung, true, ran(rung) ? rung->layer[layer] : 0.0));
    }
    ROW("final", number_cell(to, rung, true, rung->final));
    if (ladder->slots > 0)
        head_text(to, ladder);
    else
        fprintf(to, "The oracle ran no output head, so there are no logits and no tokens to change.\n");
    for (int i = 0; i < ladder->count; i++)
        if (!ran(&ladder->rung[i]))
            fprintf(to, "%s: refused: %s: %s\n", dp_mode_name(ladder->rung[i].mode, text), ladder->rung[i].error.code,
                    ladder->rung[i].error.message);
    fprintf(to,
            "A measurement against the oracle's float64 run of the stored weights, and no verdict: %d of %d modes "
            "ran.\n",
            ladder->ran, ladder->count);
}

static void add_changes(cJSON *object, const char *key, const dp_changes *changes) {
    if (!changes->known) {
        cJSON_AddNullToObject(object, key);
        return;
    }
    cJSON *item = cJSON_AddObjectToObject(object, key);
    cJSON_AddNumberToObject(item, "changed", changes->changed);
    cJSON_AddNumberToObject(item, "of", changes->count);
    if (changes->first >= 0)
        cJSON_AddNumberToObject(item, "first", changes->first);
    else
        cJSON_AddNullToObject(item, "first");
}

static cJSON *rung_json(const dp_ladder *ladder, const dp_rung *rung) {
    char name[DP_MODE_NAME];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "mode", dp_mode_name(rung->mode, name));
    cJSON_AddStringToObject(object, "precision", dflash_precision_name(rung->mode.precision));
    cJSON_AddStringToObject(object, "products", dflash_products_name(rung->mode.products));
    cJSON_AddBoolToObject(object, "refused", !ran(rung));
    if (!ran(rung)) {
        cJSON *error = cJSON_AddObjectToObject(object, "error");
        cJSON_AddStringToObject(error, "code", rung->error.code);
        cJSON_AddStringToObject(error, "message", rung->error.message);
        return object;
    }
    cJSON_AddNumberToObject(object, "weight_bytes", (double)rung->weight_bytes);
    cJSON *layers = cJSON_AddArrayToObject(object, "layers");
    for (int i = 0; i < ladder->layers; i++) cJSON_AddItemToArray(layers, dp_json_number(rung->layer[i]));
    dp_json_add_number(object, "final", rung->final);
    if (!rung->head) return object;
    dp_json_add_number(object, "logits", rung->logits);
    dp_json_add_number(object, "largest_logit_error", rung->logit_error);
    add_changes(object, "argmax", &rung->argmax);
    add_changes(object, "tokens", &rung->token);
    if (rung->endangered >= 0)
        cJSON_AddNumberToObject(object, "margins_within_error", rung->endangered);
    else
        cJSON_AddNullToObject(object, "margins_within_error");
    return object;
}

cJSON *dp_ladder_json(const dp_ladder *ladder, const dp_run_setup *setup, const char *command) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "schema", "dflash-parity-ladder");
    cJSON_AddNumberToObject(object, "schema_version", DP_LADDER_VERSION);
    cJSON_AddStringToObject(object, "command", command);
    cJSON_AddStringToObject(object, "checkpoint", setup->checkpoint);
    cJSON_AddStringToObject(object, "oracle", setup->oracle);
    cJSON_AddStringToObject(object, "family", dflash_family_name(ladder->family));
    cJSON_AddNumberToObject(object, "slots", ladder->slots);
    if (ladder->slots > 0 && ladder->least_margin >= 0.0) {
        cJSON_AddNumberToObject(object, "least_margin", ladder->least_margin);
        cJSON_AddNumberToObject(object, "least_margin_slot", ladder->least_slot);
    }
    if (ladder->slots > 0)
        cJSON_AddStringToObject(object, "argmax_against",
                                ladder->least_margin < 0.0 ? "this program's run of the stored weights" : "oracle");
    cJSON *modes = cJSON_AddArrayToObject(object, "modes");
    for (int i = 0; i < ladder->count; i++) cJSON_AddItemToArray(modes, rung_json(ladder, &ladder->rung[i]));
    cJSON_AddItemToObject(object, "environment", dp_environment());
    return object;
}
