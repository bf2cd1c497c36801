/* cmd_inspect.h - `dflash-parity inspect`: what is in an oracle, a recording, a checkpoint or a config. */
#ifndef DP_CMD_INSPECT_H
#define DP_CMD_INSPECT_H

/* argv[0] is "inspect". Returns the exit code: 0, 2, 3, 4, or 5 when -k matches nothing. */
int cmd_inspect(int argc, char **argv);

#endif
