/* Writes a word behind what it asked for, and frees in two ways: at last before it was
 * written. Beside a capture nothing is written there or read, and the capture goes on. */
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

    CUstream blocking;
    CUgraph graph;
    CUdeviceptr before, within;
    OK(cuStreamCreate(&blocking, 0));
    OK(cuMemAlloc_v2(&before, 1000));
    OK(cuStreamBeginCapture_v2(blocking, 2));
    OK(cuMemAlloc_v2(&within, 5000));
    OK(cuMemFree_v2(before));
    OK(cuStreamEndCapture(blocking, &graph));
    OK(cuMemFree_v2(within));
    return 0;
}
