/* What cuMemGetInfo says is free can be had as one allocation, whatever lies between the blocks
 * that are left: of 3 MiB every second one, of 1.9 MiB every second one, of 100 KiB each eighth. */
#include "../support/cuda.h"

static CUdeviceptr blocks[8192];

static void leave(size_t bytes, int each) {
    int count = 0;
    while (count < 8192 && cuMemAlloc_v2(&blocks[count], bytes) == 0) count++;
    CHECK(count > 100);
    for (int i = 0; i < count; i++)
        if (i % each) OK(cuMemFree_v2(blocks[i]));
    size_t left, total;
    OK(cuMemGetInfo_v2(&left, &total));
    CUdeviceptr all;
    if (left >= 2 * MiB) {
        OK(cuMemAlloc_v2(&all, left));
        OK(cuMemFree_v2(all));
    }
    for (int i = 0; i < count; i += each) OK(cuMemFree_v2(blocks[i]));
    /* Nothing is kept back. */
    size_t whole;
    OK(cuMemGetInfo_v2(&whole, &total));
    CHECK(whole > left);
    OK(cuMemAlloc_v2(&all, whole));
    OK(cuMemFree_v2(all));
}

int main(void) {
    start_cuda();
    leave(3 * MiB, 2);
    leave(19 * MiB / 10, 2);
    leave(100 << 10, 8);
    return 0;
}
