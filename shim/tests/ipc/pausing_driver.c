/* A driver that tells who unmaps memory while it destroys a context, which it takes long for. */
#define _GNU_SOURCE
#include "../support/cuda.h"
#include <sys/prctl.h>
#include <unistd.h>

CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuMemUnmap(CUdeviceptr, size_t);

static volatile int ending;

CUresult cuCtxDestroy_v2(CUcontext context) {
    CUresult (*real)(CUcontext) = dlsym(RTLD_NEXT, "cuCtxDestroy_v2");
    ending = 1;
    usleep(2000000);
    ending = 0;
    return real(context);
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
    CUresult (*real)(CUdeviceptr, size_t) = dlsym(RTLD_NEXT, "cuMemUnmap");
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    fprintf(stderr, "%s unmaps%s\n", name, ending ? " while a context ends" : "");
    return real(at, bytes);
}
