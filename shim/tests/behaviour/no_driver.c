/* Without a driver nothing of one can be found. */
#include "../support/cuda.h"

int main(void) {
    CHECK(dlopen("libcuda.so.1", RTLD_NOW) == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "cuInit") == NULL && dlerror() != NULL);
    CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "cudaMalloc") == NULL);
    void *self = dlopen(NULL, RTLD_NOW);
    CHECK(dlsym(self, "cuInit") == NULL && dlsym(self, "cudaFree") == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "malloc") != NULL && dlsym(self, "main") == (void *)main);
    return 0;
}
