/*
 * store_h5.h - the HDF5 library as the store uses it: silent, read with types checked, failures turned into
 * dflash_error.
 *
 * HDF5 keeps its error state in the process and is not thread-safe here, so all of the store runs on one thread.
 */
#ifndef DP_STORE_H5_H
#define DP_STORE_H5_H

#include "dflash.h"

#include <hdf5.h>

/* HDF5 prints its error stack by default. Printing is off between begin and end, and as before after that. */
typedef struct dp_h5_quiet {
    H5E_auto2_t print;
    void *data;
} dp_h5_quiet;
void dp_h5_quiet_begin(dp_h5_quiet *quiet);
void dp_h5_quiet_end(const dp_h5_quiet *quiet);

/* To be called right after an HDF5 call failed: fails with the message and HDF5's own innermost reason after it. The
 * status is DFLASH_ERR_IO when the operating system refused, DFLASH_ERR_REFUSED when the content is at fault. */
dflash_status dp_h5_fail(dflash_error *err, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Opens a file for reading, after a look at its signature and a trial (store_trial.h); close it with H5Fclose. Codes:
 * "oracle.open", "oracle.format", "oracle.damaged" and those of dp_trial. */
dflash_status dp_h5_open_file(const char *path, hid_t *out, dflash_error *err);
/* The same without the trial: for the trial itself. */
dflash_status dp_h5_open_untried(const char *path, hid_t *out, dflash_error *err);

/* The text attribute `name` of an object; `where` names the object in messages. Fixed and variable length are read
 * alike. Codes: "oracle.attribute.missing", "oracle.attribute.type". */
dflash_status dp_h5_text_attribute(hid_t object, const char *where, const char *name, char *out, size_t size,
                                   dflash_error *err);

/* A signed integer attribute: a scalar, or 1-D with 1 to `limit` elements when count is not NULL. */
dflash_status dp_h5_int_attribute(hid_t object, const char *where, const char *name, int64_t *out, int limit,
                                  int *count, dflash_error *err);

/* The scalar text dataset at `path`, as an allocated string without zeros inside. Codes: "oracle.object.missing",
 * "oracle.object.type", "oracle.read". */
dflash_status dp_h5_text_dataset(hid_t dataset, const char *where, char **out, size_t *length, dflash_error *err);

/* Opens the dataset or group at `path` of the file named `file_name`; only hard links are followed, so that a file
 * speaks for itself alone. Codes: "oracle.object.missing", "oracle.object.type". */
dflash_status dp_h5_open_dataset(hid_t file, const char *file_name, const char *path, hid_t *out, dflash_error *err);
dflash_status dp_h5_open_group(hid_t file, const char *file_name, const char *path, hid_t *out, dflash_error *err);

/* Names of the links in a group, in alphabetical order, at most `limit`. */
typedef struct dp_h5_names {
    char **name;
    int count;
} dp_h5_names;
dflash_status dp_h5_list(hid_t group, const char *where, int limit, dp_h5_names *out, dflash_error *err);
void dp_h5_names_release(dp_h5_names *names);
bool dp_h5_names_contain(const dp_h5_names *names, const char *name);

#endif
