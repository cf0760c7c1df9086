/* Memory whose copies are to be synchronous: its own context is told so. */
#include "../support/cuda.h"
#include <time.h>

typedef struct green *CUgreenCtx;
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxGetCurrent(CUcontext *);
CUresult cuCtxGetFlags(unsigned *);
CUresult cuCtxSetFlags(unsigned);
CUresult cuCtxFromGreenCtx(CUcontext *, CUgreenCtx);
CUresult cuGreenCtxCreate(CUgreenCtx *, void *, CUdevice, unsigned);
CUresult cuGreenCtxDestroy(CUgreenCtx);
CUresult cuGraphDestroy(CUgraph);
CUresult cuDeviceGetDevResource(CUdevice, void *, int);
CUresult cuDevResourceGenerateDesc(void **, const void *, unsigned);

enum { BLOCKING = 4, MAP_HOST = 8, SYNC_MEMOPS = 0x80 };
static const unsigned on = 1, off = 0;

/* Primary contexts have MAP_HOST. */
static unsigned flags(void) {
    unsigned flags = 0;
    OK(cuCtxGetFlags(&flags));
    return flags & ~MAP_HOST;
}

static int is_marked(CUdeviceptr at) {
    unsigned char marked = 0;
    OK(cuPointerGetAttribute(&marked, 6, at));
    return marked;
}

/* A context has the flag for as long as any of its memory is marked, and keeps its others. */
static void own(void) {
    CUcontext first, second;
    CUdeviceptr here, there;
    OK(cuCtxGetCurrent(&first));
    OK(cuMemAlloc_v2(&here, MiB));
    OK(cuCtxSetFlags(BLOCKING));
    OK(cuPointerSetAttribute(&on, 6, here));
    CHECK(flags() == (BLOCKING | SYNC_MEMOPS));
    OK(cuCtxCreate_v2(&second, 0, 0));
    OK(cuMemAlloc_v2(&there, MiB));
    CHECK(flags() == 0);
    OK(cuPointerSetAttribute(&on, 6, there));
    CHECK(flags() == SYNC_MEMOPS);
    OK(cuPointerSetAttribute(&off, 6, here));
    CHECK(flags() == SYNC_MEMOPS);
    OK(cuPointerSetAttribute(&off, 6, there));
    CHECK(flags() == 0);
    OK(cuCtxDestroy_v2(second));
    OK(cuCtxSetCurrent(first));
    CHECK(flags() == BLOCKING);
    OK(cuCtxSetFlags(0));
    OK(cuMemFree_v2(here));
}

/* To give the flag would end the capture: it comes when that is over. */
static void captured(void) {
    CUstream stream;
    CUgraph graph = NULL;
    CUdeviceptr here, there;
    OK(cuMemAlloc_v2(&here, MiB));
    OK(cuMemAlloc_v2(&there, MiB));
    OK(cuStreamCreate(&stream, 1));
    for (int way = 0; way < 3; way++) {
        OK(cuStreamBeginCapture_v2(stream, 1));
        OK(cuPointerSetAttribute(&on, 6, here));
        OK(cuPointerSetAttribute(&on, 6, there));
        CHECK(is_marked(here) && is_marked(there) && flags() == 0);
        OK(cuCtxSetFlags(BLOCKING));
        OK(cuPointerSetAttribute(&off, 6, there));
        if (way == 1) OK(cuPointerSetAttribute(&off, 6, here));
        CHECK(flags() == BLOCKING);
        if (way == 2) {
            OK(cuStreamDestroy_v2(stream));
        } else {
            OK(cuStreamEndCapture(stream, &graph));
            OK(cuGraphDestroy(graph));
        }
        CHECK(flags() == (way == 1 ? BLOCKING : (BLOCKING | SYNC_MEMOPS)));
        OK(cuPointerSetAttribute(&off, 6, here));
        CHECK(flags() == BLOCKING);
        OK(cuCtxSetFlags(0));
    }
    OK(cuMemFree_v2(here));
    OK(cuMemFree_v2(there));
}

/* When a view is gone its marks are the whole context's, and another view of its handle has
 * none. With its last view the context goes, and the marks. */
static void in_views(void) {
    CUcontext first, view;
    CUgreenCtx green;
    CUdeviceptr at[3], plain;
    char resource[4096];
    void *description = NULL;
    OK(cuCtxGetCurrent(&first));
    OK(cuDeviceGetDevResource(0, resource, 1));
    OK(cuDevResourceGenerateDesc(&description, resource, 1));
    for (int round = 0; round < 3; round++) {
        OK(cuGreenCtxCreate(&green, description, 0, 1));
        OK(cuCtxFromGreenCtx(&view, green));
        OK(cuCtxSetCurrent(view));
        OK(cuMemAlloc_v2(&at[round], MiB));
        CHECK(flags() == 0);
        OK(cuPointerSetAttribute(&on, 6, at[round]));
        CHECK(flags() == SYNC_MEMOPS);
        OK(cuCtxSetCurrent(first));
        if (round == 2) OK(cuDevicePrimaryCtxRelease_v2(0));
        OK(cuGreenCtxDestroy(green));
        if (round < 2) CHECK(flags() == SYNC_MEMOPS && is_marked(at[round]));
        if (round == 0) OK(cuPointerSetAttribute(&off, 6, at[0]));
        if (round == 0) CHECK(flags() == 0 && !is_marked(at[0]));
    }
    OK(cuDevicePrimaryCtxRetain(&first, 0));
    OK(cuCtxSetCurrent(first));
    OK(cuMemAlloc_v2(&plain, MiB));
    CHECK(flags() == 0 && !is_marked(plain));
    OK(cuMemFree_v2(plain));
}

/* What outlives its context stays marked; marked again it is the current one that is told. */
static void left_behind(void) {
    CUcontext first, second;
    CUdeviceptr gone, stays;
    OK(cuCtxGetCurrent(&first));
    for (int again = 0; again < 2; again++) {
        OK(cuCtxCreate_v2(&second, 0, 0));
        OK(cuMemAlloc_v2(&gone, MiB));
        OK(cuMemAllocAsync(&stays, MiB, NULL));
        OK(cuStreamSynchronize(NULL));
        OK(cuPointerSetAttribute(&on, 6, gone));
        OK(cuPointerSetAttribute(&on, 6, stays));
        OK(cuCtxDestroy_v2(second));
        OK(cuCtxSetCurrent(first));
        CHECK(flags() == 0 && is_marked(stays));
        if (again) OK(cuPointerSetAttribute(&on, 6, stays));
        CHECK(flags() == (again ? SYNC_MEMOPS : 0) && is_marked(stays));
        OK(cuMemFree_v2(stays));
        CHECK(flags() == 0);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* The time of a thousand allocations and their frees: the least of some, as others run too. */
static double pairs(void) {
    double least = 1e9;
    for (int round = 0; round < 5; round++) {
        double began = seconds();
        for (int i = 0; i < 1000; i++) {
            CUdeviceptr at;
            OK(cuMemAlloc_v2(&at, 4096));
            OK(cuMemFree_v2(at));
        }
        double took = seconds() - began;
        if (took < least) least = took;
    }
    return least;
}

/* Nobody pays for what others have marked. */
static void many(void) {
    enum { MANY = 20000 };
    static CUdeviceptr at[MANY];
    for (int i = 0; i < MANY; i++) OK(cuMemAlloc_v2(&at[i], 4096));
    OK(cuPointerSetAttribute(&on, 6, at[0]));
    double beside_one = pairs();
    for (int i = 1; i < MANY; i++) OK(cuPointerSetAttribute(&on, 6, at[i]));
    double beside_all = pairs();
    if (beside_all > 4 * beside_one) fprintf(stderr, "%g s, then %g s\n", beside_one, beside_all);
    CHECK(beside_all <= 4 * beside_one);
    for (int i = 0; i < MANY; i++) OK(cuMemFree_v2(at[i]));
    CHECK(flags() == 0);
}

/* Where contexts cannot have the flag nothing is marked. */
static void refused(void) {
    CUdeviceptr at;
    OK(cuMemAlloc_v2(&at, MiB));
    for (int time = 0; time < 2; time++) IS(801, cuPointerSetAttribute(&on, 6, at));
    CHECK(!is_marked(at));
    OK(cuPointerSetAttribute(&off, 6, at));
    OK(cuMemFree_v2(at));
}

int main(int count, char **words) {
    start_cuda();
    if (count > 1) {
        refused();
        return 0;
    }
    own();
    captured();
    in_views();
    left_behind();
    many();
    return 0;
}
