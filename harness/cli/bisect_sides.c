/* bisect_sides.c - see bisect_sides.h. */
#include "cli/bisect_sides.h"

#include "base/cli.h"
#include "common/error.h"
#include "cli/run_options.h"

#include <stdio.h>
#include <string.h>

enum { WORD = 64, MOST_THREADS = 1024 };

static bool apply(const char *key, const char *value, dp_run_setup *setup) {
    dflash_engine_options *engine = &setup->engine;
    long threads = 0, device = 0;
    if (strcmp(key, "isa") == 0) return dflash_isa_parse(value, &engine->isa);
    if (strcmp(key, "precision") == 0) return setup->has_precision = dflash_precision_parse(value, &setup->precision);
    if (strcmp(key, "products") == 0) return dflash_products_parse(value, &engine->products);
    if (strcmp(key, "threads") == 0) {
        const bool good = dp_parse_int(value, 1, MOST_THREADS, &threads);
        engine->threads = (int)threads;
        return good;
    }
    if (strcmp(key, "device") == 0) {
        const bool good = dp_parse_device(value, &device);
        engine->device = (int)device;
        return good;
    }
    if (strcmp(key, "backend") == 0) return dflash_backend_parse(value, &engine->backend);
    return strcmp(key, "class") == 0 && dflash_class_parse(value, &engine->numeric_class);
}

dflash_status dp_side_parse(const char *text, size_t length, dp_run_setup *setup, dflash_error *err) {
    for (size_t at = 0; at <= length;) {
        const char *comma = memchr(text + at, ',', length - at);
        const size_t end = comma != NULL ? (size_t)(comma - text) : length;
        char word[WORD] = "";
        if (end - at < WORD) memcpy(word, text + at, end - at);
        char *equals = strchr(word, '=');
        if (equals != NULL) *equals = '\0';
        if (equals == NULL || !apply(word, equals + 1, setup))
            return df_fail(err, DFLASH_ERR_ARGUMENT, "bisect.side",
                           "'%.*s' is no setting: expected backend=cpu|cuda, device=N, class=exact|cublas|fast, "
                           "products=f32|tf32|bf16, isa=generic|avx2|avx512, threads=N or precision=MODE, divided by "
                           "commas.",
                           (int)(end - at), text + at);
        at = end + 1;
    }
    return DFLASH_OK;
}

dflash_status dp_sides_split(const char *text, dp_run_setup setup[2], dflash_error *err) {
    const char *comma = strchr(text, ',');
    if (comma == NULL || strchr(comma + 1, ',') != NULL)
        return df_fail(err, DFLASH_ERR_ARGUMENT, "bisect.side",
                       "'%.200s' does not name two ways of running: expected one setting for each, such as "
                       "isa=generic,isa=avx512. Several settings a side are given with --a and --b.",
                       text);
    TRY(dp_side_parse(text, (size_t)(comma - text), &setup[0], err));
    return dp_side_parse(comma + 1, strlen(comma + 1), &setup[1], err);
}
