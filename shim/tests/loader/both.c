/* Reaches the driver by what it is linked to and by the runtime, with the same memory. */
#include "../support/cuda.h"

int main(void) {
    CUdeviceptr a;
    void *b;
    start_cuda();
    OK(cuMemAlloc_v2(&a, 20 * MiB));
    OK(cudaFree((void *)a));
    OK(cudaMalloc(&b, 20 * MiB));
    OK(cuMemFree_v2((CUdeviceptr)b));
    printf("same\n");
    return 0;
}
