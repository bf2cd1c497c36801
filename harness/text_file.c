/* text_file.c - see text_file.h. */
#include "text_file.h"

#include "atomic_file.h"
#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

df_status dp_text_file_read(const char *path, size_t most, char **out, df_error *err) {
    *out = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return df_fail(err, DF_ERR_IO, "file.open",
                       "Cannot open %s for reading: %s. Check the path and its permissions.", path, strerror(errno));
    char *text = malloc(most + 2);
    if (text == NULL) {
        fclose(file);
        return df_fail_memory(err, path, most);
    }
    const size_t length = fread(text, 1, most + 1, file);
    df_status status = DF_OK;
    if (ferror(file))
        status = df_fail(
            err, DF_ERR_IO, "file.read",
            "Reading %s failed: %s. Expected a text file that can be read to its end; check what is at that path.",
            path, strerror(errno));
    else if (length > most)
        status =
            df_fail(err, DF_ERR_REFUSED, "file.size",
                    "%s is larger than the %zu bytes that such a file may have. Check that it is the file you meant.",
                    path, most);
    else if (memchr(text, '\0', length) != NULL)
        status = df_fail(err, DF_ERR_REFUSED, "file.text",
                         "%s holds a zero byte at offset %zu: expected text, found a binary file. Check that it is the "
                         "file you meant.",
                         path, (size_t)((char *)memchr(text, '\0', length) - text));
    fclose(file);
    if (status != DF_OK) {
        free(text);
        return status;
    }
    text[length] = '\0';
    *out = text;
    return DF_OK;
}

df_status dp_text_file_write(const char *path, const char *text, df_error *err) {
    dp_atomic_file *file = NULL;
    df_status status = dp_atomic_open(path, &file, err);
    if (status != DF_OK) return status;
    status = dp_atomic_write(file, text, strlen(text), err);
    if (status == DF_OK) return dp_atomic_commit(file, err);
    dp_atomic_discard(file);
    return status;
}
