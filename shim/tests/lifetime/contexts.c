/* Several contexts of one device: whose memory goes with which. */
#include "answers.h"

enum { SMALL = 4096, LARGE = 6 * MiB };
static const unsigned on = 1, off = 0;

CUresult cuStreamBeginCapture_v2_ptsz(CUstream, int);
CUresult cuStreamEndCapture_ptsz(CUstream, CUgraph *);

struct pair { CUdeviceptr small, large; };

static struct pair allocate(unsigned value) {
    struct pair p = {0, 0};
    OK(cuMemAlloc_v2(&p.small, SMALL));
    OK(cuMemAlloc_v2(&p.large, LARGE));
    fill(p.small, SMALL, value);
    fill(p.large, LARGE, value);
    return p;
}

static void whole(const char *what, struct pair p, unsigned value) {
    printf("%s: whole %d %d\n", what, holds(p.small, SMALL, value), holds(p.large, LARGE, value));
}

static void gone(struct pair p) {
    unsigned long long value;
    SAY(cuPointerGetAttribute(&value, 11, p.small));
    SAY(cuPointerGetAttribute(&value, 11, p.large));
    SAY(cuMemFree_v2(p.small));
    SAY(cuMemFree_v2(p.large));
}

static void freed(struct pair p) {
    SAY(cuMemFree_v2(p.small));
    SAY(cuMemFree_v2(p.large));
}

static void *without_context(void *argument) {
    struct pair *p = argument;
    CUdeviceptr at = 0;
    size_t free_bytes, total;
    SAY(cuMemAlloc_v2(&at, LARGE));
    SAY(cuMemAllocAsync(&at, LARGE, NULL));
    SAY(cuMemFree_v2(p->large));
    SAY(cuMemFreeAsync(p->large, NULL));
    SAY(cuMemGetInfo_v2(&free_bytes, &total));
    SAY(cuPointerSetAttribute(&on, 6, p->small));
    SAY(cuPointerSetAttribute(&off, 6, p->small));
    SAY(cuPointerSetAttribute(&on, 7, p->small));
    return NULL;
}

static void destroyed(CUcontext primary) {
    CUcontext other = NULL;
    CUdeviceptr pooled = 0;
    struct pair own = allocate(1);
    SAY(cuCtxCreate_v2(&other, 0, 0));
    struct pair others = allocate(2);
    OK(cuMemAllocAsync(&pooled, LARGE, NULL));
    fill(pooled, LARGE, 3);
    OK(cuStreamSynchronize(NULL));
    SAY(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(primary));
    gone(others);
    whole("the first context's", own, 1);
    printf("the memory pool's: whole %d\n", holds(pooled, LARGE, 3));
    SAY(cuMemFree_v2(pooled));
    freed(own);
    /* The same once more, and the one of two uses that is given up last. */
    SAY(cuCtxCreate_v2(&other, 0, 0));
    others = allocate(4);
    SAY(cuCtxAttach(&other, 0));
    SAY(cuCtxDetach(other));
    whole("the attached context's", others, 4);
    SAY(cuCtxDetach(other));
    OK(cuCtxSetCurrent(primary));
    gone(others);
    /* And one that is current twice: what is left of it on the stack is no context. */
    SAY(cuCtxCreate_v2(&other, 0, 0));
    others = allocate(5);
    SAY(cuCtxPushCurrent_v2(other));
    SAY(cuCtxDetach(other));
    OK(cuCtxSetCurrent(primary));
    gone(others);
}

static void *destroys(void *context) {
    SAY(cuCtxDestroy_v2(context));
    return NULL;
}

/* A free tells that the context which is current has ended, whatever it is to free. */
static void freed_in_one_that_ended(CUcontext primary) {
    CUcontext other = NULL;
    CUdeviceptr pooled = 0;
    pthread_t thread;
    struct pair own = allocate(20);
    OK(cuMemAllocAsync(&pooled, LARGE, NULL));
    SAY(cuCtxCreate_v2(&other, 0, 0));
    CHECK(pthread_create(&thread, NULL, destroys, other) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    freed(own);
    SAY(cuMemFree_v2(pooled));
    SAY(cuMemFree_v2(own.small + 512));
    OK(cuCtxSetCurrent(primary));
    whole("the first context's, still", own, 20);
    freed(own);
    SAY(cuMemFree_v2(pooled));
}

static void crashed(CUcontext primary) {
    CUcontext other = NULL;
    CUdeviceptr at = 0, kept = 0;
    struct pair own = allocate(5);
    SAY(cuCtxCreate_v2(&other, 0, 0));
    OK(cuMemAllocAsync(&at, LARGE, NULL));
    OK(cuMemAllocAsync(&kept, LARGE, NULL));
    OK(cuMemFreeAsync(at, NULL));
    SAY(cuSimCrash(NULL));
    SAY(cuCtxSynchronize());
    SAY(cuMemFree_v2(kept));
    SAY(cuMemAlloc_v2(&at, SMALL));
    SAY(cuMemAllocAsync(&at, LARGE, NULL));
    OK(cuCtxSetCurrent(primary));
    /* All contexts of the device are lost, and come back by a reset. */
    SAY(cuMemAlloc_v2(&at, SMALL));
    SAY(cuMemAllocAsync(&at, LARGE, NULL));
    SAY(cuMemFree_v2(own.small));
    SAY(cuMemFree_v2(own.large));
    SAY(cuCtxSynchronize());
    SAY(cuCtxDestroy_v2(other));
    SAY(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    struct pair more = allocate(6);
    whole("after the reset of the broken one", more, 6);
    SAY(cuCtxCreate_v2(&other, 0, 0));
    struct pair others = allocate(7);
    whole("of another context then", others, 7);
    SAY(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(primary));
    freed(more);
}

static void reset(CUcontext *primary) {
    CUcontext other = NULL;
    CUdeviceptr pooled = 0;
    struct pair own = allocate(8);
    OK(cuMemAllocAsync(&pooled, LARGE, NULL));
    fill(pooled, LARGE, 9);
    OK(cuCtxCreate_v2(&other, 0, 0));
    struct pair others = allocate(10);
    for (int way = 0; way < 2; way++) {
        if (way == 0) {
            OK(cuCtxSetCurrent(*primary));
            SAY(cuDevicePrimaryCtxReset_v2(0));
            /* Nobody has it in a context that is gone. */
            SAY(cuMemFree_v2(pooled));
            SAY(cuMemFreeAsync(pooled, NULL));
        }
        if (way == 1) SAY(cuDevicePrimaryCtxRelease_v2(0));
        OK(cuCtxSetCurrent(other));
        gone(own);
        whole("the other context's", others, 10);
        printf("the memory pool's: whole %d\n", holds(pooled, LARGE, 9));
        OK(cuDevicePrimaryCtxRetain(primary, 0));
        OK(cuCtxSetCurrent(*primary));
        own = allocate(11);
        whole("the new context's", own, 11);
    }
    freed(own);
    SAY(cuMemFree_v2(pooled));
    OK(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(*primary));
    /* A crash, and the device is reset: it is whole again. */
    SAY(cuSimCrash(NULL));
    SAY(cuCtxSynchronize());
    SAY(cuMemAlloc_v2(&pooled, LARGE));
    SAY(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(primary, 0));
    OK(cuCtxSetCurrent(*primary));
    own = allocate(12);
    whole("after the reset", own, 12);
    freed(own);
}

static void *frees(void *at) {
    SAY(cuPointerSetAttribute(&on, 6, *(CUdeviceptr *)at));
    SAY(cuMemFree_v2(*(CUdeviceptr *)at));
    SAY(cuMemFree_v2(*(CUdeviceptr *)at));
    return NULL;
}

/* Memory of the memory pool whose context has ended is freed by a thread that has none: there is
 * another one, or none at all. */
static void orphaned(CUcontext *primary) {
    for (int way = 0; way < 2; way++) {
        CUcontext other = *primary;
        CUdeviceptr pooled = 0;
        pthread_t thread;
        if (way == 0) OK(cuCtxCreate_v2(&other, 0, 0));
        OK(cuMemAllocAsync(&pooled, HUGE, NULL));
        OK(cuStreamSynchronize(NULL));
        if (way == 0) SAY(cuCtxDestroy_v2(other));
        if (way == 1) SAY(cuDevicePrimaryCtxRelease_v2(0));
        CHECK(pthread_create(&thread, NULL, frees, &pooled) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        if (way == 1) OK(cuDevicePrimaryCtxRetain(primary, 0));
        OK(cuCtxSetCurrent(*primary));
        comes_back(HUGE);
    }
}

static void *captures(void *context) {
    OK(cuCtxSetCurrent(context));
    SAY(cuStreamBeginCapture_v2((CUstream)2, 2));
    return NULL;
}

/* A capture ends with its context, whoever began it: what is freed after it is lent. One
 * of a thread's own stream nobody can end once that thread is gone. */
static void captured(CUcontext primary) {
    CUcontext other = NULL;
    CUstream stream = NULL;
    pthread_t thread;
    SAY(cuCtxCreate_v2(&other, 0, 0));
    OK(cuStreamCreate(&stream, 1));
    SAY(cuStreamBeginCapture_v2(stream, 2));
    SAY(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(primary));
    comes_back(all_memory());
    SAY(cuCtxCreate_v2(&other, 0, 0));
    CHECK(pthread_create(&thread, NULL, captures, other) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(cuCtxSetCurrent(primary));
    comes_back(HUGE);
    SAY(cuCtxDestroy_v2(other));
    comes_back(all_memory());
}

/* Work goes on where its stream is destroyed; the handle is another one's, there and in another
 * context. */
static void recycled(CUcontext primary) {
    CUcontext other = NULL;
    CUstream stream = NULL, last = NULL;
    CUdeviceptr at = 0;
    OK(cuStreamCreate(&last, 1));
    for (int turn = 0; turn < 3; turn++) {
        if (turn == 2) OK(cuCtxCreate_v2(&other, 0, 0));
        OK(cuStreamCreate(&stream, 1));
        SAY(cuMemAllocAsync(&at, HUGE, stream));
        struct range range = {at, HUGE, 1};
        OK(cuSimLaunch(stream, &range, 1, 1e5));
        SAY(cuMemFreeAsync(at, stream));
        if (turn < 2) SAY(cuStreamDestroy_v2(stream));
    }
    OK(cuCtxSetCurrent(primary));
    SAY(cuMemAllocAsync(&at, HUGE - MiB, last));
    struct range range = {at, HUGE - MiB, 1};
    OK(cuSimLaunch(last, &range, 1, 1));
    SAY(cuMemFreeAsync(at, last));
    OK(cuStreamDestroy_v2(last));
    OK(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(primary));
}

/* A capture ends by its call, lost or not, and does not begin by one that fails: what is freed
 * then is lent. */
static void ended(void) {
    for (int way = 0; way < 4; way++) {
        CUstream stream = NULL;
        CUgraph graph = NULL;
        CUdeviceptr at = 0;
        OK(cuStreamCreate(&stream, 1));
        if (way == 2) SAY(cuStreamBeginCapture_v2_ptsz(NULL, 0));
        else SAY(cuStreamBeginCapture_v2(stream, way == 3 ? 9 : 0));
        if (way == 1) SAY(cuMemAlloc_v2(&at, SMALL));
        if (way == 2) SAY(cuStreamEndCapture_ptsz(NULL, &graph));
        else if (way != 3) SAY(cuStreamEndCapture(stream, &graph));
        comes_back(all_memory());
        SAY(cuStreamDestroy_v2(stream));
    }
}

struct beside { CUcontext context; CUstream stream; };

/* The capture of another thread goes on, whatever ends: nothing here may wait for the context. */
static void *ends_beside(void *argument) {
    struct beside *beside = argument;
    CUcontext other = NULL;
    CUgraph graph = NULL;
    CUdeviceptr at = 0;
    OK(cuCtxSetCurrent(beside->context));
    /* Of the threads' own default streams each has its own. */
    if (beside->stream == (CUstream)2) SAY(cuStreamBeginCapture_v2(beside->stream, 1));
    SAY(cuStreamEndCapture(beside->stream, &graph));
    SAY(cuCtxCreate_v2(&other, 0, 0));
    SAY(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(beside->context));
    SAY(cuMemAlloc_v2(&at, LARGE));
    SAY(cuMemFree_v2(at));
    return NULL;
}

static void not_ended(CUcontext primary) {
    for (int way = 0; way < 2; way++) {
        struct beside beside = {primary, (CUstream)2};
        CUgraph graph = NULL;
        pthread_t thread;
        if (way == 0) OK(cuStreamCreate(&beside.stream, 1));
        SAY(cuStreamBeginCapture_v2(beside.stream, 1));
        CHECK(pthread_create(&thread, NULL, ends_beside, &beside) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        SAY(cuStreamEndCapture(beside.stream, &graph));
        if (way == 0) OK(cuStreamDestroy_v2(beside.stream));
    }
}

/* A default stream cannot be destroyed: what it captures goes on. */
static void undestroyed(void) {
    CUgraph graph = NULL;
    CUdeviceptr at = 0;
    OK(cuMemAlloc_v2(&at, LARGE));
    SAY(cuStreamBeginCapture_v2((CUstream)2, 2));
    SAY(cuStreamDestroy_v2((CUstream)2));
    SAY(cuStreamDestroy_v2(NULL));
    SAY(cuMemFree_v2(at));
    SAY(cuStreamEndCapture((CUstream)2, &graph));
}

/* Any other one can be, and its capture is over. */
static void over_with_its_stream(void) {
    CUstream stream = NULL;
    CUdeviceptr at = 0;
    OK(cuStreamCreate(&stream, 1));
    SAY(cuStreamBeginCapture_v2(stream, 0));
    SAY(cuStreamDestroy_v2(stream));
    SAY(cuMemAlloc_v2(&at, LARGE));
    SAY(cuMemFree_v2(at));
    SAY(cuCtxDestroy_v2(NULL));
}

int main(void) {
    CUcontext primary = NULL;
    pthread_t thread;
    start_cuda();
    OK(cuCtxGetCurrent(&primary));
    struct pair held = allocate(20);
    CHECK(pthread_create(&thread, NULL, without_context, &held) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    freed(held);
    undestroyed();
    over_with_its_stream();
    recycled(primary);
    ended();
    not_ended(primary);
    for (int round = 0; round < 2; round++) {
        destroyed(primary);
        freed_in_one_that_ended(primary);
        crashed(primary);
        captured(primary);
        reset(&primary);
        orphaned(&primary);
    }
    return 0;
}
