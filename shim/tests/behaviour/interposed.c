/* Runs beside another preloaded library, in either order. */
#include "../support/cuda.h"
#include <unistd.h>

int main(int argc, char **argv) {
    CHECK(getppid() > 1000000);
    CUdeviceptr a;
    start_cuda();
    OK(cuMemAlloc_v2(&a, 8 * MiB));
    /* Whose dlsym comes first and asks libc leads past the library, which leaves all alone then. */
    CHECK(is_pooled(a) == !(argc > 1 && strcmp(argv[1], "past") == 0));
    OK(cuMemFree_v2(a));
    /* Each of two that stand in for cudaMalloc is asked once. */
    void *b;
    IS(0, cudaMalloc(&b, 8 * MiB));
    CHECK(*(const int *)dlsym(RTLD_DEFAULT, "allocated") == 1);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    /* Of two that stand in for dlsym, the first one answers. */
    if (argc > 1 && strcmp(argv[1], "first") == 0)
        CHECK(is_pooled((CUdeviceptr)b) && lies_in(dlsym(driver, "cuMemAlloc_v2"), "libmemcuda.so"));
    IS(0, cudaFree(b));
    /* What the first one does not stand in for reaches the second one. */
    const int *lookups = dlsym(RTLD_DEFAULT, "lookups");
    CHECK(lookups == NULL || *lookups > 0);
    return 0;
}
