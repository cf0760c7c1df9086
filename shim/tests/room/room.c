/* Calls that take memory beside the pool, while the pool sits on all there is.
 *
 *   room full      the device is full of idle memory: every call that takes some succeeds
 *   room CALL      CALL answers out-of-memory once (injected); the second try succeeds
 *   room capture   the same during a capture, which survives
 *   room node      a node of a graph that is refused (injected) is not asked for again
 *   room shaken    calls fail while room is made: out of memory is all that may come of it
 *   room waited    a free during a capture, on a full device: it waits by memory of the host
 *   room unwaited  a free during a capture that cannot wait: its memory is waited for later
 *   room pending   what is still in use is waited for, and never for ever
 */
#include "../support/cuda.h"
#include <time.h>
#include <unistd.h>

#define DEVICE (1024 * MiB)

struct properties {
    int kind, handle_types, location, device;
    void *windows;
    unsigned char flags[8];
};
struct array { size_t width, height; unsigned format, channels; };
struct array3d { size_t width, height, depth; unsigned format, channels, flags; };
struct access { int location, device, flags; };
struct range { CUdeviceptr base; size_t bytes; uint32_t write; };
typedef unsigned long long Handle;

CUresult cuMemCreate(Handle *, size_t, const struct properties *, unsigned long long);
CUresult cuMemRelease(Handle);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, Handle, unsigned long long);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const struct access *, size_t);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuArrayCreate_v2(void **, const struct array *);
CUresult cuArray3DCreate_v2(void **, const struct array3d *);
CUresult cuArrayDestroy(void *);
CUresult cuMipmappedArrayCreate(void **, const struct array3d *, unsigned);
CUresult cuMipmappedArrayDestroy(void *);
CUresult cuModuleLoad(void **, const char *);
CUresult cuModuleLoadData(void **, const void *);
CUresult cuModuleLoadDataEx(void **, const void *, unsigned, int *, void **);
CUresult cuModuleUnload(void *);
CUresult cuModuleGetFunction(void **, void *, const char *);
CUresult cuFuncLoad(void *);
CUresult cuLibraryLoadData(void **, const void *, int *, void **, unsigned, int *, void **, unsigned);
CUresult cuLibraryLoadFromFile(void **, const char *, int *, void **, unsigned, int *, void **, unsigned);
CUresult cuLibraryUnload(void *);
CUresult cuLibraryGetModule(void **, void *);
CUresult cuLibraryGetKernel(void **, void *, const char *);
CUresult cuKernelGetFunction(void **, void *);
CUresult cuCtxCreate(CUcontext *, unsigned, CUdevice);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxCreate_v3(CUcontext *, void *, int, unsigned, CUdevice);
CUresult cuCtxCreate_v4(CUcontext *, void *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxGetCurrent(CUcontext *);
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuCtxSetLimit(int, size_t);
CUresult cuStreamCreateWithPriority(CUstream *, unsigned, int);
CUresult cuDeviceGetDevResource(CUdevice, void *, int);
CUresult cuDevResourceGenerateDesc(void **, const void *, unsigned);
CUresult cuGreenCtxCreate(void **, void *, CUdevice, unsigned);
CUresult cuGreenCtxStreamCreate(CUstream *, void *, unsigned, int);
CUresult cuGraphInstantiate_v2(void **, CUgraph, void *, char *, size_t);
CUresult cuGraphInstantiateWithFlags(void **, CUgraph, unsigned long long);
CUresult cuGraphInstantiateWithParams(void **, CUgraph, void *);
CUresult cuGraphUpload(void *, CUstream);
CUresult cuGraphUpload_ptsz(void *, CUstream);
CUresult cuGraphLaunch(void *, CUstream);
CUresult cuGraphLaunch_ptsz(void *, CUstream);
CUresult cuSimPhysical(int, uint64_t *);
CUresult cuSimLaunch(CUstream, const void *, unsigned, double);

static const struct properties on_device = {.kind = 1, .location = 1};
static const struct array flat = {1 << 20, 2, 0x20, 1};
static const struct array3d deep = {1 << 10, 1 << 10, 2, 0x20, 1, 0};
static const char image[] = "code";

static uint64_t physical(void) {
    uint64_t bytes;
    OK(cuSimPhysical(0, &bytes));
    return bytes;
}

/* Afterwards the pool has the whole device, and all of it is idle. */
static void fill(void) {
    CUdeviceptr all;
    OK(cuMemAlloc_v2(&all, DEVICE));
    OK(cuMemFree_v2(all));
    CHECK(physical() == DEVICE);
}

#define FULL(call) do { fill(); OK(call); CHECK(physical() < DEVICE); } while (0)

static void full(const char *file) {
    void *made, *kernel;
    Handle handle;
    CUdeviceptr at;
    CUmemoryPool pool;
    CUstream stream;
    OK(cuStreamCreate(&stream, 1));
    FULL(cuMemCreate(&handle, 600 * MiB, &on_device, 0));
    OK(cuMemRelease(handle));
    FULL(cuMemAllocManaged(&at, 900 * MiB, 1));
    OK(cuMemFree_v2(at));
    FULL(cuArrayCreate_v2(&made, &flat));
    OK(cuArrayDestroy(made));
    FULL(cuArray3DCreate_v2(&made, &deep));
    OK(cuArrayDestroy(made));
    FULL(cuMipmappedArrayCreate(&made, &deep, 4));
    OK(cuMipmappedArrayDestroy(made));
    FULL(cuModuleLoad(&made, file));
    OK(cuModuleUnload(made));
    FULL(cuModuleLoadData(&made, image));
    OK(cuModuleUnload(made));
    FULL(cuModuleLoadDataEx(&made, image, 0, NULL, NULL));
    OK(cuModuleUnload(made));
    OK(cuLibraryLoadData(&made, image, NULL, NULL, 0, NULL, NULL, 0));
    FULL(cuLibraryGetModule(&kernel, made));
    OK(cuLibraryUnload(made));
    OK(cuLibraryLoadFromFile(&made, file, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, made, "name"));
    FULL(cuKernelGetFunction(&kernel, kernel));
    OK(cuLibraryUnload(made));
    OK(cuMemPoolCreate(&pool, &on_device));
    FULL(cuMemAllocFromPoolAsync(&at, 300 * MiB, pool, stream));
    OK(cuMemFreeAsync(at, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuDeviceSetMemPool(0, pool));
    FULL(cuMemAllocAsync(&at, 300 * MiB, stream));
    OK(cuMemFreeAsync(at, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 0));
    /* A small call does not cost the pool everything. */
    FULL(cuModuleLoadData(&made, image));
    CHECK(physical() >= DEVICE / 2);
    /* Where there is no room, that is the answer. */
    OK(cuMemAlloc_v2(&at, 1000 * MiB));
    IS(OUT_OF_MEMORY, cuMemCreate(&handle, 600 * MiB, &on_device, 0));
    CHECK(physical() >= 1000 * MiB);
    OK(cuMemFree_v2(at));
    OK(cuMemCreate(&handle, 600 * MiB, &on_device, 0));
}

/* What is made then lies on the first device, which is not current. The other one has idle memory,
 * too. */
static void go_elsewhere(void) {
    CUcontext context;
    CUdeviceptr at;
    if (getenv("ROOM_ELSEWHERE") == NULL) return;
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&at, 32 * MiB));
    OK(cuMemFree_v2(at));
}

/* Nobody lacks room there. */
static void is_left_elsewhere(void) {
    uint64_t bytes;
    if (getenv("ROOM_ELSEWHERE") == NULL) return;
    OK(cuSimPhysical(1, &bytes));
    CHECK(bytes >= 32 * MiB);
}

/* The one call that was told to fail once. */
static int once(const char *call) {
    void *made = NULL, *kernel;
    Handle handle;
    CUdeviceptr at;
    CUcontext context;
    CUgraph graph;
    CUstream stream;
    struct access access = {.location = 1, .device = 0, .flags = 3};
    if (strcmp(call, "cuStreamCreate") == 0) return cuStreamCreate(&stream, 0);
    if (strcmp(call, "cuStreamCreateWithPriority") == 0) return cuStreamCreateWithPriority(&stream, 1, 0);
    if (strncmp(call, "cuGreenCtx", 10) == 0) {
        unsigned char resource[4096] = {0};
        void *description, *green;
        OK(cuDeviceGetDevResource(0, resource, 1));
        OK(cuDevResourceGenerateDesc(&description, resource, 1));
        go_elsewhere();
        int code = cuGreenCtxCreate(&green, description, 0, 1);
        if (strcmp(call, "cuGreenCtxCreate") == 0) return code;
        OK(code);
        return cuGreenCtxStreamCreate(&stream, green, 1, 0);
    }
    if (strcmp(call, "cuDevicePrimaryCtxRetain") == 0) return cuDevicePrimaryCtxRetain(&context, 0);
    if (strncmp(call, "cuCtxCreate", 11) == 0) go_elsewhere();
    if (strcmp(call, "cuCtxCreate") == 0) return cuCtxCreate(&context, 0, 0);
    if (strcmp(call, "cuCtxCreate_v2") == 0) return cuCtxCreate_v2(&context, 0, 0);
    if (strcmp(call, "cuCtxCreate_v3") == 0) return cuCtxCreate_v3(&context, NULL, 0, 0, 0);
    if (strcmp(call, "cuCtxCreate_v4") == 0) return cuCtxCreate_v4(&context, NULL, 0, 0);
    if (strcmp(call, "cuCtxSetLimit") == 0) return cuCtxSetLimit(0, 4096);
    if (strcmp(call, "cuLibraryLoadData") == 0)
        return cuLibraryLoadData(&made, image, NULL, NULL, 0, NULL, NULL, 0);
    if (strcmp(call, "cuMemSetAccess") == 0) {
        OK(cuMemCreate(&handle, 2 * MiB, &on_device, 0));
        OK(cuMemAddressReserve(&at, 2 * MiB, 0, 0, 0));
        OK(cuMemMap(at, 2 * MiB, 0, handle, 0));
        go_elsewhere();
        return cuMemSetAccess(at, 2 * MiB, &access, 1);
    }
    if (strcmp(call, "cuCtxEnablePeerAccess") == 0) {
        CUcontext own;
        OK(cuCtxGetCurrent(&own));
        OK(cuDevicePrimaryCtxRetain(&context, 1));
        OK(cuCtxSetCurrent(context));
        OK(cuMemAlloc_v2(&at, 32 * MiB));
        OK(cuCtxSetCurrent(own));
        return cuCtxEnablePeerAccess(context, 0);
    }
    if (strcmp(call, "cuMemAllocPitch") == 0 || strcmp(call, "its plain one") == 0) {
        CUdeviceptr rows = 0;
        size_t pitch;
        int code = cuMemAllocPitch_v2(&rows, &pitch, 1000, 10, 4);
        CHECK(code != 0 || is_pooled(rows) == (call[0] == 'c'));
        return code;
    }
    if (strcmp(call, "cuMemAllocFromPoolAsync") == 0) {
        CUmemoryPool pool;
        OK(cuMemPoolCreate(&pool, &on_device));
        go_elsewhere();
        OK(cuStreamCreate(&stream, 1));
        return cuMemAllocFromPoolAsync(&at, 2 * MiB, pool, stream);
    }
    OK(cuModuleLoadData(&made, image));
    if (strcmp(call, "cuModuleGetFunction") == 0) return cuModuleGetFunction(&kernel, made, "name");
    OK(cuModuleGetFunction(&kernel, made, "name"));
    if (strcmp(call, "cuFuncLoad") == 0) return cuFuncLoad(kernel);
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(cuStreamEndCapture(stream, &graph));
    if (strcmp(call, "cuGraphInstantiate_v2") == 0) return cuGraphInstantiate_v2(&made, graph, NULL, NULL, 0);
    if (strcmp(call, "cuGraphInstantiateWithParams") == 0) {
        char parameters[64] = {0};
        return cuGraphInstantiateWithParams(&made, graph, parameters);
    }
    int code = cuGraphInstantiateWithFlags(&made, graph, 0);
    if (strcmp(call, "cuGraphInstantiateWithFlags") == 0) return code;
    OK(code);
    go_elsewhere();
    if (strcmp(call, "cuGraphUpload") == 0) return cuGraphUpload(made, stream);
    if (strcmp(call, "cuGraphUpload_ptsz") == 0) return cuGraphUpload_ptsz(made, stream);
    if (strcmp(call, "cuGraphLaunch") == 0) return cuGraphLaunch(made, stream);
    if (strcmp(call, "cuGraphLaunch_ptsz") == 0) return cuGraphLaunch_ptsz(made, stream);
    fprintf(stderr, "%s: no such call here\n", call);
    exit(1);
}

static void capture(void) {
    Handle handle;
    CUstream stream;
    CUgraph graph = NULL;
    void *made;
    OK(cuStreamCreate(&stream, 1));
    for (int mode = 0; mode < 3; mode++) {
        fill();
        OK(cuStreamBeginCapture_v2(stream, mode));
        OK(cuMemCreate(&handle, 600 * MiB, &on_device, 0));
        OK(cuModuleLoadData(&made, image));
        OK(cuStreamEndCapture(stream, &graph));
        CHECK(graph != NULL);
        OK(cuMemRelease(handle));
        OK(cuModuleUnload(made));
    }
}

/* A second try would be a second node. */
static void node(void) {
    CUdeviceptr at;
    CUstream stream;
    CUgraph graph;
    OK(cuStreamCreate(&stream, 1));
    fill();
    OK(cuStreamBeginCapture_v2(stream, 2));
    IS(OUT_OF_MEMORY, cuMemAllocAsync(&at, MiB, stream));
    CHECK(physical() == DEVICE);
    OK(cuStreamEndCapture(stream, &graph));
}

/* What was freed on a stream before it captures can be waited for meanwhile. */
static void before_a_capture(CUstream captured, CUstream stream) {
    CUdeviceptr at;
    CUgraph graph;
    OK(cuMemAllocAsync(&at, DEVICE, captured));
    struct range range = {at, DEVICE, 1};
    OK(cuSimLaunch(captured, &range, 1, 1e6));
    OK(cuMemFreeAsync(at, captured));
    OK(cuStreamBeginCapture_v2(captured, 2));
    OK(cuMemAllocAsync(&at, DEVICE, stream));
    range.base = at;
    OK(cuSimLaunch(stream, &range, 1, 1));
    OK(cuStreamEndCapture(captured, &graph));
    OK(cuMemFreeAsync(at, stream));
}

/* A free waits during a capture by a small allocation and free, for which there is no memory
 * of the device: what was freed is `expected` to be had again. */
static void beside_a_capture(CUresult expected) {
    CUdeviceptr at;
    CUstream stream, captured;
    CUgraph graph;
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamCreate(&captured, 1));
    OK(cuMemAlloc_v2(&at, DEVICE));
    struct range range = {at, DEVICE, 1};
    OK(cuSimLaunch(stream, &range, 1, 1e6));
    OK(cuStreamBeginCapture_v2(captured, 2));
    OK(cuMemFree_v2(at));
    IS(expected, cuMemAlloc_v2(&at, DEVICE));
    OK(cuStreamEndCapture(captured, &graph));
    if (expected != SUCCESS) OK(cuMemAlloc_v2(&at, DEVICE));
    range.base = at;
    OK(cuSimLaunch(captured, &range, 1, 1));
    OK(cuMemFree_v2(at));
    before_a_capture(captured, stream);
}

static void waited(void) { beside_a_capture(SUCCESS); }

/* Nor of the host. */
static void unwaited(void) { beside_a_capture(OUT_OF_MEMORY); }

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void pending(void) {
    CUdeviceptr at;
    CUstream stream;
    Handle handle;
    OK(cuStreamCreate(&stream, 1));
    for (int turn = 0; turn < 2; turn++) {
        double work = turn == 0 ? 0.2 : 6, began = seconds();
        OK(cuMemAllocAsync(&at, DEVICE, stream));
        OK(cuSimLaunch(stream, NULL, 0, work * 1e6));
        OK(cuMemFreeAsync(at, stream));
        IS(turn == 0 ? SUCCESS : OUT_OF_MEMORY, cuMemCreate(&handle, 600 * MiB, &on_device, 0));
        double waited = seconds() - began;
        if (turn == 0) {
            CHECK(waited > 0.15 && waited < 5);
            OK(cuMemRelease(handle));
        } else {
            CHECK(waited > 0.5 && waited < 5);
        }
    }
    _exit(0);
}

/* A failure may lose what it hit, to nobody's harm. */
static void shaken(void) {
    CUdeviceptr at;
    CUstream stream;
    Handle handle;
    OK(cuStreamCreate(&stream, 1));
    for (int turn = 0; turn < 4; turn++) {
        int code = cuMemAllocAsync(&at, 500 * MiB, stream);
        CHECK(code == SUCCESS || code == OUT_OF_MEMORY);
        if (code == SUCCESS) {
            OK(cuSimLaunch(stream, NULL, 0, 10));
            OK(cuMemFreeAsync(at, stream));
        }
        code = cuMemCreate(&handle, 700 * MiB, &on_device, 0);
        CHECK(code == SUCCESS || code == OUT_OF_MEMORY);
        if (code == SUCCESS) cuMemRelease(handle);
    }
    CHECK(physical() <= DEVICE);
}

int main(int count, char **words) {
    CHECK(count > 1);
    start_cuda();
    if (strcmp(words[1], "full") == 0) full(words[0]);
    else if (strcmp(words[1], "capture") == 0) capture();
    else if (strcmp(words[1], "node") == 0) node();
    else if (strcmp(words[1], "waited") == 0) waited();
    else if (strcmp(words[1], "unwaited") == 0) unwaited();
    else if (strcmp(words[1], "shaken") == 0) shaken();
    else if (strcmp(words[1], "pending") == 0) pending();
    else {
        CUdeviceptr at;
        OK(cuMemAlloc_v2(&at, 600 * MiB));
        OK(cuMemFree_v2(at));
        CHECK(physical() == 600 * MiB);
        OK(once(words[1]));
        CHECK(physical() < 600 * MiB);
        is_left_elsewhere();
    }
    return 0;
}
