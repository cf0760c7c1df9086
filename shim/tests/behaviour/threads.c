/* Threads that allocate at once, each on its own default stream and on one of
 * its own making, beside one that captures: no two hold the same bytes, and none
 * writes before another's kernel is over. */
#include "../support/cuda.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 2000, HELD = 16 };

struct range { CUdeviceptr base; size_t bytes; uint32_t write; };
CUresult cuSimLaunch(CUstream, const struct range *, unsigned, double);

typedef CUresult (*allocate_async)(CUdeviceptr *, size_t, CUstream);
typedef CUresult (*free_async)(CUdeviceptr, CUstream);

static CUcontext context;
static allocate_async allocate;
static free_async release;

static unsigned next(unsigned *seed) {
    return *seed = *seed * 1664525u + 1013904223u, *seed >> 8;
}

static void *work(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument + 1;
    CUdeviceptr held[HELD] = {0};
    CUstream used_on[HELD], stream;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    for (int round = 0; round < ROUNDS; round++) {
        unsigned at = next(&seed) % HELD;
        CUdeviceptr *slot = &held[at];
        CUstream on = *slot != 0 ? used_on[at] : next(&seed) % 2 ? stream : NULL;
        if (*slot != 0) {
            if (next(&seed) % 8 == 0)
                OK(cuMemFree_v2(*slot));
            else
                OK(release(*slot, on));
            *slot = 0;
        } else {
            size_t bytes = (size_t)1 << (next(&seed) % 24);
            if (next(&seed) % 4 == 0)
                OK(cuMemAlloc_v2(slot, bytes));
            else
                OK(allocate(slot, bytes, on));
            CUdeviceptr base;
            size_t size;
            OK(cuMemGetAddressRange_v2(&base, &size, *slot));
            CHECK(base == *slot && size == bytes);
            struct range range = {base, bytes, 1};
            OK(cuSimLaunch(on != NULL ? on : (CUstream)2, &range, 1, 5.0));
            used_on[at] = on;
        }
    }
    for (int i = 0; i < HELD; i++) {
        if (held[i] != 0)
            OK(cuMemFree_v2(held[i]));
    }
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static void *capture(void *argument) {
    (void)argument;
    CUstream stream;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    for (int round = 0; round < 200; round++) {
        CUgraph graph = NULL;
        OK(cuStreamBeginCapture_v2(stream, 2));
        OK(cuStreamEndCapture(stream, &graph));
    }
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS + 1];
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuGetProcAddress_v2("cuMemAllocAsync", (void **)&allocate, 11020, 2, NULL));
    OK(cuGetProcAddress_v2("cuMemFreeAsync", (void **)&release, 11020, 2, NULL));
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    CHECK(pthread_create(&threads[THREADS], NULL, capture, NULL) == 0);
    for (int i = 0; i <= THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CUmemoryPool pool;
    uint64_t used = 1;
    OK(cuCtxSetCurrent(context));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolGetAttribute(pool, 7, &used));
    CHECK(used == 0);
    return 0;
}
