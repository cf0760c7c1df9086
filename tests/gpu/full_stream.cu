// What other threads can do while one waits for room on a stream that takes no more operations.
//
// Build:  nvcc -std=c++17 -O2 -o full_stream tests/gpu/full_stream.cu -lcuda
// Run:    ./full_stream
// Each call is made by a thread of its own and given 300 ms. Nothing is left allocated by the
// process; no setting of the GPU is changed. Exit status: 0 measured, 1 a call failed that should not.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <thread>
#include <unistd.h>

#define OK(call)                                        \
    do {                                                \
        CUresult code_ = (call);                        \
        if (code_ != CUDA_SUCCESS) {                    \
            printf("FAIL %s: %d\n", #call, (int)code_); \
            exit(1);                                    \
        }                                               \
    } while (0)

static const size_t PAGE = 2 << 20;
// More operations than any stream takes.
static const int MANY = 5000;

static CUcontext context;
static std::atomic<int> made, at_record, left;

static CUmemAllocationProp properties() {
    CUmemAllocationProp it = {};
    it.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    it.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return it;
}

template <typename F> static void probe(const char *name, F call) {
    auto over = new std::atomic<bool>{false};
    left++;
    std::thread([=] {
        cuCtxSetCurrent(context);
        call();
        *over = true;
        left--;
    }).detach();
    for (int ms = 0; ms < 300 && !*over; ms++) usleep(1000);
    printf("  %s: %s\n", name, *over ? "goes on" : "waits");
    fflush(stdout);
}

// A stream waits for a value, and is given fills and records of events.
static void full(bool fills, bool records) {
    CUstream full, idle;
    OK(cuStreamCreate(&full, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
    CUdeviceptr word, freed, flag, warm;
    OK(cuMemAlloc(&word, 4096));
    OK(cuMemAlloc(&freed, 4 << 20));
    void *host;
    OK(cuMemHostAlloc(&host, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    *(volatile uint32_t *)host = 0;
    OK(cuMemHostGetDevicePointer(&flag, host, 0));
    CUevent events[8], other, destroyed, of_context;
    for (CUevent &event : events) OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (CUevent *event : {&other, &destroyed, &of_context}) OK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(other, idle));
    OK(cuMemAllocAsync(&warm, 4096, idle));
    OK(cuMemFreeAsync(warm, idle));
    OK(cuStreamSynchronize(idle));

    OK(cuStreamWaitValue32(full, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    std::atomic<bool> done{false};
    made = at_record = 0;
    std::thread filler([&] {
        cuCtxSetCurrent(context);
        for (int i = 0; i < MANY; i++) {
            made = i;
            if (fills) cuMemsetD32Async(word, i, 1, full);
            at_record = 1;
            if (records) cuEventRecord(events[i % 8], full);
            at_record = 0;
        }
        done = true;
    });
    sleep(1);
    printf("%s%s: ", fills ? "fills" : "", records ? (fills ? " and records" : "records") : "");
    if (done) printf("never full\n");
    else printf("full after %d, in %s\n", made.load(), at_record ? "cuEventRecord" : "cuMemsetD32Async");
    const CUevent first = events[0];
    probe("cuPointerGetAttribute", [=] { unsigned type; cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, word); });
    probe("cuMemGetAddressRange", [=] { CUdeviceptr base; size_t bytes; cuMemGetAddressRange(&base, &bytes, word); });
    probe("cuMemGetInfo", [=] { size_t free, total; cuMemGetInfo(&free, &total); });
    probe("cuStreamIsCapturing of the full one", [=] { CUstreamCaptureStatus status; cuStreamIsCapturing(full, &status); });
    probe("cuEventQuery", [=] { cuEventQuery(first); });
    probe("cuEventRecord on an idle stream", [=] { cuEventRecord(other, idle); });
    probe("cuCtxRecordEvent", [=] { cuCtxRecordEvent(context, of_context); });
    probe("cuStreamWaitEvent on the idle one, for the full one", [=] { cuStreamWaitEvent(idle, first, 0); });
    probe("cuMemAllocAsync on the idle one", [=] { CUdeviceptr at; cuMemAllocAsync(&at, 4096, idle); cuMemFreeAsync(at, idle); });
    probe("cuMemCreate", [=] {
        CUmemGenericAllocationHandle handle;
        CUmemAllocationProp of = properties();
        cuMemCreate(&handle, PAGE, &of, 0);
        cuMemRelease(handle);
    });
    probe("cuMemMap, cuMemSetAccess", [=] {
        CUdeviceptr at;
        CUmemGenericAllocationHandle handle;
        CUmemAllocationProp of = properties();
        CUmemAccessDesc access = {of.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        cuMemAddressReserve(&at, PAGE, 0, 0, 0);
        cuMemCreate(&handle, PAGE, &of, 0);
        cuMemMap(at, PAGE, 0, handle, 0);
        cuMemSetAccess(at, PAGE, &access, 1);
    });
    probe("cuEventRecord on the full one", [=] { cuEventRecord(other, full); });
    probe("cuStreamWaitEvent on the full one", [=] { cuStreamWaitEvent(full, other, 0); });
    probe("cuMemFreeAsync on the full one", [=] { CUdeviceptr at; cuMemAllocAsync(&at, 4096, idle); cuMemFreeAsync(at, full); });
    probe("cuMemAlloc", [=] { CUdeviceptr at; cuMemAlloc(&at, 4096); });
    probe("cuMemFree", [=] { cuMemFree(freed); });
    probe("cuEventCreate", [=] { CUevent event; cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); });
    probe("cuEventDestroy", [=] { cuEventDestroy(destroyed); });
    probe("cuStreamCreate", [=] { CUstream stream; cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); });
    *(volatile uint32_t *)host = 1;
    filler.join();
    while (left) usleep(1000);
    OK(cuStreamSynchronize(full));
}

int main() {
    CUdevice device;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    full(false, true);
    full(true, false);
    full(true, true);
    return 0;
}
