// Calls a library's functions of the driver's names, which load it (lazy.c).
#include <stdio.h>
#include <stddef.h>

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxSetCurrent(void* context);
int cuMemAlloc_v2(size_t* at, size_t bytes);

int main(void) {
    void* context = NULL;
    size_t at = 0;
    printf("%d", cuInit(0));
    printf(" %d", cuDevicePrimaryCtxRetain(&context, 0));
    printf(" %d", cuCtxSetCurrent(context));
    printf(" %d\n", cuMemAlloc_v2(&at, 4 << 20));
    return 0;
}
