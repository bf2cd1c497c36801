/* store_files.c - see store_files.h. */
#include "support/store_files.h"

#include "common/dtype.h"
#include "base/sha256.h"
#include "store/store_h5.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char sf_geometry_text[] = "{\"family\":\"dflash\",\"hidden_size\":4}";
#define SF_DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
const char sf_provenance_text[] =
    "{\"generator\":\"test\",\"command\":\"make test\",\"packages\":{\"torch\":\"1\"},\"reference\":{\"module\":\"m\","
    "\"sha256\":\"" SF_DIGEST "\"},\"config_sha256\":\"" SF_DIGEST
    "\",\"tensors\":{},\"seed\":1,\"adapters\":[],\"float32_orders\":{},\"request\":{\"context\":3,\"start\":11,"
    "\"input_seed\":1,\"input_profile\":\"unit\",\"sample_stride\":1}}";

char sf_folder[256], sf_path[300];

#ifdef __SANITIZE_ADDRESS__
/* HDF5 loses some of its own memory when it gives up on a damaged file; ours is still watched. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libhdf5"; }
/* A damaged file can make it ask for absurd sizes; it then takes NULL for an answer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
#endif

/* ---- Making files ---- */

double sf_value_at(int64_t i) { return (double)(i * i % 17 - 8) * 0.25; }

dp_store_tensor sf_tensor_of(dp_logical dtype, const void *data, int rank, int64_t d0, int64_t d1) {
    return (dp_store_tensor){.dtype = dtype, .rank = rank, .dim = {d0, d1}, .stride = 1, .data = data};
}

void sf_put_stage(dp_store_writer *writer, dp_run run, const char *name, dp_store_tensor tensor) {
    dflash_error err = {0};
    ck_assert_msg(dp_store_write_stage(writer, run, name, &tensor, &err) == DFLASH_OK, "%s", err.message);
}

void sf_put_input(dp_store_writer *writer, const char *name, dp_store_tensor tensor) {
    dflash_error err = {0};
    ck_assert_msg(dp_store_write_input(writer, name, &tensor, &err) == DFLASH_OK, "%s", err.message);
}

void sf_put_runs(dp_store_writer *writer, const char *name, int64_t d0, int64_t d1, int64_t stride, int64_t offset) {
    double f64[32];
    float f32[32];
    uint16_t bf16[32];
    for (int64_t i = 0; i < d0 * d1; i++) {
        f64[i] = sf_value_at(i);
        f32[i] = (float)f64[i];
        bf16[i] = df_f32_to_bf16(f32[i]);
    }
    const void *data[DP_RUN_COUNT] = {f64, f32, bf16};
    const dp_logical dtype[DP_RUN_COUNT] = {DP_LOGICAL_F64, DP_LOGICAL_F32, DP_LOGICAL_BF16};
    for (int run = 0; run < DP_RUN_COUNT; run++) {
        dp_store_tensor tensor = sf_tensor_of(dtype[run], data[run], 2, d0, d1);
        tensor.stride = stride;
        tensor.offset = offset;
        sf_put_stage(writer, (dp_run)run, name, tensor);
    }
}

dp_store_writer *sf_begin_with_texts(const char *kind, const char *geometry, const char *provenance) {
    dp_store_writer *writer = NULL;
    dflash_error err = {0};
    ck_assert_int_eq(dp_store_create(sf_path, kind, &writer, &err), DFLASH_OK);
    ck_assert_int_eq(dp_store_write_text(writer, "geometry", geometry, &err), DFLASH_OK);
    ck_assert_int_eq(dp_store_write_text(writer, "provenance", provenance, &err), DFLASH_OK);
    return writer;
}

void sf_put_inputs(dp_store_writer *writer, const int32_t *positions, int64_t count) {
    float hidden[ROWS * WIDTH];
    uint16_t noise[BLOCK * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) hidden[i] = (float)sf_value_at(i);
    for (int i = 0; i < BLOCK * WIDTH; i++) noise[i] = df_f32_to_bf16((float)sf_value_at(i));
    sf_put_input(writer, "target_hidden", sf_tensor_of(DP_LOGICAL_F32, hidden, 2, ROWS, WIDTH));
    sf_put_input(writer, "noise_embedding", sf_tensor_of(DP_LOGICAL_BF16, noise, 2, BLOCK, WIDTH));
    sf_put_input(writer, "positions", sf_tensor_of(DP_LOGICAL_I32, positions, 1, count, 0));
}

const int32_t sf_good_positions[ROWS + BLOCK] = {7, 8, 9, 11, 12};

dp_store_writer *sf_begin(void) {
    dp_store_writer *writer = sf_begin_with_texts("oracle", sf_geometry_text, sf_provenance_text);
    sf_put_inputs(writer, sf_good_positions, ROWS + BLOCK);
    return writer;
}

void sf_commit(dp_store_writer *writer) {
    dflash_error err = {0};
    ck_assert_msg(dp_store_commit(writer, &err) == DFLASH_OK, "%s", err.message);
}

void sf_write_good(void) {
    static const int32_t ids[4] = {3, -1, INT32_MAX, INT32_MIN};
    dp_store_writer *writer = sf_begin();
    sf_put_runs(writer, "final", BLOCK, WIDTH, 1, 0);
    sf_put_runs(writer, "layers.10.out", BLOCK, WIDTH, 1, 0);
    sf_put_runs(writer, "layers.2.out", BLOCK, WIDTH, 1, 0);
    sf_put_runs(writer, "layers.2.attn.norm", BLOCK, WIDTH, 3, 1);
    sf_put_runs(writer, "ctx.fc", ROWS, WIDTH, 1, 0);
    for (int run = 0; run < DP_RUN_COUNT; run++)
        sf_put_stage(writer, (dp_run)run, "select.topk_ids", sf_tensor_of(DP_LOGICAL_I32, ids, 2, 2, 2));
    sf_commit(writer);
}

int sf_files_in_folder(void) {
    int count = 0;
    DIR *listing = opendir(sf_folder);
    ck_assert_ptr_nonnull(listing);
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) count += entry->d_name[0] != '.';
    closedir(listing);
    return count;
}

void sf_set_up(void) {
    const char *base = getenv("TMPDIR");
    snprintf(sf_folder, sizeof sf_folder, "%s/dp-store-XXXXXX", base != NULL ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(sf_folder));
    snprintf(sf_path, sizeof sf_path, "%s/oracle.h5", sf_folder);
}

void sf_tear_down(void) {
    unlink(sf_path);
    ck_assert_int_eq(rmdir(sf_folder), 0);
}

/* ---- Spoiling and refusing ---- */

void sf_expect(dflash_status status, const dflash_error *err, dflash_status wanted, const char *code,
               const char *mention) {
    ck_assert_msg(status == wanted && err->status == wanted, "status %d, %s", (int)status, err->message);
    ck_assert_str_eq(err->code, code);
    ck_assert_msg(strstr(err->message, mention) != NULL, "\"%s\" is not in: %s", mention, err->message);
    ck_assert_int_eq(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
}

void sf_expect_refusal(const char *code, const char *mention) {
    dp_oracle *oracle = NULL;
    dflash_error err = {0};
    const dflash_status status = dp_oracle_open(sf_path, &oracle, &err);
    ck_assert_ptr_null(oracle);
    sf_expect(status, &err, DFLASH_ERR_REFUSED, code, mention);
}

hid_t sf_edit(void) {
    const hid_t file = H5Fopen(sf_path, H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert_int_ge(file, 0);
    return file;
}

void sf_set_text(const char *object, const char *name, const char *text) {
    const hid_t file = sf_edit(), type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(text));
    ck_assert_int_ge(H5Adelete_by_name(file, object, name, H5P_DEFAULT), 0);
    const hid_t attribute = H5Acreate_by_name(file, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(H5Awrite(attribute, type, text), 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    H5Fclose(file);
}

void sf_set_ints(const char *object, const char *name, hid_t type, const int64_t *value, hsize_t count) {
    const hid_t file = sf_edit(), space = count == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, NULL);
    if (H5Aexists_by_name(file, object, name, H5P_DEFAULT) > 0) H5Adelete_by_name(file, object, name, H5P_DEFAULT);
    const hid_t attribute = H5Acreate_by_name(file, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(H5Awrite(attribute, H5T_NATIVE_INT64, value), 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Fclose(file);
}

void sf_set_int(const char *object, const char *name, int64_t value) {
    sf_set_ints(object, name, H5T_STD_I64LE, &value, 0);
}

void sf_remove_attribute(const char *object, const char *name) {
    const hid_t file = sf_edit();
    ck_assert_int_ge(H5Adelete_by_name(file, object, name, H5P_DEFAULT), 0);
    H5Fclose(file);
}

void sf_remove_link(const char *object) {
    const hid_t file = sf_edit();
    ck_assert_int_ge(H5Ldelete(file, object, H5P_DEFAULT), 0);
    H5Fclose(file);
}

void sf_move_link(const char *from, const char *to) {
    const hid_t file = sf_edit();
    ck_assert_int_ge(H5Lmove(file, from, file, to, H5P_DEFAULT, H5P_DEFAULT), 0);
    H5Fclose(file);
}

/* Replaces a dataset by zeros of another type, shape or layout; `like` gives the attributes' values. */
void sf_replace(const char *object, hid_t type, int rank, const hsize_t *dim, bool chunked, bool shuffled,
                const char *dtype) {
    const hid_t file = sf_edit(), space = H5Screate_simple(rank, dim, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    static const unsigned char zeros[4096];
    char digest[65];
    H5Ldelete(file, object, H5P_DEFAULT);
    if (chunked) H5Pset_chunk(list, rank, dim);
    if (shuffled) H5Pset_shuffle(list);
    if (chunked) H5Pset_fletcher32(list);
    const hid_t dataset = H5Dcreate2(file, object, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    ck_assert_int_ge(dataset, 0);
    const size_t bytes = (size_t)H5Sget_simple_extent_npoints(space) * H5Tget_size(type);
    ck_assert_int_ge(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros), 0);
    dp_sha256_of(zeros, bytes, digest);
    const char *const attribute[2][2] = {{"logical_dtype", dtype}, {"sha256", digest}};
    for (int i = 0; i < 2; i++) {
        const hid_t text = H5Tcopy(H5T_C_S1), scalar = H5Screate(H5S_SCALAR);
        H5Tset_size(text, strlen(attribute[i][1]));
        const hid_t at = H5Acreate2(dataset, attribute[i][0], text, scalar, H5P_DEFAULT, H5P_DEFAULT);
        ck_assert_int_ge(H5Awrite(at, text, attribute[i][1]), 0);
        H5Aclose(at);
        H5Sclose(scalar);
        H5Tclose(text);
    }
    H5Dclose(dataset);
    H5Pclose(list);
    H5Sclose(space);
    H5Fclose(file);
}

unsigned char *sf_slurp(size_t *bytes) {
    FILE *file = fopen(sf_path, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes + 1);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_eq(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

void sf_spill(const unsigned char *data, size_t bytes) {
    FILE *file = fopen(sf_path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

dp_oracle *sf_open_good(void) {
    dp_oracle *oracle = NULL;
    dflash_error err = {0};
    ck_assert_msg(dp_oracle_open(sf_path, &oracle, &err) == DFLASH_OK, "%s", err.message);
    return oracle;
}
