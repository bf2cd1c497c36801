/*
 * request.h - was this oracle generated as its case says?
 *
 * An oracle records what was asked for (`request` of its provenance): context, start, seed and profile of the inputs,
 * the stride of its samples and what is stored whole. The record is held against the file's own content, and a case of
 * a list against the record, so that an oracle of another input cannot stand in for the case's.
 */
#ifndef DP_REQUEST_H
#define DP_REQUEST_H

#include "store/store.h"

/* Whether the request fits the rows, the positions and the seed of its oracle; `pos` [context + block]. Code:
 * "provenance.request". */
dflash_status dp_request_check(const dp_oracle *oracle, int context, const int32_t *pos, dflash_error *err);

/* The facts of a case's entry (fixtures/README.md) against the request. A fact that the entry leaves out is not
 * compared; full_stages is compared where sample_stride is. Code: "case.differs". */
dflash_status dp_request_check_case(const cJSON *entry, const dp_oracle *oracle, dflash_error *err);

/* The first fact that an entry of a pinned list lacks; NULL when it has them all. */
const char *dp_request_lacking(const cJSON *entry);

#endif
