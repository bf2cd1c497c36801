/* regular_file.c - see regular_file.h. */
#include "common/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

const char *df_file_kind(mode_t mode) {
    if (S_ISREG(mode)) return "a regular file";
    if (S_ISDIR(mode)) return "a directory";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

int df_open_regular(const char *path, struct stat *info, const char **kind) {
    *kind = NULL;
    /* Looked at first: a socket cannot be opened at all, and opening a device may do something to it. */
    if (stat(path, info) != 0) return -1;
    if (!S_ISREG(info->st_mode)) {
        *kind = df_file_kind(info->st_mode);
        return -1;
    }
    /* O_NONBLOCK: a pipe that has taken the file's place meanwhile is refused below instead of waited for. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    if (fstat(fd, info) == 0 && S_ISREG(info->st_mode)) return fd;
    const int why = errno;
    if (!S_ISREG(info->st_mode)) *kind = df_file_kind(info->st_mode);
    close(fd);
    errno = why;
    return -1;
}
