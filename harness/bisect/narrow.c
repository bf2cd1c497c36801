/* narrow.c - see narrow.h; the words are narrow_report.c's. */
#include "bisect/narrow.h"

#include "common/dtype.h"
#include "common/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Which elements ---- */

/* The largest distance, in units of the row's rms, that is not off. */
static double allowance(const dp_file_stage *stage) {
    const bool max_failed = stage->difference.max_rel > stage->limit.max_rel;
    /* When only the norm is too large, some element is beyond the norm's limit: were none, the norm would hold. */
    return max_failed || dp_headroom_passes(stage->headroom) ? stage->limit.max_rel : stage->limit.l2_rel;
}

static void mask_by_envelope(const dp_file_stage *stage, const dp_stage_sides *sides, bool *off) {
    const dp_stage_spec *spec = &sides->spec;
    const int64_t length = dp_row_length(spec->stage, spec->rank, spec->dim);
    const double limit = allowance(stage);
    for (int64_t first = 0, end; first < sides->count; first = end) {
        const int64_t row = (sides->offset + first * sides->stride) / length;
        double sum = 0.0;
        for (end = first; end < sides->count && (sides->offset + end * sides->stride) / length == row; end++)
            sum += sides->wide[0][end] * sides->wide[0][end];
        const double rms = sqrt(sum / (double)(end - first));
        for (int64_t i = first; i < end; i++) off[i] = !(fabs(sides->wide[1][i] - sides->wide[0][i]) <= limit * rms);
    }
}

dflash_status dp_narrow_mask(const dp_file_comparison *comparison, const dp_file_stage *stage,
                             const dp_stage_sides *sides, bool **off, dflash_error *err) {
    *off = malloc((size_t)sides->count * sizeof **off + 1);
    if (*off == NULL) return df_fail_memory(err, "the differing elements", (size_t)sides->count);
    if (comparison->expect == DP_EXPECT_ENVELOPE && stage->barred && stage->measured) {
        mask_by_envelope(stage, sides, *off);
        return DFLASH_OK;
    }
    for (int64_t i = 0; i < sides->count; i++)
        (*off)[i] = sides->spec.exact ? sides->integer[0][i] != sides->integer[1][i]
                                      : df_f32_to_bits(sides->narrow[0][i]) != df_f32_to_bits(sides->narrow[1][i]) ||
                                            memcmp(&sides->wide[0][i], &sides->wide[1][i], sizeof(double)) != 0;
    return DFLASH_OK;
}

/* ---- The view ---- */

static void set_view(const dflash_config *c, const dp_stage_spec *spec, int context, dp_narrowing *out) {
    const int64_t *dim = spec->dim;
    out->layers = out->heads = 1;
    out->rows = dim[0];
    out->columns = spec->rank > 1 ? dim[1] : 1;
    if (spec->rank >= 3) out->heads = dim[1], out->columns = dim[2];
    if (spec->rank == 4) out->heads = dim[1] * dim[2], out->columns = dim[3];
    switch (spec->stage) {
    case DFLASH_STAGE_ROPE_INV_FREQ:
        out->rows = 1;
        out->columns = dim[0];
        break;
    case DFLASH_STAGE_ATTN_Q_PROJ:
    case DFLASH_STAGE_ATTN_CONTEXT:
        out->heads = c->n_heads;
        out->columns = c->head_dim;
        break;
    case DFLASH_STAGE_ATTN_K_PROJ:
    case DFLASH_STAGE_ATTN_V:
        out->heads = c->n_kv_heads;
        out->columns = c->head_dim;
        break;
    case DFLASH_STAGE_KV_K:
    case DFLASH_STAGE_KV_V:
        out->layers = dim[0];
        out->rows = dim[1];
        out->heads = dim[2];
        break;
    default:
        break;
    }
    const bool query = spec->stage == DFLASH_STAGE_ATTN_Q_PROJ || spec->stage == DFLASH_STAGE_ATTN_CONTEXT ||
                       spec->stage == DFLASH_STAGE_ATTN_Q_NORM || spec->stage == DFLASH_STAGE_ATTN_Q_ROPE;
    const bool both = dp_stage_shows_context(spec->stage) || spec->stage == DFLASH_STAGE_ROPE_COS ||
                      spec->stage == DFLASH_STAGE_ROPE_SIN;
    out->group = query ? c->n_heads / c->n_kv_heads : 0;
    out->context = both && out->rows == (int64_t)context + c->block ? context : -1;
}

/* ---- Axes ---- */

/* Bits of an index on an axis. */
enum { KNOWN = 1, HIT = 2 };

/* Every known index of [first, last] that is `residue` modulo `modulus` is hit, and no other of the axis. */
static bool covers(const unsigned char *mark, int64_t size, int64_t first, int64_t last, int64_t modulus,
                   int64_t residue) {
    for (int64_t i = 0; i < size; i++) {
        const bool inside = i >= first && i <= last && i % modulus == residue;
        if ((mark[i] & KNOWN) != 0 && inside != ((mark[i] & HIT) != 0)) return false;
    }
    return true;
}

static bool find_tile(const unsigned char *mark, dp_axis *axis) {
    for (int64_t tile = 2; tile < axis->size; tile *= 2) {
        const int64_t first = axis->first / tile * tile, last = first + tile - 1;
        if (last >= axis->size || axis->last > last || !covers(mark, axis->size, first, last, 1, 0)) continue;
        axis->modulus = tile;
        return true;
    }
    return false;
}

static bool find_lane(const unsigned char *mark, dp_axis *axis) {
    enum { WIDEST = 64 }; /* no machine's vector has more lanes of float32 */
    if (axis->hit < 2) return false;
    for (int64_t modulus = WIDEST; modulus >= 2; modulus /= 2) {
        if (!covers(mark, axis->size, 0, axis->size - 1, modulus, axis->first % modulus)) continue;
        axis->modulus = modulus;
        axis->residue = axis->first % modulus;
        return true;
    }
    return false;
}

static dp_axis describe(const unsigned char *mark, int64_t size) {
    dp_axis axis = {.size = size, .first = -1, .last = -1};
    for (int64_t i = 0; i < size; i++) {
        axis.known += (mark[i] & KNOWN) != 0;
        if ((mark[i] & HIT) == 0) continue;
        axis.hit++;
        if (axis.first < 0) axis.first = i;
        axis.last = i;
    }
    axis.pattern = size == 1                                         ? DP_AXIS_TRIVIAL
                   : axis.hit == axis.known                          ? DP_AXIS_ALL
                   : axis.hit == 1                                   ? DP_AXIS_ONE
                   : find_tile(mark, &axis)                          ? DP_AXIS_TILE
                   : find_lane(mark, &axis)                          ? DP_AXIS_LANE
                   : covers(mark, size, axis.first, axis.last, 1, 0) ? DP_AXIS_RANGE
                                                                     : DP_AXIS_SCATTERED;
    return axis;
}

/* One element's place. */
typedef struct place {
    int64_t layer, row, head, column;
} place;

static place place_of(const dp_narrowing *n, int64_t flat) {
    place p = {.column = flat % n->columns};
    flat /= n->columns;
    p.head = flat % n->heads;
    flat /= n->heads;
    p.row = flat % n->rows;
    p.layer = flat / n->rows;
    return p;
}

static dflash_status describe_axes(const dp_stage_sides *sides, const bool *off, dp_narrowing *n, dflash_error *err) {
    const int64_t width = n->heads * n->columns;
    const size_t total = (size_t)(n->layers + n->rows + n->heads + width + n->columns);
    unsigned char *mark = calloc(total, 1);
    if (mark == NULL) return df_fail_memory(err, "the axes of a stage", total);
    unsigned char *layer = mark, *row = layer + n->layers, *head = row + n->rows, *column = head + n->heads,
                  *inner = column + width;
    for (int64_t i = 0; i < sides->count; i++) {
        const place p = place_of(n, sides->offset + i * sides->stride);
        const unsigned char bits = off[i] ? KNOWN | HIT : KNOWN;
        layer[p.layer] |= bits;
        row[p.row] |= bits;
        head[p.head] |= bits;
        column[p.head * n->columns + p.column] |= bits;
        inner[p.column] |= bits;
        n->differing += off[i];
        if (off[i] && n->first < 0) n->first = sides->offset + i * sides->stride;
    }
    n->layer = describe(layer, n->layers);
    n->row = describe(row, n->rows);
    n->head = describe(head, n->heads);
    n->column = describe(column, width);
    n->column_in_head = describe(inner, n->columns);
    free(mark);
    return DFLASH_OK;
}

/* ---- Values ---- */

/* Half a unit in the last place of float32, relative to the value: what rounding can do to either side. */
static const double unit_roundoff = 0x1p-24;

/* Narrows [*low, *high] to what this element allows; false when nothing is left. */
static bool intersect(double *low, double *high, double x, double y) {
    *low = fmax(*low, fmin(x, y));
    *high = fmin(*high, fmax(x, y));
    return *low <= *high;
}

/* One factor for all: the quotients, each as wide as the roundings of both values make it, have a point in common. */
static bool find_factor(const dp_stage_sides *s, const bool *off, dp_narrowing *n) {
    double low = -INFINITY, high = INFINITY;
    for (int64_t i = 0; i < s->count; i++) {
        if (!off[i]) continue;
        if (s->wide[0][i] == 0.0) return false;
        const double q = s->wide[1][i] / s->wide[0][i];
        if (!intersect(&low, &high, q * (1.0 - 2.0 * unit_roundoff), q * (1.0 + 2.0 * unit_roundoff))) return false;
    }
    n->factor = 0.5 * (low + high);
    return low > 1.0 || high < 1.0;
}

static bool find_term(const dp_stage_sides *s, const bool *off, dp_narrowing *n) {
    double low = -INFINITY, high = INFINITY;
    for (int64_t i = 0; i < s->count; i++) {
        if (!off[i]) continue;
        const double d = s->wide[1][i] - s->wide[0][i];
        const double slack = unit_roundoff * (fabs(s->wide[0][i]) + fabs(s->wide[1][i]));
        if (!intersect(&low, &high, d - slack, d + slack)) return false;
    }
    n->term = 0.5 * (low + high);
    return low > 0.0 || high < 0.0;
}

static bool all_values(const dp_stage_sides *s, const bool *off, bool (*holds)(double a, double b)) {
    for (int64_t i = 0; i < s->count; i++)
        if (off[i] && !holds(s->wide[0][i], s->wide[1][i])) return false;
    return true;
}

static bool is_nonfinite(double a, double b) {
    (void)a;
    return !isfinite(b);
}
static bool is_zero(double a, double b) { return a != 0.0 && b == 0.0; }
static bool is_negated(double a, double b) { return a != 0.0 && b == -a; }

/* Blocks of `length` elements, `count` of them one after another in each of `outer` parts: is every block of B that
 * differs A's block a constant step away? */
static bool find_shift(const dp_stage_sides *s, const bool *off, int64_t outer, int64_t count, int64_t length,
                       int64_t *shift) {
    const size_t bytes = (size_t)length * sizeof(double);
    for (int64_t step = 1; step < count; step++)
        for (int sign = -1; sign <= 1; sign += 2) {
            bool fits = true;
            for (int64_t block = 0; fits && block < outer * count; block++) {
                const int64_t from = block % count + sign * step;
                bool touched = false;
                for (int64_t i = 0; i < length && !touched; i++) touched = off[block * length + i];
                if (!touched) continue;
                fits = from >= 0 && from < count &&
                       memcmp(s->wide[1] + block * length, s->wide[0] + (block + sign * step) * length, bytes) == 0;
            }
            *shift = sign * step;
            if (fits) return true;
        }
    return false;
}

static void describe_values(const dp_stage_sides *s, const bool *off, dp_narrowing *n) {
    /* Any one element is A's times something plus something, and so, often, are two: three say more. */
    const bool several = n->differing >= 3, whole = s->stride == 1 && s->offset == 0;
    const int64_t width = n->heads * n->columns;
    n->values = all_values(s, off, is_nonfinite)                                                 ? DP_VALUES_NONFINITE
                : all_values(s, off, is_zero)                                                    ? DP_VALUES_ZERO
                : all_values(s, off, is_negated)                                                 ? DP_VALUES_NEGATED
                : whole && width > 1 && find_shift(s, off, n->layers, n->rows, width, &n->shift) ? DP_VALUES_OTHER_ROW
                : whole && n->columns > 1 && find_shift(s, off, n->layers * n->rows, n->heads, n->columns, &n->shift)
                    ? DP_VALUES_OTHER_HEAD
                : several && find_factor(s, off, n) ? DP_VALUES_SCALED
                : several && find_term(s, off, n)   ? DP_VALUES_SHIFTED
                                                    : DP_VALUES_NONE;
}

/* ---- The map ---- */

static int cells(int64_t size, int most, int *each) {
    *each = (int)((size + most - 1) / most);
    return (int)((size + *each - 1) / *each);
}

static void draw_map(const dp_stage_sides *s, const bool *off, dp_narrowing *n) {
    enum { SAME = 1, DIFFERS = 2 };
    unsigned char seen[DP_MAP_LINES][DP_MAP_COLUMNS] = {{0}};
    const int64_t layer = place_of(n, n->first).layer;
    n->map_lines = cells(n->rows, DP_MAP_LINES, &n->rows_a_line);
    const int columns = cells(n->heads * n->columns, DP_MAP_COLUMNS, &n->columns_a_character);
    for (int64_t i = 0; i < s->count; i++) {
        const place p = place_of(n, s->offset + i * s->stride);
        if (p.layer == layer)
            seen[p.row / n->rows_a_line][(p.head * n->columns + p.column) / n->columns_a_character] |=
                off[i] ? DIFFERS : SAME;
    }
    for (int y = 0; y < n->map_lines; y++)
        for (int x = 0; x < columns; x++) n->map[y][x] = "-.#+"[seen[y][x]];
}

dflash_status dp_narrow(const dflash_config *config, int context, const dp_stage_sides *sides, const bool *off,
                        dp_narrowing *out, dflash_error *err) {
    *out = (dp_narrowing){.first = -1, .known = sides->count};
    set_view(config, &sides->spec, context, out);
    TRY(describe_axes(sides, off, out, err));
    if (out->differing == 0) return DFLASH_OK;
    describe_values(sides, off, out);
    draw_map(sides, off, out);
    return DFLASH_OK;
}
