/*
 * provenance.c - are the weights under test the weights that the reference ran?
 *
 * Names, dtypes and shapes are compared first and cheaply; then the digests, which read every byte, are computed side
 * by side on several threads. The verdict does not depend on the number of threads: results are judged in file order.
 */
#include "preflight/geometry.h"

#include "common/error.h"
#include "base/sha256.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 256 };

typedef struct item {
    dflash_tensor_view view;
    const char *promised;
    char digest[65];
    int position; /* in file order */
} item;

typedef struct work {
    item *list; /* largest first */
    int count;
    atomic_int next;
} work;

/* ---- Records ---- */

static void show_shape(const dflash_tensor_view *view, char *out, size_t size) {
    int length = snprintf(out, size, "[");
    for (int i = 0; i < view->rank && length >= 0 && (size_t)length < size; i++)
        length += snprintf(out + length, size - (size_t)length, "%s%lld", i > 0 ? "," : "", (long long)view->dim[i]);
    if (length >= 0 && (size_t)length < size) snprintf(out + length, size - (size_t)length, "]");
}

static dflash_status differs(const char *name, const char *field, const char *ours, const char *theirs,
                             const char *where, dflash_error *err) {
    return df_fail(
        err, DFLASH_ERR_REFUSED, "provenance.tensor.differs",
        "%s: the %s of the tensor %s differs: the checkpoint has %s, the oracle was computed with %s. The oracle "
        "speaks of other weights; use the oracle of this checkpoint.",
        where, field, name, ours, theirs);
}

static dflash_status check_record(const dflash_tensor_view *view, const cJSON *record, const char *where,
                                  dflash_error *err) {
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(record, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(record, "shape");
    const cJSON *sha256 = cJSON_GetObjectItemCaseSensitive(record, "sha256");
    if (!cJSON_IsString(dtype) || !cJSON_IsArray(shape) || !cJSON_IsString(sha256))
        return df_fail(
            err, DFLASH_ERR_REFUSED, "provenance.tensor.differs",
            "%s: the provenance of the tensor %s lacks its dtype, shape or sha256, or holds one of another type. "
            "Write the oracle again as oracles/FORMAT.md says.",
            where, view->name);
    if (strcmp(dtype->valuestring, view->dtype) != 0)
        return differs(view->name, "dtype", view->dtype, dtype->valuestring, where, err);
    bool same = cJSON_GetArraySize(shape) == view->rank;
    const cJSON *dim = shape->child;
    for (int i = 0; same && i < view->rank; i++, dim = dim->next)
        same = cJSON_IsNumber(dim) && dim->valuedouble == (double)view->dim[i];
    if (same) return DFLASH_OK;
    char ours[128];
    show_shape(view, ours, sizeof ours);
    char *theirs = cJSON_PrintUnformatted(shape);
    const dflash_status status =
        differs(view->name, "shape", ours, theirs != NULL ? theirs : "another shape", where, err);
    cJSON_free(theirs);
    return status;
}

/* Fills list[] with the tensors in use, each matched with its record. */
static dflash_status match(const dflash_draft *draft, const cJSON *records, const char *where, item *list, int *count,
                           dflash_error *err) {
    *count = 0;
    for (int i = 0; i < dflash_draft_tensor_count(draft); i++) {
        const dflash_tensor_view view = dflash_draft_tensor(draft, i);
        if (!view.used) continue;
        const cJSON *record = cJSON_GetObjectItemCaseSensitive(records, view.name);
        if (record == NULL)
            return df_fail(
                err, DFLASH_ERR_REFUSED, "provenance.tensor.missing",
                "%s: the oracle has no record of the tensor %s, which the checkpoint uses. The oracle speaks of "
                "another checkpoint; use this one's.",
                where, view.name);
        const dflash_status status = check_record(&view, record, where, err);
        if (status != DFLASH_OK) return status;
        list[*count].view = view;
        list[*count].promised = cJSON_GetObjectItemCaseSensitive(record, "sha256")->valuestring;
        list[*count].position = *count;
        ++*count;
    }
    const cJSON *record;
    cJSON_ArrayForEach(record, records) {
        bool known = false;
        for (int i = 0; i < *count && !known; i++) known = strcmp(list[i].view.name, record->string) == 0;
        if (!known)
            return df_fail(
                err, DFLASH_ERR_REFUSED, "provenance.tensor.extra",
                "%s: the oracle was computed with the tensor %s, which the checkpoint does not use. The oracle "
                "speaks of another checkpoint; use this one's.",
                where, record->string);
    }
    return DFLASH_OK;
}

/* ---- Digests ---- */

static int largest_first(const void *left, const void *right) {
    const item *a = left, *b = right;
    if (a->view.bytes != b->view.bytes) return a->view.bytes > b->view.bytes ? -1 : 1;
    return a->position - b->position;
}

static int in_file_order(const void *left, const void *right) {
    const item *a = left, *b = right;
    return a->position - b->position;
}

static void *digest_some(void *argument) {
    work *shared = argument;
    for (;;) {
        const int i = atomic_fetch_add(&shared->next, 1);
        if (i >= shared->count) return NULL;
        item *tensor = &shared->list[i];
        dp_sha256_of(tensor->view.data, tensor->view.bytes, tensor->digest);
    }
}

/* The calling thread works too, so a thread that cannot be started only costs time. */
static void digest_all(item *list, int count, int threads) {
    pthread_t helper[MAX_THREADS];
    work shared = {.list = list, .count = count};
    atomic_init(&shared.next, 0);
    int started = 0;
    while (started < threads - 1 && started < count - 1 && started < MAX_THREADS &&
           pthread_create(&helper[started], NULL, digest_some, &shared) == 0)
        started++;
    digest_some(&shared);
    for (int i = 0; i < started; i++) pthread_join(helper[i], NULL);
}

dflash_status dp_provenance_check(const dflash_draft *draft, const cJSON *provenance, const char *where, int threads,
                                  dflash_error *err) {
    const cJSON *records = cJSON_GetObjectItemCaseSensitive(provenance, "tensors");
    const int total = dflash_draft_tensor_count(draft);
    int count = 0;
    if (threads < 1)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "provenance.threads",
                       "%d threads were asked for; expected at least 1.", threads);
    if (!cJSON_IsObject(records) || total < 1)
        return df_fail(
            err, DFLASH_ERR_REFUSED, "provenance.tensor.missing",
            "%s: the provenance record has no object \"tensors\", or the checkpoint has no tensor, so nothing ties "
            "the oracle to its weights. Write the oracle again as oracles/FORMAT.md says.",
            where);
    item *list = calloc((size_t)total, sizeof *list);
    if (list == NULL) return df_fail_memory(err, "the list of tensors", (size_t)total * sizeof *list);
    dflash_status status = match(draft, records, where, list, &count, err);
    if (status != DFLASH_OK) goto cleanup;
    qsort(list, (size_t)count, sizeof *list, largest_first);
    digest_all(list, count, threads);
    qsort(list, (size_t)count, sizeof *list, in_file_order);
    for (int i = 0; i < count && status == DFLASH_OK; i++)
        if (strcmp(list[i].digest, list[i].promised) != 0)
            status = differs(list[i].view.name, "SHA-256", list[i].digest, list[i].promised, where, err);
cleanup:
    free(list);
    return status;
}

/* ---- Writing ---- */

cJSON *dp_tensor_record(const dflash_tensor_view *view, const char *sha256) {
    cJSON *record = cJSON_CreateObject();
    if (cJSON_AddStringToObject(record, "dtype", view->dtype) == NULL) goto failed;
    cJSON *shape = cJSON_AddArrayToObject(record, "shape");
    for (int i = 0; i < view->rank; i++)
        if (!cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)view->dim[i]))) goto failed;
    if (cJSON_AddStringToObject(record, "sha256", sha256) == NULL) goto failed;
    return record;
failed:
    cJSON_Delete(record);
    return NULL;
}

dflash_status dp_provenance_of(const dflash_draft *draft, int threads, cJSON **out, dflash_error *err) {
    const int total = dflash_draft_tensor_count(draft);
    int count = 0;
    *out = cJSON_CreateObject();
    item *list = calloc((size_t)total + 1, sizeof *list);
    bool good = *out != NULL && list != NULL;
    for (int i = 0; good && i < total; i++) {
        list[count].view = dflash_draft_tensor(draft, i);
        list[count].position = count;
        count += list[count].view.used;
    }
    if (good) {
        qsort(list, (size_t)count, sizeof *list, largest_first);
        digest_all(list, count, threads);
        qsort(list, (size_t)count, sizeof *list, in_file_order);
    }
    for (int i = 0; good && i < count; i++) {
        cJSON *record = dp_tensor_record(&list[i].view, list[i].digest);
        good = record != NULL && cJSON_AddItemToObject(*out, list[i].view.name, record);
        if (!good) cJSON_Delete(record);
    }
    free(list);
    if (good) return DFLASH_OK;
    cJSON_Delete(*out);
    *out = NULL;
    return df_fail_memory(err, "the record of the tensors", (size_t)total * sizeof *list);
}
