/*
 * test_vectors_heads.c - the candidate selector, the Markov heads and the confidence head on stored rows and logits:
 * values against the reference's float64 within a bound computed from the operands, ids and windows exactly.
 */
#include "support/vectors_case.h"

#include "run/recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SLOTS = 8, MOST_WIDTH = 512 };

static const dflash_proposal_options GREEDY = {.temperature = 0};

/* Rows, logits and the anchor of a group, and the drafter that they are for. */
typedef struct head_case {
    vf_group group;
    vc_model model;
    int n, hidden, vocab;
    float *rows, *logits;
    int32_t anchor;
} head_case;

static void open_case(const vf_file *file, const char *part, const char *name, head_case *c) {
    vf_group_open(file, part, name, &c->group);
    vc_load(&c->group, &c->model);
    vf_param_int(&c->group, "seed");
    c->n = vf_rows(&c->group, "rows");
    c->hidden = dflash_draft_config(c->model.draft)->hidden;
    c->vocab = dflash_draft_config(c->model.draft)->vocab;
    ck_assert(c->n >= 2 && c->n <= MOST_SLOTS && c->vocab <= MOST_WIDTH);
    c->rows = vf_floats(&c->group, "rows", (const int64_t[4]){c->n, c->hidden});
    c->logits = NULL;
    if (strcmp(part, "confidence") == 0) return;
    c->logits = vf_floats(&c->group, "logits", (const int64_t[4]){c->n, c->vocab});
    int32_t *anchor = vf_ints(&c->group, "anchor", (const int64_t[4]){1});
    c->anchor = *anchor;
    free(anchor);
}

static void close_case(head_case *c) {
    free(c->rows);
    free(c->logits);
    vf_group_close(&c->group);
    vc_release(&c->model);
}

/* A proposal with its stages. Release the recording. */
static void propose(const head_case *c, const float *rows, const float *logits, int32_t anchor, int32_t *token,
                    dp_recording *seen) {
    dflash_error err = {0};
    *seen = (dp_recording){.stage = NULL};
    dflash_draft_observe(c->model.draft, dp_recording_observe, seen);
    const dflash_status status = dflash_propose(c->model.draft, NULL, logits, rows, c->n, c->vocab, anchor, &GREEDY,
                                                &(dflash_proposal){.token = token}, &err);
    dflash_draft_observe(c->model.draft, NULL, NULL);
    ck_assert_msg(status == DFLASH_OK, "%s: %s", err.code, err.message);
    ck_assert_int_eq(dp_recording_status(seen, &err), DFLASH_OK);
}

static const dp_recorded *stage_of(const dp_recording *seen, dflash_stage stage, int rows, int columns) {
    const dp_recorded *found = dp_recording_find(seen, stage, -1);
    ck_assert_msg(found != NULL && found->dim[0] == rows &&
                      (columns == 0 ? found->rank == 1 : found->dim[1] == columns),
                  "stage %d is missing or has another shape", (int)stage);
    return found;
}

static int different(const int32_t *ours, const int32_t *theirs, int n) {
    int count = 0;
    for (int i = 0; i < n; i++) count += ours[i] != theirs[i];
    return count;
}

/* Row 1 in row 0's place and so on: rows that belong to other slots. */
static float *rotated(const float *rows, int n, int width) {
    float *turned = malloc((size_t)(n * width) * sizeof *turned);
    ck_assert_ptr_nonnull(turned);
    memcpy(turned, rows + width, (size_t)((n - 1) * width) * sizeof *turned);
    memcpy(turned + (n - 1) * width, rows, (size_t)width * sizeof *turned);
    return turned;
}

/* ---- Selector ---- */

typedef struct selector_case {
    head_case head;
    int k, rank;
    double *hidden, *values, *scores;
    int32_t *ids, *path;
    dp_real hidden_bound[MOST_SLOTS * MOST_WIDTH], score_bound[MOST_SLOTS * MOST_WIDTH];
} selector_case;

/* Bounds of the walk over the reference's own candidates and choices. */
static void bound_selector(selector_case *s) {
    const df_weights *w = &s->head.model.draft->weights;
    dp_real row[MOST_WIDTH], product[MOST_WIDTH], pair[MOST_WIDTH];
    for (int slot = 0; slot < s->head.n; slot++) {
        dp_real *h = s->hidden_bound + slot * s->rank;
        ds_exact(s->head.rows + slot * s->head.hidden, s->head.hidden, row);
        ds_product(&w->selector_projection, NULL, row, h);
        ds_row(&w->predecessor, slot == 0 ? s->head.anchor : s->path[slot - 1], row);
        for (int j = 0; j < s->rank; j++) product[j] = ds_multiply(row[j], h[j]);
        ds_product(&w->successor, NULL, product, pair);
        for (int b = 0; b < s->k; b++) {
            const int32_t id = s->ids[slot * s->k + b];
            s->score_bound[slot * s->k + b] =
                ds_add((dp_real){(double)s->head.logits[slot * s->head.vocab + id], 0}, pair[id]);
        }
    }
}

static void open_selector(const vf_file *file, const char *name, selector_case *s) {
    open_case(file, "selector", name, &s->head);
    const dflash_config *config = dflash_draft_config(s->head.model.draft);
    s->k = config->selector_top_k;
    s->rank = config->selector_rank;
    ck_assert_int_eq(vf_param_int(&s->head.group, "top_k"), s->k);
    const int64_t wide[4] = {s->head.n, s->k};
    s->hidden = vf_doubles(&s->head.group, "hidden", (const int64_t[4]){s->head.n, s->rank});
    s->values = vf_doubles(&s->head.group, "topk_values", wide);
    s->scores = vf_doubles(&s->head.group, "scores", wide);
    s->ids = vf_ints(&s->head.group, "topk_ids", wide);
    s->path = vf_ints(&s->head.group, "path", (const int64_t[4]){s->head.n});
    bound_selector(s);
}

static void close_selector(selector_case *s) {
    free(s->hidden);
    free(s->values);
    free(s->scores);
    free(s->ids);
    free(s->path);
    close_case(&s->head);
}

/* What of a run disagrees with the stored case. */
typedef struct selector_faults {
    int hidden, values, ids, scores, path;
} selector_faults;

static selector_faults run_selector(const selector_case *s, const float *rows, const float *logits, int32_t anchor) {
    const head_case *c = &s->head;
    dp_recording seen;
    int32_t token[MOST_SLOTS];
    selector_faults f = {0};
    propose(c, rows, logits, anchor, token, &seen);
    const int wide = c->n * s->k;
    f.hidden = vc_outside(stage_of(&seen, DFLASH_STAGE_SELECT_HIDDEN, c->n, s->rank)->value, s->hidden, s->hidden_bound,
                          c->n * s->rank);
    f.scores =
        vc_outside(stage_of(&seen, DFLASH_STAGE_SELECT_SCORES, c->n, s->k)->value, s->scores, s->score_bound, wide);
    const float *values = stage_of(&seen, DFLASH_STAGE_SELECT_TOPK_VALUES, c->n, s->k)->value;
    for (int i = 0; i < wide; i++)
        f.values += !((double)values[i] >= s->values[i] && (double)values[i] <= s->values[i]);
    f.ids = different(stage_of(&seen, DFLASH_STAGE_SELECT_TOPK_IDS, c->n, s->k)->integer, s->ids, wide);
    f.path = different(stage_of(&seen, DFLASH_STAGE_SELECT_PATH, c->n, 0)->integer, s->path, c->n);
    ck_assert_int_eq(different(token, s->path, c->n), f.path); /* what is shown is what is returned */
    dp_recording_release(&seen);
    return f;
}

static int total(selector_faults f) { return f.hidden + f.values + f.ids + f.scores + f.path; }

static void check_selector(const selector_case *s) {
    const head_case *c = &s->head;
    selector_faults f = run_selector(s, c->rows, c->logits, c->anchor);
    ck_assert_msg(total(f) == 0, "%s: %d hidden, %d values, %d ids, %d scores, %d of the path disagree", c->group.path,
                  f.hidden, f.values, f.ids, f.scores, f.path);
    /* another anchor */
    f = run_selector(s, c->rows, c->logits, (c->anchor + 1) % c->vocab);
    ck_assert(f.hidden == 0 && f.ids == 0 && f.scores > s->k / 2);
    /* rows of other slots */
    float *rows = rotated(c->rows, c->n, c->hidden), *logits = rotated(c->logits, c->n, c->vocab);
    f = run_selector(s, rows, c->logits, c->anchor);
    ck_assert(f.hidden > c->n * s->rank * 9 / 10 && f.ids == 0 && f.scores > c->n * s->k / 2);
    f = run_selector(s, c->rows, logits, c->anchor);
    ck_assert(f.hidden == 0 && f.ids > c->n * s->k / 2 && f.values > c->n * s->k / 2 && f.path > 0);
    free(rows);
    free(logits);
    /* codebooks exchanged */
    df_weights *w = &c->model.draft->weights;
    const df_matrix predecessor = w->predecessor;
    w->predecessor = w->successor;
    w->successor = predecessor;
    dp_recording seen;
    int32_t token[MOST_SLOTS];
    propose(c, c->rows, c->logits, c->anchor, token, &seen);
    w->successor = w->predecessor;
    w->predecessor = predecessor;
    ck_assert_int_gt(vc_outside(stage_of(&seen, DFLASH_STAGE_SELECT_SCORES, c->n, s->k)->value, s->scores,
                                s->score_bound, c->n * s->k),
                     c->n * s->k / 2);
    dp_recording_release(&seen);
}

/* Whether the case shows that the predecessor decides: some slot's choice is not its best logit. */
static bool decides(const int32_t *path, const int32_t *ids, int k, int from, int to) {
    for (int slot = from; slot < to; slot++)
        if (path[slot] != ids[slot * k]) return true;
    return false;
}

START_TEST(selector_walks_agree_with_the_reference_and_faults_do_not) {
    static selector_case s;
    vf_file file;
    int ties = 0, collapsed = 0, plain = 0;
    vf_open(&file);
    dp_h5_names names = vf_cases(&file, "selector", 6);
    for (int i = 0; i < names.count; i++) {
        open_selector(&file, names.name[i], &s);
        check_selector(&s);
        ck_assert(decides(s.path, s.ids, s.k, 0, 1) && decides(s.path, s.ids, s.k, 1, s.head.n));
        const char *kind = vf_param_text(&s.head.group, "kind");
        int equal = 0;
        for (int j = 0; j + 1 < s.k; j++) equal += s.values[j] <= s.values[j + 1] && s.ids[j] < s.ids[j + 1];
        plain += strcmp(kind, "plain") == 0;
        ties += strcmp(kind, "ties") == 0 && equal > 0;
        collapsed += strcmp(kind, "collapsed") == 0;
        close_selector(&s);
    }
    dp_h5_names_release(&names);
    vf_close(&file);
    ck_assert(plain >= 2 && ties >= 2 && collapsed >= 2);
}
END_TEST

/* ---- Markov ---- */

typedef struct markov_case {
    head_case head;
    double *logits;
    int32_t *token;
    dp_real bound[MOST_SLOTS * MOST_WIDTH];
} markov_case;

static void open_markov(const vf_file *file, const char *name, markov_case *m) {
    head_case *c = &m->head;
    open_case(file, "markov", name, c);
    ck_assert_str_eq(vf_param_text(&c->group, "head"),
                     dflash_markov_kind_name(dflash_draft_config(c->model.draft)->markov));
    m->logits = vf_doubles(&c->group, "markov_logits", (const int64_t[4]){c->n, c->vocab});
    m->token = vf_ints(&c->group, "tokens", (const int64_t[4]){c->n});
    ds_markov_logits(c->model.draft, c->rows, c->logits, c->n, c->vocab, c->anchor, m->token, DS_RIGHT, m->bound);
}

/* Values outside their bounds in slots [first, last), and tokens that differ there. */
typedef struct markov_faults {
    int logits, tokens;
} markov_faults;

static markov_faults run_markov(const markov_case *m, const float *rows, const float *logits, int32_t anchor, int first,
                                int last) {
    const head_case *c = &m->head;
    dp_recording seen;
    int32_t token[MOST_SLOTS];
    propose(c, rows, logits, anchor, token, &seen);
    const float *values = stage_of(&seen, DFLASH_STAGE_MARKOV_LOGITS, c->n, c->vocab)->value;
    const int32_t *shown = stage_of(&seen, DFLASH_STAGE_MARKOV_TOKENS, c->n, 0)->integer;
    ck_assert_int_eq(different(shown, token, c->n), 0);
    const int at = first * c->vocab;
    const markov_faults f = {vc_outside(values + at, m->logits + at, m->bound + at, (last - first) * c->vocab),
                             different(token + first, m->token + first, last - first)};
    dp_recording_release(&seen);
    return f;
}

static void check_markov(const markov_case *m) {
    const head_case *c = &m->head;
    const bool reads_rows = dflash_draft_config(c->model.draft)->markov != DFLASH_MARKOV_VANILLA;
    markov_faults f = run_markov(m, c->rows, c->logits, c->anchor, 0, c->n);
    ck_assert_msg(f.logits + f.tokens == 0, "%s: %d logits and %d tokens disagree", c->group.path, f.logits, f.tokens);
    f = run_markov(m, c->rows, c->logits, (c->anchor + c->vocab / 2) % c->vocab, 0, 1);
    ck_assert_int_gt(f.logits, c->vocab * 9 / 10);
    ck_assert_int_eq(f.tokens, 1); /* the stored cases are chosen so */
    float *rows = rotated(c->rows, c->n, c->hidden), *logits = rotated(c->logits, c->n, c->vocab);
    f = run_markov(m, rows, c->logits, c->anchor, 0, 1);
    ck_assert((f.logits > c->vocab * 9 / 10) == reads_rows);
    ck_assert(reads_rows || f.logits + f.tokens == 0);
    f = run_markov(m, c->rows, logits, c->anchor, 0, c->n);
    ck_assert_int_gt(f.logits, c->n * c->vocab * 9 / 10);
    ck_assert_int_gt(f.tokens, 0);
    free(rows);
    free(logits);
}

/* The reference's values against arithmetic that is wrong in one of the ways known: it must be outside the bounds. */
static void check_markov_arithmetic(const markov_case *m) {
    static dp_real wrong[MOST_SLOTS * MOST_WIDTH];
    const head_case *c = &m->head;
    const dflash_markov_kind kind = dflash_draft_config(c->model.draft)->markov;
    for (ds_fault fault = DS_PREV_STAYS_ANCHOR; fault <= DS_BIAS_DROPPED; fault++) {
        if (fault != DS_PREV_STAYS_ANCHOR && kind == DFLASH_MARKOV_VANILLA) continue;
        if ((fault == DS_STATE_FORGOTTEN || fault == DS_THIRDS_ROTATED) && kind != DFLASH_MARKOV_RNN) continue;
        ds_markov_logits(c->model.draft, c->rows, c->logits, c->n, c->vocab, c->anchor, m->token, fault, wrong);
        int outside = 0;
        for (int i = c->vocab; i < c->n * c->vocab; i++) {
            wrong[i].error = m->bound[i].error;
            outside += !ds_close((float)m->logits[i], wrong[i]);
        }
        ck_assert_msg(outside > (c->n - 1) * c->vocab / 2, "%s: fault %d is within the bounds", c->group.path,
                      (int)fault);
    }
}

START_TEST(markov_heads_agree_with_the_reference_and_faults_do_not) {
    static markov_case m;
    vf_file file;
    int kinds[DFLASH_MARKOV_RNN + 1] = {0};
    vf_open(&file);
    dp_h5_names names = vf_cases(&file, "markov", 6);
    for (int i = 0; i < names.count; i++) {
        open_markov(&file, names.name[i], &m);
        check_markov(&m);
        check_markov_arithmetic(&m);
        vf_param_text(&m.head.group, "kind");
        kinds[dflash_draft_config(m.head.model.draft)->markov]++;
        free(m.logits);
        free(m.token);
        close_case(&m.head);
    }
    dp_h5_names_release(&names);
    vf_close(&file);
    ck_assert(kinds[DFLASH_MARKOV_VANILLA] >= 2 && kinds[DFLASH_MARKOV_GATED] >= 2 && kinds[DFLASH_MARKOV_RNN] >= 2);
}
END_TEST

/* ---- Confidence ---- */

static void bound_confidence(const head_case *c, const int32_t *prev, dp_real *bound) {
    const df_weights *w = &c->model.draft->weights;
    dp_real in[MOST_WIDTH];
    for (int slot = 0; slot < c->n; slot++) {
        ds_exact(c->rows + slot * c->hidden, c->hidden, in);
        if (dflash_draft_config(c->model.draft)->confidence_with_markov)
            ds_row(&w->markov_w1, prev[slot], in + c->hidden);
        ds_product(&w->confidence, w->confidence_bias, in, bound + slot);
    }
}

static int window_of(const cJSON *policy, int cap, const float *raw, int n) {
    int window = 0;
    dflash_error err = {0};
    const cJSON *threshold = cJSON_GetObjectItemCaseSensitive(policy, "threshold");
    ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(policy, "policy")), "survival");
    const dflash_window_options options = {.policy = DFLASH_WINDOW_SURVIVAL,
                                           .threshold = (float)cJSON_GetNumberValue(threshold),
                                           .cap = cap,
                                           .accepted = -1};
    ck_assert_int_eq(dflash_verify_window(&options, raw, n, &window, &err), DFLASH_OK);
    return window;
}

static void check_confidence(head_case *c) {
    const int64_t slots[4] = {c->n};
    const dflash_config *config = dflash_draft_config(c->model.draft);
    const cJSON *policies = vf_param(&c->group, "windows");
    const int windows = cJSON_GetArraySize(policies), cap = vf_param_int(&c->group, "cap");
    ck_assert_int_ge(windows, 3);
    double *theirs = vf_doubles(&c->group, "raw", slots);
    int32_t *prev = vf_ints(&c->group, "previous", slots),
            *window = vf_ints(&c->group, "window", (const int64_t[4]){windows});
    dflash_error err = {0};
    dp_real bound[MOST_SLOTS];
    float raw[MOST_SLOTS], other[MOST_SLOTS];
    ck_assert_int_eq(cJSON_IsTrue(vf_param(&c->group, "with_markov")), config->confidence_with_markov);
    bound_confidence(c, prev, bound);
    ck_assert_int_eq(dflash_confidence(c->model.draft, c->rows, prev, c->n, raw, &err), DFLASH_OK);
    ck_assert_int_eq(vc_outside(raw, theirs, bound, c->n), 0);
    for (int i = 0; i < windows; i++) {
        ck_assert_int_eq(window_of(cJSON_GetArrayItem(policies, i), cap, raw, c->n), window[i]);
        /* the window of another threshold is another */
        ck_assert_int_ne(window_of(cJSON_GetArrayItem(policies, (i + 1) % windows), cap, raw, c->n), window[i]);
    }
    float *rows = rotated(c->rows, c->n, c->hidden);
    ck_assert_int_eq(dflash_confidence(c->model.draft, rows, prev, c->n, other, &err), DFLASH_OK);
    ck_assert_int_eq(vc_outside(other, theirs, bound, c->n), c->n);
    free(rows);
    for (int i = 0; i < c->n; i++) prev[i] = (prev[i] + 1) % c->vocab;
    ck_assert_int_eq(dflash_confidence(c->model.draft, c->rows, prev, c->n, other, &err), DFLASH_OK);
    ck_assert_int_eq(vc_outside(other, theirs, bound, c->n), config->confidence_with_markov ? c->n : 0);
    free(theirs);
    free(prev);
    free(window);
}

START_TEST(confidence_agrees_with_the_reference_and_faults_do_not) {
    head_case c;
    vf_file file;
    int with = 0, without = 0;
    vf_open(&file);
    dp_h5_names names = vf_cases(&file, "confidence", 2);
    for (int i = 0; i < names.count; i++) {
        open_case(&file, "confidence", names.name[i], &c);
        check_confidence(&c);
        if (dflash_draft_config(c.model.draft)->confidence_with_markov)
            with++;
        else
            without++;
        close_case(&c);
    }
    dp_h5_names_release(&names);
    vf_close(&file);
    ck_assert(with > 0 && without > 0);
}
END_TEST

TCase *tcase_vectors_heads(void) {
    TCase *tests = tcase_create("heads");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, selector_walks_agree_with_the_reference_and_faults_do_not);
    tcase_add_test(tests, markov_heads_agree_with_the_reference_and_faults_do_not);
    tcase_add_test(tests, confidence_agrees_with_the_reference_and_faults_do_not);
    return tests;
}
