/* A process that may have few addresses more: with its first allocations it has most of them still, and
 * can allocate what the device has. */
#include "../support/cuda.h"
#include <sys/mman.h>
#include <sys/resource.h>

static const size_t GiB = 1ul << 30;

/* Those that the process has. */
static size_t addresses(void) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%zu", &pages) != 1) exit(1);
    fclose(file);
    return pages * 4096;
}

static int can_map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at != MAP_FAILED && !munmap(at, bytes);
}

int main(void) {
    CUdeviceptr first, large;
    start_cuda();
    size_t most = addresses() + 100 * GiB;
    struct rlimit few = {most, most};
    if (setrlimit(RLIMIT_AS, &few)) return 1;
    OK(cuMemAlloc_v2(&first, 8 * MiB));
    printf("60 GiB more: %s\n", can_map(60 * GiB) ? "yes" : "no");
    OK(cuMemAlloc_v2(&large, 15 * GiB));
    printf("then: %s, %s\n", can_map(30 * GiB) ? "yes" : "no", is_pooled(large) ? "pooled" : "plain");
    return 0;
}
