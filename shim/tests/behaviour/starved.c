/* The kernel gives this process no more memory once CUDA has started: what malloc has left is all. */
#include "../support/cuda.h"
#include <stdlib.h>
#include <sys/resource.h>

enum { MOST = 3000 };

int main(void) {
    static CUdeviceptr all[MOST];
    struct rlimit none = {1 << 20, 1 << 20};
    int pooled = 0, count = 0;
    start_cuda();
    OK(cuMemAlloc_v2(&all[0], 8 * MiB));
    OK(cuMemFree_v2(all[0]));
    if (setrlimit(RLIMIT_DATA, &none)) return 1;
    if (malloc(64 * MiB)) return 2;
    /* Not many more than it takes: the simulated GPU has no more memory of the host either. */
    while (count < MOST && pooled == count) {
        OK(cuMemAllocAsync(&all[count], (count % 30 + 1) * 1000, NULL));
        pooled += is_pooled(all[count++]);
    }
    for (int i = 0; i < count; i++) OK(cuMemFreeAsync(all[i], NULL));
    puts(pooled == 0 ? "none pooled" : pooled < count ? "some pooled" : "all pooled");
    return 0;
}
