/* Without a driver nothing of one can be found; who calls it all the same is told so. */
#include "../support/cuda.h"

#pragma weak cuMemAlloc_v2
#pragma weak cudaMalloc

static const char *const of_runtime[] = {
    "cudaMalloc", "cudaFree", "cudaGetDeviceCount", "cudaStreamIsCapturing",
    "cudaStreamSynchronize", "cudaGetDriverEntryPoint", "cudaGetDriverEntryPoint_ptsz",
    "cudaGetDriverEntryPointByVersion", "cudaGetDriverEntryPointByVersion_ptsz",
};

int main(void) {
    CHECK(dlopen("libcuda.so.1", RTLD_NOW) == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "cuInit") == NULL && dlerror() != NULL);
    CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
    CHECK(dlsym(RTLD_NEXT, "cuInit") == NULL && dlerror() != NULL);
    for (size_t i = 0; i < sizeof of_runtime / sizeof *of_runtime; i++)
        CHECK(!dlsym(RTLD_DEFAULT, of_runtime[i]) && !dlsym(RTLD_NEXT, of_runtime[i]));
    void *self = dlopen(NULL, RTLD_NOW);
    CHECK(dlsym(self, "cuInit") == NULL && dlsym(self, "cudaFree") == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "malloc") != NULL && dlsym(self, "main") == (void *)main);
    CUdeviceptr a;
    void *b;
    CHECK(dlerror() == NULL);
    IS(500, cuMemAlloc_v2(&a, 1));
    IS(35, cudaMalloc(&b, 1)); /* cudaErrorInsufficientDriver */
    CHECK(dlerror() == NULL);
    return 0;
}
