/* Runs on a driver that the library cannot use: everything is the driver's. */
#include "../support/cuda.h"

typedef CUresult (*allocate)(CUdeviceptr *, size_t);
typedef CUresult (*first_allocate)(unsigned *, unsigned);
typedef CUresult (*second_create)(CUcontext *, unsigned, CUdevice);
typedef CUresult (*third_create)(CUcontext *, void *, int, unsigned, CUdevice);
typedef CUresult (*release_in_order)(CUdeviceptr, CUstream);
typedef CUresult (*wait)(CUstream);

/* What is asked for by name is the form of that version and default stream, hooked as such. */
static void by_name(void) {
    void *found, *plain, *own, *same;
    CUcontext context;
    OK(cuGetProcAddress_v2("cuCtxCreate", &found, 3020, 0, NULL));
    CHECK(lies_in(found, "libmemcuda.so"));
    OK(((second_create)found)(&context, 1, 2));
    CHECK(context == (CUcontext)0x23);
    OK(cuGetProcAddress_v2("cuCtxCreate", &found, 12000, 2, NULL));
    CHECK(lies_in(found, "libmemcuda.so"));
    OK(((third_create)found)(&context, NULL, 3, 1, 2));
    CHECK(context == (CUcontext)0x36);
    OK(cuGetProcAddress_v2("cuMemFreeAsync", &plain, 12000, 0, NULL));
    OK(cuGetProcAddress_v2("cuMemFreeAsync", &own, 12000, 2, NULL));
    CHECK(lies_in(plain, "libmemcuda.so") && lies_in(own, "libmemcuda.so") && plain != own);
    IS(11, ((release_in_order)plain)(0x1005, NULL));
    IS(12, ((release_in_order)own)(0x1005, NULL));
    OK(cuGetProcAddress_v2_ptsz("cuMemFreeAsync", &same, 12000, 0, NULL));
    CHECK(same == own);
    /* Of each spelling it is the driver's own that is called. */
    OK(cuGetProcAddress_v2("cuStreamSynchronize", &plain, 13000, 0, NULL));
    OK(cuGetProcAddress_v2("cuStreamSynchronize", &own, 13000, 2, NULL));
    IS(13, ((wait)plain)(NULL));
    IS(14, ((wait)own)(NULL));
    /* What the driver does not find is not found. */
    IS(500, cuGetProcAddress_v2("cuMemFree", &found, 12000, 0, NULL));
    CHECK(found == NULL);
    int status = 0;
    OK(cuGetProcAddress_v2("cuMemFree", &found, 12000, 0, &status));
    CHECK(found == NULL && status == 1);
}

int main(void) {
    CUdeviceptr a = 0;
    unsigned old = 0;
    void *found = NULL, *later = NULL, *first = NULL;
    OK(cuInit(0));
    CHECK(dlerror() == NULL);
    /* Whoever needs that may bring a newer one. */
    CHECK(dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_NOLOAD) == NULL);
    /* Of what the library is not used for it says nothing more. */
    CHECK(dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW) != NULL);
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
    if (odd) by_name();
    puts(odd ? "odd" : "even");
    return 0;
}
