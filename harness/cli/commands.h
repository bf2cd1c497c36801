/*
 * commands.h - the commands of dflash-parity. Each takes its own name as argv[0] and returns the exit code.
 */
#ifndef DP_COMMANDS_H
#define DP_COMMANDS_H

int cmd_check(int argc, char **argv);         /* one checkpoint against one oracle */
int cmd_gate(int argc, char **argv);          /* every case of a list, one verdict */
int cmd_explain(int argc, char **argv);       /* where limits come from */
int cmd_ladder(int argc, char **argv);        /* what each precision mode costs */
int cmd_bench(int argc, char **argv);         /* times, as JSON and a table */
int cmd_identity(int argc, char **argv);      /* the same bits however the work is cut */
int cmd_record(int argc, char **argv);        /* one run as a file */
int cmd_compare(int argc, char **argv);       /* two files, stage by stage */
int cmd_bisect(int argc, char **argv);        /* where two runs part */
int cmd_soak(int argc, char **argv);          /* isolated runs on made inputs: no bound may be left */
int cmd_sensitivity(int argc, char **argv);   /* which case notices each field of a config */
int cmd_coverage(int argc, char **argv);      /* which case exceeds each size in the code */
int cmd_gpu_record(int argc, char **argv);    /* what a GPU found, as one file */
int cmd_release_check(int argc, char **argv); /* whether such files are fresh */
int cmd_report(int argc, char **argv);        /* a result file, rendered again */
int cmd_history(int argc, char **argv);       /* runs on record, and drifts that grow */
int cmd_postmortem(int argc, char **argv);    /* results of several runs as one story */

#endif
