/* Green contexts: views of the primary one, with streams of their own. What was in
 * one is the primary one's when it is gone.
 *
 *   views        contexts end
 *   views stay   the first end of each fails (injected)
 *   views stop   the library stops while a view ends (a panic that is planted) */
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
static void writes(CUstream stream, CUdeviceptr at, size_t bytes) {
    struct range range = {at, bytes, 1};
    OK(cuSimLaunch(stream, &range, 1, 1000.0));
}

/* Whoever gets such an allocation next may use it on any stream. */
static void use_again(CUstream stream, size_t bytes) {
    CUdeviceptr at = 0;
    OK(cuMemAlloc_v2(&at, bytes));
    writes(stream, at, bytes);
    SAY(cuMemFree_v2(at));
}

/* Memory is the primary context's, also while a view is current. */
static void belongs(CUdeviceptr at, CUcontext primary) {
    CUcontext context = NULL;
    SAY(cuPointerGetAttribute(&context, 1, at));
    printf("the primary context's: %d\n", context == primary);
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
    belongs(small, primary);
    belongs(large, primary);
    OK(cuCtxSetCurrent(primary));
    SAY(cuGreenCtxDestroy(v.green));
    belongs(small, primary);
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
            OK(cuMemAllocAsync(&at, HUGE, v.stream));
            writes(v.stream, at, HUGE);
            SAY(cuMemFreeAsync(at, v.stream));
            SAY(cuGreenCtxDestroy(v.green));
            use_again(stream, HUGE);
            SAY(cuStreamSynchronize(v.stream));
            SAY(cuStreamDestroy_v2(v.stream));
            continue;
        }
        if (way == 3) OK(cuCtxSetCurrent(v.context));
        OK(cuMemAlloc_v2(&at, LARGE));
        writes(way == 1 ? v.stream : stream, at, LARGE);
        OK(cuCtxSetCurrent(way == 1 ? primary : v.context));
        SAY(cuMemFree_v2(at));
        use_again(way == 1 ? stream : v.stream, LARGE);
        OK(cuCtxSetCurrent(primary));
        SAY(cuGreenCtxDestroy(v.green));
    }
}

/* A stream's whole life in a view. */
static void lived(CUstream stream) {
    struct view v = view();
    CUdeviceptr at = 0, others = 0;
    CUgraph graph = NULL;
    OK(cuMemAllocAsync(&others, LARGE, stream));
    OK(cuStreamSynchronize(stream));
    writes(v.stream, others, LARGE);
    SAY(cuMemFreeAsync(others, v.stream));
    use_again(stream, LARGE);
    SAY(cuMemAllocAsync(&at, HUGE, v.stream));
    writes(v.stream, at, HUGE);
    SAY(cuMemFreeAsync(at, v.stream));
    use_again(stream, HUGE);
    SAY(cuStreamBeginCapture_v2(v.stream, 0));
    SAY(cuStreamEndCapture(v.stream, &graph));
    SAY(cuStreamDestroy_v2(v.stream));
    SAY(cuGreenCtxDestroy(v.green));
}

/* A capture ends with the view: what is freed after it is lent. */
static void captured(void) {
    struct view v = view();
    SAY(cuStreamBeginCapture_v2(v.stream, 2));
    SAY(cuGreenCtxDestroy(v.green));
    comes_back(all_memory());
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

/* The end of a context fails, the end of a view as well: they go on as before. */
static void stay(CUcontext primary) {
    CUcontext other = NULL;
    CUstream stream = NULL, others = NULL;
    CUdeviceptr at = 0, kept = 0;
    use_again(NULL, SMALL);
    OK(cuStreamCreate(&stream, 1));
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuStreamCreate(&others, 1));
    OK(cuMemAlloc_v2(&kept, LARGE));
    fill(kept, LARGE, 5);
    SAY(cuCtxDestroy_v2(other));
    printf("whole: %d\n", holds(kept, LARGE, 5));
    OK(cuCtxSetCurrent(primary));
    struct view v = view();
    SAY(cuGreenCtxDestroy(v.green));
    for (int way = 0; way < 2; way++) {
        CUstream on = way == 0 ? others : v.stream;
        SAY(cuMemAllocAsync(&at, HUGE, on));
        writes(on, at, HUGE);
        SAY(cuMemFreeAsync(at, on));
        use_again(stream, HUGE);
    }
    SAY(cuGreenCtxDestroy(v.green));
    SAY(cuCtxDestroy_v2(other));
}

/* Nobody waits for the end of a view whose end was not heard. */
static void stop(CUcontext primary) {
    struct view v = view();
    CUdeviceptr at = 0;
    alarm(60);
    OK(cuCtxSetCurrent(v.context));
    SAY(cuMemAlloc_v2(&at, LARGE));
    OK(cuCtxSetCurrent(primary));
    SAY(cuGreenCtxDestroy(v.green));
    SAY(cuMemFree_v2(at));
}

int main(int count, char **words) {
    CUcontext primary = NULL;
    CUstream stream = NULL;
    start_cuda();
    OK(cuCtxGetCurrent(&primary));
    if (count > 1 && strcmp(words[1], "stay") == 0) {
        stay(primary);
        return 0;
    }
    if (count > 1 && strcmp(words[1], "stop") == 0) {
        stop(primary);
        return 0;
    }
    for (int round = 0; round < 2; round++) {
        OK(cuStreamCreate(&stream, 1));
        lived(stream);
        freed(primary, stream);
        outlived(primary);
        captured();
        last(&primary);
    }
    return 0;
}
