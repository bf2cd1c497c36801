/* cli_case.h - the parts of suite_cli, each in a file of its own; test_cli.c puts them together. */
#ifndef DP_TESTS_CLI_CASE_H
#define DP_TESTS_CLI_CASE_H

#include "support/child.h"
#include "support/scratch.h"

#define CLI_PLAIN "--checkpoint", "fixtures/small/tiny-plain", "--oracle", "oracles/tiny-plain.h5"
#define CLI_EDGE "--checkpoint", "fixtures/small/tiny-edge", "--oracle", "oracles/tiny-edge.h5"

/* A test case whose tests start from an empty scratch folder. */
TCase *cli_case(const char *name);

void cli_add_results(Suite *suite); /* test_cli_results.c */
void cli_add_gate(Suite *suite);    /* test_cli_gate.c */
void cli_add_others(Suite *suite);  /* test_cli_others.c */
void cli_add_heads(Suite *suite);   /* test_cli_heads.c */
void cli_add_inputs(Suite *suite);  /* test_cli_inputs.c */

#endif
