/*
 * ids.h - what the integers of a file may be: token ids are rows of tables, and whoever reads a table by them must be
 * able to rely on that.
 *
 * Every id lies in the vocabulary (of the selector, where it has one of its own; the bfloat16 run of a reference, which
 * judges nobody, may choose any row of the head). The candidates of a slot are different ones, by descending value and
 * then ascending id. The verify window counts from 2 to the block and its anchor.
 */
#ifndef DP_IDS_H
#define DP_IDS_H

#include "store/stage_set.h"
#include "store/store.h"

typedef struct dp_ids_subject {
    const dp_oracle *file;
    const dflash_config *config;
    const dp_stage_set *stages; /* what the config demands; only stages of their shapes are read */
    int vocab;                  /* rows of the output head; 0: none ran */
} dp_ids_subject;

/* The input anchor of a file that has one. Code: "oracle.ids.range". */
dflash_status dp_ids_check_anchor(const dp_ids_subject *subject, dflash_error *err);
/* One integer stage of a run. The order of candidates is looked at where they and their values are whole. Codes:
 * "oracle.ids.range", "oracle.ids.order". */
dflash_status dp_ids_check_stage(const dp_ids_subject *subject, dp_run run, const dp_stage_spec *spec,
                                 dflash_error *err);
/* The anchor, and of an oracle every integer stage of every run. A recording's stages are what is judged, so that one
 * of them which is wrong is a result (file_stage.h) and no refusal. */
dflash_status dp_ids_check(const dp_ids_subject *subject, dflash_error *err);

#endif
