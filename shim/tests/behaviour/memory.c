/* Pooled memory answers as the driver's own does. */
#include "../support/cuda.h"
#include "../../../sim/include/memcuda_sim.h"

CUresult cuMemCreate(unsigned long long *, size_t, const void *, unsigned long long);
CUresult cuStreamQuery(CUstream);
CUresult cuMemRelease(unsigned long long);
CUresult cuSimPhysical(int, uint64_t *);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, unsigned long long, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, size_t);

static void codes(void) {
    CUdeviceptr a = 0, b = 0;
    IS(INVALID_VALUE, cuMemAlloc_v2(&a, 0));
    IS(INVALID_VALUE, cuMemAlloc_v2(NULL, 100));
    OK(cuMemFree_v2(0));
    OK(cuMemAlloc_v2(&a, 1));
    OK(cuMemAlloc_v2(&b, 1));
    CHECK(is_pooled(a) && is_pooled(b) && a != b && a % 512 == 0 && b % 512 == 0);
    IS(INVALID_VALUE, cuMemFree_v2(b + 1));
    OK(cuMemFree_v2(b));
    IS(INVALID_VALUE, cuMemFree_v2(b));
    OK(cuMemFree_v2(a));
    IS(OUT_OF_MEMORY, cuMemAlloc_v2(&a, (size_t)400 << 30));

    OK(cuMemAlloc_v2(&a, 100 * MiB));
    CHECK(a % (2 * MiB) == 0);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    OK(cuMemGetAddressRange_v2(&base, &bytes, a + 33 * MiB));
    CHECK(base == a && bytes == 100 * MiB);
    OK(cuMemGetAddressRange_v2(NULL, NULL, a));
    unsigned long long handle;
    IS(INVALID_VALUE, cuMemRetainAllocationHandle(&handle, (void *)a));
    OK(cuMemFree_v2(a));
}

static void attributes(void) {
    CUdeviceptr a, again;
    OK(cuMemAlloc_v2(&a, 64 * MiB));
    unsigned long long context = 0, first = 0, second = 0, start = 0, size = 0;
    OK(cuPointerGetAttribute(&context, 1, a));
    CHECK(context != 0);
    OK(cuPointerGetAttribute(&first, 7, a + 5));
    int names[] = {2, 10, 11, 12, 14, 17};
    int kind = 0, legacy = 0;
    unsigned long long types = 1, pool = 1;
    void *values[] = {&kind, &legacy, &start, &size, &types, &pool};
    OK(cuPointerGetAttributes(6, names, values, a + 33 * MiB));
    CHECK(kind == 2 && legacy == 1 && start == a && size == 64 * MiB && types == 0 && pool == 0);
    unsigned on = 1;
    OK(cuPointerSetAttribute(&on, 6, a));
    int synchronous = 0;
    OK(cuPointerGetAttribute(&synchronous, 6, a));
    CHECK(synchronous == 1);

    OK(cuMemFree_v2(a));
    IS(INVALID_VALUE, cuPointerGetAttribute(&start, 11, a));
    OK(cuMemAlloc_v2(&again, 64 * MiB));
    OK(cuPointerGetAttribute(&second, 7, again));
    CHECK(first != second);
    OK(cuMemFree_v2(again));
}

static CUdeviceptr value(int attribute, CUdeviceptr at) {
    CUdeviceptr value = 0;
    OK(cuPointerGetAttribute(&value, attribute, at));
    return value;
}

/* What is small shares a page of 2 MiB with what else lies there. */
static void pages(void) {
    enum { BLOCK_ID = 20, MAPPING_SIZE = 18, MAPPING_BASE = 19, COUNT = 12 };
    const CUdeviceptr page = 2 * MiB;
    CUdeviceptr at[COUNT];
    int together = 0, apart = 0;
    for (int i = 0; i < COUNT; i++) OK(cuMemAlloc_v2(&at[i], 500 << 10));
    for (int i = 0; i < COUNT; i++) {
        CUdeviceptr base = value(MAPPING_BASE, at[i]), end = base + value(MAPPING_SIZE, at[i]);
        CHECK(base % page == 0 && base <= at[i] && at[i] - base < page);
        CHECK(end % page == 0 && at[i] + (500 << 10) <= end && end - at[i] < page + (500 << 10));
        for (int j = 0; j < i; j++) {
            int same = at[i] / page == at[j] / page;
            CHECK((value(BLOCK_ID, at[i]) == value(BLOCK_ID, at[j])) == same);
            together += same;
            apart += !same;
        }
    }
    CHECK(together > 0 && apart > 0);
    for (int i = 0; i < COUNT; i++) OK(cuMemFree_v2(at[i]));
}

/* Where nothing of the pool is mapped any more nothing of the program's can be. */
static void addresses(void) {
    struct { int type, types, kind, device; void *win; unsigned char flags[8]; } about = {1, 0, 1, 0, NULL, {0}};
    unsigned long long handle;
    CUmemoryPool pool;
    CUdeviceptr at;
    OK(cuMemAlloc_v2(&at, 64 * MiB));
    OK(cuMemCreate(&handle, 2 * MiB, &about, 0));
    IS(INVALID_VALUE, cuMemMap(at, 2 * MiB, 0, handle, 0));
    OK(cuMemFree_v2(at));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolTrimTo(pool, 0));
    IS(INVALID_VALUE, cuMemMap(at, 2 * MiB, 0, handle, 0));
    IS(INVALID_VALUE, cuMemMap(at + ((CUdeviceptr)1 << 38), 2 * MiB, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemAlloc_v2(&at, 64 * MiB));
    OK(cuMemFree_v2(at));
}

/* Of what NCCL may bind to a multicast object: mapped memory, and none of cudaMalloc's. */
static void multicast(void) {
    struct { int type, types, kind, device; void *win; unsigned char flags[8]; } about = {1, 0, 1, 0, NULL, {0}};
    CUresult (*looked_up)(unsigned long long, size_t, CUdeviceptr, size_t, unsigned long long) = NULL;
    CUdeviceptr pooled[2], own;
    unsigned long long handle;
    OK(cuGetProcAddress("cuMulticastBindAddr", (void **)&looked_up, 12010, 0));
    OK(cuMemAlloc_v2(&pooled[0], 4 * MiB));
    OK(cuMemAllocAsync(&pooled[1], 4 * MiB, NULL));
    OK(cuMemAddressReserve(&own, 2 * MiB, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * MiB, &about, 0));
    OK(cuMemMap(own, 2 * MiB, 0, handle, 0));
    for (int i = 0; i < 2; i++) {
        IS(INVALID_VALUE, looked_up(7, 0, pooled[i], 2 * MiB, 0));
        IS(INVALID_VALUE, cuMulticastBindAddr(7, 0, pooled[i], 2 * MiB, 0));
        IS(INVALID_VALUE, cuMulticastBindAddr_v2(7, 0, 0, pooled[i], 2 * MiB, 0));
    }
    OK(looked_up(7, 0, own, 2 * MiB, 0));
    OK(cuMulticastBindAddr(7, 0, own, 2 * MiB, 0));
    OK(cuMulticastBindAddr_v2(7, 0, 0, own, 2 * MiB, 0));
    OK(cuMemUnmap(own, 2 * MiB));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(own, 2 * MiB));
    OK(cuMemFree_v2(pooled[0]));
    OK(cuMemFreeAsync(pooled[1], NULL));
}

static void room(void) {
    size_t before, held, after, total;
    CUdeviceptr a;
    OK(cuMemGetInfo_v2(&before, &total));
    OK(cuMemAlloc_v2(&a, 200 * MiB));
    OK(cuMemGetInfo_v2(&held, NULL));
    CHECK(held + 200 * MiB <= before);
    OK(cuMemFree_v2(a));
    OK(cuMemGetInfo_v2(&after, &total));
    /* Idle memory of the pool is free to the program. */
    CHECK(after >= held + 200 * MiB && after <= total);
}

static void pitch(void) {
    CUdeviceptr a;
    size_t row = 0;
    OK(cuMemAllocPitch_v2(&a, &row, 1000, 300, 4));
    CHECK(row == 1024 && is_pooled(a));
    OK(cuMemFree_v2(a));
    /* Too much, and so much that a product of it is little. */
    a = row = 7;
    IS(OUT_OF_MEMORY, cuMemAllocPitch_v2(&a, &row, MiB, 400 << 10, 4));
    CHECK(a == 0 && row == MiB);
    IS(INVALID_VALUE, cuMemAllocPitch_v2(&a, &row, (size_t)1 << 33, ((size_t)1 << 31) + 1, 4));
}

static void ordered(void) {
    CUdeviceptr a, b, plain;
    CUstream stream;
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAllocAsync(&a, 32 * MiB, stream));
    CHECK(is_pooled(a));
    OK(cuMemFreeAsync(a, stream));
    IS(INVALID_VALUE, cuMemFreeAsync(a, stream));
    OK(cuMemAllocAsync(&b, 32 * MiB, stream));
    CHECK(a == b);
    OK(cuMemFree_v2(b));
    OK(cuMemAlloc_v2(&plain, 8 * MiB));
    OK(cuMemFreeAsync(plain, NULL));

    /* The default pool, named. */
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAllocFromPoolAsync(&a, 32 * MiB, pool, stream));
    CHECK(is_pooled(a));
    uint64_t used = 0, reserved = 0, high = 0, zero = 0, threshold = 1 << 20, kept = 0;
    OK(cuMemPoolGetAttribute(pool, 7, &used));
    OK(cuMemPoolGetAttribute(pool, 5, &reserved));
    OK(cuMemPoolGetAttribute(pool, 8, &high));
    CHECK(used == 32 * MiB && reserved >= used && high >= used);
    OK(cuMemPoolSetAttribute(pool, 4, &threshold));
    OK(cuMemPoolGetAttribute(pool, 4, &kept));
    CHECK(kept == threshold);
    OK(cuMemFreeAsync(a, stream));
    IS(INVALID_VALUE, cuMemPoolSetAttribute(pool, 8, &threshold));
    OK(cuMemPoolGetAttribute(pool, 8, &high));
    CHECK(high >= 32 * MiB);
    OK(cuMemPoolSetAttribute(pool, 8, &zero));
    OK(cuMemPoolGetAttribute(pool, 8, &high));
    CHECK(high == 0);
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuMemPoolGetAttribute(pool, 5, &reserved));
    CHECK(reserved == 0);

    /* What is used counts among what may be kept. */
    uint64_t before, after;
    OK(cuMemAllocAsync(&a, 64 * MiB, stream));
    OK(cuSimPhysical(0, &before));
    OK(cuMemAllocAsync(&b, 64 * MiB, stream));
    OK(cuMemFreeAsync(b, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 64 * MiB));
    OK(cuSimPhysical(0, &after));
    CHECK(after == before);
    /* Other memory does not, and nothing is waited for. */
    OK(cuMemAlloc_v2(&plain, 128 * MiB));
    OK(cuMemAllocAsync(&b, 64 * MiB, stream));
    OK(cuSimPhysical(0, &before));
    OK(cuMemFreeAsync(b, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 128 * MiB));
    OK(cuSimPhysical(0, &after));
    CHECK(after == before);
    OK(cuSimLaunch(stream, NULL, 0, 100000.0));
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemPoolTrimTo(pool, 0));
    IS(600, cuStreamQuery(stream));
    OK(cuMemFree_v2(plain));
    OK(cuStreamSynchronize(stream));

    /* Of what was freed before the driver's pool was told to keep it, or before a trim, it has
       nothing, however much other memory is idle. */
    uint64_t all = UINT64_MAX;
    size_t free_before, free_after, total;
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuMemPoolSetAttribute(pool, 4, &zero));
    OK(cuMemGetInfo_v2(&free_before, &total));
    for (int step = 0; step < 2; step++) {
        OK(cuMemAllocAsync(&a, 64 * MiB, stream));
        OK(cuMemFreeAsync(a, stream));
        OK(cuStreamSynchronize(stream));
        if (step == 0)
            OK(cuMemPoolSetAttribute(pool, 4, &all));
        else
            OK(cuMemPoolTrimTo(pool, 0));
        OK(cuMemAlloc_v2(&plain, 64 * MiB));
        OK(cuMemFree_v2(plain));
        OK(cuMemPoolGetAttribute(pool, 5, &reserved));
        OK(cuMemGetInfo_v2(&free_after, &total));
        CHECK(reserved == 0 && free_after == free_before);
    }
    /* What is still in use at a trim stays with it. */
    OK(cuSimLaunch(stream, NULL, 0, 100000.0));
    OK(cuMemAllocAsync(&a, 64 * MiB, stream));
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolGetAttribute(pool, 5, &reserved));
    CHECK(reserved == 64 * MiB);
    OK(cuMemPoolSetAttribute(pool, 4, &zero));
    OK(cuStreamDestroy_v2(stream));
}

static void capture(void) {
    CUdeviceptr in_capture, node = 0;
    CUstream stream;
    CUgraph graph = NULL;
    int status = 0;
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamBeginCapture_v2(stream, 2));
    OK(cuMemAlloc_v2(&in_capture, 4 * MiB));
    CHECK(is_pooled(in_capture));
    OK(cuMemFree_v2(in_capture));
    /* Inside a capture these make nodes of the graph: the driver's own. */
    OK(cuMemAllocAsync(&node, 4 * MiB, stream));
    OK(cuMemFreeAsync(node, stream));
    OK(cuStreamIsCapturing(stream, &status));
    CHECK(status == 1);
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(graph != NULL);
    OK(cuStreamDestroy_v2(stream));
}

int main(void) {
    CUdeviceptr early;
    CHECK(cuMemAlloc_v2(&early, 100) != SUCCESS);
    IS(INVALID_VALUE, cuInit(1)); /* starts nothing */
    OK(cuInit(0));
    CHECK(cuMemAlloc_v2(&early, 100) != SUCCESS); /* no context yet */
    start_cuda();
    codes();
    attributes();
    pages();
    addresses();
    multicast();
    room();
    pitch();
    ordered();
    capture();
    CUdeviceptr last;
    char handle[64];
    OK(cuMemAlloc_v2(&last, 2 * MiB));
    IS(INVALID_VALUE, cuIpcGetMemHandle(handle, last));
    IS(INVALID_VALUE, cuIpcGetMemHandle(handle, last));
    OK(cuMemFree_v2(last));
    OK(cuMemAlloc_v2(&last, 2 * MiB));
    OK(cuDevicePrimaryCtxReset_v2(0));
    return 0;
}
