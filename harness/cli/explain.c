/*
 * explain.c - where limits come from: the tables in words, the bound of a stage, and for a check the numbers of each
 * limit.
 *
 * Nothing is computed here that a verdict depends on; the text is made from the tables that verdicts read.
 */
#include "cli/explain.h"

#include "limits/bounds.h"
#include "base/cli.h"
#include "report/report.h"

enum { WIDTH = 110 };

/* Text in lines of WIDTH after an indent of six. */
static void print_wrapped(FILE *to, const char *text) {
    int column = 0;
    for (const char *at = text; *at != '\0';) {
        int length = 0;
        while (at[length] != '\0' && at[length] != ' ') length++;
        if (column > 0 && column + 1 + length > WIDTH) {
            fprintf(to, "\n");
            column = 0;
        }
        fprintf(to, "%s%.*s", column == 0 ? "      " : " ", length, at);
        column += length + (column > 0);
        at += length;
        while (*at == ' ') at++;
    }
    fprintf(to, "\n");
}

void dp_explain_rules(FILE *to) {
    fprintf(
        to,
        "A stage is judged twice.\n\n"
        "Chained: the run's own values all the way, against the reference's float64 run.\n"
        "    limit (relative L2)   = L2 factor  x max(reference spread L2,  own roundings)\n"
        "    limit (max / row rms) = max factor x max(reference spread max, own roundings x largest value / row rms)\n"
        "    reference spread             = the largest distance of the reference's float32 runs, in several orders "
        "of\n"
        "                          summation, from its float64 run: stored in the oracle (oracles/FORMAT.md)\n"
        "    headroom            = 1 - error / limit, the smaller of the two\n\n"
        "Alone: the stage on the oracle's inputs, element by element, against its formula in float64.\n"
        "    bound               = what rounding can do to this element, from the operands themselves\n"
        "    noise               = root mean square of error / expected rounding noise\n"
        "    (reports/BOUNDS.md derives them)\n\n");
    fprintf(to, "Numbers of the chained verdict and of preflight (harness/limits/envelope.c)\n");
    for (int i = 0; i < DP_RULE_COUNT; i++) {
        const dp_rule *rule = dp_rule_of((dp_rule_id)i);
        fprintf(to, "  %s = %g\n", rule->name, rule->value);
        print_wrapped(to, rule->why);
        fprintf(to, "      source: %s\n", rule->source);
    }
    fprintf(to, "\nNumbers of the bounds (harness/limits/bounds.c)\n");
    const dp_bound_constant *constant;
    for (int i = 0; (constant = dp_bound_constant_at(i)) != NULL; i++) {
        fprintf(to, "  %s = %g\n", constant->name, constant->value);
        print_wrapped(to, constant->reason);
    }
}

int dp_explain_stages(FILE *to, const char *pattern) {
    const dp_class_model model = dp_class_model_of(DFLASH_BACKEND_CPU, DFLASH_CLASS_EXACT, DFLASH_PRODUCTS_F32);
    int shown = 0;
    for (int i = 0; i < DFLASH_STAGE_COUNT; i++) {
        char name[DFLASH_STAGE_NAME_MAX];
        dflash_stage_name((dflash_stage)i, 0, name);
        if (!dp_glob(pattern, name)) continue;
        fprintf(to, "%-26s alone: %s\n", name, dp_bound_text((dflash_stage)i, &model));
        shown++;
    }
    return shown;
}

void dp_report_explain(FILE *to, const dp_result *result) {
    const double l2 = dp_rule_value(DP_RULE_L2_FACTOR), max = dp_rule_value(DP_RULE_MAX_FACTOR);
    for (int i = 0; i < result->stage_count; i++) {
        const dp_stage_result *stage = &result->stage[i];
        const dp_limit *limit = &stage->limit;
        if (stage->exact) {
            fprintf(to, "%-26s integers: no limit, any difference fails\n", stage->name);
            continue;
        }
        fprintf(to,
                "%-26s L2 %.3g = %g x max(reference spread %.3g, rounding %.3g); max %.3g = %g x max(reference spread "
                "%.3g, rounding %.3g)\n",
                stage->name, limit->l2_rel, l2, limit->reference_spread_l2_rel, limit->floor_l2_rel, limit->max_rel,
                max, limit->reference_spread_max_rel, limit->floor_max_rel);
        if (stage->isolated.judged)
            fprintf(to, "%-26s alone: %s; %.3g at the worst element, %.3g of it used, noise limit %.3g\n", "",
                    stage->isolated.bound, stage->isolated.worst_bound, stage->isolated.share,
                    stage->isolated.noise_limit);
    }
}
