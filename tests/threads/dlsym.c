/* libc's own dlsym, for the runtime of ThreadSanitizer (run.sh). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

typedef void *looks_up(void *, const char *);

void *libc_dlsym(void *handle, const char *name) {
    static looks_up *real;
    /* By its version, which is that of libdl before glibc 2.34. */
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (size_t i = 0; real == NULL && i < 3; i++)
        real = (looks_up *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return real(handle, name);
}
