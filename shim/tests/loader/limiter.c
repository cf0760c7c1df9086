/* A preloaded library that stands in for the driver, as limiters of a container's memory do: it
 * answers lookups by a dlsym of its own, needs to see cuInit before all else, and gives no more
 * than 1 GiB. */
#include "../support/cuda.h"

static void *driver;
static CUresult (*real_get)(const char *, void **, int, uint64_t, int *);
static CUresult (*real_init)(unsigned), (*real_device)(CUdevice *, int);
static CUresult (*real_allocate)(CUdeviceptr *, size_t);
static size_t given;

static void *real_dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (real == NULL) *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (real == NULL) *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
    if (real == NULL) *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real(handle, name);
}

static void find(void) {
    if (driver != NULL) return;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&real_get = real_dlsym(driver, "cuGetProcAddress_v2");
    *(void **)&real_device = real_dlsym(driver, "cuDeviceGet");
    *(void **)&real_allocate = real_dlsym(driver, "cuMemAlloc_v2");
    *(void **)&real_init = real_dlsym(driver, "cuInit");
}

CUresult cuInit(unsigned flags) {
    find();
    return real_init(flags);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) { return real_device(device, ordinal); }

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    if (given + bytes > 1024 * MiB) return OUT_OF_MEMORY;
    CUresult code = real_allocate(out, bytes);
    if (code == SUCCESS) given += bytes;
    return code;
}

CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status);

static void *own(const char *name) {
    if (strcmp(name, "cuInit") == 0) return cuInit;
    if (strcmp(name, "cuDeviceGet") == 0) return cuDeviceGet;
    if (strcmp(name, "cuMemAlloc") == 0 || strcmp(name, "cuMemAlloc_v2") == 0) return cuMemAlloc_v2;
    if (strcmp(name, "cuGetProcAddress_v2") == 0) return cuGetProcAddress_v2;
    return NULL;
}

CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
    find();
    CUresult code = real_get(name, out, version, flags, status);
    if (code == SUCCESS && own(name) != NULL) *out = own(name);
    return code;
}

void *dlsym(void *restrict handle, const char *restrict name) {
    void *found = own(name);
    return found != NULL ? found : real_dlsym(handle, name);
}
