/* After a kernel crashed, pool hits do not go on returning success. */
#include "../support/cuda.h"

int cuSimCrash(CUstream);

int main(void) {
    CUdeviceptr a, b;
    CUstream stream;
    start_cuda();
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAllocAsync(&a, 8 * MiB, stream));
    OK(cuMemAlloc_v2(&b, 8 * MiB));
    OK(cuMemFreeAsync(a, stream));
    OK(cuSimCrash(stream));
    IS(700, cuStreamSynchronize(stream));
    IS(700, cuMemAllocAsync(&a, 8 * MiB, stream)); /* would be a hit */
    IS(700, cuMemAlloc_v2(&a, 4096));
    IS(700, cuMemFree_v2(b));
    /* Nothing is free there either, though the pool has idle memory. */
    size_t left = 7, total = 7;
    IS(700, cuMemGetInfo_v2(&left, &total));
    CHECK(left == 0 && total == 0);
    return 0;
}
