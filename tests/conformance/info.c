/* cuMemGetInfo around allocations. Figures of a device that others may use, so
 * they are compared with some tolerance and never printed. */
#include "conformance.h"

enum { TOLERANCE = 16 << 20, LARGE = 256 << 20 };

static size_t free_now(void) {
    size_t free = 0;
    NEED(cuMemGetInfo_v2(&free, NULL));
    return free;
}

/* Free memory fell from `before` to `now` by about so many bytes. */
static bool fell(size_t before, size_t now, size_t bytes) {
    long difference = (long)before - (long)now - (long)bytes;
    return difference > -TOLERANCE && difference < TOLERANCE;
}

static void give(CUdeviceptr at) {
    NEED(cuMemFreeAsync(at, NULL));
    NEED(cuStreamSynchronize(NULL));
}

CASE(info_null_outputs, SIM | SHARED) {
    size_t free = 7, total = 7;
    say_code("neither", cuMemGetInfo_v2(NULL, NULL));
    say_code("free", cuMemGetInfo_v2(&free, NULL));
    say_code("total", cuMemGetInfo_v2(NULL, &total));
    say("free is some and no more than total: %s", yes(free > MiB && free <= total));
}

CASE(info_total, SIM | SHARED | RUNTIME) {
    size_t total = 0, of_device = 0, of_runtime = 0, free = 0;
    NEED(cuMemGetInfo_v2(NULL, &total));
    NEED(cuDeviceTotalMem_v2(&of_device, 0));
    say("total is the device's: %s", yes(total == of_device));
    NEED(cudaMemGetInfo(&free, &of_runtime));
    say("and the runtime's: %s", yes(total == of_runtime));
    CUdeviceptr at = allocate(LARGE);
    NEED(cuMemGetInfo_v2(NULL, &of_runtime));
    say("an allocation leaves it: %s", yes(total == of_runtime));
    NEED(cuMemFree_v2(at));
}

CASE(info_before_init, SIM | RAW) {
    size_t free = 7, total = 7;
    say_code("before cuInit", cuMemGetInfo_v2(&free, &total));
    NEED(cuInit(0));
    say_code("without a context", cuMemGetInfo_v2(&free, &total));
    say_code("to nowhere", cuMemGetInfo_v2(NULL, NULL));
    say("written: %s", yes(free != 7 || total != 7));
}

CASE(info_plain, SIM) {
    size_t before = free_now();
    CUdeviceptr at = allocate(LARGE);
    say("falls by 256 MiB: %s", yes(fell(before, free_now(), LARGE)));
    CUdeviceptr more = allocate(LARGE);
    say("and by 256 more: %s", yes(fell(before, free_now(), 2 * (size_t)LARGE)));
    NEED(cuMemFree_v2(at));
    say("comes back: %s", yes(fell(before, free_now(), LARGE)));
    NEED(cuMemFree_v2(more));
    say("all of it: %s", yes(fell(before, free_now(), 0)));
}

CASE(info_small, SIM) {
    size_t before = free_now();
    CUdeviceptr at = allocate(1);
    say("about nothing for a byte: %s", yes(fell(before, free_now(), 0)));
    NEED(cuMemFree_v2(at));
    say("nor after it: %s", yes(fell(before, free_now(), 0)));
}

CASE(info_many_small, SIM) {
    enum { MANY = 2000, EACH = 64 << 10 };
    static CUdeviceptr at[MANY];
    size_t before = free_now();
    for (int i = 0; i < MANY; i++) at[i] = allocate(EACH);
    say("falls by 2000 x 64 KiB: %s", yes(fell(before, free_now(), (size_t)MANY * EACH)));
    for (int i = 0; i < MANY; i++) NEED(cuMemFree_v2(at[i]));
    say("comes back: %s", yes(fell(before, free_now(), 0)));
}

CASE(info_every_second_freed, SIM) {
    enum { MANY = 64, EACH = 4 << 20 };
    static CUdeviceptr at[MANY];
    size_t before = free_now();
    for (int i = 0; i < MANY; i++) at[i] = allocate(EACH);
    for (int i = 0; i < MANY; i += 2) NEED(cuMemFree_v2(at[i]));
    say("half comes back: %s", yes(fell(before, free_now(), (size_t)MANY / 2 * EACH)));
}

CASE(info_pitch, SIM) {
    CUdeviceptr at = 0;
    size_t pitch = 0, before = free_now();
    NEED(cuMemAllocPitch_v2(&at, &pitch, 100000, 2000, 4));
    say("falls by the rows: %s", yes(fell(before, free_now(), pitch * 2000)));
    NEED(cuMemFree_v2(at));
    say("comes back: %s", yes(fell(before, free_now(), 0)));
}

CASE(info_async, SIM) {
    size_t before = free_now();
    CUdeviceptr at = allocate_async(LARGE, NULL);
    say("falls by 256 MiB: %s", yes(fell(before, free_now(), LARGE)));
    give(at);
    say("comes back after a wait: %s", yes(fell(before, free_now(), 0)));
}

CASE(info_async_kept, SIM) {
    CUmemoryPool pool = NULL;
    uint64_t all = UINT64_MAX;
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    NEED(cuMemPoolSetAttribute(pool, POOL_RELEASE_THRESHOLD, &all));
    size_t before = free_now();
    CUdeviceptr at = allocate_async(LARGE, NULL);
    give(at);
    say("what the pool keeps is not free: %s", yes(fell(before, free_now(), LARGE)));
    NEED(cuMemPoolTrimTo(pool, 0));
    say("comes back when trimmed: %s", yes(fell(before, free_now(), 0)));
}

CASE(info_mapped, SIM) {
    size_t before = free_now();
    struct mapping own = map_own(LARGE);
    say("falls by 256 MiB: %s", yes(fell(before, free_now(), LARGE)));
    unmap_own(own);
    say("comes back: %s", yes(fell(before, free_now(), 0)));
}

CASE(info_refused, SIM) {
    size_t before = free_now();
    CUdeviceptr at = 0;
    say_code("more than is free", cuMemAlloc_v2(&at, before + GiB));
    say("nothing is gone: %s", yes(fell(before, free_now(), 0)));
}

CASE(info_is_true, SIM) {
    /* What is said to be free can be had, most of it. */
    size_t most = free_now() / 100 * 90;
    CUdeviceptr at = 0, none = 0;
    say_code("90 % of it", cuMemAlloc_v2(&at, most));
    say_code("the same again", cuMemAlloc_v2(&none, most));
    say("a tenth is left: %s", yes(free_now() < most));
    say_code("freed", cuMemFree_v2(at));
    say_code("once more", cuMemAlloc_v2(&at, most));
}

CASE(info_in_another_context, SIM) {
    size_t before = free_now();
    CUdeviceptr at = allocate(LARGE);
    CUcontext other = NULL;
    NEED(cuCtxCreate_v2(&other, 0, 0));
    /* The second context takes some itself. */
    say("fell there, too: %s", yes(before - free_now() > LARGE - TOLERANCE));
    say_code("freed there", cuMemFree_v2(at));
}

CASE(info_destroyed_context, SIM) {
    CUcontext other = NULL;
    CUdeviceptr at = 0;
    size_t before = free_now();
    NEED(cuCtxCreate_v2(&other, 0, 0));
    NEED(cuMemAlloc_v2(&at, LARGE));
    NEED(cuCtxDestroy_v2(other));
    say("comes back with the context: %s", yes(fell(before, free_now(), 0)));
}

CASE(info_runtime, SIM | RUNTIME) {
    size_t before = 0, now = 0, total = 0;
    void *at = NULL;
    NEED(cudaMemGetInfo(&before, &total));
    NEED(cudaMalloc(&at, LARGE));
    NEED(cudaMemGetInfo(&now, &total));
    say("falls by 256 MiB: %s", yes(fell(before, now, LARGE)));
    NEED(cudaFree(at));
    NEED(cudaMemGetInfo(&now, &total));
    say("comes back: %s", yes(fell(before, now, 0)));
}
