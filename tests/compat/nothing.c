/* A program that needs libc alone; -DWEAK: it asks whether the process has
 * dlsym, as libraries do that work without libdl. */
#ifdef WEAK
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#pragma weak dlsym

int main(void) {
    if (dlsym == 0)
        puts("no dlsym");
    else
        puts(dlsym(RTLD_DEFAULT, "cuInit") || dlsym(RTLD_DEFAULT, "puts") ? "found" : "nothing found");
    return 0;
}
#else
int main(void) { return 0; }
#endif
