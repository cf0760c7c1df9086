/* A driver without virtual memory management. With ODD, what it hands out by
 * cuGetProcAddress is not what it exports. */
#include <stddef.h>
#include <stdint.h>
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

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    (void)flags;
    if (strcmp(name, "cuMemAlloc") != 0) {
        *found = NULL;
        return 500;
    }
#ifdef ODD
    *found = version < 3020 ? (void *)first_alloc : (void *)inner_alloc;
#else
    (void)inner_alloc;
    *found = version < 3020 ? (void *)first_alloc : (void *)hidden_alloc;
#endif
    if (status != NULL) {
        *status = 0;
    }
    return 0;
}
