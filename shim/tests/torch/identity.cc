// Calls that look like torch's allocator's, but for one thing each. usage: identity [uncached]
// Each allocation is of another size in MiB, by which the library's log tells which it did
// not take for torch's. What is freed is in use: whose free is torch's own does not wait.
#include "../../../sim/include/memcuda_sim.h"
#include "c10.h"
#include "checks.h"

extern "C" {
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int cudaGetLastError();
int cudaStreamIsCapturing(cudaStream_t, int*);
int cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
int cudaStreamDestroy(cudaStream_t);
int cudaStreamBeginCapture(cudaStream_t, int);
int cudaStreamEndCapture(cudaStream_t, void**);
int cuMemAlloc_v2(uint64_t*, size_t);
}

using c10::cuda::CUDACachingAllocator::allocator;
static const size_t MIB = 1 << 20;
static const double BUSY_US = 1e6;
static const int RELAXED = 2;
static cudaStream_t stream;

// As torch's own, by functions of whom it is to be.
static void* memory(size_t mib, decltype(cudaStreamIsCapturing) asks, decltype(cudaMalloc) allocates) {
    int status = 0;
    void* at = nullptr;
    OK(asks(stream, &status));
    OK(allocates(&at, mib * MIB));
    return at;
}
static void* torchs(size_t mib) { return memory(mib, c10_is_capturing, c10_malloc); }
// Does the free of memory in use wait?
static bool waits(void* at, decltype(cudaFree) frees) {
    CUsimRange range{reinterpret_cast<uint64_t>(at), MIB, 1};
    OK(cuSimLaunch(stream, &range, 1, BUSY_US));
    uint64_t before = cuSimClock();
    OK(frees(at));
    return cuSimClock() - before > BUSY_US * 500;
}

int main(int count, char**) {
    size_t& methods = *reinterpret_cast<size_t*>(allocator.load());
    size_t original = methods;
    allocator.load()->init(1);
    OK(cudaStreamCreateWithFlags(&stream, 1));
    bool caches = configured("PYTORCH_NO_CUDA_MEMORY_CACHING") != "1";
    CHECK(waits(torchs(2), c10_free) != caches);
    CHECK(waits(torchs(2), cudaFree));

    memory(3, c10_is_capturing, cudaMalloc);
    memory(4, cudaStreamIsCapturing, c10_malloc);
    // Nobody asked for a stream.
    void* at = nullptr;
    OK(c10_malloc(&at, 5 * MIB));
    // It captures.
    void* graph = nullptr;
    OK(cudaStreamBeginCapture(stream, RELAXED));
    torchs(6);
    OK(cudaStreamEndCapture(stream, &graph));
    // The runtime refuses it, and somebody asks the driver.
    int status = 0;
    uint64_t address = 0;
    OK(c10_is_capturing(stream, &status));
    CHECK(c10_malloc(nullptr, 7 * MIB) != 0);
    cudaGetLastError();
    OK(cuMemAlloc_v2(&address, 7 * MIB));
    // A stream was asked for before a call that the runtime refused.
    OK(c10_is_capturing(stream, &status));
    CHECK(c10_malloc(nullptr, MIB) != 0);
    cudaGetLastError();
    OK(c10_malloc(&at, 10 * MIB));
    // The question failed.
    status = 0;
    cudaStream_t gone = nullptr;
    OK(cudaStreamCreateWithFlags(&gone, 1));
    OK(cudaStreamDestroy(gone));
    CHECK(c10_is_capturing(gone, &status) != 0);
    cudaGetLastError();
    OK(c10_malloc(&at, 11 * MIB));
    // For another stream than the one that is asked for.
    allocator.load()->raw_alloc_with_stream(8 * MIB, stream);
    // Its scopes are not counted.
    size_t counting = methods;
    CHECK(counting != original);
    void* before = torchs(2);
    methods = original;
    torchs(9);
    CHECK(waits(before, c10_free));
    methods = counting;
    CHECK(waits(torchs(2), c10_free) != caches);
    // A stream was asked for before it would do something else on out-of-memory, or cached no
    // more: then it asks for none.
    OK(c10_is_capturing(stream, &status));
    if (count > 1) allocator.load()->enable(false);
    else allocator.load()->setUseOnOOM(0, MempoolId_t(0, 1), true);
    OK(c10_malloc(&at, 12 * MIB));
    CHECK(waits(at, c10_free));
    return 0;
}
