/* Allocates and frees, and says whose memory it was. */
#include "../support/cuda.h"

int main(void) {
    CUdeviceptr a, b;
    start_cuda();
    OK(cuMemAlloc_v2(&a, 8 * MiB));
    OK(cuMemAlloc_v2(&b, 8 * MiB));
    puts(is_pooled(a) ? "pool" : "driver");
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
    OK(cuMemAllocAsync(&a, 8 * MiB, NULL));
    puts(is_pooled(a) ? "pool" : "driver");
    OK(cuMemFreeAsync(a, NULL));
    return 0;
}
