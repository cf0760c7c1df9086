/* Idle memory of the pool makes nobody else run out: on a device of 1 GiB. */
#include "../support/cuda.h"

struct properties {
    int kind, handle_types, location, device;
    void *windows;
    unsigned char flags[8];
};

CUresult cuMemCreate(unsigned long long *, size_t, const struct properties *, unsigned long long);
CUresult cuMemRelease(unsigned long long);

int main(void) {
    CUdeviceptr a, large, small;
    unsigned long long handle;
    struct properties properties = {.kind = 1, .location = 1, .device = 0};
    start_cuda();
    OK(cuMemAlloc_v2(&a, 700 * MiB));
    OK(cuMemFree_v2(a));
    OK(cuMemCreate(&handle, 700 * MiB, &properties, 0));
    /* Now there is no room, and that is the answer; state stays whole. */
    IS(OUT_OF_MEMORY, cuMemAlloc_v2(&large, 700 * MiB));
    OK(cuMemAlloc_v2(&small, 100 * MiB));
    OK(cuMemFree_v2(small));
    OK(cuMemRelease(handle));
    OK(cuMemAlloc_v2(&large, 700 * MiB));
    OK(cuMemFree_v2(large));
    return 0;
}
