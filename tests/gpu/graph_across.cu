// A graph that is launched on a stream of one device and has a kernel on another: who waits for
// that kernel? And copies, with nothing opened to the current device but what is said, between
// cudaMalloc's memory of another device and memory there of no context. Two GPUs that reach each
// other:
//
//   nvcc -o graph_across tests/gpu/graph_across.cu -lcuda && ./graph_across
//
// Prints a table of milliseconds, then one of answers.
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#define OK(call)                                                                    \
    do {                                                                            \
        int code = (int)(call);                                                     \
        if (code != 0) printf("%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, code), exit(1); \
    } while (0)

static const size_t MIB = 1 << 20;

__global__ void stay(unsigned long long ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

static double ms() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

static CUcontext contexts[2];
static cudaStream_t streams[2];
static cudaGraphExec_t graph;

// Its only kernel lies on the second device.
static void make_graph() {
    cudaEvent_t there, back;
    cudaGraph_t captured;
    OK(cudaSetDevice(1));
    OK(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
    OK(cudaSetDevice(0));
    OK(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
    OK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeRelaxed));
    OK(cudaEventRecord(there, streams[0]));
    OK(cudaSetDevice(1));
    OK(cudaStreamWaitEvent(streams[1], there, 0));
    stay<<<1, 1, 0, streams[1]>>>(300000000ull);
    OK(cudaEventRecord(back, streams[1]));
    OK(cudaSetDevice(0));
    OK(cudaStreamWaitEvent(streams[0], back, 0));
    OK(cudaStreamEndCapture(streams[0], &captured));
    OK(cudaGraphInstantiate(&graph, captured, 0));
    OK(cudaGraphUpload(graph, streams[0]));
    OK(cudaStreamSynchronize(streams[0]));
}

// How long `wait` takes while the graph runs, launched on the first device's stream.
template <typename Wait>
static void row(const char *what, Wait wait) {
    OK(cudaSetDevice(0));
    OK(cudaDeviceSynchronize());
    double began = ms();
    OK(cudaGraphLaunch(graph, streams[0]));
    double launched = ms();
    wait();
    double waited = ms();
    OK(cudaSetDevice(0));
    OK(cudaStreamSynchronize(streams[0]));
    printf("| %s | %.1f | %.1f | %.1f |\n", what, launched - began, waited - launched, ms() - launched);
    fflush(stdout);
}

static void wait_for_context_event(int device) {
    CUevent event;
    OK(cudaSetDevice(device));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuCtxRecordEvent(contexts[device], event));
    OK(cuEventSynchronize(event));
    OK(cuEventDestroy(event));
}

static void answers() {
    CUdeviceptr plain, own, pooled, pinned, shut, shut_pooled;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {};
    CUmemAccessDesc access[2] = {};
    CUmemoryPool pool;
    CUmemPoolProps props = {};
    void *host;
    OK(cudaSetDevice(1));
    OK(cuMemAlloc(&plain, 2 * MIB));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = 1;
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    OK(cuMemAddressReserve(&own, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(own, 2 * MIB, 0, handle, 0));
    for (int device = 0; device < 2; device++) {
        access[device].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[device].location.id = device;
        access[device].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    OK(cuMemSetAccess(own, 2 * MIB, access, 2));
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    OK(cuMemAddressReserve(&shut, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(shut, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(shut, 2 * MIB, access + 1, 1));
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = prop.location;
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&shut_pooled, 2 * MIB, pool, (CUstream)streams[1]));
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolSetAccess(pool, access, 1));
    OK(cuMemAllocFromPoolAsync(&pooled, 2 * MIB, pool, (CUstream)streams[1]));
    OK(cudaStreamSynchronize(streams[1]));
    OK(cuMemHostAlloc(&host, 2 * MIB, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cudaSetDevice(0));
    OK(cuMemHostGetDevicePointer(&pinned, host, 0));
    struct { const char *what; CUdeviceptr at; } others[] = {
        {"mapped memory there, open to both devices", own},
        {"memory of a pool there, open to the current device", pooled},
        {"pinned memory of the host, by its device address", pinned},
        {"mapped memory there, open to that device alone", shut},
        {"memory of a pool there, open to that device alone", shut_pooled},
    };
    printf("\n| the other end | cuMemcpy into it | out of it | cuMemcpyDtoD into it | out of it | cuMemcpyAsync into it | bytes right |\n|---|---|---|---|---|---|---|\n");
    for (auto &other : others) {
        unsigned char back[2] = {0, 0};
        OK(cudaSetDevice(1));
        OK(cuMemsetD8(plain, 7, 2 * MIB));
        OK(cuCtxSynchronize());
        OK(cudaSetDevice(0));
        int in = cuMemcpy(other.at, plain, 2 * MIB), out = cuMemcpy(plain, other.at, 2 * MIB);
        int din = cuMemcpyDtoD(other.at, plain, 2 * MIB), dout = cuMemcpyDtoD(plain, other.at, 2 * MIB);
        int queued = cuMemcpyAsync(other.at, plain, 2 * MIB, (CUstream)streams[0]);
        OK(cuCtxSynchronize());
        OK(cudaSetDevice(1));
        OK(cuMemcpy((CUdeviceptr)(uintptr_t)back, other.at, 1));
        OK(cuMemcpy((CUdeviceptr)(uintptr_t)(back + 1), other.at + 2 * MIB - 1, 1));
        printf("| %s | %d | %d | %d | %d | %d | %s |\n", other.what, in, out, din, dout, queued, back[0] == 7 && back[1] == 7 ? "yes" : "no");
    }
}

int main() {
    for (int device = 0; device < 2; device++) {
        OK(cudaSetDevice(device));
        OK(cudaFree(NULL));
        OK(cuCtxGetCurrent(&contexts[device]));
        OK(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
    }
    make_graph();
    printf("| a wait while it runs | launch, ms | the wait, ms | the graph, ms |\n|---|---|---|---|\n");
    row("nothing", [] {});
    row("cuCtxRecordEvent of the second device's context, and its end", [] { wait_for_context_event(1); });
    row("cuCtxRecordEvent of the first device's context, and its end", [] { wait_for_context_event(0); });
    row("cuCtxSynchronize of the second device's context", [] { OK(cudaSetDevice(1)); OK(cuCtxSynchronize()); });
    row("cuCtxSynchronize of the first device's context", [] { OK(cudaSetDevice(0)); OK(cuCtxSynchronize()); });
    for (int device = 0; device < 2; device++) {
        CUdeviceptr at[2];
        OK(cudaSetDevice(device));
        for (auto &one : at) OK(cuMemAlloc(&one, 32 * MIB));
        row(device ? "cuMemFree of the second device's memory, its context current" : "cuMemFree of the first device's memory, its context current",
            [&] { OK(cudaSetDevice(device)); OK(cuMemFree(at[0])); });
        row(device ? "the same, the other context current" : "the same, the other context current",
            [&] { OK(cudaSetDevice(1 - device)); OK(cuMemFree(at[1])); });
    }
    answers();
    return 0;
}
