/* cmd_explain.c - `dflash-parity explain`: the numbers that verdicts hang on, with their reasons. */
#include "cli/commands.h"

#include "base/cli.h"
#include "cli/explain.h"
#include "base/output.h"

#include <stdio.h>
#include <string.h>

static const char help[] = "usage: dflash-parity explain [STAGE]\n"
                           "\n"
                           "Prints how limits are made and every number that they rest on, with its reason and source. "
                           "With STAGE, a name or a\n"
                           "pattern such as 'layers.0.attn.*', the bound of these stages too. The numbers of one "
                           "check's limits are printed by\n"
                           "check --explain.\n"
                           "\n"
                           "  --help    this text\n"
                           "\n"
                           "Exit codes: 0 printed, 2 usage, 4 runtime, 5 no stage matches.\n";

int cmd_explain(int argc, char **argv) {
    if (argc == 2 && dp_help_word(argv[1])) {
        fputs(help, stdout);
        return DP_EXIT_PASS;
    }
    if (argc > 2) return dp_usage_error("explain", "one STAGE at a time; found %s and %s", argv[1], argv[2]);
    if (argc == 2 && argv[1][0] == '-') return dp_usage_error("explain", "unknown word '%s'", argv[1]);
    if (argc == 1) {
        dp_explain_rules(stdout);
        return dp_finish_output("explain", DP_EXIT_PASS);
    }
    if (dp_explain_stages(stdout, argv[1]) > 0) {
        printf("\n");
        dp_explain_rules(stdout);
        return dp_finish_output("explain", DP_EXIT_PASS);
    }
    fprintf(stderr, "dflash-parity explain: no stage matches %s; stages of layer 0 stand for those of every layer.\n",
            argv[1]);
    return DP_EXIT_NOTHING;
}
