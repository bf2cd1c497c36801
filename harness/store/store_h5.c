/* store_h5.c - see store_h5.h. */
#include "store/store_h5.h"

#include "common/error.h"
#include "common/regular_file.h"
#include "store/store.h"
#include "store/store_trial.h"

#include <errno.h>
#include <unistd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_LIMIT = 256 };
static const size_t text_limit = (size_t)1 << 26; /* bytes of one fixed-length text */

void dp_h5_quiet_begin(dp_h5_quiet *quiet) {
    /* At exit HDF5 closes itself, and after a damaged file it complains on stderr that it cannot. Nothing of ours waits
     * for that: files are read only or built in memory. Has an effect in the process's first HDF5 call only. */
    H5dont_atexit();
    quiet->print = NULL;
    quiet->data = NULL;
    H5Eget_auto2(H5E_DEFAULT, &quiet->print, &quiet->data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void dp_h5_quiet_end(const dp_h5_quiet *quiet) { H5Eset_auto2(H5E_DEFAULT, quiet->print, quiet->data); }

/* ---- Failures ---- */

typedef struct reason {
    char text[200];
    bool io;
} reason;

static herr_t keep_innermost(unsigned n, const H5E_error2_t *entry, void *user) {
    reason *found = user;
    if (n == 0) {
        snprintf(found->text, sizeof found->text, "%s", entry->desc != NULL ? entry->desc : "no reason given");
        found->io = entry->maj_num == H5E_IO;
    }
    return 0;
}

dflash_status dp_h5_fail(dflash_error *err, const char *code, const char *format, ...) {
    reason found = {.text = "no reason given"};
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &found);
    char message[sizeof((dflash_error *)NULL)->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    char hint[200] = "";
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    if (strstr(found.text, "bad version number") != NULL)
        snprintf(hint, sizeof hint,
                 " A whole file that says this is of a newer HDF5 format than libhdf5 %u.%u.%u reads: write it with "
                 "h5py's libver=(\"v110\", \"v110\").",
                 major, minor, release);
    return df_fail(err, found.io ? DFLASH_ERR_IO : DFLASH_ERR_REFUSED, code, "%s HDF5 says: %s.%s", message, found.text,
                   hint);
}

/* ---- Text ---- */

/* Attributes and datasets hold text in the same ways and differ in the call that reads it. */
typedef struct text_source {
    hid_t object, type, space;
    bool attribute;
} text_source;

static herr_t source_read(const text_source *source, hid_t memory, void *out) {
    return source->attribute ? H5Aread(source->object, memory, out)
                             : H5Dread(source->object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
}

static dflash_status read_text(const text_source *source, const char *what, const char *type_code, char **out,
                               dflash_error *err) {
    *out = NULL;
    if (source->type < 0 || source->space < 0)
        return dp_h5_fail(err, "oracle.read", "%s: its type cannot be read. Write the file again.", what);
    if (H5Tget_class(source->type) != H5T_STRING || H5Sget_simple_extent_npoints(source->space) != 1)
        return df_fail(err, DFLASH_ERR_REFUSED, type_code,
                       "%s: expected one string, found another type or more than one element. Write the file again as "
                       "oracles/FORMAT.md says.",
                       what);
    if (H5Tis_variable_str(source->type) > 0) {
        char *text = NULL;
        if (source_read(source, source->type, &text) < 0)
            return dp_h5_fail(err, "oracle.read", "%s: the string cannot be read. Write the file again.", what);
        *out = strdup(text != NULL ? text : "");
        if (text != NULL) H5free_memory(text);
        return *out != NULL ? DFLASH_OK : df_fail_memory(err, what, 1);
    }
    const size_t size = H5Tget_size(source->type);
    if (size == 0 || size > text_limit)
        return df_fail(err, DFLASH_ERR_REFUSED, type_code,
                       "%s: a string of %zu bytes; expected 1 to %zu. The file is damaged; write it again.", what, size,
                       text_limit);
    char *text = calloc(size + 1, 1);
    if (text == NULL) return df_fail_memory(err, what, size + 1);
    if (source_read(source, source->type, text) < 0) {
        free(text);
        return dp_h5_fail(err, "oracle.read", "%s: the string cannot be read. Write the file again.", what);
    }
    const size_t length = strlen(text);
    for (size_t i = length; i < size; i++) {
        if (text[i] == '\0') continue;
        free(text);
        return df_fail(err, DFLASH_ERR_REFUSED, type_code,
                       "%s: a zero byte inside the text, at %zu of %zu. Write it again.", what, length, size);
    }
    *out = text;
    return DFLASH_OK;
}

static hid_t open_attribute(hid_t object, const char *where, const char *name, dflash_status *status,
                            dflash_error *err) {
    const htri_t there = H5Aexists(object, name);
    if (there == 0)
        *status = df_fail(err, DFLASH_ERR_REFUSED, "oracle.attribute.missing",
                          "%s: the attribute \"%s\" is missing. Write the file again as oracles/FORMAT.md says.", where,
                          name);
    if (there == 0) return H5I_INVALID_HID;
    const hid_t attribute = there > 0 ? H5Aopen(object, name, H5P_DEFAULT) : H5I_INVALID_HID;
    if (attribute < 0)
        *status = dp_h5_fail(err, "oracle.read", "%s: the attribute \"%s\" cannot be read. Write the file again.",
                             where, name);
    return attribute;
}

dflash_status dp_h5_text_attribute(hid_t object, const char *where, const char *name, char *out, size_t size,
                                   dflash_error *err) {
    dflash_status status = DFLASH_OK;
    const hid_t attribute = open_attribute(object, where, name, &status, err);
    if (attribute < 0) return status;
    char what[512], *text = NULL;
    snprintf(what, sizeof what, "%s, attribute \"%s\"", where, name);
    const text_source source = {attribute, H5Aget_type(attribute), H5Aget_space(attribute), true};
    status = read_text(&source, what, "oracle.attribute.type", &text, err);
    if (status == DFLASH_OK && strlen(text) >= size)
        status =
            df_fail(err, DFLASH_ERR_REFUSED, "oracle.attribute.type",
                    "%s: %zu bytes of text; expected fewer than %zu. Write the file again.", what, strlen(text), size);
    if (status == DFLASH_OK) memcpy(out, text, strlen(text) + 1);
    free(text);
    if (source.type >= 0) H5Tclose(source.type);
    if (source.space >= 0) H5Sclose(source.space);
    H5Aclose(attribute);
    return status;
}

dflash_status dp_h5_text_dataset(hid_t dataset, const char *where, char **out, size_t *length, dflash_error *err) {
    const text_source source = {dataset, H5Dget_type(dataset), H5Dget_space(dataset), false};
    const dflash_status status = read_text(&source, where, "oracle.object.type", out, err);
    if (status == DFLASH_OK) *length = strlen(*out);
    if (source.type >= 0) H5Tclose(source.type);
    if (source.space >= 0) H5Sclose(source.space);
    return status;
}

/* ---- Integers ---- */

dflash_status dp_h5_int_attribute(hid_t object, const char *where, const char *name, int64_t *out, int limit,
                                  int *count, dflash_error *err) {
    dflash_status status = DFLASH_OK;
    const hid_t attribute = open_attribute(object, where, name, &status, err);
    if (attribute < 0) return status;
    const hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    const hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    const int rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    const bool integer = type >= 0 && H5Tget_class(type) == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2 &&
                         H5Tget_size(type) <= sizeof(int64_t);
    const bool shape = count != NULL ? rank == 1 && n >= 1 && n <= limit : n == 1 && rank <= 1;
    char many[48] = "one";
    if (count != NULL) snprintf(many, sizeof many, "a list of at most %d", limit);
    if (!integer || !shape)
        status =
            df_fail(err, DFLASH_ERR_REFUSED, "oracle.attribute.type",
                    "%s, attribute \"%s\": expected %s signed integer%s, found another type or count. Write the file "
                    "again as oracles/FORMAT.md says.",
                    where, name, many, count != NULL ? "s" : "");
    else if (H5Aread(attribute, H5T_NATIVE_INT64, out) < 0)
        status = dp_h5_fail(err, "oracle.read", "%s: the attribute \"%s\" cannot be read. Write the file again.", where,
                            name);
    else if (count != NULL)
        *count = (int)n;
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    H5Aclose(attribute);
    return status;
}

/* ---- Objects ---- */

static dflash_status check_link(hid_t file, const char *file_name, const char *path, const char *kind,
                                dflash_error *err) {
    H5L_info_t link;
    if (strcmp(path, "/") == 0) return DFLASH_OK; /* the root is an object without a link */
    if (H5Lexists(file, path, H5P_DEFAULT) <= 0)
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.object.missing",
                       "%s: the %s %s is missing. Write the file again as oracles/FORMAT.md says.", file_name, kind,
                       path);
    if (H5Lget_info(file, path, &link, H5P_DEFAULT) < 0)
        return dp_h5_fail(err, "oracle.read", "%s: the link %s cannot be read. Write the file again.", file_name, path);
    if (link.type != H5L_TYPE_HARD)
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.object.type",
                       "%s: %s is a soft or external link; expected a %s stored in this file. Write the file again.",
                       file_name, path, kind);
    return DFLASH_OK;
}

static dflash_status open_object(hid_t file, const char *file_name, const char *path, bool dataset, hid_t *out,
                                 dflash_error *err) {
    const char *kind = dataset ? "dataset" : "group";
    *out = H5I_INVALID_HID;
    const dflash_status status = check_link(file, file_name, path, kind, err);
    if (status != DFLASH_OK) return status;
    const hid_t object = H5Oopen(file, path, H5P_DEFAULT);
    if (object < 0)
        return dp_h5_fail(err, "oracle.read", "%s: the object %s cannot be read. Write the file again.", file_name,
                          path);
    if (H5Iget_type(object) != (dataset ? H5I_DATASET : H5I_GROUP)) {
        H5Oclose(object);
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.object.type",
                       "%s: %s is not a %s. Write the file again as oracles/FORMAT.md says.", file_name, path, kind);
    }
    *out = object;
    return DFLASH_OK;
}

dflash_status dp_h5_open_dataset(hid_t file, const char *file_name, const char *path, hid_t *out, dflash_error *err) {
    return open_object(file, file_name, path, true, out, err);
}

dflash_status dp_h5_open_group(hid_t file, const char *file_name, const char *path, hid_t *out, dflash_error *err) {
    return open_object(file, file_name, path, false, out, err);
}

dflash_status dp_h5_list(hid_t group, const char *where, int limit, dp_h5_names *out, dflash_error *err) {
    *out = (dp_h5_names){0};
    H5G_info_t info;
    if (H5Gget_info(group, &info) < 0)
        return dp_h5_fail(err, "oracle.read", "%s: the group cannot be read. Write the file again.", where);
    if (info.nlinks > (hsize_t)limit)
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.object.count",
                       "%s: %llu entries; expected at most %d. The file is damaged or not an oracle; write it again.",
                       where, (unsigned long long)info.nlinks, limit);
    if (info.nlinks == 0) return DFLASH_OK;
    out->name = calloc((size_t)info.nlinks, sizeof *out->name);
    if (out->name == NULL) return df_fail_memory(err, where, (size_t)info.nlinks * sizeof *out->name);
    for (hsize_t i = 0; i < info.nlinks; i++) {
        char name[NAME_LIMIT];
        const ssize_t length =
            H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT);
        if (length < 0) {
            dp_h5_names_release(out);
            return dp_h5_fail(err, "oracle.read", "%s: entry %llu of the group cannot be read. Write the file again.",
                              where, (unsigned long long)i);
        }
        /* A name longer than the buffer arrives cut; no name of ours is that long, so it is refused as unknown later.
         */
        out->name[i] = strdup(name);
        if (out->name[i] == NULL) {
            dp_h5_names_release(out);
            return df_fail_memory(err, where, strlen(name) + 1);
        }
        out->count++;
    }
    return DFLASH_OK;
}

void dp_h5_names_release(dp_h5_names *names) {
    for (int i = 0; i < names->count; i++) free(names->name[i]);
    free(names->name);
    *names = (dp_h5_names){0};
}

bool dp_h5_names_contain(const dp_h5_names *names, const char *name) {
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0) return true;
    return false;
}

/* ---- Files ---- */

/* What the first bytes of a file say before libhdf5 looks at it. */
typedef struct superblock {
    int version;
    bool writing, swmr; /* flags that a writer sets while it has the file open; of version 3 */
} superblock;

enum { SUPERBLOCK_NEWEST = 3, SUPERBLOCK_BYTES = 12, MOST_USER_BLOCK = 1 << 20 };

/* The superblock stands at the start, or behind a user block of 512, 1024, ... bytes. */
static bool has_signature(int fd, off_t *at) {
    static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    unsigned char start[sizeof signature];
    for (*at = 0; *at <= MOST_USER_BLOCK; *at = *at == 0 ? 512 : 2 * *at) {
        if (pread(fd, start, sizeof start, *at) < (ssize_t)sizeof start) return false;
        if (memcmp(start, signature, sizeof start) == 0) return true;
    }
    return false;
}

bool dp_file_is_hdf5(const char *path) {
    const size_t length = strlen(path);
    struct stat info;
    const char *kind;
    off_t at;
    if (length > 3 && strcmp(path + length - 3, ".h5") == 0) return true;
    /* A pipe has no second look to give: text is what may come from one. */
    const int fd = df_open_regular(path, &info, &kind);
    if (fd < 0) return false;
    const bool found = has_signature(fd, &at);
    close(fd);
    return found;
}

static dflash_status read_start(const char *path, superblock *out, dflash_error *err) {
    unsigned char start[SUPERBLOCK_BYTES] = {0};
    struct stat info;
    const char *kind;
    off_t at;
    const int fd = df_open_regular(path, &info, &kind);
    if (fd < 0 && kind != NULL)
        return df_fail(err, DFLASH_ERR_IO, "oracle.open",
                       "%s: expected an oracle file, found %s. An HDF5 file is read at many places, so it must be a "
                       "regular file; save what comes out of a pipe, and give that.",
                       path, kind);
    if (fd < 0)
        return df_fail(err, DFLASH_ERR_IO, "oracle.open",
                       "%s cannot be opened: %s. Check the path and its permissions.", path, strerror(errno));
    errno = 0;
    const bool found = has_signature(fd, &at);
    const bool whole = found && pread(fd, start, sizeof start, at) == (ssize_t)sizeof start;
    const int failure = errno;
    close(fd);
    if (failure != 0)
        return df_fail(err, DFLASH_ERR_IO, "oracle.open", "%s cannot be read: %s. Expected an oracle file.", path,
                       strerror(failure));
    if (!found)
        return df_fail(err, DFLASH_ERR_REFUSED, "oracle.format",
                       "%s: not an HDF5 file: its first 8 bytes are not the HDF5 signature. Give the path of an oracle "
                       "(oracles/FORMAT.md), and check that it was fetched whole.",
                       path);
    out->version = whole ? start[8] : 0;
    out->writing = out->version == 3 && (start[11] & 1) != 0;
    out->swmr = out->writing && (start[11] & 4) != 0;
    return DFLASH_OK;
}

static dflash_status refuse_newer(const char *path, int version, dflash_error *err) {
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    return df_fail(err, DFLASH_ERR_REFUSED, "oracle.version",
                   "%s: an HDF5 file of superblock version %d; libhdf5 %u.%u.%u, which this program reads with, knows "
                   "versions up to %d. The file is of a newer format, or damaged. Write it again in an older one, with "
                   "h5py: File(path, \"w\", libver=(\"v110\", \"v110\")).",
                   path, version, major, minor, release, SUPERBLOCK_NEWEST);
}

/* Before libhdf5 sees a byte: what the start of the file says. */
static dflash_status check_start(const char *path, superblock *start, dflash_error *err) {
    const dflash_status status = read_start(path, start, err);
    if (status != DFLASH_OK) return status;
    if (start->version > SUPERBLOCK_NEWEST) return refuse_newer(path, start->version, err);
    if (!start->writing || start->swmr) return DFLASH_OK;
    return df_fail(
        err, DFLASH_ERR_REFUSED, "oracle.unclosed",
        "%s: an HDF5 file that a writer has open, or left without closing it (its consistency flag is "
        "set): what it holds may not be complete. Let the writer end; if it is gone, clear the flag with "
        "`h5clear -s %s` (Debian: hdf5-tools) and check again: every dataset has a digest that tells whether it is "
        "whole.",
        path, path);
}

dflash_status dp_h5_open_file(const char *path, hid_t *out, dflash_error *err) {
    superblock start = {.version = 0};
    *out = H5I_INVALID_HID;
    TRY(check_start(path, &start, err)); /* what needs no trial */
    TRY(dp_trial(path, err));
    return dp_h5_open_untried(path, out, err);
}

dflash_status dp_h5_open_untried(const char *path, hid_t *out, dflash_error *err) {
    superblock start = {.version = 0};
    *out = H5I_INVALID_HID;
    dflash_status status = check_start(path, &start, err);
    if (status != DFLASH_OK) return status;
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* Of a single writer with many readers the file is meant to be read while it is written; digests say the rest. */
    const unsigned how = H5F_ACC_RDONLY | (start.swmr ? H5F_ACC_SWMR_READ : 0u);
    /* Only readers meet here; without locks a file on a read-only or remote file system opens too. */
    if (access >= 0 && H5Pset_file_locking(access, false, true) >= 0) *out = H5Fopen(path, how, access);
    if (*out < 0)
        status = dp_h5_fail(
            err, "oracle.damaged",
            "%s: an HDF5 file that cannot be opened: truncated or damaged. Write it again or fetch it again.", path);
    if (access >= 0) H5Pclose(access);
    return status;
}
