/* head_source.c - see head_source.h. */
#include "run/head_source.h"

#include "common/error.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void dp_head_source_parse(const char *text, dp_head_source *out) {
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text || colon[1] == '\0' || strchr(colon, '/') != NULL || access(text, F_OK) == 0)
        colon = NULL;
    const int length = (int)(colon != NULL ? (size_t)(colon - text) : strlen(text));
    out->tensor = colon != NULL ? colon + 1 : NULL;
    snprintf(out->file, sizeof out->file, "%.*s", length, text);
}

static dflash_status open_own(dflash_engine *engine, const char *checkpoint, dflash_table **out, dflash_error *err) {
    static const char *const names[] = {"lm_head.weight", "model.lm_head.weight"}; /* what no census minds */
    char path[DP_HEAD_PATH];
    dflash_error reason = {.status = DFLASH_OK};
    if (snprintf(path, sizeof path, "%s/model.safetensors", checkpoint) >= DP_HEAD_PATH)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "path.long", "The checkpoint path is longer than %d characters.",
                       DP_HEAD_PATH);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (dflash_table_load(engine, path, names[i], out, &reason) == DFLASH_OK) return DFLASH_OK;
        if (strcmp(reason.code, "table.tensor.missing") == 0) continue;
        if (err != NULL) *err = reason;
        return reason.status;
    }
    return DFLASH_OK;
}

dflash_status dp_head_open(dflash_engine *engine, const char *checkpoint, const char *text, dflash_table **out,
                           dflash_error *err) {
    dp_head_source source;
    *out = NULL;
    if (text == NULL) return open_own(engine, checkpoint, out, err);
    dp_head_source_parse(text, &source);
    return dflash_table_load(engine, source.file, source.tensor, out, err);
}
