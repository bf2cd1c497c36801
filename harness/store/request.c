/* request.c - see request.h. */
#include "store/request.h"

#include "common/error.h"

#include <stdio.h>
#include <string.h>

/* The keys that a case and a request share; the last ones may be absent from both. */
static const char *const facts[] = {"context",       "start",       "input_seed", "input_profile",
                                    "sample_stride", "full_stages", "gaps"};
enum { FACTS = sizeof facts / sizeof *facts, DEMANDED = FACTS - 2 };

static const cJSON *request_of(const dp_oracle *oracle) {
    return cJSON_GetObjectItemCaseSensitive(dp_oracle_provenance(oracle), "request");
}

static dflash_status contradicts(const dp_oracle *oracle, const char *key, double asked, const char *what, double found,
                                 dflash_error *err) {
    return df_fail(
        err, DFLASH_ERR_REFUSED, "provenance.request",
        "%s: the request in its provenance says %s %.0f, but %s is %.0f. The file contradicts itself; generate "
        "the oracle again.",
        dp_oracle_path(oracle), key, asked, what, found);
}

/* The seeds passed over are those from the one asked for up to the one used. */
static dflash_status check_seeds(const dp_oracle *oracle, double asked, dflash_error *err) {
    const cJSON *provenance = dp_oracle_provenance(oracle), *passed;
    const double used = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(provenance, "seed"));
    double next = asked;
    cJSON_ArrayForEach(passed, cJSON_GetObjectItemCaseSensitive(provenance, "seeds_passed_over")) {
        const double seed = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(passed, "seed"));
        if (seed != next) return contradicts(oracle, "input_seed", asked, "a seed that was passed over", seed, err);
        next += 1.0;
    }
    return next == used ? DFLASH_OK : contradicts(oracle, "input_seed", asked, "the seed used", used, err);
}

dflash_status dp_request_check(const dp_oracle *oracle, int context, const int32_t *pos, dflash_error *err) {
    const cJSON *request = request_of(oracle);
    const double rows = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(request, "context")),
                 start = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(request, "start"));
    if (rows != context) return contradicts(oracle, "context", rows, "the number of its context rows", context, err);
    if (start != pos[context])
        return contradicts(oracle, "start", start, "the position of the block's first row", pos[context], err);
    return check_seeds(oracle, cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(request, "input_seed")), err);
}

static bool same(const cJSON *a, const cJSON *b) {
    if (cJSON_IsNumber(a) && cJSON_IsNumber(b)) return a->valuedouble == b->valuedouble;
    return (a == NULL && b == NULL) || cJSON_Compare(a, b, true);
}

static const char *show(const cJSON *item, char *out, size_t size) {
    char *text = item != NULL ? cJSON_PrintUnformatted(item) : NULL;
    snprintf(out, size, "%s", text != NULL ? text : "nothing");
    cJSON_free(text);
    return out;
}

dflash_status dp_request_check_case(const cJSON *entry, const dp_oracle *oracle, dflash_error *err) {
    for (int i = 0; i < FACTS; i++) {
        const cJSON *wanted = cJSON_GetObjectItemCaseSensitive(entry, facts[i]),
                    *found = cJSON_GetObjectItemCaseSensitive(request_of(oracle), facts[i]);
        const bool stated = wanted != NULL || (i >= DEMANDED && cJSON_HasObjectItem(entry, "sample_stride"));
        if (!stated || same(wanted, found)) continue;
        char expected[120], has[120];
        return df_fail(
            err, DFLASH_ERR_REFUSED, "case.differs",
            "%s is not the oracle that its case describes: the case says %s %s, the oracle was generated with "
            "%s. Generate it again with `make oracles`, or correct the case.",
            dp_oracle_path(oracle), facts[i], show(wanted, expected, sizeof expected), show(found, has, sizeof has));
    }
    return DFLASH_OK;
}

const char *dp_request_lacking(const cJSON *entry) {
    for (int i = 0; i < DEMANDED; i++)
        if (!cJSON_HasObjectItem(entry, facts[i])) return facts[i];
    return NULL;
}
