/* head_find.c - see head_find.h. */
#include "weights/head_find.h"

#include "common/error.h"
#include "weights/safetensors_header.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char head_name[] = "lm_head.weight", embedding_name[] = "embed_tokens.weight";

/* What stands before the two names in checkpoints of language models, and of models with one inside. */
static const char *const prefixes[] = {"model.",
                                       "language_model.",
                                       "language_model.model.",
                                       "model.language_model.",
                                       "model.language_model.model.",
                                       "text_model.",
                                       "model.text_model.",
                                       "llm.",
                                       "llm.model.",
                                       "thinker.",
                                       "thinker.model."};
enum { PREFIXES = sizeof prefixes / sizeof *prefixes, LIST_TEXT = 600 };

typedef struct candidates {
    const df_tensor *first;
    int count;
    char text[LIST_TEXT]; /* names separated by commas; those that do not fit are not listed */
} candidates;

static void add(candidates *list, const df_tensor *tensor) {
    if (tensor == NULL) return;
    if (list->count++ == 0) list->first = tensor;
    const size_t used = strlen(list->text);
    if (used + strlen(tensor->name) + 3 < sizeof list->text)
        snprintf(list->text + used, sizeof list->text - used, "%s%s", used > 0 ? ", " : "", tensor->name);
}

static void add_prefixed(candidates *list, const df_safetensors *file, const char *name) {
    for (int i = 0; i < PREFIXES; i++) {
        char full[64];
        snprintf(full, sizeof full, "%s%s", prefixes[i], name);
        add(list, df_safetensors_find(file, full));
    }
}

/* Whether `part` stands in the name between dots or ends. */
static bool has_part(const char *name, const char *part) {
    const size_t length = strlen(part);
    for (const char *at = strstr(name, part); at != NULL; at = strstr(at + 1, part))
        if ((at == name || at[-1] == '.') && (at[length] == '.' || at[length] == '\0')) return true;
    return false;
}

/* Tensors that are an output head, or of one, under names that the order does not know: quantised, or of another part
 * of the model. */
static void add_unknown_heads(candidates *list, const df_safetensors *file) {
    for (int i = 0; i < df_safetensors_count(file); i++) {
        const df_tensor *tensor = df_safetensors_at(file, i);
        const char *name = tensor->name;
        if (has_part(name, "lm_head") || has_part(name, "embed_out") || has_part(name, "output_layer") ||
            strcmp(name, "output.weight") == 0)
            add(list, tensor);
    }
}

/* A file name such as model-00001-of-00004.safetensors: one of several. */
static bool is_shard(const char *path) {
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    for (const char *of = strstr(base, "-of-"); of != NULL; of = strstr(of + 1, "-of-"))
        if (of > base && isdigit((unsigned char)of[-1]) && strtoul(of + 4, NULL, 10) > 1) return true;
    return false;
}

static dflash_status refuse_ambiguous(const df_safetensors *file, const candidates *list, const char *why,
                                      dflash_error *err) {
    return df_fail(
        err, DFLASH_ERR_REFUSED, "table.head.ambiguous",
        "%s: which tensor is the output head is not clear: %s: %s. Name the one that is meant, as FILE:TENSOR "
        "in --lm-head.",
        df_safetensors_path(file), why, list->text);
}

dflash_status df_head_find(const df_safetensors *file, const df_tensor **out, dflash_error *err) {
    candidates heads = {.count = 0}, unknown = {.count = 0}, embeddings = {.count = 0};
    const char *path = df_safetensors_path(file);
    *out = df_safetensors_find(file, head_name);
    if (*out != NULL) return DFLASH_OK;
    add_prefixed(&heads, file, head_name);
    if (heads.count > 1) return refuse_ambiguous(file, &heads, "several prefixed heads", err);
    *out = heads.first;
    if (*out != NULL) return DFLASH_OK;
    add(&embeddings, df_safetensors_find(file, embedding_name));
    add_prefixed(&embeddings, file, embedding_name);
    add_unknown_heads(&unknown, file);
    if (unknown.count > 0) {
        if (embeddings.count > 0) add(&unknown, embeddings.first);
        return refuse_ambiguous(file, &unknown, "no head has a known name, and these are or belong to one", err);
    }
    if (embeddings.count > 1) return refuse_ambiguous(file, &embeddings, "no head, and several embeddings", err);
    if (embeddings.count == 0)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "table.tensor.missing",
            "%s holds no tensor \"%s\", bare or behind a known prefix, and no embedding that could be tied to "
            "it, among its %d tensors. Give the file of the target that holds its output head, or name the "
            "tensor, as FILE:TENSOR in --lm-head.",
            path, head_name, df_safetensors_count(file));
    if (is_shard(path))
        return df_fail(
            err, DFLASH_ERR_REFUSED, "table.head.shard",
            "%s is one of several files and holds an embedding (%s) but no output head, which another of them "
            "may hold. Give that file; if the model ties the two, say so: --lm-head %s:%s.",
            path, embeddings.text, path, embeddings.text);
    *out = embeddings.first;
    return DFLASH_OK;
}

dflash_status df_head_check_bias(const df_safetensors *file, const df_tensor *head, dflash_error *err) {
    static const char weight[] = ".weight";
    char bias[DF_TENSOR_NAME_MAX + 1];
    const size_t length = strlen(head->name), end = sizeof weight - 1;
    if (length < end || strcmp(head->name + length - end, weight) != 0) return DFLASH_OK;
    snprintf(bias, sizeof bias, "%.*s.bias", (int)(length - end), head->name);
    if (df_safetensors_find(file, bias) == NULL) return DFLASH_OK;
    return df_fail(err, DFLASH_ERR_REFUSED, "table.head.bias",
                   "%s: beside \"%s\" there is \"%s\": an output head with a bias, which is not supported; logits "
                   "without it would be another model's. Use a target whose head has none.",
                   df_safetensors_path(file), head->name, bias);
}
