/* Writes a word behind what it asked for, and frees in two ways. */
#include "../support/cuda.h"

CUresult cuMemsetD32_v2(CUdeviceptr, unsigned, size_t);

int main(void) {
    CUdeviceptr at;
    start_cuda();
    OK(cuMemAlloc_v2(&at, 1000));
    OK(cuMemsetD32_v2(at, 0, 250));
    OK(cuMemFree_v2(at));
    OK(cuMemAlloc_v2(&at, 2000));
    OK(cuMemsetD32_v2(at, 0, 501));
    OK(cuMemFree_v2(at));
    OK(cuMemAllocAsync(&at, 3000, NULL));
    OK(cuMemsetD32_v2(at, 0, 751));
    OK(cuMemFreeAsync(at, NULL));
    return 0;
}
