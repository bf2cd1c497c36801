/*
 * canon.h - the canonical order of every sum of the exact class.
 *
 * A sum over K terms is cut into segments of DF_SEGMENT consecutive terms. Inside a segment terms are accumulated from
 * left to right, starting at +0, with fused multiply-adds. Segment sums are then combined in a binary tree over the
 * segment's index: node n of level l covers segments [n 2^l, (n+1) 2^l); a node's value is left + right; a node of
 * which one half is absent takes the value of the other half. Each segment sum has +0 added, which turns -0 into +0, so
 * that an absent segment and one whose terms are all zero cannot be told apart.
 *
 * Products over a weight's input channels count segments from channel 0. Sums over keys count them by absolute position
 * (segment = position / DF_SEGMENT), so that neither the cache's start nor a compaction moves a term to another
 * segment.
 *
 * Segments are short enough (64) that small products still split into many independent chains on a GPU, and a multiple
 * of the 32-value blocks of the quantised formats. The rounding error of such a sum is bounded with
 * gamma_n, n = 64 + ceil(log2(segments)), instead of gamma_K for a single chain (Higham, Accuracy and Stability of
 * Numerical Algorithms, section 4.2).
 */
#ifndef DF_CANON_H
#define DF_CANON_H

#include "common/device_fn.h"

enum {
    DF_SEGMENT = 64,
    DF_TREE_SLOTS = 33 /* joins on the stack strictly decrease, and a 32-bit index has 32 levels */
};

/*
 * The tree is evaluated while segments stream by in increasing order of their index. Two neighbours a < b are joined at
 * the level of the highest bit in which they differ, so a stack whose joins decrease towards its top is all the state
 * there is. Only this bookkeeping lives here: a caller keeps the values (a scalar, a vector, a tile) in slots beside it
 * and performs the additions.
 */
typedef struct df_tree {
    int depth;                    /* slots in use */
    unsigned last;                /* segment pushed last */
    unsigned join[DF_TREE_SLOTS]; /* join[i] = last segment of slot i-1 XOR first segment of slot i */
} df_tree;

DF_FN void df_tree_reset(df_tree *tree) { tree->depth = 0; }

/*
 * Makes room for the sum of `segment`. The caller first folds as often as the return value says, each time
 * slot[top - 1] += slot[top] and dropping the top, and then stores the new sum above what is left, at
 * slot[tree->depth - 1].
 */
DF_FN int df_tree_push(df_tree *tree, unsigned segment) {
    int folds = 0;
    const unsigned join = tree->depth > 0 ? tree->last ^ segment : 0;
    while (tree->depth > 1) {
        /* Fold while the top join is at a lower level, that is, has a lower highest bit: a < b and a < (a ^ b). */
        const unsigned top = tree->join[tree->depth - 1];
        if (!(top < join && top < (top ^ join))) break;
        tree->depth--;
        folds++;
    }
    tree->join[tree->depth] = join;
    tree->last = segment;
    tree->depth++;
    return folds;
}

/* A canonical sum of scalars, for the plain code and the small reductions. */
typedef struct df_sum {
    df_tree tree;
    float slot[DF_TREE_SLOTS];
} df_sum;

DF_FN void df_sum_push(df_sum *sum, unsigned segment, float value) {
    int top = sum->tree.depth - 1;
    for (int folds = df_tree_push(&sum->tree, segment); folds > 0; folds--, top--) sum->slot[top - 1] += sum->slot[top];
    sum->slot[sum->tree.depth - 1] = value + 0.0f;
}

/* The value of the whole tree; +0 when nothing was pushed. */
DF_FN float df_sum_total(const df_sum *sum) {
    if (sum->tree.depth == 0) return 0.0f;
    float total = sum->slot[sum->tree.depth - 1];
    for (int i = sum->tree.depth - 2; i >= 0; i--) total = sum->slot[i] + total;
    return total;
}

#endif
