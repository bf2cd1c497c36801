/* names.c - the names of what an engine is made of, and the version of the library. */
#include "dflash.h"

#include <string.h>

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *dflash_version(void) {
    return VERSION_TEXT(DFLASH_VERSION_MAJOR, DFLASH_VERSION_MINOR, DFLASH_VERSION_PATCH);
}

static const char *const backends[] = {[DFLASH_BACKEND_CPU] = "cpu", [DFLASH_BACKEND_CUDA] = "cuda"};
static const char *const classes[] = {
    [DFLASH_CLASS_EXACT] = "exact", [DFLASH_CLASS_CUBLAS] = "cublas", [DFLASH_CLASS_FAST] = "fast"};
static const char *const products_names[] = {
    [DFLASH_PRODUCTS_F32] = "f32", [DFLASH_PRODUCTS_TF32] = "tf32", [DFLASH_PRODUCTS_BF16] = "bf16"};
static const char *const isas[] = {[DFLASH_ISA_BEST] = "best",
                                   [DFLASH_ISA_GENERIC] = "generic",
                                   [DFLASH_ISA_AVX2] = "avx2",
                                   [DFLASH_ISA_AVX512] = "avx512",
                                   [DFLASH_ISA_REFERENCE] = "reference"};

const char *dflash_backend_name(dflash_backend backend) { return backends[backend]; }
const char *dflash_class_name(dflash_class numeric_class) { return classes[numeric_class]; }
const char *dflash_products_name(dflash_products products) { return products_names[products]; }

/* The number of a name in its list; *out stays as it is where there is none. */
#define PARSE(parse, type, names)                                                                                      \
    bool parse(const char *name, type *out) {                                                                          \
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)                                                      \
            if (strcmp(name, names[i]) == 0) {                                                                         \
                *out = (type)i;                                                                                        \
                return true;                                                                                           \
            }                                                                                                          \
        return false;                                                                                                  \
    }
PARSE(dflash_backend_parse, dflash_backend, backends)
PARSE(dflash_class_parse, dflash_class, classes)
PARSE(dflash_products_parse, dflash_products, products_names)
PARSE(dflash_isa_parse, dflash_isa, isas)
