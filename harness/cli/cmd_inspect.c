/*
 * cmd_inspect.c - see cmd_inspect.h; arguments, the choice by kind of path, and what the descriptions share.
 */
#include "cli/cmd_inspect.h"

#include "base/cli.h"
#include "common/error.h"
#include "cli/inspect.h"
#include "base/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
    "usage: dflash-parity inspect PATH [--json] [-k GLOB]\n"
    "\n"
    "Shows what is in PATH:\n"
    "  an oracle (.h5)        geometry, provenance, inputs, and a table of stages with shape, dtypes, size of the "
    "values\n"
    "                         and the distances of the float32 and bfloat16 runs from the float64 run (relative L2)\n"
    "  a recording (.h5)      geometry, the engine's facts, inputs, and a table of stages with shape, dtype, size of "
    "the\n"
    "                         values, how many are not finite, and the SHA-256 of their bytes\n"
    "  a checkpoint (folder)  the resolved config, every tensor with dtype, shape and bytes, and totals\n"
    "  a config.json          the resolved config\n"
    "\n"
    "  -k GLOB   only the stages, tensors or config fields whose name matches (* ? [..])\n"
    "  --json    one JSON document\n"
    "  --help    this text\n"
    "\n"
    "Exit codes: 0 shown, 2 usage, 3 refused, 4 I/O or memory, 5 -k matched nothing.\n";

/* ---- Shared by the descriptions ---- */

bool dp_inspect_wants(const dp_inspect_options *options, const char *name) {
    return options == NULL || options->pattern == NULL || dp_glob(options->pattern, name);
}

static int print_fields(const dp_inspect_options *options, const cJSON *record, const char *prefix, bool print) {
    int shown = 0;
    const cJSON *child;
    cJSON_ArrayForEach(child, record) {
        char name[256];
        snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", child->string);
        if (cJSON_IsObject(child)) {
            shown += print_fields(options, child, name, print);
            continue;
        }
        if (!dp_inspect_wants(options, name)) continue;
        shown++;
        if (!print) continue;
        char *text = cJSON_IsString(child) ? NULL : cJSON_PrintUnformatted(child);
        printf("  %-40s %s\n", name, cJSON_IsString(child) ? child->valuestring : text != NULL ? text : "?");
        cJSON_free(text);
    }
    return shown;
}

int dp_inspect_fields(const dp_inspect_options *options, const cJSON *record, bool print) {
    return print_fields(options, record, "", print);
}

const char *dp_inspect_shape(int rank, const int64_t *dim, char out[96]) {
    int length = snprintf(out, 96, "[");
    for (int i = 0; i < rank; i++)
        length += snprintf(out + length, 96 - (size_t)length, "%s%lld", i > 0 ? ", " : "", (long long)dim[i]);
    snprintf(out + length, 96 - (size_t)length, "]");
    return out;
}

cJSON *dp_inspect_shape_json(int rank, const int64_t *dim) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; list != NULL && i < rank; i++) cJSON_AddItemToArray(list, cJSON_CreateNumber((double)dim[i]));
    return list;
}

dflash_status dp_inspect_json(cJSON *document, dflash_error *err) {
    char *text = document != NULL ? cJSON_Print(document) : NULL;
    cJSON_Delete(document);
    if (text == NULL) return df_fail_memory(err, "the JSON document", 1 << 16);
    puts(text);
    cJSON_free(text);
    return DFLASH_OK;
}

/* ---- The command ---- */

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static dflash_status describe(const dp_inspect_options *options, int *shown, dflash_error *err) {
    struct stat info;
    if (stat(options->path, &info) != 0)
        return df_fail(err, DFLASH_ERR_IO, "inspect.open",
                       "%s cannot be found: %s. Give the path of an oracle, of a recording, of a checkpoint folder or "
                       "of a config.json.",
                       options->path, strerror(errno));
    if (ends_with(options->path, ".safetensors"))
        return df_fail(
            err, DFLASH_ERR_ARGUMENT, "inspect.weights",
            "%s is a file of weights, and what its tensors should be stands in the config.json beside it. Give "
            "the folder that holds both.",
            options->path);
    if (S_ISDIR(info.st_mode) || ends_with(options->path, ".json")) return dp_inspect_checkpoint(options, shown, err);
    return dp_inspect_store(options, shown, err);
}

int cmd_inspect(int argc, char **argv) {
    dp_inspect_options options = {0};
    const dp_option own[] = {{"-k", &options.pattern}};
    for (int i = 1; i < argc; i++) {
        int code = DP_EXIT_USAGE;
        const char *argument = argv[i];
        if (dp_help_word(argument)) {
            fputs(help, stdout);
            return DP_EXIT_PASS;
        }
        const int taken = dp_take_option("inspect", argc, argv, &i, own, 1, &code);
        if (taken < 0) return code;
        if (taken > 0) continue;
        if (strcmp(argument, "--json") == 0) {
            if (options.json) return dp_usage_error("inspect", "--json is given twice");
            options.json = true;
        } else if (argument[0] == '-' && argument[1] != '\0') {
            return dp_usage_error("inspect", "unknown word '%s'", argument);
        } else if (options.path != NULL) {
            return dp_usage_error("inspect", "one PATH at a time; found %s and %s", options.path, argument);
        } else {
            options.path = argument;
        }
    }
    if (options.path == NULL) return dp_usage_error("inspect", "PATH is missing");
    dflash_error err = {0};
    int shown = 0;
    if (describe(&options, &shown, &err) != DFLASH_OK) return dp_report_error("inspect", &err);
    if (shown == 0)
        fprintf(stderr, "dflash-parity inspect: nothing in %s matches %s; run without -k to see every name.\n",
                options.path, options.pattern != NULL ? options.pattern : "*");
    return dp_finish_output("inspect", shown > 0 ? DP_EXIT_PASS : DP_EXIT_NOTHING);
}
