/* A function of the host may call nothing of the driver's: what it asks for is refused, and
 * memory stays as it is. */
#include "answers.h"

CUresult cuLaunchHostFunc(CUstream, void (*)(void *), void *);
int cuSimPhysical(int, uint64_t *);

static CUmemoryPool pool;

static uint64_t physical(void) {
    uint64_t bytes;
    OK(cuSimPhysical(0, &bytes));
    return bytes / MiB;
}

static void trims(void *unused) {
    (void)unused;
    SAY(cuMemPoolTrimTo(pool, 0));
}

int main(void) {
    CUdeviceptr at, next;
    start_cuda();
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAllocAsync(&at, 64 * MiB, NULL));
    OK(cuMemFree_v2(at));
    OK(cuMemAllocAsync(&next, 3 * MiB, NULL));
    OK(cuLaunchHostFunc(NULL, trims, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemFree_v2(next));
    SAY(cuMemPoolTrimTo(pool, 0));
    printf("held: %llu MiB\n", (unsigned long long)physical());
    return 0;
}
