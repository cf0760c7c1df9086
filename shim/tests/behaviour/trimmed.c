/* A stream was waited for: what was freed on it goes back when its memory pool is trimmed,
 * though a device needs a moment to reach the events that tell. */
#include "../support/cuda.h"

CUresult cuSimPhysical(int, uint64_t *);

int main(void) {
    CUdeviceptr at;
    CUstream stream;
    CUmemoryPool pool;
    uint64_t left;
    start_cuda();
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAllocAsync(&at, 64 * MiB, stream));
    OK(cuMemFreeAsync(at, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuSimPhysical(0, &left));
    CHECK(left == 0);
    /* So much is kept in all, be it in use. */
    CUdeviceptr used;
    OK(cuMemAllocAsync(&used, 64 * MiB, stream));
    OK(cuMemAllocAsync(&at, 64 * MiB, stream));
    OK(cuMemFreeAsync(at, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 96 * MiB));
    OK(cuSimPhysical(0, &left));
    CHECK(left == 96 * MiB);
    OK(cuMemPoolTrimTo(pool, 64 * MiB));
    OK(cuSimPhysical(0, &left));
    CHECK(left == 64 * MiB);
    return 0;
}
