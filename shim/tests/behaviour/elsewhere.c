/* Memory of another device: what a thread without a current context copies there, what a context is told of
 * it, and who fills and copies it in a graph. As the driver's own, bare and preloaded. */
#include "../support/cuda.h"

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *, size_t *, CUdeviceptr);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, int);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphInstantiateWithFlags(void **, CUgraph, unsigned long long);
CUresult cuGraphLaunch(void *, CUstream);
CUresult cuGraphExecDestroy(void *);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphAddMemsetNode(void **, CUgraph, const void *, size_t, const void *, CUcontext);
CUresult cuGraphAddMemcpyNode(void **, CUgraph, const void *, size_t, const void *, CUcontext);
CUresult cuGraphAddNode(void **, CUgraph, const void *, size_t, void *);

enum { NOT_FOUND = 500, DEVICE_POINTER = 3 };
struct end { size_t x, y, z, level; int kind; const void *host; CUdeviceptr device; void *array, *none; size_t pitch, rows; };
struct planes { struct end from, to; size_t width, height, depth; };
/* CUgraphNodeParams of a copy. */
struct node { int kind, reserved[3], flags[2]; CUcontext context; struct planes planes; size_t rest[3]; };
struct fill { CUdeviceptr at; size_t pitch; unsigned value, element; size_t width, rows; };

static const size_t LONG = 20 * MiB;
static CUcontext context[2];
static CUdeviceptr memory[2];
static CUstream stream;

static void holds(int device, unsigned char value) {
    unsigned char ends[2];
    OK(cuCtxSetCurrent(context[0]));
    OK(cuStreamSynchronize(stream));
    OK(cuCtxSetCurrent(context[device]));
    OK(cuMemcpyDtoH_v2(&ends[0], memory[device], 1));
    OK(cuMemcpyDtoH_v2(&ends[1], memory[device] + LONG - 1, 1));
    CHECK(ends[0] == value && ends[1] == value);
    OK(cuMemsetD8_v2(memory[device], 0, LONG));
    OK(cuCtxSynchronize());
}

static void without_a_context(void) {
    static unsigned char hosts[20 * MiB];
    OK(cuCtxSetCurrent(NULL));
    OK(cuMemsetD8Async(memory[0], 3, LONG, stream));
    /* The driver would end the process. */
    OK(cuMemcpyDtoDAsync_v2(memory[1], memory[0], 4096, stream));
    OK(cuMemcpyDtoDAsync_v2(memory[1], memory[0], LONG, stream));
    holds(1, 3);
    OK(cuCtxSetCurrent(NULL));
    OK(cuMemcpyAsync(memory[1], memory[0], LONG, stream));
    OK(cuMemcpyDtoHAsync_v2(hosts, memory[1], LONG, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(hosts[0] == 3 && hosts[LONG - 1] == 3);
    memset(hosts, 4, LONG);
    OK(cuMemcpyHtoDAsync_v2(memory[1], hosts, LONG, stream));
    OK(cuMemcpyDtoDAsync_v2(memory[0], memory[1], LONG, stream));
    holds(0, 4);
    /* A fill is the stream's device's. */
    OK(cuCtxSetCurrent(NULL));
    CHECK(cuMemsetD8Async(memory[1], 5, LONG, stream) == INVALID_VALUE);
}

/* Device 1 is let in, but for another context of device 0. */
static void seen_from_the_other(void) {
    CUcontext second;
    CUdeviceptr base = 7, device_pointer = 7;
    size_t bytes = 7;
    OK(cuCtxCreate_v2(&second, 0, 0));
    OK(cuCtxSetCurrent(context[1]));
    OK(cuCtxEnablePeerAccess(second, 0));
    CHECK(cuMemGetAddressRange_v2(&base, &bytes, memory[0] + 5) == NOT_FOUND && base == 0 && bytes == 0);
    CHECK(cuPointerGetAttribute(&device_pointer, DEVICE_POINTER, memory[0]) == INVALID_VALUE && device_pointer == 0);
    OK(cuCtxEnablePeerAccess(context[0], 0));
    OK(cuMemGetAddressRange_v2(&base, &bytes, memory[0] + 5));
    CHECK(base == memory[0] && bytes == LONG);
    OK(cuPointerGetAttribute(&device_pointer, DEVICE_POINTER, memory[0]));
    CHECK(device_pointer == memory[0]);
    OK(cuCtxDestroy_v2(second));
}

static void launched(CUgraph graph) {
    void *ready;
    OK(cuCtxSetCurrent(context[0]));
    OK(cuGraphInstantiateWithFlags(&ready, graph, 0));
    OK(cuGraphLaunch(ready, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(ready));
    OK(cuGraphDestroy(graph));
}

/* The context is of the device that has the memory, of the other one, or none. */
static void in_graphs(void) {
    for (int named = -1; named < 2; named++) {
        struct fill fill = {memory[0], 0, 9, 1, LONG, 1};
        struct planes planes = {{.kind = 2, .device = memory[0], .pitch = MiB}, {.kind = 2, .device = memory[1], .pitch = MiB},
            MiB, LONG / MiB, 1};
        CUcontext by = named < 0 ? NULL : context[named];
        CUgraph graph;
        void *node;
        OK(cuCtxSetCurrent(context[0]));
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, by));
        launched(graph);
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &planes, by));
        launched(graph);
        holds(1, 9);
        struct node copy = {.kind = 1, .context = by, .planes = planes};
        OK(cuCtxSetCurrent(context[0]));
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddNode(&node, graph, NULL, 0, &copy));
        launched(graph);
        holds(1, 9);
        holds(0, 9);
    }
}

int main(void) {
    OK(cuInit(0));
    for (int device = 0; device < 2; device++) {
        OK(cuDevicePrimaryCtxRetain(&context[device], device));
        OK(cuCtxSetCurrent(context[device]));
        OK(cuMemAlloc_v2(&memory[device], LONG));
    }
    OK(cuCtxSetCurrent(context[0]));
    OK(cuStreamCreate(&stream, 1));
    without_a_context();
    in_graphs();
    seen_from_the_other();
    return 0;
}
