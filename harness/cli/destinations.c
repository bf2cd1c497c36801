/* destinations.c - see destinations.h. */
#include "cli/destinations.h"

#include "base/atomic_file.h"
#include "base/cli.h"
#include "run/head_source.h"
#include "history/history.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_SIZE = 4096 };

static bool same_inode(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The folder that a path names a file in, and the name. False: the path is too long to be one. */
static bool split(const char *path, char folder[PATH_SIZE], const char **name) {
    const char *slash = strrchr(path, '/');
    *name = slash != NULL ? slash + 1 : path;
    const int length = slash != NULL ? (int)(slash - path) : 0;
    return snprintf(folder, PATH_SIZE, "%.*s%s", length, path,
                    slash == NULL ? "."
                    : length == 0 ? "/"
                                  : "") < PATH_SIZE;
}

/* One file by two names (links), or one name in one folder, whether or not the file is there yet. */
static bool same_file(const char *a, const char *b) {
    char folder[2][PATH_SIZE];
    const char *name[2];
    struct stat info[2];
    if (strcmp(a, b) == 0) return true;
    if (stat(a, &info[0]) == 0 && stat(b, &info[1]) == 0 && same_inode(&info[0], &info[1])) return true;
    return split(a, folder[0], &name[0]) && split(b, folder[1], &name[1]) && strcmp(name[0], name[1]) == 0 &&
           stat(folder[0], &info[0]) == 0 && stat(folder[1], &info[1]) == 0 && same_inode(&info[0], &info[1]);
}

void dp_destination_add(dp_destinations *d, dp_destination item) {
    if (item.path == NULL || d->code != DP_EXIT_PASS) return;
    for (int i = 0; i < d->count; i++)
        if (same_file(d->item[i].path, item.path)) {
            d->code = dp_usage_error(d->command,
                                     "%s and %s name the same file, %s, and one would be lost; choose "
                                     "another name for one of them",
                                     d->item[i].option, item.option, item.path);
            return;
        }
    if (d->count == DP_MOST_DESTINATIONS)
        d->code = dp_usage_error(d->command, "more than %d files to write", DP_MOST_DESTINATIONS);
    else
        d->item[d->count++] = item;
}

void dp_destination_spare(dp_destinations *d, const char *path) {
    for (int i = 0; path != NULL && i < d->count && d->code == DP_EXIT_PASS; i++)
        if (same_file(d->item[i].path, path))
            d->code = dp_usage_error(d->command,
                                     "%s names %s, which this command reads and would then replace; choose "
                                     "another name",
                                     d->item[i].option, path);
}

void dp_destination_spare_head(dp_destinations *d, const char *head) {
    dp_head_source source;
    if (head == NULL) return;
    dp_head_source_parse(head, &source);
    dp_destination_spare(d, source.file);
}

void dp_destination_spare_checkpoint(dp_destinations *d, const char *folder) {
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; folder != NULL && i < sizeof names / sizeof *names; i++) {
        char path[PATH_SIZE];
        if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) < PATH_SIZE) dp_destination_spare(d, path);
    }
}

int dp_destinations_check(dp_destinations *d) {
    for (int i = 0; i < d->count && d->code == DP_EXIT_PASS; i++) {
        const dp_destination *item = &d->item[i];
        dflash_error err;
        if ((item->appended ? dp_history_check(item->path, &err) : dp_atomic_check(item->path, &err)) != DFLASH_OK)
            d->code = dp_report_error(d->command, &err);
    }
    return d->code;
}
