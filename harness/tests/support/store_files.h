/*
 * store_files.h - oracle files for the store's tests: a good one, and the tools that spoil it.
 *
 * Good files come from store_write; bad ones are made from them through HDF5 or byte by byte. What is expected of a bad
 * file is said in the tests themselves.
 */
#ifndef DP_TESTS_STORE_FILES_H
#define DP_TESTS_STORE_FILES_H

#include "suites.h"

#include "store/store_dataset.h"
#include "store/store_write.h"

enum { ROWS = 3, BLOCK = 2, WIDTH = 4 };

extern const char sf_geometry_text[], sf_provenance_text[];
extern const int32_t sf_good_positions[ROWS + BLOCK];
extern char sf_folder[256], sf_path[300];

/* The value of element i in every stage and input made here; exact in all floating types. */
double sf_value_at(int64_t i);
/* A whole tensor of rank 1 or 2 over `data`. */
dp_store_tensor sf_tensor_of(dp_logical dtype, const void *data, int rank, int64_t d0, int64_t d1);
/* Each of these fails the test when the writer refuses. */
void sf_put_stage(dp_store_writer *writer, dp_run run, const char *name, dp_store_tensor tensor);
void sf_put_input(dp_store_writer *writer, const char *name, dp_store_tensor tensor);
/* One stage of [d0, d1] in the three runs, each in its own width. */
void sf_put_runs(dp_store_writer *writer, const char *name, int64_t d0, int64_t d1, int64_t stride, int64_t offset);
/* A writer at sf_path holding the two records; sf_begin: with the good records and inputs. */
dp_store_writer *sf_begin_with_texts(const char *kind, const char *geometry, const char *provenance);
void sf_put_inputs(dp_store_writer *writer, const int32_t *positions, int64_t count);
dp_store_writer *sf_begin(void);
void sf_commit(dp_store_writer *writer);
/* A good file. Its stages are written out of forward order on purpose. */
void sf_write_good(void);
int sf_files_in_folder(void);
/* Make and remove the folder of sf_path; the folder must be empty but for sf_path at the end. */
void sf_set_up(void);
void sf_tear_down(void);
/* The status, the code, a part of the message, and that no HDF5 handle is left open. */
void sf_expect(dflash_status status, const dflash_error *err, dflash_status wanted, const char *code,
               const char *mention);
/* Opening sf_path is refused with this code and mentions this. */
void sf_expect_refusal(const char *code, const char *mention);
/* Spoiling the file at sf_path through HDF5. Attributes are replaced; set_ints: count 0 is a scalar. */
hid_t sf_edit(void);
void sf_set_text(const char *object, const char *name, const char *text);
void sf_set_ints(const char *object, const char *name, hid_t type, const int64_t *value, hsize_t count);
void sf_set_int(const char *object, const char *name, int64_t value);
void sf_remove_attribute(const char *object, const char *name);
void sf_remove_link(const char *object);
void sf_move_link(const char *from, const char *to);
/* A dataset gives way to one of zeros with a digest that holds, of another type, shape or layout. */
void sf_replace(const char *object, hid_t type, int rank, const hsize_t *dim, bool chunked, bool shuffled,
                const char *dtype);
/* The bytes of the file at sf_path, allocated; and writing them. */
unsigned char *sf_slurp(size_t *bytes);
void sf_spill(const unsigned char *data, size_t bytes);
dp_oracle *sf_open_good(void);

/* The test cases of test_store_refusals.c, test_store_format.c and test_store_trial.c. */
void sf_add_refusals(TCase *tcase);
void sf_add_formats(TCase *tcase);
void sf_add_trials(TCase *tcase);

#endif
