/* cmd_synth.h - the command `dflash-parity synth`. */
#ifndef DP_CMD_SYNTH_H
#define DP_CMD_SYNTH_H

/* argv[0] is "synth". Returns the exit code. */
int cmd_synth(int argc, char **argv);

#endif
