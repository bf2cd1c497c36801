/*
 * cases.h - the list of cases that the gate runs (fixtures/cases.json; fixtures/README.md describes its keys).
 *
 * A case is a checkpoint and an oracle. A checkpoint that is not stored is written from its recipe the first time.
 * Paths of a list start from its `root`, which is relative to the list's own folder, so that it can be used from
 * anywhere; without one they start from the working directory.
 */
#ifndef DP_CASES_H
#define DP_CASES_H

#include "dflash.h"
#include "store/synth.h"

#include <cjson/cJSON.h>

typedef struct dp_case {
    const char *name, *checkpoint, *oracle; /* borrowed from the list; paths from the working directory */
    const char *oracle_entry;               /* the oracle as the list names it, which is how a manifest knows it */
    const char *head;                       /* FILE[:TENSOR] of the output head; NULL: the checkpoint's own */
    const cJSON *entry;                     /* likewise; the facts of its oracle (request.h) */
    bool stored;                            /* the checkpoint is part of the repository */
    dflash_precision precision;             /* how the weights are held */
    const char *synth_config;               /* recipe */
    dp_synth_options synth;
} dp_case;

typedef struct dp_case_list {
    dp_case *item; /* owned */
    int count;
    cJSON *document; /* owned */
    char **path;     /* owned, with what they point to: the paths of the items, from the working directory */
    int path_count;
    const char *root;     /* what those start with: "" or "FOLDER/" */
    const char *manifest; /* of its oracles (manifest.h); NULL: nothing pins them */
    const char *vectors;  /* the file that the case "vectors" judges (vectors.h); NULL: no such case */
} dp_case_list;

/* Codes: "cases.json", "cases.entry", "cases.key" (a key that no case or no list has), "cases.precision" (a mode that
 * does not exist), "cases.recipe" (a key that no recipe has), and those of dp_text_file_read. */
dflash_status dp_cases_read(const char *path, dp_case_list *out, dflash_error *err);
void dp_cases_release(dp_case_list *list);

/* Makes sure that the checkpoint of a case is there: writes a missing one that is not stored. */
dflash_status dp_case_prepare(const dp_case *item, dflash_error *err);

/* How much work a check is, in bytes: those of the checkpoint, and what any case takes. Of a case whose checkpoint is
 * not there yet, those that it will have. For progress lines. */
double dp_checkpoint_work(const char *folder);
double dp_case_work(const dp_case *item);

#endif
