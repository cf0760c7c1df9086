/* Another device reaches pooled memory once it was given access, memory that
 * there was before and memory that comes after; without it, and once it was
 * taken away, it does not. What was refused can be asked for again. */
#include "../support/cuda.h"

struct range {
    CUdeviceptr base;
    size_t bytes;
    uint32_t write;
};

struct access {
    int kind, device, flags;
};

CUresult cuSimLaunch(CUstream, const struct range *, unsigned, double);
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuMemPoolSetAccess(CUmemoryPool, const struct access *, size_t);

static void touched(CUdeviceptr at, size_t bytes) {
    struct range range = {at, bytes, 1};
    OK(cuSimLaunch(NULL, &range, 1, 1.0));
    OK(cuCtxSynchronize());
}

int main(int argc, char **argv) {
    CUcontext first, second;
    CUdeviceptr before, after, stitched;
    CUmemoryPool pool;
    struct access access = {1, 1, 3};
    const char *how = argc > 1 ? argv[1] : "";
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&first, 0));
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(first));
    OK(cuMemAlloc_v2(&before, 40 * MiB));
    OK(cuCtxSetCurrent(second));
    if (!strcmp(how, "context"))
        OK(cuCtxEnablePeerAccess(first, 0));
    if (!strcmp(how, "context-refused")) {
        IS(999, cuCtxEnablePeerAccess(first, 0));
        OK(cuCtxEnablePeerAccess(first, 0));
    }
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    if (!strcmp(how, "pool-refused")) IS(999, cuMemPoolSetAccess(pool, &access, 1));
    if (!strncmp(how, "pool", 4)) OK(cuMemPoolSetAccess(pool, &access, 1));
    access.flags = 0;
    if (!strcmp(how, "pool-closed")) OK(cuMemPoolSetAccess(pool, &access, 1));
    touched(before, 40 * MiB);
    OK(cuCtxSetCurrent(first));
    OK(cuMemAlloc_v2(&after, 100 * MiB));
    OK(cuMemFree_v2(before));
    OK(cuMemAlloc_v2(&stitched, 60 * MiB));
    OK(cuCtxSetCurrent(second));
    touched(after, 100 * MiB);
    touched(stitched, 60 * MiB);
    return 0;
}
