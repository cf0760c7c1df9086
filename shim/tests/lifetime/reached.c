/* Copies between cudaMalloc's memory of another device and memory there that is no context's:
 * where the current device reaches that, though it reaches the other one not. Each line is what
 * a call answered, and whether the bytes are right. */
#include "answers.h"

struct properties { int kind, handle_types, location, device; void *windows; unsigned char flags[8]; };
struct access { int kind, device, flags; };
struct pool_properties { int kind, handles, location, device; void *windows; size_t most; unsigned short usage; unsigned char rest[54]; };
typedef unsigned long long Handle;
typedef CUresult Copy(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemCreate(Handle *, size_t, const struct properties *, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, Handle, unsigned long long);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const struct access *, size_t);
CUresult cuMemPoolCreate(CUmemoryPool *, const void *);
CUresult cuMemPoolSetAccess(CUmemoryPool, const struct access *, size_t);
CUresult cuMemHostAlloc(void **, size_t, unsigned);

enum { BYTES = 2 * MiB };
static CUcontext contexts[3];
static CUdeviceptr plain;

static void both_ways(const char *what, CUdeviceptr at) {
    static unsigned value = 1;
    Copy *const calls[] = {cuMemcpy, cuMemcpyDtoD_v2};
    for (int call = 0; call < 3; call++) {
        OK(cuCtxSetCurrent(contexts[2]));
        fill(plain, BYTES, ++value);
        OK(cuCtxSynchronize());
        OK(cuCtxSetCurrent(contexts[0]));
        int into = call < 2 ? calls[call](at, plain, BYTES) : cuMemcpyAsync(at, plain, BYTES, NULL);
        OK(cuCtxSynchronize());
        OK(cuCtxSetCurrent(contexts[2]));
        fill(plain, BYTES, 0);
        OK(cuCtxSynchronize());
        OK(cuCtxSetCurrent(contexts[0]));
        int out = call < 2 ? calls[call](plain, at, BYTES) : cuMemcpyAsync(plain, at, BYTES, NULL);
        OK(cuCtxSynchronize());
        OK(cuCtxSetCurrent(contexts[2]));
        printf("%s, %d: %d, %d, right %d\n", what, call, into, out, holds(plain, BYTES, value));
    }
}

static CUdeviceptr of_pool(CUmemoryPool pool, int open) {
    struct access access = {1, 0, 3};
    CUdeviceptr at;
    OK(cuCtxSetCurrent(contexts[1]));
    if (open) OK(cuMemPoolSetAccess(pool, &access, 1));
    OK(cuMemAllocFromPoolAsync(&at, BYTES, pool, NULL));
    OK(cuCtxSynchronize());
    return at;
}

int main(void) {
    struct properties on = {.kind = 1, .location = 1, .device = 1};
    struct access access[2] = {{1, 0, 3}, {1, 1, 3}};
    struct pool_properties of = {.kind = 1, .location = 1, .device = 1};
    CUmemoryPool own, shut, common;
    CUdeviceptr mapped;
    Handle handle;
    void *pinned;
    OK(cuInit(0));
    for (int device = 0; device < 3; device++) OK(cuDevicePrimaryCtxRetain(&contexts[device], device));
    OK(cuCtxSetCurrent(contexts[2]));
    OK(cuMemAlloc_v2(&plain, BYTES));
    OK(cuMemCreate(&handle, BYTES, &on, 0));
    OK(cuMemAddressReserve(&mapped, BYTES, 0, 0, 0));
    OK(cuMemMap(mapped, BYTES, 0, handle, 0));
    OK(cuMemSetAccess(mapped, BYTES, access + 1, 1));
    both_ways("mapped, shut", mapped);
    OK(cuMemSetAccess(mapped, BYTES, access, 2));
    both_ways("mapped", mapped);
    OK(cuMemPoolCreate(&own, &of));
    OK(cuMemPoolCreate(&shut, &of));
    both_ways("of a pool, shut", of_pool(shut, 0));
    both_ways("of a pool", of_pool(own, 1));
    OK(cuCtxSetCurrent(contexts[1]));
    OK(cuDeviceGetDefaultMemPool(&common, 1));
    both_ways("of the default pool", of_pool(common, 1));
    OK(cuMemHostAlloc(&pinned, BYTES, 3));
    both_ways("pinned", (CUdeviceptr)(uintptr_t)pinned);
    return 0;
}
