// A library with functions of the driver's names that load it when they are called, as
// TensorFlow's has; without a driver it answers in its own way.
#include <dlfcn.h>
#include <stddef.h>

static void* driver(const char* name) {
    static void* library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

int cuInit(unsigned flags) {
    int (*real)(unsigned) = (int (*)(unsigned))driver("cuInit");
    return real ? real(flags) : 303;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
    int (*real)(void**, int) = (int (*)(void**, int))driver("cuDevicePrimaryCtxRetain");
    return real ? real(context, device) : 303;
}

int cuCtxSetCurrent(void* context) {
    int (*real)(void*) = (int (*)(void*))driver("cuCtxSetCurrent");
    return real ? real(context) : 303;
}

int cuMemAlloc_v2(size_t* at, size_t bytes) {
    int (*real)(size_t*, size_t) = (int (*)(size_t*, size_t))driver("cuMemAlloc_v2");
    return real ? real(at, bytes) : 303;
}
