// What the cases of one ladder of torch's over pages are made of (ladder.cc).
#pragma once
#include "checks.h"
#include "mappings.h"
#include "streams.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" {
int cudaSetDevice(int);
int cudaGetDeviceCount(int*);
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int cudaMallocAsync(void**, size_t, cudaStream_t);
int cudaFreeAsync(void*, cudaStream_t);
int cudaDeviceReset();
int cudaDeviceSynchronize();
int cudaStreamSynchronize(cudaStream_t);
int cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
int cudaStreamDestroy(cudaStream_t);
int cudaEventCreateWithFlags(cudaEvent_t*, unsigned);
int cudaEventRecord(cudaEvent_t, cudaStream_t);
int cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
int cuStreamSynchronize(cudaStream_t);
int cuInit(unsigned);
int cuCtxCreate_v2(void**, unsigned, int);
int cuDevicePrimaryCtxRetain(void**, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxSetCurrent(void*);
int cuDeviceGetDevResource(int, void*, int);
int cuDevResourceGenerateDesc(void**, const void*, unsigned);
int cuGreenCtxCreate(void**, void*, int, unsigned);
int cuGreenCtxDestroy(void*);
int cuCtxFromGreenCtx(void**, void*);
int cuMemCreate(u64*, size_t, const Properties*, u64);
int cuMemRelease(u64);
int cuMemAddressReserve(u64*, size_t, size_t, u64, u64);
int cuMemAddressFree(u64, size_t);
int cuMemMap(u64, size_t, size_t, u64, u64);
int cuMemSetAccess(u64, size_t, const Access*, size_t);
int cuMemUnmap(u64, size_t);
int cuMemGetAddressRange_v2(u64*, size_t*, u64);
int cuPointerGetAttribute(void*, int, u64);
int cuMemcpyDtoD_v2(u64, u64, size_t);
int cuMemExportToShareableHandle(void*, unsigned long long, int, unsigned long long);
int cudaStreamBeginCapture(cudaStream_t, int);
int cudaStreamEndCapture(cudaStream_t, void**);
int cudaGraphInstantiate(void**, void*, unsigned long long);
int cudaGraphLaunch(void*, cudaStream_t);
}

using c10::cuda::CUDACachingAllocator::allocator;
static const size_t MIB = 1 << 20;
static const double BUSY_US = 5e6;
static const int CRASHED = 700;
static const bool several = getenv("LADDER_CONTEXTS");

static void* tensor(size_t mib, cudaStream_t stream) {
    return allocator.load()->raw_alloc_with_stream(mib * MIB, stream);
}
static void drop(void* at) { allocator.load()->raw_delete(at); }
static void use(void* at, size_t mib, cudaStream_t stream, double us = BUSY_US) {
    CUsimRange range{reinterpret_cast<uint64_t>(at), mib * MIB, 1};
    OK(cuSimLaunch(stream, &range, 1, us));
}
// Did the host not wait for what is busy?
template <typename F> static bool at_once(F run) {
    uint64_t before = cuSimClock();
    run();
    return cuSimClock() - before < BUSY_US * 500;
}
static cudaStream_t new_stream() {
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, 1));
    return stream;
}

// A stream of another context.
[[maybe_unused]] static cudaStream_t another_context() {
    void* context = nullptr;
    OK(cuCtxCreate_v2(&context, 0, 0));
    cudaStream_t stream = new_stream();
    OK(cudaSetDevice(0));
    return stream;
}

// Another context comes while the first cuInit, on another thread, has not come back: the
// library, which has said one line there, waits for room for the next one.
[[maybe_unused]] static void unseen_context() {
    int ends[2], there = 0, log = dup(2);
    const std::string full(4000, ' ');
    void* context = nullptr;
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) == 4096);
    CHECK(write(ends[1], full.data(), full.size()) == 4000 && dup2(ends[1], 2) == 2);
    std::thread first([] { OK(cuInit(0)); });
    while (there <= 4000) CHECK(ioctl(ends[0], FIONREAD, &there) == 0);
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuCtxSetCurrent(nullptr));
    CHECK(dup2(log, 2) == 2 && read(ends[0], &std::vector<char>(4096)[0], 4096) > 4000);
    first.join();
}

// A green context: current until it goes.
struct View {
    void *green = nullptr, *context = nullptr;
    int device;
    explicit View(int device = 0) : device(device) {
        char resource[152];
        void* description = nullptr;
        OK(cuDeviceGetDevResource(device, resource, 1));
        OK(cuDevResourceGenerateDesc(&description, resource, 1));
        OK(cuGreenCtxCreate(&green, description, device, 1));
        OK(cuCtxFromGreenCtx(&context, green));
        OK(cuCtxSetCurrent(context));
    }
    void leave() { OK(cudaSetDevice(device)); }
    void end() {
        leave();
        OK(cuGreenCtxDestroy(green));
    }
};

// Three streams, tensors that keep their reservations, and ladders by which it is known
// on which stream each is used.
struct Job {
    cudaStream_t one = getenv("LADDER_DEFAULT") ? nullptr : new_stream(), other = new_stream(), third = new_stream();
    // Idle pages at the highest addresses go first: those of the first reservation.
    void* first = tensor(12, third);
    // The hole of the first stream: what fits in comes to lie there.
    static const size_t HOLE = 96;
    void *front = tensor(12, one), *hole = tensor(HOLE, one), *behind = tensor(12, one);

    Job() {
        CHECK(first > behind);
        tensor(12, other);
        for (int i = 0; i < 3; i++) {
            drop(tensor(HOLE, other)), drop(tensor(HOLE, third)), drop(hole);
            drop(ladder());
            hole = tensor(HOLE, one);
        }
        for (cudaStream_t stream : {one, other, third}) OK(cudaStreamSynchronize(stream));
        waits = {0, 0};
    }
    // From now on no page is idle, and torch has single ones of the third stream alone.
    void prepare() {
        std::vector<void*> asked;
        while (asked.size() < 4) {
            size_t retries = numbers.retries;
            void* page = tensor(12, third);
            numbers.retries > retries ? asked.push_back(page) : asked.clear();
        }
        drop(asked[0]), drop(asked[2]);
    }
    // Torch is asked for what it has. Those pages are taken, the rest is nobody's.
    void* ask() {
        size_t retries = numbers.retries;
        void* both = tensor(24, third);
        CHECK(numbers.retries > retries);
        return both;
    }
    void* ladder() {
        prepare();
        return ask();
    }
    // The hole is given up with work on it.
    void give_up() {
        prepare();
        use(hole, HOLE, one);
        drop(hole);
        CHECK(at_once([&] { ask(); }));
    }
    // Its pages are used next by a tensor of this stream; where is that? `waits`: the
    // host does.
    void* next(size_t mib, cudaStream_t stream, bool waits) {
        void* next = nullptr;
        CHECK(at_once([&] { next = tensor(mib, stream); }) != waits);
        use(next, mib, stream);
        return next;
    }
};
