/* Frees: which are refused, and that a refused one changes nothing. */
#include "conformance.h"

CASE(frees_null, SIM | SHARED) {
    say_code("cuMemFree", cuMemFree_v2(0));
    say_code("cuMemFreeAsync", cuMemFreeAsync(0, NULL));
}

CASE(frees_inside, SIM) {
    CUdeviceptr at = allocate(64 * MiB);
    say_code("one byte in", cuMemFree_v2(at + 1));
    say_code("512 bytes in", cuMemFree_v2(at + 512));
    say_code("33 MiB in", cuMemFree_v2(at + 33 * MiB));
    say_code("the last byte", cuMemFree_v2(at + 64 * MiB - 1));
    say_code("behind", cuMemFree_v2(at + 64 * MiB));
    say_code("the base", cuMemFree_v2(at));
}

CASE(frees_inside_small, SIM) {
    CUdeviceptr at = allocate(1000), beside = allocate(1000);
    say_code("one byte in", cuMemFree_v2(at + 1));
    say_code("512 bytes in", cuMemFree_v2(at + 512));
    say_code("the base", cuMemFree_v2(at));
    say_code("its neighbour", cuMemFree_v2(beside));
}

CASE(frees_twice, SIM) {
    CUdeviceptr at = allocate(64 * MiB), small = allocate(1000);
    NEED(cuMemFree_v2(at));
    say_code("again", cuMemFree_v2(at));
    NEED(cuMemFree_v2(small));
    say_code("a small one again", cuMemFree_v2(small));
}

CASE(frees_nowhere, SIM | SHARED) {
    static int on_host;
    void *heap = malloc(64);
    say_code("a variable", cuMemFree_v2((CUdeviceptr)&on_host));
    say_code("the heap", cuMemFree_v2((CUdeviceptr)heap));
    say_code("address 1", cuMemFree_v2(1));
    say_code("the last address", cuMemFree_v2(~(CUdeviceptr)0));
    free(heap);
}

CASE(frees_pinned, SIM | SHARED) {
    void *pinned = NULL;
    NEED(cuMemHostAlloc(&pinned, 4 * MiB, 0));
    say_code("pinned memory", cuMemFree_v2((CUdeviceptr)pinned));
    say_code("as it should be", cuMemFreeHost(pinned));
}

CASE(frees_device_memory_as_pinned, SIM | SHARED) {
    CUdeviceptr at = allocate(4 * MiB);
    say_code("cuMemFreeHost", cuMemFreeHost((void *)at));
    say_code("as it should be", cuMemFree_v2(at));
}

CASE(frees_mapped, SIM | SHARED) {
    struct mapping own = map_own(64 * MiB);
    say_code("cuMemFree", cuMemFree_v2(own.at));
    say_code("cuMemFreeAsync", cuMemFreeAsync(own.at, NULL));
    unmap_own(own);
    say_code("unmapped", cuMemFree_v2(own.at));
}

CASE(frees_reserved, SIM | SHARED) {
    CUdeviceptr at = 0;
    NEED(cuMemAddressReserve(&at, 64 * MiB, 0, 0, 0));
    say_code("cuMemFree", cuMemFree_v2(at));
    NEED(cuMemAddressFree(at, 64 * MiB));
}

/* The driver's own calls for mappings, on memory that is not mapped so. */
CASE(frees_by_mapping_calls, SIM) {
    CUdeviceptr at = allocate(64 * MiB);
    CUmemAccessDesc access = {{LOCATION_DEVICE, 0}, ACCESS_READWRITE};
    say_code("cuMemUnmap", cuMemUnmap(at, 64 * MiB));
    say_code("cuMemAddressFree", cuMemAddressFree(at, 64 * MiB));
    say_code("cuMemSetAccess", cuMemSetAccess(at, 64 * MiB, &access, 1));
    say_code("cuMemFree", cuMemFree_v2(at));
}

CASE(frees_managed, SIM | SHARED) {
    CUdeviceptr at = 0;
    NEED(cuMemAllocManaged(&at, 4 * MiB, 1));
    say_code("inside", cuMemFree_v2(at + MiB));
    say_code("the base", cuMemFree_v2(at));
    say_code("again", cuMemFree_v2(at));
}

CASE(frees_plain_by_async, SIM) {
    CUdeviceptr at = allocate(64 * MiB);
    say_code("inside", cuMemFreeAsync(at + MiB, NULL));
    say_code("the base", cuMemFreeAsync(at, NULL));
    NEED(cuStreamSynchronize(NULL));
    say_code("again", cuMemFreeAsync(at, NULL));
    say_code("again, by cuMemFree", cuMemFree_v2(at));
}

CASE(frees_async_by_plain, SIM) {
    CUdeviceptr at = allocate_async(64 * MiB, NULL);
    say_code("inside", cuMemFree_v2(at + MiB));
    say_code("the base", cuMemFree_v2(at));
    say_code("again", cuMemFree_v2(at));
    say_code("again, by cuMemFreeAsync", cuMemFreeAsync(at, NULL));
}

CASE(frees_async_twice, SIM) {
    CUdeviceptr at = allocate_async(64 * MiB, NULL);
    say_code("inside", cuMemFreeAsync(at + MiB, NULL));
    say_code("the base", cuMemFreeAsync(at, NULL));
    say_code("again", cuMemFreeAsync(at, NULL));
    NEED(cuStreamSynchronize(NULL));
    say_code("again, later", cuMemFreeAsync(at, NULL));
}

CASE(frees_async_nowhere, SIM | SHARED) {
    static int on_host;
    say_code("a variable", cuMemFreeAsync((CUdeviceptr)&on_host, NULL));
    say_code("address 1", cuMemFreeAsync(1, NULL));
}

CASE(frees_async_other_stream, SIM | SHARED) {
    CUstream one = new_stream(), other = new_stream();
    CUdeviceptr at = allocate_async(4 * MiB, one);
    NEED(cuStreamSynchronize(one));
    say_code("on another stream", cuMemFreeAsync(at, other));
    NEED(cuStreamSynchronize(other));
    NEED(cuStreamDestroy_v2(one));
    NEED(cuStreamDestroy_v2(other));
}

CASE(frees_without_context, SIM) {
    CUdeviceptr a = allocate(4 * MiB), b = allocate(4 * MiB), primary = (CUdeviceptr)context();
    NEED(cuCtxSetCurrent(NULL));
    say_code("cuMemFree", cuMemFree_v2(a));
    say_code("cuMemFreeAsync", cuMemFreeAsync(b, NULL));
    say_code("cuMemFree of 0", cuMemFree_v2(0));
    NEED(cuCtxSetCurrent((CUcontext)primary));
    say_code("with it", cuMemFree_v2(a));
}

CASE(frees_async_without_context, SIM) {
    CUdeviceptr at = allocate_async(4 * MiB, NULL);
    NEED(cuStreamSynchronize(NULL));
    NEED(cuCtxSetCurrent(NULL));
    say_code("cuMemFree", cuMemFree_v2(at));
}
