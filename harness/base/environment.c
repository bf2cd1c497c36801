/* environment.c - see environment.h. The DP_BUILD_* strings come from the Makefile, by way of build/build_facts.h. */
#include "base/environment.h"

#include "common/f16c.h"
#include "build_facts.h"

#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

static void cpu_model(char *model, size_t size) {
    snprintf(model, size, "unknown");
    FILE *info = fopen("/proc/cpuinfo", "r");
    char line[512];
    while (info != NULL && fgets(line, sizeof line, info) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(model, size, "%s", colon + 2);
        break;
    }
    if (info != NULL) fclose(info);
}

/* Those that our kernels ask for, and the names that a report is read for, separated by spaces. */
static void cpu_features(char *out, size_t size) {
    size_t at = 0;
    out[0] = '\0';
#ifdef __x86_64__
    const struct {
        const char *name;
        int there;
    } features[] = {{"fma", __builtin_cpu_supports("fma")},
                    {"f16c", df_has_f16c()},
                    {"avx2", __builtin_cpu_supports("avx2")},
                    {"avx512f", __builtin_cpu_supports("avx512f")},
                    {"avx512bf16", __builtin_cpu_supports("avx512bf16")}};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (features[i].there && at < size)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at > 0 ? " " : "", features[i].name);
#endif
    if (at == 0) snprintf(out, size, "none of those looked for");
}

cJSON *dp_environment(void) {
    char text[256];
    struct utsname os;
    unsigned major = 0, minor = 0, release = 0;
    cJSON *object = cJSON_CreateObject();
    if (object == NULL) return NULL;
    cJSON_AddStringToObject(object, "version", DP_BUILD_VERSION);
    cJSON_AddStringToObject(object, "commit", DP_BUILD_COMMIT);
    cJSON_AddBoolToObject(object, "dirty", DP_BUILD_DIRTY);
    cJSON_AddStringToObject(object, "compiler", DP_BUILD_COMPILER);
    cJSON_AddStringToObject(object, "flags", DP_BUILD_FLAGS);
    cJSON_AddStringToObject(object, "cuda", DP_BUILD_CUDA);
    H5get_libversion(&major, &minor, &release);
    snprintf(text, sizeof text, "%u.%u.%u", major, minor, release);
    cJSON_AddStringToObject(object, "hdf5", text);
    cJSON_AddStringToObject(object, "cjson", cJSON_Version());
    cpu_model(text, sizeof text);
    cJSON_AddStringToObject(object, "cpu", text);
    cpu_features(text, sizeof text);
    cJSON_AddStringToObject(object, "cpu_features", text);
    if (uname(&os) == 0) {
        snprintf(text, sizeof text, "%.60s %.60s %.60s", os.sysname, os.release, os.machine);
        cJSON_AddStringToObject(object, "os", text);
    }
    return object;
}

void dp_add_device(cJSON *object, const dflash_device_facts *facts) {
    cJSON_AddStringToObject(object, "backend", facts->backend);
    cJSON_AddStringToObject(object, "class", facts->numeric_class);
    cJSON_AddStringToObject(object, "products", facts->products);
    if (facts->device[0] == '\0') return;
    cJSON *device = cJSON_AddObjectToObject(object, "device");
    cJSON_AddStringToObject(device, "name", facts->device);
    cJSON_AddNumberToObject(device, "capability", facts->capability);
    cJSON_AddNumberToObject(device, "multiprocessors", facts->multiprocessors);
    cJSON_AddNumberToObject(device, "memory_bytes", (double)facts->memory_bytes);
    cJSON_AddStringToObject(device, "driver", facts->driver);
    cJSON_AddStringToObject(device, "runtime", facts->runtime);
    if (facts->cublas[0] != '\0') cJSON_AddStringToObject(device, "cublas", facts->cublas);
    cJSON_AddBoolToObject(device, "tf32", facts->tf32);
}

void dp_print_version(void) {
    cJSON *facts = dp_environment();
    printf("dflash-parity %s (commit %s, %s)\n", DP_BUILD_VERSION, DP_BUILD_COMMIT, DP_BUILD_DIRTY ? "dirty" : "clean");
    for (const cJSON *fact = facts != NULL ? facts->child : NULL; fact != NULL; fact = fact->next)
        if (cJSON_IsString(fact) && strcmp(fact->string, "version") != 0 && strcmp(fact->string, "commit") != 0)
            printf("%-9s %s\n", fact->string, fact->valuestring);
    cJSON_Delete(facts);
}
