// versions.cpp - libdflash from C++: the header's version and the library's, and an error as a caller sees it.
#include <dflash.h>

#include <cstdio>
#include <cstring>

int main() {
    char header[32];
    std::snprintf(header, sizeof header, "%d.%d.%d", DFLASH_VERSION_MAJOR, DFLASH_VERSION_MINOR, DFLASH_VERSION_PATCH);
    dflash_error error{};
    dflash_config config;
    const dflash_status status = dflash_config_read("no such folder/config.json", &config, &error);
    std::printf("header %s, library %s; %s\n", header, dflash_version(), error.code);
    return std::strcmp(header, dflash_version()) == 0 && status == DFLASH_ERR_IO ? 0 : 1;
}
