/* The first allocation of rows asks the driver for its pitch, and does not wait
 * for the device. What was allocated to ask goes with a free that does. */
#include "../support/cuda.h"

int cuSimLaunch(CUstream, const void *, unsigned, double);
CUresult cuStreamQuery(CUstream);

int main(void) {
    CUdeviceptr rows;
    CUstream stream;
    CUmemoryPool pool;
    size_t pitch, free_before, free_after, total;
    start_cuda();
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemGetInfo_v2(&free_before, &total));
    OK(cuSimLaunch(stream, NULL, 0, 100000.0));
    OK(cuMemAllocPitch_v2(&rows, &pitch, 1000, 10, 4));
    CHECK(pitch == 1024 && is_pooled(rows));
    IS(600, cuStreamQuery(stream));
    OK(cuMemFree_v2(rows));
    OK(cuStreamQuery(stream));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuMemGetInfo_v2(&free_after, &total));
    CHECK(free_before == free_after);
    return 0;
}
