/* Allocations: where they lie, and which are refused. */
#include <pthread.h>
#include <stdint.h>

#include "conformance.h"
#include "work.h"

enum { MANY = 9 };

static int by_value(const void *left, const void *right) {
    CUdeviceptr a = *(const CUdeviceptr *)left, b = *(const CUdeviceptr *)right;
    return a < b ? -1 : a > b;
}

/* Least distance of two of them in bytes. */
static CUdeviceptr least_distance(const CUdeviceptr *at, int count) {
    CUdeviceptr sorted[MANY], least = ~(CUdeviceptr)0;
    memcpy(sorted, at, (size_t)count * sizeof *at);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    for (int i = 1; i < count; i++)
        if (sorted[i] - sorted[i - 1] < least) least = sorted[i] - sorted[i - 1];
    return least;
}

static bool all_multiples(const CUdeviceptr *at, size_t of) {
    bool all = true;
    for (int i = 0; i < MANY; i++) all = all && at[i] % of == 0;
    return all;
}

static void say_alignment(size_t bytes, bool ordered) {
    CUdeviceptr at[MANY];
    for (int i = 0; i < MANY; i++) at[i] = ordered ? allocate_async(bytes, NULL) : allocate(bytes);
    say("%zu B: of 512: %s", bytes, yes(all_multiples(at, 512)));
    if (!ordered) say("of 2 MiB: %s", yes(all_multiples(at, 2 * MiB)));
    say("apart: %s", yes(least_distance(at, MANY) >= bytes));
    for (int i = 0; i < MANY; i++) NEED(ordered ? cuMemFreeAsync(at[i], NULL) : cuMemFree_v2(at[i]));
}

CASE(allocation_alignment_small, SIM) {
    static const size_t sizes[] = {1, 511, 512, 513, 1000, 4096, 65536, 65537, 1 << 19};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) say_alignment(sizes[i], false);
}

CASE(allocation_alignment_middle, SIM) {
    static const size_t sizes[] = {1 << 20, 3 << 19, (2 << 20) - 1024, (2 << 20) - 512};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) say_alignment(sizes[i], false);
}

CASE(allocation_alignment_large, SIM) {
    static const size_t sizes[] = {2 << 20, (2 << 20) + 1, 3 << 20, 5 << 20, 20 << 20, 33 << 20, 100 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) say_alignment(sizes[i], false);
}

CASE(allocation_alignment_async, SIM) {
    static const size_t sizes[] = {1, 513, 4096, 65537, 1 << 20, 2 << 20, 3 << 20, 20 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) say_alignment(sizes[i], true);
}

/* In a fresh process, so that nothing lies in between. */
static void say_spacing(size_t bytes) {
    CUdeviceptr at[MANY];
    for (int i = 0; i < MANY; i++) at[i] = allocate(bytes);
    say("%zu B: %llu", bytes, (unsigned long long)least_distance(at, MANY));
}

CASE(allocation_spacing_1, SIM) { say_spacing(1); }
CASE(allocation_spacing_512, SIM) { say_spacing(512); }
CASE(allocation_spacing_513, SIM) { say_spacing(513); }
CASE(allocation_spacing_4096, SIM) { say_spacing(4096); }
CASE(allocation_spacing_65537, SIM) { say_spacing(65537); }
/* The driver rounds large allocations up, which nothing needs to do with it. */
CASE(allocation_spacing_large, GPU) {
    say_spacing((2 << 20) + 1);
    say_spacing(20 << 20);
    say_spacing(33 << 20);
}

CASE(allocation_zero, SIM | SHARED) {
    CUdeviceptr at = 7;
    say_code("0 bytes", cuMemAlloc_v2(&at, 0));
    say("written: %s", yes(at != 7));
    say_code("0 bytes to nowhere", cuMemAlloc_v2(NULL, 0));
    say_code("stream-ordered", cuMemAllocAsync(&at, 0, NULL));
    say("written: %s", yes(at != 7));
}

CASE(allocation_to_nowhere, SIM | SHARED) {
    say_code("cuMemAlloc", cuMemAlloc_v2(NULL, MiB));
    say_code("cuMemAllocAsync", cuMemAllocAsync(NULL, MiB, NULL));
}

CASE(allocation_huge, SIM | SHARED) {
    CUdeviceptr at = 7;
    say_code("400 GiB", cuMemAlloc_v2(&at, 400 * GiB));
    say_code("64 TiB", cuMemAlloc_v2(&at, 64 * 1024 * GiB));
    say_code("half of all", cuMemAlloc_v2(&at, SIZE_MAX / 2));
    say_code("all but one page", cuMemAlloc_v2(&at, SIZE_MAX - 4095));
    say_code("all", cuMemAlloc_v2(&at, SIZE_MAX));
    say("written: %s", yes(at != 7));
    say_code("then 1 MiB", cuMemAlloc_v2(&at, MiB));
    NEED(cuMemFree_v2(at));
}

CASE(allocation_huge_async, SIM | SHARED) {
    CUdeviceptr at = 7;
    say_code("400 GiB", cuMemAllocAsync(&at, 400 * GiB, NULL));
    say_code("64 TiB", cuMemAllocAsync(&at, 64 * 1024 * GiB, NULL));
    say_code("all", cuMemAllocAsync(&at, SIZE_MAX, NULL));
    say("written: %s", yes(at != 7));
    say_code("then 1 MiB", cuMemAllocAsync(&at, MiB, NULL));
    NEED(cuMemFreeAsync(at, NULL));
}

/* Contexts of the simulated GPU take no memory. */
CASE(allocation_more_than_total, GPU) {
    size_t total = 0;
    CUdeviceptr at = 7;
    NEED(cuMemGetInfo_v2(NULL, &total));
    say_code("one byte more than there is", cuMemAlloc_v2(&at, total + 1));
    say_code("all that there is", cuMemAlloc_v2(&at, total));
    say("written: %s", yes(at != 7));
}

CASE(allocation_before_init, SIM | RAW) {
    CUdeviceptr at = 7;
    say_code("cuMemAlloc", cuMemAlloc_v2(&at, MiB));
    say_code("cuMemAllocAsync", cuMemAllocAsync(&at, MiB, NULL));
    say_code("cuMemFree", cuMemFree_v2(4096));
    say_code("cuMemFree of 0", cuMemFree_v2(0));
    say_code("cuMemFreeAsync", cuMemFreeAsync(4096, NULL));
    say("written: %s", yes(at != 7));
}

CASE(allocation_without_context, SIM | RAW) {
    CUdeviceptr at = 7;
    NEED(cuInit(0));
    say_code("cuMemAlloc", cuMemAlloc_v2(&at, MiB));
    say_code("cuMemAlloc of 0 bytes", cuMemAlloc_v2(&at, 0));
    say_code("cuMemAlloc to nowhere", cuMemAlloc_v2(NULL, MiB));
    say_code("cuMemAllocAsync", cuMemAllocAsync(&at, MiB, NULL));
    say("written: %s", yes(at != 7));
    say_code("cuMemFree of 0", cuMemFree_v2(0));
    say_code("cuMemFree of nonsense", cuMemFree_v2(4096));
}

static void *allocate_elsewhere(void *argument) {
    CUdeviceptr at = 0;
    say_code("a thread without context", cuMemAlloc_v2(&at, MiB));
    NEED(cuCtxSetCurrent(argument));
    say_code("with it", cuMemAlloc_v2(&at, MiB));
    return (void *)at;
}

CASE(allocation_in_another_thread, SIM | SHARED) {
    pthread_t thread;
    void *at = NULL;
    NEED(pthread_create(&thread, NULL, allocate_elsewhere, context()));
    pthread_join(thread, &at);
    say_code("freed here", cuMemFree_v2((CUdeviceptr)at));
}

CASE(allocation_two_contexts, SIM) {
    CUcontext first = context(), other = NULL, popped = NULL, of = NULL;
    CUdeviceptr a = allocate(4 * MiB), b = 0;
    NEED(cuCtxCreate_v2(&other, 0, 0));
    say_code("in the second", cuMemAlloc_v2(&b, 4 * MiB));
    NEED(cuPointerGetAttribute(&of, POINTER_CONTEXT, b));
    say("belongs to it: %s", yes(of == other));
    NEED(cuPointerGetAttribute(&of, POINTER_CONTEXT, a));
    say("the first's to the first: %s", yes(of == first));
    say_code("the first's freed in the second", cuMemFree_v2(a));
    NEED(cuCtxPopCurrent_v2(&popped));
    say_code("the second's freed in the first", cuMemFree_v2(b));
}

CASE(allocation_context_destroyed, SIM) {
    CUcontext other = NULL;
    CUdeviceptr at = 0, start = 7;
    NEED(cuCtxCreate_v2(&other, 0, 0));
    NEED(cuMemAlloc_v2(&at, 4 * MiB));
    NEED(cuCtxDestroy_v2(other));
    say_code("its memory's start", cuPointerGetAttribute(&start, POINTER_RANGE_START, at));
    say_code("its range", cuMemGetAddressRange_v2(NULL, NULL, at));
    say_code("its free", cuMemFree_v2(at));
}

CASE(allocation_context_reset, SIM) {
    CUdeviceptr at = allocate(4 * MiB), start = 7;
    NEED(cuDevicePrimaryCtxReset_v2(0));
    say_code("its memory's start", cuPointerGetAttribute(&start, POINTER_RANGE_START, at));
    say_code("its free", cuMemFree_v2(at));
    CUcontext primary = NULL;
    say_code("retained again", cuDevicePrimaryCtxRetain(&primary, 0));
    NEED(cuCtxSetCurrent(primary));
    say_code("freed then", cuMemFree_v2(at));
    say_code("allocated then", cuMemAlloc_v2(&at, 4 * MiB));
}

/* A green context of all of the device, and what is allocated in it; the first one is current again. */
static void *green_context(CUdeviceptr *at) {
    char resource[256];
    void *description = NULL, *green = NULL;
    CUcontext first = NULL, view = NULL;
    NEED(cuCtxGetCurrent(&first));
    NEED(cuDeviceGetDevResource(0, resource, 1));
    NEED(cuDevResourceGenerateDesc(&description, resource, 1));
    NEED(cuGreenCtxCreate(&green, description, 0, 1));
    NEED(cuCtxFromGreenCtx(&view, green));
    NEED(cuCtxSetCurrent(view));
    *at = allocate(4 * MiB);
    NEED(cuCtxSetCurrent(first));
    return green;
}

CASE(allocation_green_destroyed, SIM) {
    CUcontext first = NULL, of = NULL;
    CUdeviceptr at = 0;
    NEED(cuCtxGetCurrent(&first));
    NEED(cuGreenCtxDestroy(green_context(&at)));
    NEED(cuPointerGetAttribute(&of, POINTER_CONTEXT, at));
    say("its memory is the primary one's: %s", yes(of == first));
    say_code("written", cuMemsetD8_v2(at, 1, 4 * MiB));
    say_code("freed", cuMemFree_v2(at));
}

CASE(allocation_reset_beside_green, SIM) {
    CUdeviceptr at = 0;
    void *green = green_context(&at);
    say_code("reset", cuDevicePrimaryCtxReset_v2(0));
    say_code("its memory freed", cuMemFree_v2(at));
    NEED(cuGreenCtxDestroy(green));
    say_code("reset without it", cuDevicePrimaryCtxReset_v2(0));
}

CASE(allocation_order_of_contents, SIM | SHARED) {
    /* Every allocation keeps its own bytes. */
    CUdeviceptr at[MANY];
    bool kept = true;
    for (unsigned i = 0; i < MANY; i++) {
        at[i] = allocate(300 * KiB);
        work_write(NULL, at[i], 300 * KiB, i);
    }
    for (unsigned i = 0; i < MANY; i++) kept = kept && all_words(at[i], 300 * KiB, i);
    say("each keeps its bytes: %s", yes(kept));
    for (int i = 0; i < MANY; i++) NEED(cuMemFree_v2(at[i]));
}

CASE(allocation_after_a_crash, SIM | CRASHES) {
    CUdeviceptr at = allocate(MiB), more = 7;
    CUstream stream = new_stream();
    work_crash(stream);
    say_code("cuCtxSynchronize", cuCtxSynchronize());
    say_code("cuMemAlloc", cuMemAlloc_v2(&more, MiB));
    say_code("cuMemAllocAsync", cuMemAllocAsync(&more, MiB, stream));
    say_code("cuMemFree", cuMemFree_v2(at));
    say_code("cuMemFree of 0", cuMemFree_v2(0));
    say("written: %s", yes(more != 7));
}
