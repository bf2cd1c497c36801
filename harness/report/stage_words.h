/* stage_words.h - what a stage computes, in a few words for readers who do not know the names (reports/STAGES.md). */
#ifndef DP_STAGE_WORDS_H
#define DP_STAGE_WORDS_H

/* "the softmax-weighted values over the visible keys" for "layers.1.attn.context"; "" for a name that is no stage. */
const char *dp_stage_words(const char *name);

#endif
