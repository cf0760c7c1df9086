/* The first allocation of rows asks the driver for its pitch, and does not wait
 * for the device. What was allocated to ask goes with a free that does, also
 * where several threads ask at once, and never where its context has ended. */
#include "../support/cuda.h"
#include <pthread.h>

enum { THREADS = 4 };

int cuSimLaunch(CUstream, const void *, unsigned, double);
CUresult cuStreamQuery(CUstream);
CUresult cuDeviceGetCount(int *);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);

static CUcontext contexts[8];
static int devices, at_the_line[8];

static void *ask(void *unused) {
    (void)unused;
    for (int device = 0; device < devices; device++) {
        CUdeviceptr rows;
        size_t pitch;
        OK(cuCtxSetCurrent(contexts[device]));
        __atomic_fetch_add(&at_the_line[device], 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&at_the_line[device], __ATOMIC_SEQ_CST) < THREADS) sched_yield();
        OK(cuMemAllocPitch_v2(&rows, &pitch, 1000, 10, 4));
        CHECK(pitch == 1024 && is_pooled(rows));
        OK(cuMemFreeAsync(rows, NULL));
    }
    return NULL;
}

/* All threads ask each device for the first time, at one moment. */
static void at_once(void) {
    pthread_t threads[THREADS];
    size_t before[8], after, total;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&devices));
    for (int device = 0; device < devices; device++) {
        OK(cuDevicePrimaryCtxRetain(&contexts[device], device));
        OK(cuCtxSetCurrent(contexts[device]));
        OK(cuMemGetInfo_v2(&before[device], &total));
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, ask, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int device = 0; device < devices; device++) {
        CUmemoryPool pool;
        CUdeviceptr any;
        OK(cuCtxSetCurrent(contexts[device]));
        /* A free waits, and so takes what a thread had in hand when others freed. */
        OK(cuMemAlloc_v2(&any, 1000));
        OK(cuMemFree_v2(any));
        OK(cuDeviceGetDefaultMemPool(&pool, device));
        OK(cuMemPoolTrimTo(pool, 0));
        OK(cuMemGetInfo_v2(&after, &total));
        CHECK(after == before[device]);
    }
}

/* The driver ends what was allocated to ask, and gives its address to others. */
static void over_a_reset(void) {
    CUdeviceptr rows, others, base;
    size_t pitch, bytes;
    OK(cuMemAllocPitch_v2(&rows, &pitch, 1000, 10, 4));
    OK(cuDevicePrimaryCtxReset_v2(0));
    start_cuda();
    OK(cuMemAllocManaged(&others, 512, 1));
    OK(cuMemAllocPitch_v2(&rows, &pitch, 1000, 10, 4));
    CHECK(pitch == 1024 && is_pooled(rows));
    OK(cuMemFree_v2(rows));
    OK(cuMemGetAddressRange_v2(&base, &bytes, others));
    CHECK(base == others && bytes == 512);
    OK(cuMemFree_v2(others));
}

int main(int count, char **arguments) {
    CUdeviceptr rows;
    CUstream stream;
    CUmemoryPool pool;
    CUcontext context;
    size_t pitch, free_before, free_after, total;
    if (count > 1 && strcmp(arguments[1], "at-once") == 0) return at_once(), 0;
    start_cuda();
    if (count > 1 && strcmp(arguments[1], "over-a-reset") == 0) return over_a_reset(), 0;
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemGetInfo_v2(&free_before, &total));
    OK(cuSimLaunch(stream, NULL, 0, 100000.0));
    OK(cuMemAllocPitch_v2(&rows, &pitch, 1000, 10, 4));
    CHECK(pitch == 1024 && is_pooled(rows));
    IS(600, cuStreamQuery(stream));
    /* A use of the context is given up that is not the last one. */
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuMemFree_v2(rows));
    OK(cuStreamQuery(stream));
    /* What the pool keeps is told as free: all that could lack is the driver's. */
    OK(cuMemGetInfo_v2(&free_after, &total));
    CHECK(free_before == free_after);
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuMemGetInfo_v2(&free_after, &total));
    CHECK(free_before == free_after);
    return 0;
}
