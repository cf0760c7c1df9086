/* A library that is loaded at run time: uses CUDA by symbols that it links to
 * and by what it looks up. */
#include "../support/cuda.h"

/* Were these symbols found past the library? */
int is_past(void) { return !lies_in((void *)cuMemAlloc_v2, "libmemcuda.so"); }

/* By the scope that it was loaded into, in which there is no runtime. */
static void search(void) {
    dlerror();
    CHECK(dlsym(RTLD_DEFAULT, "cuMemFree_v2") != NULL && dlerror() == NULL);
    CHECK(is_past() || (dlsym(RTLD_DEFAULT, "cudaMalloc") == NULL && dlerror() != NULL));
}

/* 1 where the pool serves this library, 0 where the plain driver does. */
int linked(void) {
    CUdeviceptr a;
    search();
    start_cuda();
    OK(cuMemAlloc_v2(&a, 8 * MiB));
    int pooled = is_pooled(a);
    OK(cuMemFree_v2(a));
    return pooled;
}

int looked_up(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver != NULL);
    CUresult (*allocate)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))dlsym(driver, "cuMemAlloc_v2");
    CUresult (*release)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))dlsym(driver, "cuMemFree_v2");
    CHECK(allocate != NULL && release != NULL);
    CUdeviceptr a;
    start_cuda();
    OK(allocate(&a, 8 * MiB));
    int pooled = is_pooled(a);
    OK(release(a));
    return pooled;
}
