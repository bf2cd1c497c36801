/*
 * dflash.h - the whole interface of the drafter.
 *
 * A block drafter reads hidden states tapped from a target model and drafts one block of tokens. This header serves
 * three families (DFlash, DSpark, DFlash2), every numeric class and every backend through opaque handles; nothing
 * behind it knows about oracles or tolerances. Its parts are the headers below dflash/.
 *
 * Conventions for every function:
 *   - Tensors are row-major float32 and contiguous, in buffers that the caller owns and that live in the engine's
 * memory (dflash_engine_alloc; on the CPU any host pointer will do). Shapes are written [rows, columns].
 *   - Symbols: H hidden size, nh query heads, nkv key/value heads, hd head size, F MLP size, L layers, B block size,
 *     C context rows, T taps. Positions are absolute and count tokens from 0.
 *   - A function returns DFLASH_OK or the status that it also stores in *err with a stable code and a one-paragraph
 * message. On failure outputs are unspecified, caches keep their length, and nothing leaks.
 *   - An engine, with everything made from it, serves one call at a time; different engines are independent and nothing
 * is global.
 */
#ifndef DFLASH_H
#define DFLASH_H

#include "dflash/api.h"
#include "dflash/config.h"
#include "dflash/draft.h"
#include "dflash/engine.h"
#include "dflash/propose.h"
#include "dflash/stage.h"

#endif
