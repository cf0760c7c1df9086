/* What is lent holds no number, from its first word to its last whole one, also where zeros
 * lay there before. A capture does not get the fill. */
#include "../support/cuda.h"

CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);

enum { RELAXED = 2 };

static void holds_no_number(CUdeviceptr at, size_t bytes) {
    static unsigned char all[8 * MiB];
    OK(cuMemcpyDtoH_v2(all, at, bytes));
    for (size_t i = 0; i < bytes / 4 * 4; i++) CHECK(all[i] == 0xFF);
    OK(cuMemsetD8_v2(at, 0, bytes));
}

int main(void) {
    size_t sizes[] = {1001, 6 * MiB + 6};
    CUstream stream;
    CUgraph graph;
    CUdeviceptr at;
    start_cuda();
    OK(cuStreamCreate(&stream, 0));
    for (int i = 0; i < 4; i++) {
        size_t bytes = sizes[i / 2];
        OK(cuMemAlloc_v2(&at, bytes));
        holds_no_number(at, bytes);
        OK(cuMemFree_v2(at));
        OK(cuMemAllocAsync(&at, bytes, stream));
        OK(cuStreamSynchronize(stream));
        holds_no_number(at, bytes);
        OK(cuMemFreeAsync(at, stream));
    }
    OK(cuStreamBeginCapture_v2(stream, RELAXED));
    OK(cuMemAlloc_v2(&at, 3 * MiB));
    OK(cuStreamEndCapture(stream, &graph));
    return 0;
}
