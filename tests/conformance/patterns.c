#include "patterns.h"

const char *const kind_names[KINDS] = {"cuMemAlloc", "cuMemAllocAsync"};

CUdeviceptr get_memory(int kind, size_t bytes) {
    if (kind == PLAIN) return allocate(bytes);
    CUdeviceptr at = allocate_async(bytes, CU_STREAM_LEGACY);
    NEED(cuStreamSynchronize(CU_STREAM_LEGACY));
    return at;
}

void put_memory(CUdeviceptr at) {
    NEED(cuCtxSynchronize());
    NEED(cuMemFree_v2(at));
}

unsigned char *pattern(size_t bytes, unsigned seed) {
    unsigned char *all = malloc(bytes);
    NEED(all == NULL);
    for (size_t i = 0; i < bytes; i++)
        all[i] = (unsigned char)((i * 2654435761u + i / 4096 + seed * 40503u) >> 7);
    return all;
}

unsigned char *filled(size_t bytes, int value) {
    unsigned char *all = malloc(bytes);
    NEED(all == NULL);
    return memset(all, value, bytes);
}

bool holds(CUdeviceptr at, const void *expected, size_t bytes) {
    unsigned char *seen = filled(bytes, 0xEE);
    NEED(cuMemcpyDtoH_v2(seen, at, bytes));
    bool same = memcmp(seen, expected, bytes) == 0;
    free(seen);
    return same;
}

bool holds_only(CUdeviceptr at, size_t bytes, int value) {
    unsigned char *expected = filled(bytes, value);
    bool same = holds(at, expected, bytes);
    free(expected);
    return same;
}
