// What another thread can do while one waits for room on a stream that takes no more operations.
//
// Build:  nvcc -std=c++17 -O2 -o full_stream tests/gpu/full_stream.cu -lcuda
// Run:    ./full_stream
// Each call is made beside a stream of its own and given 300 ms, about half a minute in all. No
// setting of the GPU is changed. Exit status: 0 measured, 1 a call failed that should not.
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

// A stream that is full, and what the calls are made with.
struct Stage {
    CUstream full, idle;
    CUdeviceptr word, freed, flag;
    volatile uint32_t *host;
    CUevent events[8], other, destroyed, of_context;
};

static CUmemAllocationProp properties() {
    CUmemAllocationProp it = {};
    it.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    it.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return it;
}

static const struct {
    const char *name;
    void (*call)(Stage &);
} CALLS[] = {
    {"cuPointerGetAttribute", [](Stage &on) { unsigned type; cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, on.word); }},
    {"cuMemGetAddressRange", [](Stage &on) { CUdeviceptr base; size_t bytes; cuMemGetAddressRange(&base, &bytes, on.word); }},
    {"cuMemGetInfo", [](Stage &) { size_t free, total; cuMemGetInfo(&free, &total); }},
    {"cuStreamIsCapturing of it", [](Stage &on) { CUstreamCaptureStatus status; cuStreamIsCapturing(on.full, &status); }},
    {"cuStreamQuery of it", [](Stage &on) { cuStreamQuery(on.full); }},
    {"cuStreamQuery of another stream", [](Stage &on) { cuStreamQuery(on.idle); }},
    {"cuEventQuery", [](Stage &on) { cuEventQuery(on.events[0]); }},
    {"cuEventCreate", [](Stage &) { CUevent event; cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); }},
    {"cuEventDestroy", [](Stage &on) { cuEventDestroy(on.destroyed); }},
    {"cuEventRecord on another stream", [](Stage &on) { cuEventRecord(on.other, on.idle); }},
    {"cuEventRecord on it", [](Stage &on) { cuEventRecord(on.other, on.full); }},
    {"cuCtxRecordEvent", [](Stage &on) { cuCtxRecordEvent(context, on.of_context); }},
    {"cuStreamWaitEvent on another stream, for it", [](Stage &on) { cuStreamWaitEvent(on.idle, on.events[0], 0); }},
    {"cuStreamWaitEvent on it", [](Stage &on) { cuStreamWaitEvent(on.full, on.other, 0); }},
    {"cuStreamCreate", [](Stage &) { CUstream stream; cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); }},
    {"cuMemAllocAsync on another stream", [](Stage &on) { CUdeviceptr at; cuMemAllocAsync(&at, 4096, on.idle); cuMemFreeAsync(at, on.idle); }},
    {"cuMemFreeAsync on it", [](Stage &on) { CUdeviceptr at; cuMemAllocAsync(&at, 4096, on.idle); cuMemFreeAsync(at, on.full); }},
    {"cuMemAlloc of 4 KiB", [](Stage &) { CUdeviceptr at; cuMemAlloc(&at, 4096); }},
    {"cuMemAlloc of 64 MiB", [](Stage &) { CUdeviceptr at; cuMemAlloc(&at, 64 << 20); }},
    {"cuMemFree", [](Stage &on) { cuMemFree(on.freed); }},
    {"cuMemCreate", [](Stage &) {
        CUmemGenericAllocationHandle handle;
        CUmemAllocationProp of = properties();
        cuMemCreate(&handle, PAGE, &of, 0);
        cuMemRelease(handle);
    }},
    {"cuMemMap, cuMemSetAccess", [](Stage &) {
        CUdeviceptr at;
        CUmemGenericAllocationHandle handle;
        CUmemAllocationProp of = properties();
        CUmemAccessDesc access = {of.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        cuMemAddressReserve(&at, PAGE, 0, 0, 0);
        cuMemCreate(&handle, PAGE, &of, 0);
        cuMemMap(at, PAGE, 0, handle, 0);
        cuMemSetAccess(at, PAGE, &access, 1);
    }},
};

// Gives the stream operations until it takes no more, or many; how many it took.
static int fill(Stage &on, bool records, std::atomic<int> &made) {
    for (int i = 0; i < MANY; i++) {
        made = i;
        if (records) cuEventRecord(on.events[i % 8], on.full);
        else cuMemsetD32Async(on.word, i, 1, on.full);
    }
    return MANY;
}

// Does the call come back while a thread waits for room on a stream? Alone on it: what waits
// keeps others waiting.
static bool goes_on(void (*call)(Stage &), bool records, int *took) {
    Stage on;
    OK(cuStreamCreate(&on.full, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&on.idle, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&on.word, 4096));
    OK(cuMemAlloc(&on.freed, 4 << 20));
    void *host;
    OK(cuMemHostAlloc(&host, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    on.host = static_cast<volatile uint32_t *>(host);
    *on.host = 0;
    OK(cuMemHostGetDevicePointer(&on.flag, host, 0));
    for (CUevent &event : on.events) OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (CUevent *event : {&on.other, &on.destroyed, &on.of_context}) OK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(on.other, on.idle));
    CUdeviceptr warm;
    OK(cuMemAllocAsync(&warm, 4096, on.idle));
    OK(cuMemFreeAsync(warm, on.idle));
    OK(cuStreamSynchronize(on.idle));

    OK(cuStreamWaitValue32(on.full, on.flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    std::atomic<int> made{0};
    std::thread filler([&] {
        cuCtxSetCurrent(context);
        made = fill(on, records, made);
    });
    usleep(300000);
    *took = made;
    std::atomic<bool> over{false};
    std::thread caller([&] {
        cuCtxSetCurrent(context);
        call(on);
        over = true;
    });
    usleep(300000);
    const bool went_on = over;
    *on.host = 1;
    filler.join();
    caller.join();
    OK(cuCtxSynchronize());
    return went_on;
}

int main() {
    CUdevice device;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    int fills, records;
    for (auto &of : CALLS) {
        const bool beside_fills = goes_on(of.call, false, &fills), beside_records = goes_on(of.call, true, &records);
        printf("%-44s %-8s after %d fills; %-8s after %d records\n", of.name, beside_fills ? "goes on" : "waits", fills,
               beside_records ? "goes on" : "waits", records);
        fflush(stdout);
    }
    return 0;
}
