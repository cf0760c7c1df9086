/* The library lends no more: what is freed goes back to the driver, which serves now, and so does
 * what lies idle where it lacks. */
#include "../support/cuda.h"

int cuSimPhysical(int, uint64_t *);

int main(void) {
    enum { BYTES = 128 * MiB };
    const size_t most = 10240 * MiB;
    CUdeviceptr a, b;
    uint64_t before, after;
    start_cuda();
    OK(cuMemAlloc_v2(&a, BYTES));
    CHECK(is_pooled(a));
    /* More than half of the device, which stays with the pool. */
    OK(cuMemAllocAsync(&b, most, NULL));
    CHECK(is_pooled(b));
    OK(cuMemFreeAsync(b, NULL));
    OK(cuStreamSynchronize(NULL));
    setenv("MEMCUDA_PANIC_IN", "cuMemAllocAsync", 1);
    OK(cuMemAllocAsync(&b, BYTES, NULL));
    CHECK(!is_pooled(b));
    OK(cuMemAllocAsync(&b, most, NULL));
    CHECK(!is_pooled(b));
    OK(cuSimPhysical(0, &before));
    OK(cuMemFree_v2(a));
    OK(cuSimPhysical(0, &after));
    CHECK(after <= before - BYTES);
    return 0;
}
