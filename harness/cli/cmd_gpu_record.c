/* cmd_gpu_record.c - `dflash-parity gpu-record`, which makes a record of a GPU, and `release-check`, which asks whether
 * one is fresh. */
#include "cli/commands.h"

#include "store/cases.h"
#include "preflight/manifest.h"

#include "base/cli.h"
#include "cli/destinations.h"
#include "bench/gpu_record.h"
#include "base/output.h"
#include "report/report.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

static const char record_help[] =
    "usage: dflash-parity gpu-record --results FOLDER --name NAME --out FILE\n"
    "\n"
    "Makes one record of what reports/gpu/record.sh left in FOLDER, with the digests of the sources that this program\n"
    "was built from. `make gpu-record` does both.\n"
    "\n"
    "  --results FOLDER  what record.sh left\n"
    "  --name NAME       what the record is called\n"
    "  --out FILE        the record, written whole or not at all\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 every step passed, 1 a step failed, did not run or left no result (the record is written),\n"
    "2 usage, 3 refused, 4 runtime.\n";

static const char check_help[] =
    "usage: dflash-parity release-check [--records GLOB]\n"
    "\n"
    "Says of every record of a GPU whether it was made of the sources that this program was built from.\n"
    "\n"
    "  --records GLOB    the records (default reports/gpu/*.record.json)\n"
    "  --help            this text\n"
    "\n"
    "Exit codes: 0 all fresh and passed, 1 one is stale or failed, 2 usage, 3 refused, 4 runtime, 5 there is none.\n";

int cmd_gpu_record(int argc, char **argv) {
    const char *folder = NULL, *name = NULL, *out = NULL;
    const dp_option own[] = {{"--results", &folder}, {"--name", &name}, {"--out", &out}};
    for (int i = 1; i < argc; i++) {
        int code = DP_EXIT_USAGE;
        if (dp_help_word(argv[i])) {
            fputs(record_help, stdout);
            return DP_EXIT_PASS;
        }
        const int taken = dp_take_option("gpu-record", argc, argv, &i, own, sizeof own / sizeof *own, &code);
        if (taken < 0) return code;
        if (taken == 0) return dp_usage_error("gpu-record", "unknown word '%s'", argv[i]);
    }
    if (folder == NULL || name == NULL || out == NULL)
        return dp_usage_error("gpu-record", "--results, --name and --out are all needed");
    dp_destinations files = {.command = "gpu-record"};
    dp_destination_add(&files, (dp_destination){"--out", out, false});
    if (dp_destinations_check(&files) != DP_EXIT_PASS) return files.code;
    cJSON *record = NULL;
    dflash_error err;
    dflash_status status = dp_gpu_record_collect(folder, name, &record, &err);
    if (status == DFLASH_OK) status = dp_write_json(out, record, &err);
    const bool passed = status == DFLASH_OK && dp_gpu_record_passed(record);
    const cJSON *fault;
    if (status == DFLASH_OK)
        cJSON_ArrayForEach(fault, cJSON_GetObjectItemCaseSensitive(record, "faults"))
            printf("    %s\n", fault->valuestring);
    cJSON_Delete(record);
    if (status != DFLASH_OK) return dp_report_error("gpu-record", &err);
    printf("%s: %s\n", passed ? "PASS" : "FAIL", out);
    return dp_finish_output("gpu-record", passed ? DP_EXIT_PASS : DP_EXIT_FAIL);
}

static void print_change(const char *path, dp_source_change change, void *user) {
    static const char *const words[] = {
        [DP_SOURCE_CHANGED] = "changed", [DP_SOURCE_ADDED] = "new", [DP_SOURCE_REMOVED] = "gone"};
    (void)user;
    printf("    %-8s %s\n", words[change], path);
}

static int check_record(const char *path) {
    cJSON *record = NULL;
    dflash_error err;
    if (dp_gpu_record_read(path, &record, &err) != DFLASH_OK) return dp_report_error("release-check", &err);
    const bool passed = dp_gpu_record_passed(record);
    const char *when = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, "when"));
    const int stale = dp_gpu_record_stale(record, print_change, NULL);
    if (stale > 0)
        printf("%s: stale, made on %s: %d file%s above %s not as %s\n", path, when != NULL ? when : "?", stale,
               dp_plural(stale), stale == 1 ? "is" : "are", stale == 1 ? "it was" : "they were");
    else
        printf("%s: fresh, made on %s, verdict %s\n", path, when != NULL ? when : "?", passed ? "PASS" : "FAIL");
    cJSON_Delete(record);
    return stale > 0 || !passed ? DP_EXIT_FAIL : DP_EXIT_PASS;
}

/* News and no verdict: the stored oracles stay what they are when their generator goes on. */
static void print_age_of_oracles(void) {
    dp_case_list list;
    dp_manifest manifest;
    dflash_error err;
    dflash_status status = dp_cases_read("fixtures/cases.json", &list, &err);
    if (status == DFLASH_OK) {
        status = dp_manifest_read(list.manifest, &manifest, &err);
        if (status == DFLASH_OK && manifest.document != NULL) dp_manifest_print_age(&manifest, "oracles", stdout);
        if (status == DFLASH_OK) dp_manifest_release(&manifest);
        dp_cases_release(&list);
    }
    if (status != DFLASH_OK) printf("oracles: %s\n", err.message);
}

int cmd_release_check(int argc, char **argv) {
    const char *pattern = "reports/gpu/*.record.json";
    const dp_option own[] = {{"--records", &pattern}};
    glob_t found;
    int code = DP_EXIT_PASS;
    for (int i = 1; i < argc; i++) {
        if (dp_help_word(argv[i])) {
            fputs(check_help, stdout);
            return DP_EXIT_PASS;
        }
        const int taken = dp_take_option("release-check", argc, argv, &i, own, 1, &code);
        if (taken < 0) return code;
        if (taken == 0) return dp_usage_error("release-check", "unknown word '%s'", argv[i]);
    }
    if (glob(pattern, 0, NULL, &found) != 0) {
        printf("no record of a GPU matches %s: what runs on a GPU is unproven. Make one with `make gpu-record`.\n",
               pattern);
        print_age_of_oracles();
        return dp_finish_output("release-check", DP_EXIT_NOTHING);
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const int one = check_record(found.gl_pathv[i]);
        if (one > code) code = one;
    }
    globfree(&found);
    if (code == DP_EXIT_PASS || code == DP_EXIT_FAIL) print_age_of_oracles();
    return dp_finish_output("release-check", code);
}
