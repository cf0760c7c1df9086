/* A library that loads another one, which only its own search path finds. */
#include <dlfcn.h>
#include <stddef.h>

void *load(const char *file, int flags) {
    return dlopen(file, flags);
}
