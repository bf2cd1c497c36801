/*
 * startup.h - what the program makes sure of before a command runs.
 */
#ifndef DP_STARTUP_H
#define DP_STARTUP_H

#include <stdbool.h>

/*
 * Standard input, output and error are open. A program may be started with one of them closed, and the next file that
 * is opened would take its number: a report would be printed into a result, or a message into an oracle. The closed
 * ones get a descriptor that neither reads nor writes, so that what was meant for them fails as it would have. False:
 * they cannot be filled, and nothing may be opened.
 *
 * Standard output is line-buffered whatever it is: a log shows each case when it is done.
 */
bool dp_startup(void);

#endif
