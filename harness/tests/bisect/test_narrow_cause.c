/*
 * test_narrow_cause.c - drafters with one fault in their arithmetic, and the cause that is named.
 *
 * Faults of a product are real runs: a checkpoint with a column of a matrix set to zero computes exactly what an engine
 * computes that leaves the channel out. The records of such a run are then those of the right one (recording_case.h).
 */
#include "support/recording_case.h"
#include "support/recording_cases.h"

#include "common/dtype.h"
#include "base/sha256.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Products ---- */

/* Columns [first, last] of a matrix of 16-bit weights become zero. */
static void zero_columns(const char *tensor, int64_t first, int64_t last) {
    tf_file *file = scratch_tensors();
    tf_entry *entry = tf_get(file, tensor);
    ck_assert_msg(entry != NULL, "the checkpoint has no %s", tensor);
    const int64_t width = entry->dim[entry->rank - 1], rows = entry->rank > 1 ? entry->dim[0] : 1;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = first; k <= last; k++) tf_set_bits(entry, row * width + k, 0);
    scratch_put_tensors(file);
}

static void restore_weights(const char *name) {
    char path[SCRATCH_PATH];
    snprintf(path, sizeof path, "fixtures/small/%s/model.safetensors", name);
    scratch_copy(path, "model.safetensors");
}

static const struct {
    const char *name, *tensor;
    int64_t first, last; /* columns that the faulty run leaves out */
    const char *stage;
    dp_cause_kind kind;
    int64_t index;
} faults[] = {
    {"tiny-plain", "layers.1.self_attn.o_proj.weight", 70, 70, "layers.1.attn.o_proj", DP_CAUSE_CHANNEL_MISSING, 70},
    {"tiny-plain", "layers.1.self_attn.o_proj.weight", 0, 63, "layers.1.attn.o_proj", DP_CAUSE_SEGMENT_MISSING, 0},
    {"tiny-plain", "layers.0.mlp.down_proj.weight", 64, 127, "layers.0.mlp.down", DP_CAUSE_SEGMENT_MISSING, 1},
    {"tiny-plain", "layers.0.mlp.down_proj.weight", 128, 159, "layers.0.mlp.down", DP_CAUSE_SEGMENT_MISSING, 2},
    {"tiny-plain", "layers.2.mlp.gate_proj.weight", 95, 95, "layers.2.mlp.gate", DP_CAUSE_CHANNEL_MISSING, 95},
    {"tiny-plain", "fc.weight", 128, 191, "ctx.fc", DP_CAUSE_SEGMENT_MISSING, 2},
    {"tiny-plain", "layers.0.self_attn.k_proj.weight", 5, 5, "layers.0.attn.k_proj", DP_CAUSE_CHANNEL_MISSING, 5},
    {"tiny-plain", "layers.2.self_attn.v_proj.weight", 64, 95, "layers.2.attn.v", DP_CAUSE_SEGMENT_MISSING, 1},
    {"tiny-plain", "layers.0.mlp.up_proj.weight", 10, 30, "layers.0.mlp.up", DP_CAUSE_NONE, -1},
    {"tiny-bias", "layers.1.self_attn.q_proj.bias", 0, 95, "layers.1.attn.q_proj", DP_CAUSE_BIAS_MISSING, -1},
    {"tiny-dflash2", "layers.1.mlp.up_proj.weight", 33, 33, "layers.1.mlp.up", DP_CAUSE_CHANNEL_MISSING, 33},
    {"tiny-dflash2", "candidate_selector.hidden_projection.weight", 9, 9, "select.hidden", DP_CAUSE_CHANNEL_MISSING, 9},
    {"tiny-dflash2", "layers.0.attention_conv.kernel_projection.weight", 3, 3, "layers.0.attn.conv_dyn",
     DP_CAUSE_CHANNEL_MISSING, 3},
    {"tiny-dspark", "lm_head.weight", 20, 20, "logits", DP_CAUSE_CHANNEL_MISSING, 20},
};
enum { FAULTS = sizeof faults / sizeof *faults };

/* An output head other than the oracle's is refused, so a fault in it needs an oracle that claims it. */
static void claim_head(const char *name) {
    char digest[65], json[72], path[SCRATCH_PATH];
    tf_file *file = scratch_tensors();
    if (strcmp(name, "tiny-plain") != 0 && strcmp(name, "tiny-bias") != 0) {
        const tf_entry *entry = tf_get(file, "lm_head.weight");
        scratch_copy(scratch_path("case.h5", path), "oracle.h5");
        dp_sha256_of(entry->data, entry->bytes, digest);
        snprintf(json, sizeof json, "\"%s\"", digest);
        scratch_edit_record("provenance", "head/sha256", json);
        ck_assert_int_eq(rename(sf_path, path), 0);
    }
    tf_free(file);
}

START_TEST(what_a_faulty_product_leaves_out_is_named) {
    dp_bisection found;
    rc_open(faults[_i].name);
    zero_columns(faults[_i].tensor, faults[_i].first, faults[_i].last);
    claim_head(faults[_i].name);
    rc_record_fault();
    restore_weights(faults[_i].name);
    rc_bisect(&found);
    ck_assert_str_eq(found.first->spec.name, faults[_i].stage);
    ck_assert_msg(found.cause.kind == faults[_i].kind, "%s", found.cause.text);
    ck_assert_msg(found.cause.index == faults[_i].index, "%s", found.cause.text);
    ck_assert(faults[_i].kind == DP_CAUSE_NONE || found.cause.bitwise);
    ck_assert_int_gt(found.cause.examined, 0);
    dp_bisection_release(&found);
}
END_TEST

/* What an engine that sums in another order would show: right within the bound, not bit by bit. */
START_TEST(a_doubled_channel_in_another_order_is_named_within_the_bound) {
    enum { CHANNEL = 31, OUTPUTS = 96, MLP_WIDTH = 160, BLOCK_ROWS = 5 };
    int64_t count;
    dp_bisection found;
    rc_open("tiny-plain");
    tf_file *file = scratch_tensors();
    const tf_entry *entry = tf_get(file, "layers.0.mlp.down_proj.weight");
    float *y = rc_values("layers.0.mlp.down", &count), *x = rc_values("layers.0.mlp.act", &count);
    for (int row = 0; row < BLOCK_ROWS; row++)
        for (int output = 0; output < OUTPUTS; output++) {
            uint16_t bits;
            memcpy(&bits, (const char *)entry->data + 2 * (output * MLP_WIDTH + CHANNEL), sizeof bits);
            y[row * OUTPUTS + output] += df_bf16_to_f32(bits) * x[row * MLP_WIDTH + CHANNEL];
        }
    rc_put_values("layers.0.mlp.down", y);
    free(y);
    free(x);
    tf_free(file);
    rc_bisect(&found);
    ck_assert_msg(found.cause.kind == DP_CAUSE_CHANNEL_TWICE && found.cause.index == CHANNEL, "%s", found.cause.text);
    ck_assert(!found.cause.bitwise);
    dp_bisection_release(&found);
}
END_TEST

START_TEST(when_the_reference_is_the_faulty_one_the_run_is_said_to_follow_its_inputs) {
    dp_bisection found;
    rc_open("tiny-plain");
    scratch_copy(sf_path, "right.h5");
    zero_columns("layers.1.self_attn.o_proj.weight", 70, 70);
    rc_record_fault();
    scratch_copy(sf_path, "a.h5");
    char right[SCRATCH_PATH];
    scratch_copy(scratch_path("right.h5", right), "oracle.h5");
    restore_weights("tiny-plain");
    rc_bisect(&found);
    ck_assert_str_eq(found.first->spec.name, "layers.1.attn.o_proj");
    ck_assert_int_eq(found.cause.kind, DP_CAUSE_INHERITED);
    ck_assert(found.cause.bitwise);
    dp_bisection_release(&found);
}
END_TEST

START_TEST(another_checkpoint_or_none_leaves_a_product_unexamined) {
    dp_bisection found;
    rc_open("tiny-plain");
    zero_columns("layers.1.self_attn.o_proj.weight", 70, 70);
    rc_record_fault(); /* the checkpoint in the folder stays the faulty one, which is not what the records claim */
    rc_bisect(&found);
    ck_assert_int_eq(found.cause.kind, DP_CAUSE_UNEXAMINED);
    ck_assert_ptr_nonnull(strstr(found.cause.text, "not examined"));
    dp_bisection_release(&found);
}
END_TEST

/* ---- Attention ---- */

enum { HEADS = 6, KV_HEADS = 2, HEAD = 16, BLOCK_SIZE = 5 };

/* Attention in float64 of every query over keys [0, keys) but those in [from, to), to a chosen key/value head; written
 * here a second time on purpose, so that narrow_attention.c is not tested by itself. */
static void attend(const float *q, const float *k, const float *v, int keys, int from, int to, int other_head,
                   double scale, float *out) {
    for (int row = 0; row < BLOCK_SIZE; row++)
        for (int head = 0; head < HEADS; head++) {
            const int kv = other_head >= 0 ? other_head : head / (HEADS / KV_HEADS);
            double weight[512], total = 0.0;
            for (int j = 0; j < keys; j++) {
                double dot = 0.0;
                for (int d = 0; d < HEAD; d++)
                    dot += (double)q[(row * HEADS + head) * HEAD + d] * (double)k[(j * KV_HEADS + kv) * HEAD + d];
                weight[j] = j >= from && j < to ? 0.0 : exp(dot * scale);
                total += weight[j];
            }
            for (int d = 0; d < HEAD; d++) {
                double sum = 0.0;
                for (int j = 0; j < keys; j++) sum += weight[j] / total * (double)v[(j * KV_HEADS + kv) * HEAD + d];
                out[(row * HEADS + head) * HEAD + d] = (float)sum;
            }
        }
}

static const struct {
    int from, to, other_head;
    double scale;
    dp_cause_kind kind;
    int64_t index;
} attentions[] = {
    {7, 8, -1, 0.25, DP_CAUSE_CHANNEL_MISSING, 7},
    {29, 30, -1, 0.25, DP_CAUSE_CHANNEL_MISSING, 29},
    {0, 9, -1, 0.25, DP_CAUSE_SEGMENT_MISSING, 30},
    {9, 9, 1, 0.25, DP_CAUSE_HEAD, 1},
    {9, 9, -1, 1.0, DP_CAUSE_SCALE, -1},
    {3, 6, -1, 0.25, DP_CAUSE_NONE, -1},
};
enum { ATTENTIONS = sizeof attentions / sizeof *attentions };

/* tiny-linear: 25 context rows at 1975..1999, so that a segment of 64 ends before row 9. */
START_TEST(what_a_faulty_attention_does_is_named) {
    enum { KEYS = 25 + BLOCK_SIZE };
    int64_t count;
    dp_bisection found;
    rc_open("tiny-linear");
    float *q = rc_values("layers.1.attn.q_rope", &count), *k = rc_values("layers.1.attn.k_rope", &count),
          *v = rc_values("layers.1.attn.v", &count), *out = rc_values("layers.1.attn.context", &count);
    ck_assert_int_eq(count, BLOCK_SIZE * HEADS * HEAD);
    attend(q, k, v, KEYS, attentions[_i].from, attentions[_i].to, attentions[_i].other_head, attentions[_i].scale, out);
    rc_put_values("layers.1.attn.context", out);
    free(q);
    free(k);
    free(v);
    free(out);
    rc_bisect(&found);
    ck_assert_str_eq(found.first->spec.name, "layers.1.attn.context");
    ck_assert_msg(found.cause.kind == attentions[_i].kind, "%s", found.cause.text);
    ck_assert_msg(found.cause.index == attentions[_i].index, "%s", found.cause.text);
    dp_bisection_release(&found);
}
END_TEST

/* A key of the config, and what the record "geometry" of the case's oracle says of it. */
static void edit_case(const char *config, const char *value, const char *key, const char *json) {
    char path[SCRATCH_PATH];
    scratch_copy(scratch_path("case.h5", path), "oracle.h5");
    scratch_edit_config(config, value);
    scratch_edit_record("geometry", key, json);
    ck_assert_int_eq(rename(sf_path, path), 0);
}

static const struct {
    const char *config, *value, *geometry, *claim, *words;
} masks[] = {
    {"is_causal", "false", "is_causal", "[false,false,false]", "B sees keys after the query"},
    {"sliding_window", "15", "sliding_window", "[15,0,15]", "B's window is one position short"},
    {"sliding_window", "17", "sliding_window", "[17,0,17]", "B's window is one position long"},
    {"sliding_window", "500", "sliding_window", "[500,0,500]", "B has no window"},
};
enum { MASKS = sizeof masks / sizeof *masks };

START_TEST(another_mask_is_named) {
    dp_bisection found;
    rc_open("tiny-causal");
    edit_case(masks[_i].config, masks[_i].value, masks[_i].geometry, masks[_i].claim);
    rc_record_fault();
    rc_bisect(&found);
    ck_assert_str_eq(found.first->spec.name, "layers.0.attn.context");
    ck_assert_msg(found.cause.kind == DP_CAUSE_MASK, "%s", found.cause.text);
    ck_assert_msg(strstr(found.cause.text, masks[_i].words) != NULL, "%s", found.cause.text);
    dp_bisection_release(&found);
}
END_TEST

void bisect_add_cause(Suite *suite) {
    TCase *tests = tcase_create("cause");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, scratch_open, scratch_close);
    tcase_add_loop_test(tests, what_a_faulty_product_leaves_out_is_named, 0, FAULTS);
    tcase_add_test(tests, a_doubled_channel_in_another_order_is_named_within_the_bound);
    tcase_add_test(tests, when_the_reference_is_the_faulty_one_the_run_is_said_to_follow_its_inputs);
    tcase_add_test(tests, another_checkpoint_or_none_leaves_a_product_unexamined);
    tcase_add_loop_test(tests, what_a_faulty_attention_does_is_named, 0, ATTENTIONS);
    tcase_add_loop_test(tests, another_mask_is_named, 0, MASKS);
    suite_add_tcase(suite, tests);
}
