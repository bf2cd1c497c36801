/*
 * safetensors_case.h - the fixture that the two files of suite_safetensors share: a small valid file to break, and
 * assertions of which refusal the broken one gets.
 */
#ifndef DP_TESTS_SAFETENSORS_CASE_H
#define DP_TESTS_SAFETENSORS_CASE_H

#include "weights/safetensors.h"
#include "support/tensor_file.h"

#include <check.h>

/* Of the running test: its folder, the file under test in it (not written yet) and what to write there: three tensors
 * a.weight F32 [2, 3], b.weight BF16 [4], c.weight F16 [1, 2, 1, 3]. */
extern char st_dir[TF_PATH_MAX], st_path[TF_PATH_MAX + 32];
extern tf_file *st_file;

/* What stands at st_path is refused with this status and code, and the message holds `word` (NULL: anything). */
void st_expect(dflash_status status, const char *code, const char *word);
/* The same for st_file as it is now, DFLASH_ERR_REFUSED. */
void st_refuse(const char *code, const char *word);
/* The same for a file of this header text and `data` zero bytes. */
void st_refuse_header(const char *header, int64_t data, const char *code, const char *word);
/* st_file is accepted, and its tensor `name` cannot be used: this code, and `word` in the message. */
void st_refuse_use(const char *name, const char *code, const char *word);
/* The file at st_path, which must be accepted. The caller closes it. */
df_safetensors *st_open(void);
void st_write_bytes(const void *data, size_t bytes);

/* Adds a test case with the fixture. */
void st_add_case(Suite *suite, const char *name, void (*add)(TCase *tests));
void st_add_header_tests(TCase *tests);

#endif
