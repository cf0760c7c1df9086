/* How much is free, as engines ask that size their cache by it, and how much there is: in MiB. */
#include "../support/cuda.h"

static void say(const char *when) {
    size_t left = 0, total = 0;
    OK(cuMemGetInfo_v2(&left, &total));
    printf("%s: %zu of %zu\n", when, left / MiB, total / MiB);
}

int main(void) {
    CUdeviceptr at[8];
    int count = 0;
    start_cuda();
    say("at first");
    OK(cuMemAlloc_v2(&at[0], 256 * MiB));
    say("with 256");
    OK(cuMemFree_v2(at[0]));
    say("without");
    while (count < 8 && cuMemAlloc_v2(&at[count], 256 * MiB) == 0) count++;
    printf("%d times 256\n", count);
    say("full");
    return 0;
}
