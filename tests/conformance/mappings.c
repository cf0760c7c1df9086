/* A program's own virtual memory management, beside the pool's. */
#include "patterns.h"
#include "work.h"

static const CUmemAllocationProp properties = {
    .type = ALLOCATION_PINNED, .requestedHandleTypes = HANDLE_POSIX_FD, .location = {LOCATION_DEVICE, 0}};
static const CUmemAccessDesc access_here = {{LOCATION_DEVICE, 0}, ACCESS_READWRITE};

CASE(mappings_step_by_step, SIM | SHARED) {
    CUdeviceptr at = 0;
    CUmemHandle handle = 0;
    say_code("cuMemAddressReserve", cuMemAddressReserve(&at, 4 * MiB, 0, 0, 0));
    say_code("cuMemCreate", cuMemCreate(&handle, 4 * MiB, &properties, 0));
    say_code("cuMemMap", cuMemMap(at, 4 * MiB, 0, handle, 0));
    say_code("cuMemSetAccess", cuMemSetAccess(at, 4 * MiB, &access_here, 1));
    say_code("cuMemsetD8", cuMemsetD8_v2(at, 0x42, 4 * MiB));
    say("filled: %s", yes(holds_only(at, 4 * MiB, 0x42)));
    say_code("cuMemUnmap", cuMemUnmap(at, 4 * MiB));
    say_code("cuMemRelease", cuMemRelease(handle));
    say_code("cuMemAddressFree", cuMemAddressFree(at, 4 * MiB));
}

CASE(mappings_errors, SIM | SHARED) {
    CUdeviceptr at = 0;
    CUmemHandle handle = 0;
    say_code("reserve 1 MiB", cuMemAddressReserve(&at, MiB, 0, 0, 0));
    say_code("create 1 MiB", cuMemCreate(&handle, MiB, &properties, 0));
    NEED(cuMemAddressReserve(&at, 8 * MiB, 0, 0, 0));
    NEED(cuMemCreate(&handle, 4 * MiB, &properties, 0));
    say_code("map a part", cuMemMap(at, 2 * MiB, 0, handle, 0));
    say_code("map", cuMemMap(at, 4 * MiB, 0, handle, 0));
    say_code("map there again", cuMemMap(at, 4 * MiB, 0, handle, 0));
    say_code("unmap a part", cuMemUnmap(at, 2 * MiB));
    say_code("unmap", cuMemUnmap(at, 4 * MiB));
    NEED(cuMemRelease(handle));
    say_code("free a part of the addresses", cuMemAddressFree(at, 4 * MiB));
    NEED(cuMemAddressFree(at, 8 * MiB));
}

CASE(mappings_at_two_addresses, SIM | SHARED) {
    CUdeviceptr at = 0;
    CUmemHandle handle = 0;
    NEED(cuMemAddressReserve(&at, 8 * MiB, 0, 0, 0));
    NEED(cuMemCreate(&handle, 4 * MiB, &properties, 0));
    say_code("first", cuMemMap(at, 4 * MiB, 0, handle, 0));
    say_code("second", cuMemMap(at + 4 * MiB, 4 * MiB, 0, handle, 0));
    NEED(cuMemSetAccess(at, 8 * MiB, &access_here, 1));
    NEED(cuMemRelease(handle));
    NEED(cuMemsetD8_v2(at, 0x24, 4 * MiB));
    NEED(cuCtxSynchronize());
    say("the same bytes: %s", yes(holds_only(at + 4 * MiB, 4 * MiB, 0x24)));
    NEED(cuMemUnmap(at, 8 * MiB));
    NEED(cuMemAddressFree(at, 8 * MiB));
}

/* Not SIM: the handle types of the second handle read 0 on an H200 here, and 1
 * elsewhere. */
CASE(mappings_attributes, GPU | SHARED) {
    struct mapping own = map_own(8 * MiB);
    uint64_t start = 0, bytes = 0, first = 0, second = 0, pool = 9;
    unsigned legacy = 9;
    CUdeviceptr at = own.at + 5 * MiB;
    NEED(cuPointerGetAttribute(&start, POINTER_RANGE_START, at));
    NEED(cuPointerGetAttribute(&bytes, POINTER_RANGE_SIZE, at));
    NEED(cuPointerGetAttribute(&first, POINTER_BUFFER_ID, own.at));
    NEED(cuPointerGetAttribute(&second, POINTER_BUFFER_ID, at));
    NEED(cuPointerGetAttribute(&pool, POINTER_MEMPOOL, at));
    NEED(cuPointerGetAttribute(&legacy, POINTER_IS_LEGACY_IPC_CAPABLE, at));
    say("range: all of it %s, %llu bytes", yes(start == own.at), (unsigned long long)bytes);
    say("one id: %s", yes(first == second));
    /* Which handles it allows is 0 on one machine and what was asked for on another, with one driver. */
    say("pool %llu, legacy IPC %u", (unsigned long long)pool, legacy);
    unmap_own(own);
}

CASE(mappings_range_and_handle, SIM | SHARED) {
    struct mapping own = map_own(8 * MiB);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUmemHandle handle = 0;
    say_code("cuMemGetAddressRange", cuMemGetAddressRange_v2(&base, &bytes, own.at + 5 * MiB));
    say("the handle's: %s, %zu bytes", yes(base == own.at + 4 * MiB), bytes);
    say_code("cuMemRetainAllocationHandle",
             cuMemRetainAllocationHandle(&handle, (void *)(own.at + 5 * MiB)));
    NEED(cuMemRelease(handle));
    unmap_own(own);
}

CASE(mappings_freed_by_the_wrong_call, SIM | SHARED) {
    struct mapping own = map_own(4 * MiB);
    say_code("cuMemFree", cuMemFree_v2(own.at));
    say_code("cuMemFreeAsync", cuMemFreeAsync(own.at, CU_STREAM_LEGACY));
    unmap_own(own);
}

/* The pool's memory is no mapping of the program's. */
CASE(mappings_calls_on_plain_memory, SIM) {
    CUdeviceptr at = allocate(8 * MiB);
    unsigned long long flags = 9;
    CUmemLocation here = {LOCATION_DEVICE, 0};
    say_code("cuMemGetAccess", cuMemGetAccess(&flags, &here, at));
    say_code("cuMemSetAccess", cuMemSetAccess(at, 8 * MiB, &access_here, 1));
    say_code("cuMemUnmap of a part", cuMemUnmap(at, 2 * MiB));
    say_code("cuMemAddressFree", cuMemAddressFree(at, 8 * MiB));
    NEED(cuMemsetD8_v2(at, 1, 8 * MiB));
    say("still there: %s", yes(holds_only(at, 8 * MiB, 1)));
}

CASE(mappings_beside_pooled_memory, SIM | SHARED) {
    CUdeviceptr before = allocate(30 * MiB);
    struct mapping own = map_own(32 * MiB);
    CUdeviceptr after = allocate(30 * MiB);
    bool apart = (before + 30 * MiB <= own.at || own.at + own.bytes <= before) &&
                 (after + 30 * MiB <= own.at || own.at + own.bytes <= after);
    say("apart: %s", yes(apart));
    NEED(cuMemsetD8_v2(before, 1, 30 * MiB));
    NEED(cuMemsetD8_v2(own.at, 2, own.bytes));
    NEED(cuMemsetD8_v2(after, 3, 30 * MiB));
    say_code("cuMemcpyDtoD into it", cuMemcpyDtoD_v2(own.at + 15 * MiB, before, 2 * MiB));
    say("all as written: %s",
        yes(holds_only(before, 30 * MiB, 1) && holds_only(after, 30 * MiB, 3) &&
            holds_only(own.at + 15 * MiB, 2 * MiB, 1) && holds_only(own.at, 15 * MiB, 2)));
    NEED(cuCtxSynchronize());
    unmap_own(own);
    put_memory(before);
    put_memory(after);
}
