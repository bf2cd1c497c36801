/* safetensors_dtype.c - see safetensors_dtype.h. */
#include "weights/safetensors_dtype.h"

static const df_file_dtype known[] = {
    {.name = "F32", .bits = 32, .weight = true, .dtype = DF_F32},
    {.name = "F16", .bits = 16, .weight = true, .dtype = DF_F16},
    {.name = "BF16", .bits = 16, .weight = true, .dtype = DF_BF16},
    {.name = "F64", .bits = 64},
    {.name = "C64", .bits = 64},
    {.name = "I64", .bits = 64},
    {.name = "U64", .bits = 64},
    {.name = "I32", .bits = 32},
    {.name = "U32", .bits = 32},
    {.name = "I16", .bits = 16},
    {.name = "U16", .bits = 16},
    {.name = "I8", .bits = 8},
    {.name = "U8", .bits = 8},
    {.name = "BOOL", .bits = 8},
    {.name = "F8_E4M3", .bits = 8},
    {.name = "F8_E5M2", .bits = 8},
    {.name = "F8_E8M0", .bits = 8},
    {.name = "F8_E4M3FNUZ", .bits = 8},
    {.name = "F8_E5M2FNUZ", .bits = 8},
    {.name = "F6_E2M3", .bits = 6},
    {.name = "F6_E3M2", .bits = 6},
    {.name = "F4", .bits = 4},
};

const df_file_dtype *df_file_dtype_find(const char *name) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) return &known[i];
    return NULL;
}
