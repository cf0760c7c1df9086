/* Another preloaded library: it stands in for cudaMalloc, and takes a failure for the end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

int cudaMalloc(void **out, size_t bytes) {
    int code = ((int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc"))(out, bytes);
    if (code != 0) abort();
    return code;
}
