/* Allocates 256 MiB at a time, by the calls that it is linked to ("linked") or by the runtime,
 * and says how often it was given any. */
#include "../support/cuda.h"

static int linked(void) {
    CUdeviceptr at;
    return cuMemAlloc_v2(&at, 256 * MiB);
}

static int by_runtime(void) {
    void *at;
    return cudaMalloc(&at, 256 * MiB);
}

int main(int argc, char **argv) {
    int is_linked = argc > 1 && strcmp(argv[1], "linked") == 0, count = 0;
    CUdevice device;
    if (is_linked) {
        start_cuda();
        OK(cuDeviceGet(&device, 0));
    }
    while ((is_linked ? linked() : by_runtime()) == 0) count++;
    printf("%d\n", count);
    return 0;
}
