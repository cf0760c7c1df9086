/* Managed memory stays the driver's own. */
#include "patterns.h"
#include "work.h"

enum { ATTACH_GLOBAL = 1, ATTACH_HOST = 2 };

static CUdeviceptr managed(size_t bytes) {
    CUdeviceptr at = 0;
    NEED(cuMemAllocManaged(&at, bytes, ATTACH_GLOBAL));
    return at;
}

CASE(managed_attributes, SIM | SHARED) {
    CUdeviceptr at = managed(3 * MiB);
    unsigned type = 0;
    uint64_t base = 0, bytes = 0, pool = 1;
    unsigned is_managed = 9;
    say_code("cuPointerGetAttribute", cuPointerGetAttribute(&type, POINTER_MEMORY_TYPE, at + 5));
    NEED(cuPointerGetAttribute(&is_managed, POINTER_IS_MANAGED, at + 5));
    NEED(cuPointerGetAttribute(&base, POINTER_RANGE_START, at + 5));
    NEED(cuPointerGetAttribute(&bytes, POINTER_RANGE_SIZE, at + 5));
    NEED(cuPointerGetAttribute(&pool, POINTER_MEMPOOL, at + 5));
    say("memory type: %u", type);
    say("managed: %u", is_managed);
    say("range: the allocation %s, %llu bytes", yes(base == at), (unsigned long long)bytes);
    say("of a pool: %s", yes(pool != 0));
    put_memory(at);
}

CASE(managed_attributes_of_where, GPU | SHARED) {
    CUdeviceptr at = managed(MiB);
    CUcontext owner = NULL;
    void *host = NULL;
    int ordinal = -5;
    unsigned legacy = 9, mapped = 9, access = 9;
    say_code("context", cuPointerGetAttribute(&owner, POINTER_CONTEXT, at));
    say("current: %s", yes(owner == context()));
    say_code("host pointer", cuPointerGetAttribute(&host, POINTER_HOST_POINTER, at));
    say("the same: %s", yes((CUdeviceptr)host == at));
    say_code("ordinal", cuPointerGetAttribute(&ordinal, POINTER_DEVICE_ORDINAL, at));
    say("%d", ordinal);
    say_code("legacy IPC", cuPointerGetAttribute(&legacy, POINTER_IS_LEGACY_IPC_CAPABLE, at));
    say("%u", legacy);
    say_code("mapped", cuPointerGetAttribute(&mapped, POINTER_MAPPED, at));
    say("%u", mapped);
    say_code("access", cuPointerGetAttribute(&access, POINTER_ACCESS_FLAGS, at));
    say("%u", access);
    put_memory(at);
}

CASE(managed_bytes, SIM | SHARED) {
    size_t bytes = 2 * MiB + 4;
    CUdeviceptr at = managed(bytes), plain = allocate(bytes);
    unsigned char *some = pattern(bytes, 4);
    CUstream stream = new_stream();
    memcpy((void *)at, some, bytes); /* by the host, through its own address */
    say_code("cuMemcpyDtoD", cuMemcpyDtoD_v2(plain, at, bytes));
    NEED(cuCtxSynchronize());
    say("equal on the device: %s", yes(holds(plain, some, bytes)));
    work_write(stream, at, 1 * MiB, 0x31323334);
    NEED(cuCtxSynchronize());
    const unsigned *words = (const unsigned *)at;
    say("written by a kernel: %s", yes(words[0] == 0x31323334 && words[MiB / 4 - 1] == 0x31323334));
    say("the rest equal: %s", yes(memcmp((char *)at + MiB, some + MiB, bytes - MiB) == 0));
    free(some);
    put_memory(plain);
    put_memory(at);
    NEED(cuStreamDestroy_v2(stream));
}

CASE(managed_errors, SIM | SHARED) {
    CUdeviceptr at = 0;
    say_code("0 bytes", cuMemAllocManaged(&at, 0, ATTACH_GLOBAL));
    say_code("flags 0", cuMemAllocManaged(&at, MiB, 0));
    say_code("flags 3", cuMemAllocManaged(&at, MiB, ATTACH_GLOBAL | ATTACH_HOST));
    say_code("NULL", cuMemAllocManaged(NULL, MiB, ATTACH_GLOBAL));
}

CASE(managed_frees, SIM | SHARED) {
    CUdeviceptr at = managed(MiB);
    say_code("interior", cuMemFree_v2(at + 4096));
    say_code("base", cuMemFree_v2(at));
    say_code("again", cuMemFree_v2(at));
}

CASE(managed_range, SIM | SHARED) {
    CUdeviceptr at = managed(3 * MiB), base = 0;
    size_t bytes = 0;
    say_code("cuMemGetAddressRange", cuMemGetAddressRange_v2(&base, &bytes, at + 77));
    say("the allocation: %s, %zu bytes", yes(base == at), bytes);
    put_memory(at);
}

CASE(managed_prefetch, GPU | SHARED) {
    CUdeviceptr at = managed(4 * MiB);
    CUmemLocation device = {LOCATION_DEVICE, 0}, host = {2, 0};
    memset((void *)at, 3, 4 * MiB);
    say_code("to the device", cuMemPrefetchAsync_v2(at, 4 * MiB, device, 0, CU_STREAM_LEGACY));
    say_code("to the host", cuMemPrefetchAsync_v2(at, 4 * MiB, host, 0, CU_STREAM_LEGACY));
    NEED(cuCtxSynchronize());
    say("kept: %s", yes(holds_only(at, 4 * MiB, 3)));
    say_code("cuMemAdvise read mostly", cuMemAdvise(at, 4 * MiB, 1, 0));
    put_memory(at);
}

/* Calls for managed memory, on memory that is not. */
CASE(managed_calls_on_plain_memory, GPU | SHARED) {
    CUmemLocation device = {LOCATION_DEVICE, 0}, host = {2, 0};
    for (int kind = 0; kind < KINDS; kind++) {
        CUdeviceptr at = get_memory(kind, 4 * MiB);
        int value = 0;
        say("%s", kind_names[kind]);
        say_code("prefetch to the device",
                 cuMemPrefetchAsync_v2(at, 4 * MiB, device, 0, CU_STREAM_LEGACY));
        say_code("prefetch to the host", cuMemPrefetchAsync_v2(at, 4 * MiB, host, 0, CU_STREAM_LEGACY));
        say_code("advise", cuMemAdvise(at, 4 * MiB, 1, 0));
        say_code("range attribute", cuMemRangeGetAttribute(&value, sizeof value, 1, at, 4 * MiB));
        say_code("attach", cuStreamAttachMemAsync(CU_STREAM_LEGACY, at, 0, ATTACH_HOST));
        put_memory(at);
    }
}

CASE(managed_by_the_runtime, SIM | RUNTIME | SHARED) {
    void *at = NULL;
    cudaPointerAttributes attributes;
    say_runtime("cudaMallocManaged", cudaMallocManaged(&at, MiB, ATTACH_GLOBAL));
    say_runtime("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, at));
    say("type %d on device %d", attributes.type, attributes.device);
    say_runtime("cudaMemset", cudaMemset(at, 6, MiB));
    NEED(cudaDeviceSynchronize());
    say("seen by the host: %d", ((char *)at)[MiB - 1]);
    say_runtime("cudaFree", cudaFree(at));
}
