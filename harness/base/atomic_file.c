/*
 * atomic_file.c - see atomic_file.h.
 *
 * The temporary file is created exclusively beside its target, so that the rename never crosses a file system and two
 * writers never share a file. Whether the folder has room for what is coming is left to the caller.
 */
#include "base/atomic_file.h"

#include "common/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_ATTEMPTS = 1000 };

struct dp_atomic_file {
    char *path, *temporary;
    int fd;
    bool failed; /* a write failed: the bytes so far are not a prefix that anyone should keep */
};

static dflash_status check_target(const char *path, dflash_error *err) {
    struct stat info;
    if (path[0] == '\0' || path[strlen(path) - 1] == '/') {
        return df_fail(err, DFLASH_ERR_IO, "atomic.target",
                       "Cannot write \"%s\": expected the name of a file, found the name of a folder. Name a file "
                       "inside it.",
                       path);
    }
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode)) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_IO, "atomic.target",
                   "Cannot write %s: expected a regular file or nothing at that name, found a %s, which is not "
                   "replaced. Choose another name or remove it.",
                   path, S_ISDIR(info.st_mode) ? "folder" : "special file");
}

/* Opens a new file PATH.PID-N.tmp. 0666 lets the umask decide, as for any other file; mkstemp would force 0600. */
static int open_temporary(const char *path, char *name, size_t size) {
    for (int n = 0; n < NAME_ATTEMPTS; n++) {
        snprintf(name, size, "%s.%ld-%d.tmp", path, (long)getpid(), n);
        const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

static void release(dp_atomic_file *file) {
    free(file->path);
    free(file->temporary);
    free(file);
}

dflash_status dp_atomic_open(const char *path, dp_atomic_file **out, dflash_error *err) {
    *out = NULL;
    dflash_status status = check_target(path, err);
    if (status != DFLASH_OK) return status;
    const size_t length = strlen(path), size = length + 48;
    dp_atomic_file *file = calloc(1, sizeof *file);
    if (file == NULL) return df_fail_memory(err, "an output file's handle", sizeof *file);
    file->path = strdup(path);
    file->temporary = malloc(size);
    if (file->path == NULL || file->temporary == NULL) {
        status = df_fail_memory(err, "an output file's name", size);
        goto cleanup;
    }
    file->fd = open_temporary(path, file->temporary, size);
    if (file->fd < 0) {
        status = df_fail(err, DFLASH_ERR_IO, "atomic.open",
                         "Cannot create a file in the folder of %s: expected to be able to write there, found \"%s\". "
                         "Check that the folder exists and that you may write to it.",
                         path, strerror(errno));
        goto cleanup;
    }
    *out = file;
    return DFLASH_OK;
cleanup:
    release(file);
    return status;
}

dflash_status dp_atomic_write(dp_atomic_file *file, const void *data, size_t bytes, dflash_error *err) {
    const char *next = data;
    size_t left = bytes;
    while (left > 0) {
        const ssize_t n = write(file->fd, next, left);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            file->failed = true;
            return df_fail(
                err, DFLASH_ERR_IO, "atomic.write",
                "Cannot write %s: expected to write %zu more bytes, found \"%s\". Free space on that disk or "
                "raise its quota or the file size limit; what stood at that name before is unchanged.",
                file->path, left, n == 0 ? "no progress" : strerror(errno));
        }
        next += n;
        left -= (size_t)n;
    }
    return DFLASH_OK;
}

dflash_status dp_atomic_commit(dp_atomic_file *file, dflash_error *err) {
    const char *step = "atomic.write";
    int cause = EIO; /* the errno of an earlier failed write was reported then */
    bool done = false;
    if (!file->failed) {
        step = "atomic.sync";
        done = fsync(file->fd) == 0;
        cause = errno;
    }
    /* Closed exactly once even if it fails: on Linux the descriptor is gone either way. */
    if (close(file->fd) != 0 && done) {
        step = "atomic.close";
        cause = errno;
        done = false;
    }
    if (done && rename(file->temporary, file->path) != 0) {
        step = "atomic.rename";
        cause = errno;
        done = false;
    }
    dflash_status status = DFLASH_OK;
    if (!done) {
        unlink(file->temporary);
        status = df_fail(err, DFLASH_ERR_IO, step,
                         "Cannot finish %s: expected its bytes to reach the disk and to take that name, found \"%s\". "
                         "Check the disk and the folder; what stood at that name before is unchanged.",
                         file->path, strerror(cause));
    }
    release(file);
    return status;
}

void dp_atomic_discard(dp_atomic_file *file) {
    if (file == NULL) return;
    close(file->fd);
    unlink(file->temporary);
    release(file);
}

dflash_status dp_atomic_check(const char *path, dflash_error *err) {
    dp_atomic_file *file = NULL;
    const dflash_status status = dp_atomic_open(path, &file, err);
    dp_atomic_discard(file);
    return status;
}
