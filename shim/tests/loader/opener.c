/* Another preloaded library: it stands in for dlopen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

int opened;

void *dlopen(const char *file, int flags) {
    static void *(*next)(const char *, int);
    if (next == NULL)
        next = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    opened++;
    return next(file, flags);
}
