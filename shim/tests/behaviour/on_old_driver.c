/* Runs on a driver that the library cannot use: everything is the driver's. */
#include "../support/cuda.h"

typedef CUresult (*allocate)(CUdeviceptr *, size_t);
typedef CUresult (*first_allocate)(unsigned *, unsigned);

int main(void) {
    CUdeviceptr a = 0;
    unsigned old = 0;
    void *found = NULL, *later = NULL, *first = NULL;
    OK(cuInit(0));
    OK(cuMemAlloc_v2(&a, 5));
    CHECK(a == 0x1005);
    OK(cuMemFree_v2(a));
    IS(1, cuMemFree_v2(7));

    OK(cuGetProcAddress_v2("cuMemAlloc", &found, 3020, 0, NULL));
    CHECK(lies_in(found, "libmemcuda.so"));
    OK(((allocate)found)(&a, 5));
    CHECK(a == 0x1005 || a == 0x2005);
    int odd = a == 0x2005;

    /* The first signature is not the one that is hooked, and of a later CUDA
     * it is not known where the functions differ. */
    OK(cuGetProcAddress_v2("cuMemAlloc", &first, 2000, 0, NULL));
    CHECK(!lies_in(first, "libmemcuda.so"));
    OK(((first_allocate)first)(&old, 5));
    CHECK(old == 0x3005);
    OK(cuGetProcAddress_v2("cuMemAlloc", &later, 99000, 0, NULL));
    CHECK(lies_in(later, "libmemcuda.so") == !odd);
    puts(odd ? "odd" : "even");
    return 0;
}
