/*
 * render_junit.c - a result file as JUnit XML.
 *
 * One suite for each case, named by backend, class and oracle; in it one test case for each stage chained, one for each
 * stage alone, one for each round. A case that was refused, stopped or compared nothing has one test case, `verdict`,
 * with an error (a failure where the drafter misread its config), so that no dashboard can take it for an empty pass.
 * The environment stands in the suite's properties. The form is what both common schemas accept: attributes and
 * elements in the order of the stricter one (Windy Road's, of Ant's output), times with three digits, hostname
 * `localhost`, since a result file does not keep the host's name.
 */
#include "report/render.h"

#include "base/clock.h"
#include "check/divergence.h"
#include "base/escape.h"

#include <math.h>
#include <string.h>

typedef struct totals {
    int tests, failures, errors;
} totals;

static void attribute(FILE *to, const char *name, const char *value) {
    fprintf(to, " %s=\"", name);
    dp_escape_xml(to, value);
    fputc('"', to);
}

static bool stopped(const dp_result *r) { return dp_stopped(r) || r->verdict == DP_NOTHING; }

static totals count(const dp_result *r) {
    return (totals){.tests = r->stage_count + r->isolated_count + r->variant_count + stopped(r),
                    .failures = r->failed_stages + r->failed_isolated + r->failed_variants +
                                (stopped(r) && r->verdict == DP_FAIL),
                    .errors = stopped(r) && r->verdict != DP_FAIL};
}

/* The schemas know no name that is empty or blank, and no time but seconds from 0. */
static const char *named(const char *name) { return name[strspn(name, " ")] != '\0' ? name : "unnamed"; }

/* Without the Z, which the stricter schema does not know; of a file that holds no moment, one that nobody believes. */
static void moment_of(const dp_result_file *file, char out[DP_WHEN_TEXT]) {
    snprintf(out, DP_WHEN_TEXT, "%.19s", dp_is_moment(file->when) ? file->when : "1970-01-01T00:00:00");
}

static double seconds_of(double value) { return isfinite(value) && value > 0.0 ? value : 0.0; }

static void property(FILE *to, const char *name, const char *value) {
    fputs("      <property", to);
    attribute(to, "name", named(name));
    attribute(to, "value", value);
    fputs("/>\n", to);
}

static void properties(FILE *to, const dp_result_file *file, const dp_result_case *item) {
    const cJSON *fact;
    fputs("    <properties>\n", to);
    property(to, "case", item->name);
    property(to, "checkpoint", item->options.checkpoint);
    property(to, "oracle", item->options.oracle);
    property(to, "precision", dflash_precision_name(item->options.precision));
    property(to, "command", item->command);
    cJSON_ArrayForEach(fact, file->environment) property(to, fact->string, dp_result_fact(file, fact->string));
    fputs("    </properties>\n", to);
}

static void open_test(FILE *to, const char *name, const char *case_name, const char *kind, double seconds) {
    fputs("    <testcase", to);
    attribute(to, "name", name);
    fputs(" classname=\"", to);
    dp_escape_xml(to, case_name);
    fprintf(to, ".%s\" time=\"%.3f\">", kind, seconds_of(seconds));
}

static void close_test(FILE *to) { fputs("</testcase>\n", to); }

static void fault(FILE *to, const char *element, const char *type, const char *message) {
    fprintf(to, "<%s", element);
    attribute(to, "message", message);
    attribute(to, "type", type);
    fputc('>', to);
    dp_escape_xml(to, message);
    fprintf(to, "</%s>", element);
}

static void chained_test(FILE *to, const char *name, const dp_stage_result *stage) {
    char message[768], text[DP_SKETCH_TEXT];
    const bool sketched = stage->sketch.judged && !stage->sketch.pass;
    const dp_difference *d = &stage->difference;
    open_test(to, stage->name, name, "chained", 0.0);
    if (!stage->pass) {
        if (d->count == 0)
            snprintf(message, sizeof message, "The implementation did not show this stage with the shape expected.");
        else if (d->nonfinite > 0)
            snprintf(
                message, sizeof message,
                "%lld NaN and %lld infinite of %lld values, which leaves no distance to a limit; the first: element "
                "%lld is %.9g, reference %.9g.",
                (long long)d->nan, (long long)d->inf, (long long)d->count, (long long)d->worst, d->worst_got,
                d->worst_want);
        else if (stage->exact)
            snprintf(message, sizeof message, "%lld of %lld integers differ; the first: got %.0f, reference %.0f.",
                     (long long)d->mismatches, (long long)d->count, d->worst_got, d->worst_want);
        else
            snprintf(
                message, sizeof message,
                "rel L2 %.3g (limit %.3g), max/rms %.3g (limit %.3g); worst element %lld: got %.9g, reference %.9g. "
                "Limit: %s.%s%s",
                d->l2_rel, stage->limit.l2_rel, d->max_rel, stage->limit.max_rel, (long long)d->worst, d->worst_got,
                d->worst_want, stage->limit.origin, sketched ? " By the " : "",
                sketched ? dp_sketch_text(&stage->sketch, text) : "");
        fault(to, "failure", "chained", message);
    }
    close_test(to);
}

static void isolated_test(FILE *to, const char *name, const dp_stage_result *stage) {
    char message[512];
    const dp_isolated *alone = &stage->isolated;
    if (!alone->judged) return;
    open_test(to, stage->name, name, "isolated", 0.0);
    if (!alone->pass && alone->difference.nonfinite > 0) {
        snprintf(message, sizeof message, "Run alone: %lld NaN and %lld infinite of %lld values (bound: %s).",
                 (long long)alone->difference.nan, (long long)alone->difference.inf, (long long)alone->difference.count,
                 alone->bound);
        fault(to, "failure", "isolated", message);
    } else if (!alone->pass) {
        snprintf(
            message, sizeof message,
            "Run alone: worst element %lld is %.3g times its bound (got %.9g, expected %.9g within %.3g: %s); noise "
            "%.3g of at most %.3g, peak %.3g of at most %.3g.",
            (long long)alone->worst, alone->share, alone->worst_got, alone->worst_want, alone->worst_bound,
            alone->bound, alone->noise, alone->noise_limit, alone->peak, alone->peak_limit);
        fault(to, "failure", "isolated", message);
    }
    close_test(to);
}

static void round_test(FILE *to, const char *name, const dp_variant_result *variant) {
    char message[512];
    open_test(to, variant->name, name, "rounds", 0.0);
    if (!variant->identical) {
        snprintf(message, sizeof message, "%s: first at %s, value %lld: block 0x%08x, round 0x%08x.",
                 variant->nonfinite ? "Not finite on both sides" : "Not identical to the block run",
                 variant->stage[0] != '\0' ? variant->stage : "nothing compared", (long long)variant->index,
                 (unsigned)variant->block_bits, (unsigned)variant->round_bits);
        fault(to, "failure", "rounds", message);
    }
    close_test(to);
}

static void verdict_test(FILE *to, const dp_result_case *item) {
    char sentence[DP_SENTENCE];
    const dp_result *r = &item->result;
    if (!stopped(r)) return;
    open_test(to, "verdict", item->name, "verdict", r->total_seconds);
    if (r->verdict == DP_NOTHING)
        fault(to, "error", "nothing.compared", dp_result_sentence(r, sentence));
    else
        fault(to, r->verdict == DP_FAIL ? "failure" : "error", r->error.code, r->error.message);
    close_test(to);
}

static void suite(FILE *to, const dp_result_file *file, const dp_result_case *item, int id) {
    char name[512], moment[DP_WHEN_TEXT];
    const dp_result *r = &item->result;
    const totals t = count(r);
    snprintf(name, sizeof name, "%s %s %s", r->device.backend, r->device.numeric_class, item->options.oracle);
    moment_of(file, moment);
    fputs("  <testsuite", to);
    attribute(to, "name", name);
    fprintf(to, " id=\"%d\"", id);
    attribute(to, "package", item->name);
    attribute(to, "timestamp", moment);
    fprintf(to, " hostname=\"localhost\" tests=\"%d\" failures=\"%d\" errors=\"%d\" time=\"%.3f\">\n", t.tests,
            t.failures, t.errors, seconds_of(r->total_seconds));
    properties(to, file, item);
    verdict_test(to, item);
    for (int i = 0; i < r->stage_count; i++) {
        chained_test(to, item->name, &r->stage[i]);
        isolated_test(to, item->name, &r->stage[i]);
    }
    for (int i = 0; i < r->variant_count; i++) round_test(to, item->name, &r->variant[i]);
    fputs("    <system-out></system-out>\n    <system-err></system-err>\n  </testsuite>\n", to);
}

/* A gate that ran no case: an empty document would look like success. */
static void nothing(FILE *to, const dp_result_file *file) {
    fputs("  <testsuite name=\"gate\" id=\"0\" package=\"gate\"", to);
    char moment[DP_WHEN_TEXT];
    moment_of(file, moment);
    attribute(to, "timestamp", moment);
    fputs(" hostname=\"localhost\" tests=\"1\" failures=\"0\" errors=\"1\" time=\"0.000\">\n    <properties/>\n", to);
    open_test(to, "verdict", "gate", "verdict", 0.0);
    fault(to, "error", "nothing.compared", "The filter matches no case.");
    close_test(to);
    fputs("    <system-out></system-out>\n    <system-err></system-err>\n  </testsuite>\n", to);
}

void dp_render_junit(FILE *to, const dp_result_file *file) {
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n", to);
    for (int i = 0; i < file->count; i++) suite(to, file, &file->item[i], i);
    if (file->count == 0) nothing(to, file);
    fputs("</testsuites>\n", to);
}
