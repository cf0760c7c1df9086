/* Random work in contexts that come and go, legal on a real GPU: primary ones that are
 * retained, released and reset, others, green ones. What is allocated in one is used and
 * freed in others, streams go with work on them, and what a context's end takes is gone.
 *
 *   contexts SEED OPERATIONS THREADS
 *
 * Each thread has contexts, streams and memory of its own, and its uses of the primary ones.
 * RANDOM_SHORT=1: an allocation may answer out-of-memory. */
#include "../support/cuda.h"
#include "../../../sim/include/memcuda_sim.h"
#include <pthread.h>

typedef void *Event;
struct green;
CUresult cuDeviceGetCount(int *);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuDeviceGetDevResource(CUdevice, void *, int);
CUresult cuDevResourceGenerateDesc(void **, const void *, unsigned);
CUresult cuGreenCtxCreate(struct green **, void *, CUdevice, unsigned);
CUresult cuGreenCtxDestroy(struct green *);
CUresult cuCtxFromGreenCtx(CUcontext *, struct green *);
CUresult cuEventCreate(Event *, unsigned);
CUresult cuEventDestroy_v2(Event);
CUresult cuEventRecord(Event, CUstream);
CUresult cuStreamWaitEvent(CUstream, Event, unsigned);

enum { NOT_PERMITTED = 800, DEVICES = 2, CONTEXTS = 6, STREAMS = 3, BLOCKS = 32, DONE = -1, NOBODY = -1 };
typedef enum { NONE, PRIMARY, OWN, VIEW } Kind;
typedef struct {
    Kind kind;
    int device;
    CUcontext handle;
    struct green *green;
    CUstream streams[STREAMS];
} Context;
typedef struct {
    CUdeviceptr at; /* 0: none */
    size_t bytes;
    int device, owner; /* the context that it ends with; NOBODY: the device's */
    int context, stream; /* its last use; DONE: known complete */
} Block;
typedef struct {
    uint64_t seed;
    long operations, allocations, ended, refused;
    size_t held;
    Context contexts[CONTEXTS]; /* the first ones: the primary of each device */
    Block blocks[BLOCKS];
} Thread;
#define EACH(t, b) for (Block *b = (t)->blocks; b < (t)->blocks + BLOCKS; b++) if (b->at != 0)

static int devices, threads;
static long operations_each;

static uint64_t pick(Thread *t, uint64_t below) {
    t->seed ^= t->seed << 13, t->seed ^= t->seed >> 7, t->seed ^= t->seed << 17;
    return (t->seed * 0x2545F4914F6CDD1Du >> 11) % below;
}
/* What a green context's memory and work are as well. */
static int whole(const Thread *t, int context) {
    return t->contexts[context].kind == VIEW ? t->contexts[context].device : context;
}
static CUstream enter(Thread *t, int context, int stream) {
    OK(cuCtxSetCurrent(t->contexts[context].handle));
    return t->contexts[context].streams[stream];
}
static int any_context(Thread *t, int device) {
    for (;;) {
        int i = pick(t, CONTEXTS);
        if (t->contexts[i].kind != NONE && (device < 0 || t->contexts[i].device == device)) return i;
    }
}

static void finish(Thread *t, Block *b) {
    if (b->context == DONE) return;
    int context = b->context, stream = b->stream;
    CUstream handle = enter(t, context, stream);
    OK(cuStreamSynchronize(handle));
    EACH(t, o) if (o->context == context && o->stream == stream) o->context = DONE;
}
/* All of a context's work, and of its views, was waited for. */
static void finished(Thread *t, int context) {
    EACH(t, b) if (b->context != DONE && (b->context == context || whole(t, b->context) == context)) b->context = DONE;
}
static void follow(Thread *t, Block *b, int context, int stream) {
    if (b->context != DONE && (b->context != context || b->stream != stream)) {
        Event event;
        CUstream before = enter(t, b->context, b->stream);
        OK(cuEventCreate(&event, 2));
        OK(cuEventRecord(event, before));
        OK(cuStreamWaitEvent(enter(t, context, stream), event, 0));
        OK(cuEventDestroy_v2(event));
    }
    b->context = context, b->stream = stream;
}
static void launch(Thread *t, Block *b) {
    CUsimRange range = {b->at, b->bytes, pick(t, 2)};
    OK(cuSimLaunch(enter(t, b->context, b->stream), &range, 1, 1.0 + pick(t, 1 << pick(t, 13))));
}
static void use(Thread *t, Block *b) {
    follow(t, b, any_context(t, b->device), pick(t, STREAMS));
    launch(t, b);
}
static Block given_up(Thread *t, Block *b) {
    Block old = *b;
    OK(cuSimRelease(b->at));
    t->held -= b->bytes;
    b->at = 0;
    return old;
}

static void allocate(Thread *t) {
    Block *b = t->blocks;
    while (b < t->blocks + BLOCKS && b->at != 0) b++;
    size_t magnitude = (size_t)1 << pick(t, 25);
    int context = any_context(t, -1), stream = pick(t, STREAMS), ordered = pick(t, 2), code;
    Block made = {.bytes = magnitude + pick(t, magnitude), .device = t->contexts[context].device};
    if (b == t->blocks + BLOCKS || t->held + made.bytes > 256 * MiB) return;
    CUstream handle = enter(t, context, stream);
    if (ordered) code = cuMemAllocAsync(&made.at, made.bytes, handle);
    else code = cuMemAlloc_v2(&made.at, made.bytes);
    if (code == OUT_OF_MEMORY && getenv("RANDOM_SHORT")) {
        t->refused++;
        return;
    }
    OK(code);
    made.owner = ordered ? NOBODY : whole(t, context);
    made.context = ordered ? context : DONE, made.stream = stream;
    OK(cuSimClaim(made.at, made.bytes, ordered ? handle : CU_SIM_ANY_STREAM));
    *b = made;
    t->held += made.bytes, t->allocations++;
    if (pick(t, 2)) use(t, b);
}
static void release(Thread *t, Block *b) {
    int context = any_context(t, b->device), stream = pick(t, STREAMS);
    if (pick(t, 2) || (b->owner != NOBODY && whole(t, context) != b->owner)) {
        /* The driver waits for the memory's context, and for no stream of a memory pool. */
        if (b->context != DONE && (b->owner == NOBODY || whole(t, b->context) != b->owner)) finish(t, b);
        Block old = given_up(t, b);
        enter(t, any_context(t, -1), 0);
        OK(cuMemFree_v2(old.at));
    } else {
        follow(t, b, context, stream);
        Block old = given_up(t, b);
        OK(cuMemFreeAsync(old.at, enter(t, context, stream)));
    }
}

static void make_streams(Thread *t, Context *c) {
    OK(cuCtxSetCurrent(c->handle));
    for (int i = 0; i < STREAMS; i++) OK(cuStreamCreate(&c->streams[i], c->kind == VIEW || pick(t, 2)));
}
static void begin(Thread *t, int i) {
    Context *c = &t->contexts[i];
    c->device = pick(t, devices), c->kind = pick(t, 2) ? OWN : VIEW;
    if (c->kind == OWN) {
        OK(cuCtxCreate_v2(&c->handle, 0, c->device));
    } else {
        char resource[152];
        void *description = NULL;
        OK(cuDeviceGetDevResource(c->device, resource, 1));
        OK(cuDevResourceGenerateDesc(&description, resource, 1));
        OK(cuGreenCtxCreate(&c->green, description, c->device, 1));
        OK(cuCtxFromGreenCtx(&c->handle, c->green));
    }
    make_streams(t, c);
}
/* What ends with a context: nobody uses it elsewhere. */
static void lose(Thread *t, int context) {
    EACH(t, b) {
        if (b->owner != context) continue;
        if (b->context != DONE && b->context != context) finish(t, b);
        given_up(t, b);
    }
}
static void end(Thread *t, int i) {
    Context *c = &t->contexts[i];
    enter(t, pick(t, 2) ? i : c->device, 0);
    t->ended++;
    if (c->kind == OWN) {
        lose(t, i);
        OK(cuCtxDestroy_v2(c->handle));
        finished(t, i);
    } else {
        EACH(t, b) if (b->context == i && pick(t, 2)) finish(t, b);
        OK(cuCtxSetCurrent(t->contexts[c->device].handle));
        OK(cuGreenCtxDestroy(c->green));
        /* Its streams answer nothing, the context behind it does. */
        int left = 0;
        EACH(t, b) left |= b->context == i;
        if (left) {
            OK(cuCtxSynchronize());
            finished(t, c->device);
        }
    }
    c->kind = NONE;
}
static void retain(Thread *t, int device) {
    Context *c = &t->contexts[device];
    c->kind = PRIMARY, c->device = device;
    OK(cuDevicePrimaryCtxRetain(&c->handle, device));
    make_streams(t, c);
}
/* The primary context ends where no other thread has it. */
static void cycle(Thread *t, int device) {
    CUcontext again;
    if (threads > 1) {
        OK(cuDevicePrimaryCtxRetain(&again, device));
        OK(cuDevicePrimaryCtxRelease_v2(device));
        return;
    }
    for (int i = devices; i < CONTEXTS; i++)
        if (t->contexts[i].kind == VIEW && t->contexts[i].device == device) {
            IS(NOT_PERMITTED, cuDevicePrimaryCtxReset_v2(device));
            end(t, i);
        }
    lose(t, device);
    /* A reset takes no retain away. */
    if (pick(t, 2)) OK(cuDevicePrimaryCtxReset_v2(device));
    OK(cuDevicePrimaryCtxRelease_v2(device));
    finished(t, device);
    t->ended++;
    retain(t, device);
}
static void change_stream(Thread *t) {
    int context = any_context(t, -1), stream = pick(t, STREAMS);
    Context *c = &t->contexts[context];
    EACH(t, b) if (b->context == context && b->stream == stream) follow(t, b, context, (stream + 1) % STREAMS);
    OK(cuStreamDestroy_v2(enter(t, context, stream)));
    OK(cuStreamCreate(&c->streams[stream], c->kind == VIEW || pick(t, 2)));
}

static void step(Thread *t) {
    uint64_t choice = pick(t, 1000);
    int slot = devices + pick(t, CONTEXTS - devices);
    if (choice < 20) t->contexts[slot].kind == NONE ? begin(t, slot) : end(t, slot);
    else if (choice < 24) cycle(t, pick(t, devices));
    else if (choice < 40) change_stream(t);
    else if (choice < 300) allocate(t);
    else {
        Block *b = &t->blocks[pick(t, BLOCKS)];
        if (b->at == 0) return;
        if (choice < 310) finish(t, b);
        else choice < 700 ? use(t, b) : release(t, b);
    }
}
static void *run(void *argument) {
    Thread *t = argument;
    for (int device = 0; device < devices; device++) retain(t, device);
    for (; t->operations < operations_each; t->operations++) step(t);
    EACH(t, b) release(t, b);
    for (int i = devices; i < CONTEXTS; i++)
        if (t->contexts[i].kind != NONE) end(t, i);
    /* Memory of one device may have been freed behind work of the other. */
    for (int device = 0; device < devices; device++) {
        OK(cuCtxSetCurrent(t->contexts[device].handle));
        OK(cuCtxSynchronize());
    }
    for (int device = 0; device < devices && threads == 1; device++) {
        CUmemoryPool pool;
        uint64_t held = 0;
        OK(cuCtxSetCurrent(t->contexts[device].handle));
        OK(cuDeviceGetDefaultMemPool(&pool, device));
        OK(cuMemPoolTrimTo(pool, 0));
        OK(cuSimPhysical(device, &held));
        CHECK(held == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    threads = atoi(argv[3]);
    operations_each = atol(argv[2]) / threads;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&devices));
    if (devices > DEVICES) devices = DEVICES;
    Thread *all = calloc(threads, sizeof *all), sum = {0};
    pthread_t *ids = calloc(threads, sizeof *ids);
    for (int i = 0; i < threads; i++) {
        all[i].seed = strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15u + 7919 * (i + 1);
        CHECK(pthread_create(&ids[i], NULL, run, &all[i]) == 0);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum.operations += all[i].operations, sum.allocations += all[i].allocations;
        sum.ended += all[i].ended, sum.refused += all[i].refused;
    }
    printf("operations %ld allocations %ld refused %ld contexts ended %ld\n",
           sum.operations, sum.allocations, sum.refused, sum.ended);
    return 0;
}
