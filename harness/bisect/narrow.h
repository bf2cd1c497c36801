/*
 * narrow.h - inside one divergent stage: which layers, rows, heads and columns differ, and what the differing values
 * have in common.
 *
 * A stage is viewed as [layers, rows, heads, columns], with 1 where it has no such axis. A pattern is named only when
 * it accounts for every differing element; otherwise there is none, and the narrowing says so. What made the difference
 * is narrow_cause.h's business.
 */
#ifndef DP_NARROW_H
#define DP_NARROW_H

#include "bisect/compare_files.h"

#include <cjson/cJSON.h>
#include <stdio.h>

/* Where on an axis the differing elements lie; the first that fits, in this order. */
typedef enum dp_axis_pattern {
    DP_AXIS_TRIVIAL = 0, /* the axis has one index */
    DP_AXIS_ALL,
    DP_AXIS_ONE,
    DP_AXIS_TILE,  /* one whole aligned tile of `modulus` indices */
    DP_AXIS_LANE,  /* every index that is `residue` modulo `modulus` */
    DP_AXIS_RANGE, /* every index from first to last */
    DP_AXIS_SCATTERED
} dp_axis_pattern;

typedef struct dp_axis {
    dp_axis_pattern pattern;
    int64_t size, known, hit; /* indices; those of which any element is held by both files; those with a difference */
    int64_t first, last;
    int64_t modulus, residue;
} dp_axis;

/* What the differing values have in common. */
typedef enum dp_value_pattern {
    DP_VALUES_NONE = 0,
    DP_VALUES_NONFINITE, /* B is NaN or infinite */
    DP_VALUES_ZERO,      /* B is 0 */
    DP_VALUES_NEGATED,   /* B is -A */
    DP_VALUES_SCALED,    /* B is A times one factor, up to the rounding of both */
    DP_VALUES_SHIFTED,   /* B is A plus one term, likewise */
    DP_VALUES_OTHER_ROW, /* B's row r is bit by bit A's row r + shift */
    DP_VALUES_OTHER_HEAD /* the same with heads */
} dp_value_pattern;

enum { DP_MAP_LINES = 16, DP_MAP_COLUMNS = 64 };

typedef struct dp_narrowing {
    int64_t layers, rows, heads, columns; /* the view */
    int64_t known, differing, first;      /* elements; flat index of the first that differs */
    dp_axis layer, row, head, column;     /* column: of the whole row, heads side by side; see column_in_head */
    dp_axis column_in_head;               /* the index within a head */
    dp_value_pattern values;
    double factor, term; /* of SCALED and SHIFTED */
    int64_t shift;       /* of OTHER_ROW and OTHER_HEAD */
    int context;         /* leading rows that are the context's; -1: the stage shows the block alone */
    int group;           /* query heads to a key/value head, when heads are query heads; 0 otherwise */
    char map[DP_MAP_LINES][DP_MAP_COLUMNS + 1]; /* of the first layer that differs: '.' same, '+' some, '#' all differ,
                                                   '-' not held by both files */
    int map_lines, rows_a_line, columns_a_character;
} dp_narrowing;

/*
 * Which elements of a stage count as differing: those whose bits do, or, where the comparison expects the envelope,
 * those further apart than the measure that failed allows (the largest error's limit, or the relative L2 limit when
 * only that one failed, times the row's rms). off[sides->count], owned by the caller.
 */
dflash_status dp_narrow_mask(const dp_file_comparison *comparison, const dp_file_stage *stage,
                             const dp_stage_sides *sides, bool **off, dflash_error *err);

dflash_status dp_narrow(const dflash_config *config, int context, const dp_stage_sides *sides, const bool *off,
                        dp_narrowing *out, dflash_error *err);

/* Lines of words, and the map. */
void dp_narrowing_text(FILE *to, const dp_narrowing *narrowing);
cJSON *dp_narrowing_json(const dp_narrowing *narrowing);

#endif
