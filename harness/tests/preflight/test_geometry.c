/*
 * test_geometry.c - the geometry record of real configs, every single field of which must be able to turn the verdict,
 * and the provenance record of a stored checkpoint, every tensor of which must be tied to its bytes.
 */
#include "suites.h"

#include "preflight/geometry.h"
#include "base/sha256.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const configs[] = {"fixtures/configs/qwen3-4b-dflash/config.json",
                                      "fixtures/configs/gemma4-31b-dflash/config.json",
                                      "fixtures/configs/muse-glimmer-30b-dflash2/config.json",
                                      "fixtures/configs/qwen38-27b-dspark-yarn/config.json",
                                      "fixtures/small/tiny-llama3/config.json",
                                      "fixtures/small/tiny-linear/config.json"};
enum { CONFIGS = sizeof configs / sizeof configs[0] };

static dflash_config read_config(const char *path) {
    dflash_config config;
    dflash_error err = {0};
    ck_assert_msg(dflash_config_read(path, &config, &err) == DFLASH_OK, "%s", err.message);
    return config;
}

static cJSON *record_of(const dflash_config *config) {
    cJSON *record = dp_geometry_of(config);
    ck_assert_ptr_nonnull(record);
    return record;
}

static void expect_agreement(const dflash_config *config, const cJSON *claim) {
    dflash_error err = {0};
    cJSON *record = record_of(config);
    ck_assert_msg(dp_geometry_check(record, claim, "oracle.h5", &err) == DFLASH_OK, "%s", err.message);
    cJSON_Delete(record);
}

static void expect_refusal(const dflash_config *config, const cJSON *claim, const char *code, const char *mention) {
    dflash_error err = {0};
    cJSON *record = record_of(config);
    ck_assert_int_eq(dp_geometry_check(record, claim, "oracle.h5", &err), DFLASH_ERR_REFUSED);
    cJSON_Delete(record);
    ck_assert_int_eq(err.status, DFLASH_ERR_REFUSED);
    ck_assert_msg(strcmp(err.code, code) == 0, "%s, not %s: %s", err.code, code, err.message);
    ck_assert_msg(strstr(err.message, mention) != NULL, "\"%s\" is not in: %s", mention, err.message);
    ck_assert_ptr_nonnull(strstr(err.message, "oracle.h5"));
}

/* ---- Geometry ---- */

START_TEST(a_config_agrees_with_its_own_record_after_a_trip_through_text) {
    for (int i = 0; i < CONFIGS; i++) {
        const dflash_config config = read_config(configs[i]);
        cJSON *record = record_of(&config);
        char *text = cJSON_PrintUnformatted(record);
        cJSON *claim = cJSON_Parse(text);
        expect_agreement(&config, claim);
        cJSON_free(text);
        cJSON_Delete(claim);
        cJSON_Delete(record);
    }
}
END_TEST

START_TEST(every_field_that_differs_is_named) {
    const dflash_config config = read_config(configs[0]);
    cJSON *claim = record_of(&config);
    cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(claim, "hidden_size"), 7);
    expect_refusal(&config, claim, "geometry.field.differs", " hidden_size ");
    dflash_error err = {0};
    cJSON *record = record_of(&config);
    dp_geometry_check(record, claim, "oracle.h5", &err);
    cJSON_Delete(record);
    ck_assert_ptr_null(strstr(err.message, "In all"));
    cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(claim, "rope"), "theta"),
                         0.1);
    cJSON_DeleteItemFromObjectCaseSensitive(claim, "block_size");
    cJSON_AddNumberToObject(claim, "heads", 3);
    expect_refusal(&config, claim, "geometry.field.differs",
                   "In all 4 fields differ: hidden_size, block_size, rope.theta, heads.");
    cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(claim, "hidden_size"), config.hidden);
    expect_refusal(&config, claim, "geometry.field.missing", "block_size is missing");
    cJSON_Delete(claim);
}
END_TEST

static double number_of(const cJSON *record, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(record, key);
    ck_assert_msg(cJSON_IsNumber(item), "%s is not a number", key);
    return item->valuedouble;
}

START_TEST(the_record_states_what_the_config_resolves_to) {
    const dflash_config muse = read_config("fixtures/configs/muse-glimmer-30b-dflash2/config.json");
    cJSON *record = record_of(&muse);
    ck_assert_str_eq(cJSON_GetObjectItemCaseSensitive(record, "family")->valuestring, "dflash2");
    ck_assert_str_eq(cJSON_GetObjectItemCaseSensitive(record, "harvest")->valuestring, "mask_fill");
    ck_assert(number_of(record, "hidden_size") == 6656 && number_of(record, "mask_token_id") == 201818);
    ck_assert(number_of(record, "conv_kernel_size") == 2 && number_of(record, "conv_group_size") == 16);
    ck_assert(number_of(record, "output_multiplier") == 0.19611613513818404);
    ck_assert(number_of(record, "final_logit_softcapping") == 20 && number_of(record, "input_embedding_scale") == 1);
    const cJSON *windows = cJSON_GetObjectItemCaseSensitive(record, "sliding_window");
    const cJSON *causal = cJSON_GetObjectItemCaseSensitive(record, "is_causal");
    ck_assert_int_eq(cJSON_GetArraySize(windows), 5);
    for (int i = 0; i < 5; i++) {
        ck_assert(cJSON_GetArrayItem(windows, i)->valuedouble == 2048);
        ck_assert(cJSON_IsFalse(cJSON_GetArrayItem(causal, i)));
    }
    ck_assert_ptr_null(cJSON_GetObjectItemCaseSensitive(record, "markov"));
    cJSON_Delete(record);
}
END_TEST

START_TEST(a_yarn_record_states_the_attention_scaling) {
    const dflash_config yarn = read_config("fixtures/configs/qwen38-27b-dspark-yarn/config.json");
    cJSON *record = record_of(&yarn);
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(record, "rope");
    ck_assert_str_eq(cJSON_GetObjectItemCaseSensitive(rope, "type")->valuestring, "yarn");
    ck_assert(fabs(number_of(rope, "attention_scaling") - 1.3465735902799727) < 1e-15);
    ck_assert(number_of(rope, "factor") == 32 && number_of(rope, "original_max_position_embeddings") == 8192);
    ck_assert(number_of(rope, "beta_fast") == 32 && number_of(rope, "beta_slow") == 1);
    ck_assert_str_eq(cJSON_GetObjectItemCaseSensitive(record, "markov")->valuestring, "vanilla");
    cJSON_Delete(record);
}
END_TEST

static void alter(cJSON *leaf) {
    if (cJSON_IsNumber(leaf))
        cJSON_SetNumberValue(leaf, leaf->valuedouble + (leaf->valuedouble == floor(leaf->valuedouble) ? 1 : 1e-9));
    else if (cJSON_IsString(leaf))
        ck_assert_ptr_nonnull(cJSON_SetValuestring(leaf, "x"));
    else
        leaf->type = cJSON_IsTrue(leaf) ? cJSON_False : cJSON_True;
}

/* Alters every leaf under `node` of `record` in turn and expects a refusal that names it. */
static int alter_leaves(const dflash_config *config, cJSON *record, cJSON *node, const char *name) {
    int leaves = 0, index = 0;
    cJSON *child;
    cJSON_ArrayForEach(child, node) {
        char field[128];
        if (cJSON_IsArray(node))
            snprintf(field, sizeof field, "%s[%d]", name, index++);
        else
            snprintf(field, sizeof field, "%s%s%s", name, name[0] != '\0' ? "." : "", child->string);
        if (cJSON_IsObject(child) || cJSON_IsArray(child)) {
            leaves += alter_leaves(config, record, child, field);
            continue;
        }
        const int type = child->type;
        const double value = child->valuedouble;
        char *text = cJSON_IsString(child) ? strdup(child->valuestring) : NULL, mention[160];
        alter(child);
        snprintf(mention, sizeof mention, "field %s differs", field);
        expect_refusal(config, record, "geometry.field.differs", mention);
        child->type = type;
        if (cJSON_IsNumber(child)) cJSON_SetNumberValue(child, value);
        if (text != NULL) cJSON_SetValuestring(child, text);
        free(text);
        leaves++;
    }
    return leaves;
}

START_TEST(every_single_field_altered_is_refused_by_its_name) {
    for (int i = 0; i < CONFIGS; i++) {
        const dflash_config config = read_config(configs[i]);
        cJSON *record = record_of(&config);
        ck_assert_int_ge(alter_leaves(&config, record, record, ""), 20 + 3 * config.n_layers);
        expect_agreement(&config, record);
        cJSON_Delete(record);
    }
}
END_TEST

static void remove_each(const dflash_config *config, const char *parent) {
    cJSON *whole = record_of(config);
    const cJSON *list = parent != NULL ? cJSON_GetObjectItemCaseSensitive(whole, parent) : whole, *child;
    cJSON_ArrayForEach(child, list) {
        char mention[128];
        cJSON *claim = cJSON_Duplicate(whole, true);
        cJSON *object = parent != NULL ? cJSON_GetObjectItemCaseSensitive(claim, parent) : claim;
        cJSON_DeleteItemFromObjectCaseSensitive(object, child->string);
        snprintf(mention, sizeof mention, "field %s%s%s is missing", parent != NULL ? parent : "",
                 parent != NULL ? "." : "", child->string);
        expect_refusal(config, claim, "geometry.field.missing", mention);
        cJSON_Delete(claim);
    }
    cJSON_Delete(whole);
}

START_TEST(every_single_field_left_out_is_refused_by_its_name) {
    for (int i = 0; i < CONFIGS; i++) {
        const dflash_config config = read_config(configs[i]);
        remove_each(&config, NULL);
        remove_each(&config, "rope");
    }
}
END_TEST

START_TEST(a_field_that_the_config_does_not_give_rise_to_is_refused) {
    const dflash_config config = read_config(configs[0]);
    cJSON *claim = record_of(&config);
    cJSON_AddNumberToObject(claim, "conv_kernel_size", 2);
    expect_refusal(&config, claim, "geometry.field.unknown", "conv_kernel_size = 2");
    cJSON_DeleteItemFromObjectCaseSensitive(claim, "conv_kernel_size");
    cJSON_AddNumberToObject(cJSON_GetObjectItemCaseSensitive(claim, "rope"), "factor", 8);
    expect_refusal(&config, claim, "geometry.field.unknown", "rope.factor = 8");
    cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(claim, "rope"), "factor");
    cJSON_AddNumberToObject(claim, "hidden_size", 2561);
    expect_refusal(&config, claim, "geometry.field.unknown", "states twice");
    cJSON_Delete(claim);
}
END_TEST

START_TEST(a_message_gives_both_values) {
    const dflash_config config = read_config(configs[0]);
    cJSON *claim = record_of(&config);
    cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(claim, "rope"), "theta"),
                         10000);
    expect_refusal(&config, claim, "geometry.field.differs",
                   "rope.theta differs: the checkpoint's config says 1000000, the oracle claims 10000");
    cJSON_Delete(claim);
}
END_TEST

START_TEST(an_array_of_another_length_or_order_is_refused) {
    const dflash_config config = read_config(configs[0]);
    cJSON *claim = record_of(&config);
    cJSON *taps = cJSON_GetObjectItemCaseSensitive(claim, "target_layer_ids");
    cJSON *last = cJSON_DetachItemFromArray(taps, 4);
    expect_refusal(&config, claim, "geometry.field.differs", "[1,9,17,25,33], the oracle claims [1,9,17,25]");
    cJSON_AddItemToArray(taps, last);
    expect_agreement(&config, claim);
    cJSON_AddItemToArray(taps, cJSON_DetachItemFromArray(taps, 3));
    expect_refusal(&config, claim, "geometry.field.differs", "target_layer_ids[3]");
    cJSON_Delete(claim);
}
END_TEST

static void expect_type_refusal(const dflash_config *config, const char *key, cJSON *value) {
    cJSON *claim = record_of(config);
    ck_assert(cJSON_ReplaceItemInObjectCaseSensitive(claim, key, value));
    expect_refusal(config, claim, "geometry.field.differs", key);
    cJSON_Delete(claim);
}

START_TEST(a_value_of_another_type_is_refused) {
    const dflash_config config = read_config(configs[0]);
    expect_type_refusal(&config, "hidden_size", cJSON_CreateString("2560"));
    expect_type_refusal(&config, "attention_bias", cJSON_CreateNumber(0));
    expect_type_refusal(&config, "family", cJSON_CreateNull());
    expect_type_refusal(&config, "is_causal", cJSON_CreateBool(false));
    expect_type_refusal(&config, "rope", cJSON_CreateArray());
    cJSON *array = cJSON_CreateArray();
    expect_refusal(&config, array, "geometry.field.differs", "not a JSON object");
    cJSON_Delete(array);
    expect_refusal(&config, NULL, "geometry.field.differs", "not a JSON object");
}
END_TEST

START_TEST(numbers_may_differ_by_four_units_in_the_last_place_and_integers_by_nothing) {
    const dflash_config config = read_config("fixtures/configs/qwen38-27b-dspark-yarn/config.json");
    cJSON *claim = record_of(&config);
    cJSON *scaling =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(claim, "rope"), "attention_scaling");
    const double exact = scaling->valuedouble;
    for (int direction = -1; direction <= 1; direction += 2) {
        double moved = exact;
        for (int step = 1; step <= 5; step++) {
            moved = nextafter(moved, direction * 10.0);
            cJSON_SetNumberValue(scaling, moved);
            if (step <= 4)
                expect_agreement(&config, claim);
            else
                expect_refusal(&config, claim, "geometry.field.differs", "rope.attention_scaling");
        }
    }
    cJSON_SetNumberValue(scaling, (double)INFINITY);
    expect_refusal(&config, claim, "geometry.field.differs", "rope.attention_scaling");
    cJSON_SetNumberValue(scaling, exact);
    cJSON *hidden = cJSON_GetObjectItemCaseSensitive(claim, "hidden_size");
    cJSON_SetNumberValue(hidden, nextafter(hidden->valuedouble, 1e9));
    expect_refusal(&config, claim, "geometry.field.differs", "hidden_size");
    cJSON_Delete(claim);
}
END_TEST

/* ---- Provenance ---- */

static dflash_engine *engine;
static dflash_draft *draft;
static cJSON *provenance; /* the right record of draft */

static cJSON *tensors(void) { return cJSON_GetObjectItemCaseSensitive(provenance, "tensors"); }

static cJSON *field(int tensor, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(tensors(), tensor), key);
}

static void load_checkpoint(void) {
    const dflash_engine_options options = {.backend = DFLASH_BACKEND_CPU, .threads = 1};
    dflash_error err = {0};
    ck_assert_msg(dflash_engine_create(&options, &engine, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_msg(dflash_draft_load(engine, "fixtures/small/tiny-plain", &draft, &err) == DFLASH_OK, "%s", err.message);
    provenance = cJSON_CreateObject();
    cJSON *list = cJSON_AddObjectToObject(provenance, "tensors");
    for (int i = 0; i < dflash_draft_tensor_count(draft); i++) {
        const dflash_tensor_view view = dflash_draft_tensor(draft, i);
        if (!view.used) continue;
        char digest[65];
        dp_sha256_of(view.data, view.bytes, digest);
        cJSON *record = cJSON_AddObjectToObject(list, view.name);
        cJSON_AddStringToObject(record, "dtype", view.dtype);
        cJSON_AddStringToObject(record, "sha256", digest);
        cJSON *shape = cJSON_AddArrayToObject(record, "shape");
        for (int d = 0; d < view.rank; d++) cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)view.dim[d]));
    }
    ck_assert_int_gt(cJSON_GetArraySize(list), 10);
}

static void release_checkpoint(void) {
    cJSON_Delete(provenance);
    dflash_draft_destroy(draft);
    dflash_engine_destroy(engine);
}

/* The verdict must not depend on the number of threads. */
static void expect_provenance(dflash_status wanted, const char *code, const char *mention) {
    static const int threads[] = {1, 2, 7, 1000};
    for (int i = 0; i < 4; i++) {
        dflash_error err = {0};
        const dflash_status status = dp_provenance_check(draft, provenance, "oracle.h5", threads[i], &err);
        ck_assert_msg(status == wanted, "%d: %s", (int)status, err.message);
        ck_assert_str_eq(err.code, code);
        ck_assert_msg(strstr(err.message, mention) != NULL, "\"%s\" is not in: %s", mention, err.message);
    }
}

START_TEST(the_record_of_the_same_weights_is_accepted) { expect_provenance(DFLASH_OK, "", ""); }
END_TEST

START_TEST(one_digit_of_any_digest_is_refused_by_the_tensors_name) {
    for (int i = 0; i < cJSON_GetArraySize(tensors()); i++) {
        char *digest = field(i, "sha256")->valuestring;
        const char kept = digest[63];
        digest[63] = kept == '0' ? '1' : '0';
        expect_provenance(DFLASH_ERR_REFUSED, "provenance.tensor.differs", cJSON_GetArrayItem(tensors(), i)->string);
        expect_provenance(DFLASH_ERR_REFUSED, "provenance.tensor.differs", digest);
        digest[63] = kept;
    }
}
END_TEST

START_TEST(of_two_wrong_digests_the_first_in_the_file_is_named) {
    const int last = cJSON_GetArraySize(tensors()) - 1;
    field(1, "sha256")->valuestring[0] = 'x';
    field(last, "sha256")->valuestring[0] = 'x';
    expect_provenance(DFLASH_ERR_REFUSED, "provenance.tensor.differs", cJSON_GetArrayItem(tensors(), 1)->string);
}
END_TEST

START_TEST(another_dtype_or_shape_is_refused) {
    char mention[160];
    const char *name = cJSON_GetArrayItem(tensors(), 0)->string;
    cJSON *dim = cJSON_GetArrayItem(field(0, "shape"), 0);
    cJSON_SetNumberValue(dim, dim->valuedouble + 1);
    snprintf(mention, sizeof mention, "the shape of the tensor %s differs", name);
    expect_provenance(DFLASH_ERR_REFUSED, "provenance.tensor.differs", mention);
    cJSON_SetNumberValue(dim, dim->valuedouble - 1);
    cJSON_AddItemToArray(field(0, "shape"), cJSON_CreateNumber(1));
    expect_provenance(DFLASH_ERR_REFUSED, "provenance.tensor.differs", mention);
    cJSON_SetValuestring(field(0, "dtype"), "I8");
    snprintf(mention, sizeof mention, "the dtype of the tensor %s differs", name);
    expect_provenance(DFLASH_ERR_REFUSED, "provenance.tensor.differs", mention);
}
END_TEST

START_TEST(a_record_without_one_of_its_fields_is_refused) {
    static const char *const key[] = {"dtype", "shape", "sha256"};
    for (int i = 0; i < 3; i++) {
        cJSON *record = cJSON_GetArrayItem(tensors(), i);
        cJSON_DeleteItemFromObjectCaseSensitive(record, key[i]);
        expect_provenance(DFLASH_ERR_REFUSED, "provenance.tensor.differs", "lacks its dtype, shape or sha256");
        release_checkpoint();
        load_checkpoint();
    }
}
END_TEST

START_TEST(a_tensor_without_a_record_is_refused) {
    char name[128];
    snprintf(name, sizeof name, "%s", cJSON_GetArrayItem(tensors(), 3)->string);
    cJSON_DeleteItemFromArray(tensors(), 3);
    expect_provenance(DFLASH_ERR_REFUSED, "provenance.tensor.missing", name);
    cJSON_DeleteItemFromObjectCaseSensitive(provenance, "tensors");
    expect_provenance(DFLASH_ERR_REFUSED, "provenance.tensor.missing", "no object \"tensors\"");
}
END_TEST

START_TEST(a_record_without_a_tensor_is_refused) {
    cJSON_AddItemToObject(tensors(), "layers.9.extra.weight", cJSON_Duplicate(cJSON_GetArrayItem(tensors(), 0), true));
    expect_provenance(DFLASH_ERR_REFUSED, "provenance.tensor.extra", "layers.9.extra.weight");
}
END_TEST

START_TEST(no_threads_is_an_argument_error) {
    dflash_error err = {0};
    ck_assert_int_eq(dp_provenance_check(draft, provenance, "oracle.h5", 0, &err), DFLASH_ERR_ARGUMENT);
    ck_assert_str_eq(err.code, "provenance.threads");
}
END_TEST

Suite *suite_geometry(void) {
    Suite *suite = suite_create("geometry");
    TCase *tcase = tcase_create("geometry");
    tcase_add_test(tcase, every_field_that_differs_is_named);
    tcase_add_test(tcase, a_config_agrees_with_its_own_record_after_a_trip_through_text);
    tcase_add_test(tcase, the_record_states_what_the_config_resolves_to);
    tcase_add_test(tcase, a_yarn_record_states_the_attention_scaling);
    tcase_add_test(tcase, every_single_field_altered_is_refused_by_its_name);
    tcase_add_test(tcase, every_single_field_left_out_is_refused_by_its_name);
    tcase_add_test(tcase, a_field_that_the_config_does_not_give_rise_to_is_refused);
    tcase_add_test(tcase, a_message_gives_both_values);
    tcase_add_test(tcase, an_array_of_another_length_or_order_is_refused);
    tcase_add_test(tcase, a_value_of_another_type_is_refused);
    tcase_add_test(tcase, numbers_may_differ_by_four_units_in_the_last_place_and_integers_by_nothing);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("provenance");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, load_checkpoint, release_checkpoint);
    tcase_add_test(tcase, the_record_of_the_same_weights_is_accepted);
    tcase_add_test(tcase, one_digit_of_any_digest_is_refused_by_the_tensors_name);
    tcase_add_test(tcase, of_two_wrong_digests_the_first_in_the_file_is_named);
    tcase_add_test(tcase, another_dtype_or_shape_is_refused);
    tcase_add_test(tcase, a_record_without_one_of_its_fields_is_refused);
    tcase_add_test(tcase, a_tensor_without_a_record_is_refused);
    tcase_add_test(tcase, a_record_without_a_tensor_is_refused);
    tcase_add_test(tcase, no_threads_is_an_argument_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
