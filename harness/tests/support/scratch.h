/*
 * scratch.h - a copy of a stored case that a test may spoil: config.json, model.safetensors and oracle.h5 in one
 * folder.
 *
 * Edits keep every digest right unless a test says otherwise, so that what refuses or fails is what was edited and not
 * the checksum around it. The folder and the oracle's path are those of store_files.h (sf_folder, sf_path), whose tools
 * work on the copy too.
 */
#ifndef DP_TESTS_SCRATCH_H
#define DP_TESTS_SCRATCH_H

#include "check/run_check.h"
#include "support/store_files.h"
#include "support/tensor_file.h"

enum { SCRATCH_PATH = 320, SCRATCH_TENSORS = 64, SCRATCH_NAME = 96 };

void scratch_open(void);
void scratch_close(void); /* removes the folder and every file in it */

/* The path of a file in the folder. */
const char *scratch_path(const char *name, char out[SCRATCH_PATH]);
void scratch_copy(const char *from, const char *name);
/* fixtures/small/NAME and oracles/NAME.h5. */
void scratch_copy_case(const char *name);

/* The whole file with a zero byte after it; the caller frees it. */
char *scratch_read(const char *path, size_t *length);
void scratch_write(const char *name, const void *data, size_t length);
void scratch_write_text(const char *name, const char *text);

/* Sets a key to a JSON value; NULL deletes it. "dflash_config/block_size" is a key inside an object. The copy's oracle
 * is given the new digest. */
void scratch_edit_config(const char *key, const char *json);
/* The same in the record "geometry" or "provenance" of the oracle. */
void scratch_edit_record(const char *record, const char *key, const char *json);
/* Replaces the whole record, with its digest. */
void scratch_put_record(const char *record, const char *text);

/* The numbers of a dataset of the oracle (bfloat16: its bits); the caller frees them. */
double *scratch_values(const char *object, int64_t *count);
void scratch_set_values(const char *object, const double *value);
/* One value times `factor`, plus `term`. */
void scratch_change_value(const char *object, int64_t index, double factor, double term);
/* The dataset with another type or shape, its numbers kept in order as far as they go. */
void scratch_reshape(const char *object, dp_logical dtype, int rank, const hsize_t *dim);

/* The copy's model.safetensors as a file that may be changed (tensor_file.h); free it with tf_free. */
tf_file *scratch_tensors(void);
/* Writes it back. */
void scratch_put_tensors(tf_file *file);

/* The tensors of the copy's model.safetensors, in file order. */
int scratch_tensor_names(char name[SCRATCH_TENSORS][SCRATCH_NAME]);
/* Bit `bit` of element `index`. With `agreed` the oracle's provenance is given the new digest. */
void scratch_flip_weight(const char *tensor, int64_t index, int bit, bool agreed);
/* Overwrites one element's bits, provenance as it was. */
void scratch_set_weight(const char *tensor, int64_t index, uint16_t bits);

/* How the copy is checked, besides its own paths: precision and head; plain after scratch_open. */
extern dp_check_options scratch_options;

/* Checks the copy; release the result. */
void scratch_check(const char *filter, dp_result *result);
/* The check stops before a value is compared, with this verdict (DP_REFUSED or DP_ERROR) and code, and the message
 * holds the words that are not NULL. */
void scratch_expect_stop(dp_verdict verdict, const char *code, const char *a, const char *b, const char *c);
/* Every stage is compared, the verdict is FAIL and this is the first stage outside its limit. */
void scratch_expect_failure(const char *first);
/* Every stage and every variant is compared and passes. */
void scratch_expect_pass(void);

#endif
