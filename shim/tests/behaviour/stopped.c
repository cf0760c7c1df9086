/* The library lends no more: what is freed goes back to the driver, which serves now. */
#include "../support/cuda.h"

int cuSimPhysical(int, uint64_t *);

int main(void) {
    enum { BYTES = 128 * MiB };
    CUdeviceptr a, b;
    uint64_t before, after;
    start_cuda();
    OK(cuMemAlloc_v2(&a, BYTES));
    CHECK(is_pooled(a));
    /* Here the panic is planted. */
    OK(cuMemAllocAsync(&b, BYTES, NULL));
    CHECK(!is_pooled(b));
    OK(cuSimPhysical(0, &before));
    OK(cuMemFree_v2(a));
    OK(cuSimPhysical(0, &after));
    CHECK(after == before - BYTES);
    return 0;
}
