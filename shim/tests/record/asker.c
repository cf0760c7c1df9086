/* A library that asks for memory, so many calls deep: by the runtime and by the
 * driver in turns. */
#include "../support/cuda.h"

int cudaMallocAsync(void **at, size_t bytes, CUstream on);
int cudaFreeAsync(void *at, CUstream on);

int pair(long depth, CUstream on) {
    volatile char room[64];
    room[depth % 64] = 1;
    int code = 0;
    if (depth > 0) {
        code = pair(depth - 1, on);
    } else {
        CUdeviceptr at;
        void *other;
        if ((code = cuMemAllocAsync(&at, 4096, on)) == 0) code = cuMemFreeAsync(at, on);
        if (code == 0 && (code = cudaMallocAsync(&other, 4096, on)) == 0) code = cudaFreeAsync(other, on);
    }
    return code + room[depth % 64] - 1;
}
