/* output.c - see output.h. */
#include "base/output.h"

#include "base/cli.h"
#include "common/error.h"
#include "base/json_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int dp_finish_output(const char *command, int code) {
    dflash_error err;
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    df_fail(
        &err, DFLASH_ERR_IO, "output.write",
        "The result cannot be written to standard output: %s. What was printed is not complete, so this is no verdict; "
        "free space or choose another place.",
        strerror(errno));
    return dp_report_error(command, &err);
}

int dp_print_json(const char *command, const cJSON *json, int code) {
    dflash_error err;
    char *text = json != NULL ? dp_json_print(json, true) : NULL;
    if (text == NULL) {
        df_fail_memory(&err, "the JSON result", 0);
        return dp_report_error(command, &err);
    }
    puts(text);
    cJSON_free(text);
    return dp_finish_output(command, code);
}
