/* A driver that tells who unmaps memory while it destroys a context, which it takes long for, and
 * which it destroys while it is current where memory is unmapped. */
#define _GNU_SOURCE
#include "../support/cuda.h"
#include <sys/prctl.h>
#include <unistd.h>

CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuMemUnmap(CUdeviceptr, size_t);

static volatile int ending;
static volatile CUcontext unmapping;

/* Is memory being unmapped, with a context current? */
int is_unmapping(void) { return unmapping != NULL; }

CUresult cuCtxDestroy_v2(CUcontext context) {
    CUresult (*real)(CUcontext) = dlsym(RTLD_NEXT, "cuCtxDestroy_v2");
    if (unmapping == context) fprintf(stderr, "a context ends that is current where memory is unmapped\n");
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
    CUresult (*ask)(CUcontext *) = dlsym(RTLD_NEXT, "cuCtxGetCurrent");
    CUcontext current = NULL;
    OK(ask(&current));
    unmapping = current;
    usleep(100000);
    CUresult code = real(at, bytes);
    unmapping = NULL;
    return code;
}
