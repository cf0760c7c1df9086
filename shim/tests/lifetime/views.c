/* Green contexts: views of the primary one, with streams of their own. What was in
 * one is the primary one's when it is gone. */
#include "answers.h"

typedef struct green *CUgreenCtx;
CUresult cuGreenCtxCreate(CUgreenCtx *, void *, CUdevice, unsigned);
CUresult cuGreenCtxDestroy(CUgreenCtx);
CUresult cuGreenCtxStreamCreate(CUstream *, CUgreenCtx, unsigned, int);
CUresult cuCtxFromGreenCtx(CUcontext *, CUgreenCtx);

enum { SMALL = 4096, LARGE = 6 * MiB };

struct view { CUgreenCtx green; CUcontext context; CUstream stream; };

static struct view view(void) {
    struct resource resource;
    struct view v;
    void *description = NULL;
    OK(cuDeviceGetDevResource(0, &resource, 1));
    OK(cuDevResourceGenerateDesc(&description, &resource, 1));
    OK(cuGreenCtxCreate(&v.green, description, 0, 1));
    OK(cuCtxFromGreenCtx(&v.context, v.green));
    OK(cuGreenCtxStreamCreate(&v.stream, v.green, 1, 0));
    return v;
}

/* A kernel of a millisecond. */
static void writes(CUstream stream, CUdeviceptr at) {
    struct range range = {at, LARGE, 1};
    OK(cuSimLaunch(stream, &range, 1, 1000.0));
}

/* Whoever gets such an allocation next may use it on any stream. */
static void use_again(CUstream stream) {
    CUdeviceptr at = 0;
    OK(cuMemAlloc_v2(&at, LARGE));
    writes(stream, at);
    SAY(cuMemFree_v2(at));
}

static void outlived(CUcontext primary) {
    CUdeviceptr small = 0, large = 0, ordered = 0;
    struct view v = view();
    OK(cuCtxSetCurrent(v.context));
    SAY(cuMemAlloc_v2(&small, SMALL));
    SAY(cuMemAlloc_v2(&large, LARGE));
    SAY(cuMemAllocAsync(&ordered, LARGE, v.stream));
    fill(small, SMALL, 1);
    fill(large, LARGE, 2);
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(primary));
    SAY(cuGreenCtxDestroy(v.green));
    printf("whole: %d %d\n", holds(small, SMALL, 1), holds(large, LARGE, 2));
    fill(ordered, LARGE, 3);
    SAY(cuMemFree_v2(small));
    SAY(cuMemFree_v2(large));
    SAY(cuMemFree_v2(ordered));
    SAY(cuStreamDestroy_v2(v.stream));
}

/* Freed while work runs: in the view's order, in the primary context for a use in the view, and the
 * other way round, also of what was made in the view. */
static void freed(CUcontext primary, CUstream stream) {
    for (int way = 3; way >= 0; way--) {
        CUdeviceptr at = 0;
        struct view v = view();
        if (way == 0) {
            OK(cuMemAllocAsync(&at, LARGE, v.stream));
            writes(v.stream, at);
            SAY(cuMemFreeAsync(at, v.stream));
            SAY(cuGreenCtxDestroy(v.green));
            SAY(cuStreamSynchronize(v.stream));
            SAY(cuStreamDestroy_v2(v.stream));
            use_again(stream);
            continue;
        }
        if (way == 3) OK(cuCtxSetCurrent(v.context));
        OK(cuMemAlloc_v2(&at, LARGE));
        writes(way == 1 ? v.stream : stream, at);
        OK(cuCtxSetCurrent(way == 1 ? primary : v.context));
        SAY(cuMemFree_v2(at));
        use_again(way == 1 ? stream : v.stream);
        OK(cuCtxSetCurrent(primary));
        SAY(cuGreenCtxDestroy(v.green));
    }
}

/* A capture ends with the view: what is freed after it is lent. Each is more than half of the
 * device. */
static void captured(void) {
    struct view v = view();
    CUdeviceptr at = 0;
    SAY(cuStreamBeginCapture_v2(v.stream, 2));
    SAY(cuGreenCtxDestroy(v.green));
    for (size_t part = 0; part < 4; part++) {
        SAY(cuMemAlloc_v2(&at, (9000 + part) * MiB));
        SAY(cuMemFree_v2(at));
    }
}

/* The primary context ends with its last view. */
static void last(CUcontext *primary) {
    struct view v = view();
    CUdeviceptr at = 0;
    SAY(cuMemAlloc_v2(&at, LARGE));
    SAY(cuDevicePrimaryCtxRelease_v2(0));
    fill(at, LARGE, 4);
    printf("whole: %d\n", holds(at, LARGE, 4));
    SAY(cuGreenCtxDestroy(v.green));
    OK(cuDevicePrimaryCtxRetain(primary, 0));
    OK(cuCtxSetCurrent(*primary));
    SAY(cuMemFree_v2(at));
    SAY(cuGreenCtxDestroy(v.green));
}

int main(void) {
    CUcontext primary = NULL;
    CUstream stream = NULL;
    start_cuda();
    OK(cuCtxGetCurrent(&primary));
    for (int round = 0; round < 2; round++) {
        OK(cuStreamCreate(&stream, 1));
        outlived(primary);
        freed(primary, stream);
        captured();
        last(&primary);
    }
    return 0;
}
