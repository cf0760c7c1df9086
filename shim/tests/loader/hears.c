/* HEARS: a library that the program is linked to and that hears of frees in a cuMemFree and a
 * cudaFree of its own, under a lock, before it calls the real ones: MPICH 3.4 to 4.3.0. It finds
 * those in the driver and the runtime, with NEXT behind itself, with ANY it takes what the process
 * has if that is another's; with OLD it calls what the driver has for programs of CUDA 3, which
 * refuses. With ALLOCATES it is a copy of the driver for
 * linking, which answers nothing. USER: a library that frees for the program. PROGRAM: that one.
 * LOADS: one that loads what it is told, for everybody what has a + before it, and
 * frees by way of a USER. Else a library that only needs others. */
#include "../support/cuda.h"

#if defined(HEARS)
/* Of which frees it heard, and how many of them were refused. */
int heard, refused;
static int is_locked;

static void lock(void) {
    if (is_locked++) {
        fprintf(stderr, "called itself\n");
        exit(2);
    }
    heard++;
}

#define OWN(function) \
    extern __typeof(function) own_##function __attribute__((alias(#function), visibility("hidden")))
OWN(cuMemFree_v2);
OWN(cudaFree);

static void *real(const char *file, const char *name, void *own) {
#if defined(NEXT)
    (void)file, (void)own;
    return dlsym(RTLD_NEXT, name);
#elif defined(ANY)
    (void)file;
    void *found = dlsym(RTLD_DEFAULT, name);
    return found == own ? dlsym(RTLD_NEXT, name) : found;
#else
    (void)own;
    return dlsym(dlopen(file, RTLD_LAZY | RTLD_GLOBAL), name);
#endif
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    lock();
#ifdef OLD
    (void)address;
    CUresult code = 201;
#else
    void *found = real("libcuda.so.1", "cuMemFree_v2", own_cuMemFree_v2);
    CUresult code = ((CUresult(*)(CUdeviceptr))found)(address);
#endif
    is_locked = 0;
    refused += code != 0;
    return code;
}

int cudaFree(void *address) {
    lock();
    void *found = real("libcudart.so.13", "cudaFree", own_cudaFree);
    int code = ((int (*)(void *))found)(address);
    is_locked = 0;
    return code;
}

#ifdef ALLOCATES
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    lock();
    return *address = bytes, 34;
}
#endif
#elif defined(USER)
/* What it refers to itself a program that it is linked to may find in what it needs. */
const void *const refers[] = {cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemAlloc_v2,
                              cuMemFree_v2, cuPointerGetAttribute, cudaMalloc};

int malloc_it(void **address, size_t bytes) {
    int code = cudaMalloc(address, bytes);
    return code;
}

int free_it(void *address) {
    int code = cudaFree(address);
    return code;
}
#elif defined(LOADS)
int main(int count, char **arguments) {
    int *heard = NULL, (*malloc_it)(void **, size_t) = NULL, (*free_it)(void *) = NULL;
    for (int i = 1; i < count; i++) {
        int for_all = *arguments[i] == '+';
        int flags = RTLD_NOW | (for_all ? RTLD_GLOBAL : 0);
        void *library = dlopen(arguments[i] + for_all, flags);
        CHECK(library != NULL);
        if (heard == NULL) heard = dlsym(library, "heard");
        free_it = dlsym(library, "free_it");
        malloc_it = dlsym(library, "malloc_it");
    }
    void *a;
    OK(malloc_it(&a, 8 * MiB));
    int code = free_it(a);
    printf("%d, heard %d\n", code, *heard);
    return 0;
}
#elif defined(PROGRAM)
int free_it(void *address);

static int *heard, *refused;

static void say(const char *what, CUresult (*free)(CUdeviceptr), CUdeviceptr address) {
    CUresult first = free(address), again = free(address);
    printf("%s %d %d, heard %d, refused %d\n", what, first, again, *heard, *refused);
}

static CUresult directly(CUdeviceptr address) {
    CUresult code = cuMemFree_v2(address);
    return code;
}

int main(int count, char **arguments) {
    CUdeviceptr a[3];
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    heard = dlsym(RTLD_DEFAULT, "heard");
    refused = dlsym(RTLD_DEFAULT, "refused");
    start_cuda();
    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc_v2(&a[i], 8 * MiB));
    if (count > 1 && strcmp(arguments[1], "pooled") == 0)
        CHECK(is_pooled(a[0]));
    say("directly", directly, a[0]);
    say("found", dlsym(RTLD_DEFAULT, "cuMemFree_v2"), a[1]);
    say("in the driver", dlsym(driver, "cuMemFree_v2"), a[2]);
#ifdef WITH_RUNTIME
    void *b;
    OK(cudaMalloc(&b, 8 * MiB));
    int code = free_it(b);
    printf("by the runtime %d, heard %d\n", code, *heard);
#endif
    return 0;
}
#endif
