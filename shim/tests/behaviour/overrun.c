/* Writes a word behind what it asked for, and frees in two ways: at last before it was
 * written. */
#include "../support/cuda.h"

CUresult cuMemsetD32_v2(CUdeviceptr, unsigned, size_t);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, CUstream);

int main(void) {
    CUdeviceptr at;
    CUstream stream;
    start_cuda();
    OK(cuMemAlloc_v2(&at, 1000));
    OK(cuMemsetD32_v2(at, 0, 250));
    OK(cuMemFree_v2(at));
    OK(cuMemAlloc_v2(&at, 2000));
    OK(cuMemsetD32_v2(at, 0, 501));
    OK(cuMemFree_v2(at));
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAllocAsync(&at, 3000, stream));
    OK(cuMemsetD32Async(at, 0, 751, stream));
    OK(cuMemFreeAsync(at, stream));
    return 0;
}
