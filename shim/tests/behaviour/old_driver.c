/* A driver without virtual memory management. With ODD, what it hands out by
 * cuGetProcAddress is not what it exports; with OPEN, it refers to what it exports
 * by its name, which another library may have; with STARTS, it looks its own up by name
 * before it can be called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags) { return flags; }

int cuMemAlloc_v2(unsigned long long *out, size_t bytes) {
    *out = 0x1000 + bytes;
    return 0;
}

int cuMemFree_v2(unsigned long long address) { return address == 0x1005 ? 0 : 1; }

static int inner_alloc(unsigned long long *out, size_t bytes) {
    *out = 0x2000 + bytes;
    return 0;
}

static int first_alloc(unsigned *out, unsigned bytes) {
    *out = 0x3000 + bytes;
    return 0;
}

__attribute__((visibility("hidden"))) int hidden_alloc(unsigned long long *, size_t)
    __attribute__((alias("cuMemAlloc_v2")));

#ifdef ODD
/* Contexts as of CUDA 3.2 and of 11.4, frees by either default stream. */
static int second_context(void **out, unsigned flags, int device) {
    *out = (void *)(uintptr_t)(0x20 + flags + device);
    return 0;
}

static int third_context(void **out, void *affinity, int count, unsigned flags, int device) {
    *out = (void *)(uintptr_t)(0x30 + (affinity != NULL) + count + flags + device);
    return 0;
}

static int free_async(unsigned long long address, void *stream) {
    return address == 0x1005 && stream == NULL ? 11 : 1;
}

static int own_free_async(unsigned long long address, void *stream) {
    return address == 0x1005 && stream == NULL ? 12 : 1;
}

int cuStreamSynchronize(void *stream) { return stream == NULL ? 13 : 1; }
int cuStreamSynchronize_ptsz(void *stream) { return stream == NULL ? 14 : 1; }

static void *form_of(const char *name, int version, uint64_t flags) {
    if (strcmp(name, "cuStreamSynchronize") == 0)
        return flags == 2 ? (void *)cuStreamSynchronize_ptsz : (void *)cuStreamSynchronize;
    if (strcmp(name, "cuMemAlloc") == 0)
        return version < 3020 ? (void *)first_alloc : (void *)inner_alloc;
    if (strcmp(name, "cuCtxCreate") == 0)
        return version < 11040 ? (void *)second_context : (void *)third_context;
    if (strcmp(name, "cuMemFreeAsync") == 0)
        return flags == 2 ? (void *)own_free_async : (void *)free_async;
    return NULL;
}
#else
static void *form_of(const char *name, int version, uint64_t flags) {
    (void)inner_alloc, (void)flags;
    if (strcmp(name, "cuMemAlloc") != 0)
        return NULL;
#ifdef OPEN
    return version < 3020 ? (void *)first_alloc : (void *)cuMemAlloc_v2;
#else
    return version < 3020 ? (void *)first_alloc : (void *)hidden_alloc;
#endif
}
#endif

#ifdef STARTS
static int has_started;
__attribute__((constructor)) static void start(void) {
    void *own = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    has_started = own != NULL && dlsym(own, "cuMemAlloc_v2") != NULL && dlsym(own, "cuInit") != NULL;
}
#else
enum { has_started = 1 };
#endif

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    if (!has_started) abort();
    *found = form_of(name, version, flags);
    if (status != NULL) {
        *status = *found == NULL;
    }
    /* The status says it where there is one. */
    return *found == NULL && status == NULL ? 500 : 0;
}

int cuGetProcAddress_v2_ptsz(const char *name, void **found, int version, uint64_t flags, int *status) {
    return cuGetProcAddress_v2(name, found, version, flags == 0 ? 2 : flags, status);
}
