/* f16c.h - whether this processor converts float16. clang does not know the name "f16c" of __builtin_cpu_supports. */
#ifndef DF_F16C_H
#define DF_F16C_H

#include <stdbool.h>

#ifdef __x86_64__
#include <cpuid.h>

static inline bool df_has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

#endif
