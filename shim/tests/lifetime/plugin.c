/* A plugin that brings its own way to CUDA, as one with a static runtime does,
 * and takes it away again; or, SHARED, one that links to the runtime. */
#include "answers.h"

int use(void) {
#ifdef SHARED
    void *at = NULL;
    int status = 7;
    IS(0, cudaStreamIsCapturing(NULL, &status));
    IS(0, cudaMalloc(&at, 3 * MiB));
    IS(0, cudaFree(at));
#else
    CUdeviceptr at = 0;
    CUresult (*look_up)(const char *, void **, int, uint64_t, int *);
    CUresult (*allocate)(CUdeviceptr *, size_t), (*release)(CUdeviceptr);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver != NULL);
    look_up = (CUresult(*)(const char *, void **, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2");
    OK(look_up("cuMemAlloc", (void **)&allocate, 3020, 0, NULL));
    OK(look_up("cuMemFree", (void **)&release, 3020, 0, NULL));
    OK(allocate(&at, 3 * MiB));
    OK(release(at));
    CHECK(dlclose(driver) == 0);
#endif
    printf("%s was used\n", NAME);
    return 0;
}

__attribute__((destructor)) static void end(void) { printf("%s goes\n", NAME); }
