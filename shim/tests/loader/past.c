/* A preloaded library whose dlsym is libc's own, as overlays of games bring one along that find it
 * in libc's tables: what follows in the search order is not asked. */
#include "../support/cuda.h"

void *dlsym(void *restrict handle, const char *restrict name) {
    static void *(*real)(void *, const char *);
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    const char *versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (int i = 0; i < 3 && real == NULL; i++)
        *(void **)&real = dlvsym(libc, "dlsym", versions[i]);
    return real(handle, name);
}
