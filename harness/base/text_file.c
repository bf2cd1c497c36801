/* text_file.c - see text_file.h. */
#include "base/text_file.h"

#include "base/atomic_file.h"
#include "common/error.h"
#include "common/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dflash_status fail_read(const char *path, const char *why, dflash_error *err) {
    return df_fail(err, DFLASH_ERR_IO, "file.read",
                   "Reading %s failed: %s. Expected a text file, or a pipe of text, that can be read to its end; check "
                   "what is at that path.",
                   path, why);
}

/* A descriptor that can be read front to back without waiting for someone to come: "-" is standard input. */
static dflash_status open_text(const char *path, int *out, bool *pipe, dflash_error *err) {
    struct stat info;
    char why[64];
    const bool given = strcmp(path, "-") == 0;
    const bool there = given ? fstat(STDIN_FILENO, &info) == 0 : stat(path, &info) == 0;
    *out = -1;
    *pipe = there && !S_ISREG(info.st_mode);
    /* A socket that is there as standard input is a pipe like any other; one that has a path cannot be opened. */
    if (there && *pipe && !S_ISFIFO(info.st_mode) && !(given && S_ISSOCK(info.st_mode))) {
        snprintf(why, sizeof why, "it is %s", df_file_kind(info.st_mode));
        return fail_read(path, why, err);
    }
    /* O_NONBLOCK: open(2) would wait for the writer of a named pipe. What was opened is read as any file is. */
    if (there) *out = given ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*out >= 0 && (given || fcntl(*out, F_SETFL, O_RDONLY) == 0)) return DFLASH_OK;
    const int failure = errno;
    if (*out >= 0) close(*out);
    return df_fail(err, DFLASH_ERR_IO, "file.open",
                   "Cannot open %s for reading: %s. Check the path and its permissions.", path, strerror(failure));
}

/* Up to `most` bytes, to the end of the file. */
static dflash_status read_all(int fd, const char *path, char *text, size_t most, size_t *length, dflash_error *err) {
    *length = 0;
    while (*length < most) {
        const ssize_t got = read(fd, text + *length, most - *length);
        if (got < 0 && (errno == EINTR || (errno == EAGAIN && poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1) >= 0)))
            continue;
        if (got < 0) return fail_read(path, strerror(errno), err);
        if (got == 0) return DFLASH_OK;
        *length += (size_t)got;
    }
    return DFLASH_OK;
}

dflash_status dp_text_file_read(const char *path, size_t most, char **out, dflash_error *err) {
    int fd;
    bool pipe;
    size_t length = 0;
    *out = NULL;
    TRY(open_text(path, &fd, &pipe, err));
    char *text = malloc(most + 2);
    dflash_status status =
        text != NULL ? read_all(fd, path, text, most + 1, &length, err) : df_fail_memory(err, path, most);
    close(fd);
    if (status == DFLASH_OK && pipe && length == 0)
        status = fail_read(path, "it is a pipe that nobody writes to, or that was empty", err);
    else if (status == DFLASH_OK && length > most)
        status =
            df_fail(err, DFLASH_ERR_REFUSED, "file.size",
                    "%s is larger than the %zu bytes that such a file may have. Check that it is the file you meant.",
                    path, most);
    else if (status == DFLASH_OK && memchr(text, '\0', length) != NULL)
        status = df_fail(err, DFLASH_ERR_REFUSED, "file.text",
                         "%s holds a zero byte at offset %zu: expected text, found a binary file. Check that it is the "
                         "file you meant.",
                         path, (size_t)((char *)memchr(text, '\0', length) - text));
    if (status != DFLASH_OK) {
        free(text);
        return status;
    }
    text[length] = '\0';
    *out = text;
    return DFLASH_OK;
}

dflash_status dp_text_file_write(const char *path, const char *text, dflash_error *err) {
    dp_atomic_file *file = NULL;
    dflash_status status = dp_atomic_open(path, &file, err);
    if (status != DFLASH_OK) return status;
    status = dp_atomic_write(file, text, strlen(text), err);
    if (status == DFLASH_OK) return dp_atomic_commit(file, err);
    dp_atomic_discard(file);
    return status;
}
