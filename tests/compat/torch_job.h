// What a thread does with torch's memory: it allocates, writes, shares, reads and frees
// tensors, the same for a seed whoever lends the memory. Every tensor is written on its stream,
// and its ends and places between are looked at when it is freed; the simulator, or on a real GPU
// tests/gpu/random_on_gpu.cu, is told of each, and ends the program where two share bytes or work
// is not ordered. Waits for no work before it has to know what was read.
#pragma once

#include "torch_calls.h"

#include <algorithm>
#include <atomic>

#include "memcuda_sim.h"

typedef void* cudaEvent_t;
enum { TO_HOST = 2, NO_TIMING = 2 };
static const size_t KIB = 1 << 10, MIB = 1 << 20;
// What is looked at of a tensor: so many bytes, so far apart (on a real GPU its ends alone, since
// kernels look at the rest); and of all until it is checked.
#ifdef ON_GPU
static const size_t APART = SIZE_MAX;
#else
static const size_t APART = 24 * MIB;
#endif
static const size_t SPOT = 16, SEEN = 64 * KIB;

// Found once torch's libraries have brought the runtime.
#define FUNCTIONS(X)                                                   \
    X(cudaSetDevice, (int))                                            \
    X(cudaMallocHost, (void**, size_t))                                \
    X(cudaMemGetInfo, (size_t*, size_t*))                              \
    X(cudaMemsetAsync, (void*, int, size_t, cudaStream_t))             \
    X(cudaMemcpyAsync, (void*, const void*, size_t, int, cudaStream_t)) \
    X(cudaStreamSynchronize, (cudaStream_t))                           \
    X(cudaStreamWaitEvent, (cudaStream_t, cudaEvent_t, unsigned))      \
    X(cudaEventCreateWithFlags, (cudaEvent_t*, unsigned))              \
    X(cudaEventRecord, (cudaEvent_t, cudaStream_t))                    \
    X(cudaEventDestroy, (cudaEvent_t))                                 \
    X(cuStreamBeginCapture_v2, (cudaStream_t, int))                    \
    X(cuStreamEndCapture, (cudaStream_t, void**))                      \
    X(cuStreamWaitValue32_v2, (cudaStream_t, uint64_t, uint32_t, unsigned)) \
    X(cuStreamWriteValue32_v2, (cudaStream_t, uint64_t, uint32_t, unsigned)) \
    X(cuMemGetAddressRange_v2, (uint64_t*, size_t*, uint64_t))         \
    X(cuDevicePrimaryCtxGetState, (int, unsigned*, int*))              \
    X(cuSimLaunch, (void*, const CUsimRange*, unsigned, double))       \
    X(cuSimClaim, (uint64_t, size_t, void*))                           \
    X(cuSimRelease, (uint64_t))                                        \
    X(cuSimPhysical, (int, uint64_t*))
namespace call {
#define DECLARE(name, parameters) static int(*name) parameters;
FUNCTIONS(DECLARE)
static void find() {
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
    // The driver's; of the runtime, or on a real GPU of the program itself.
    auto found = [driver](const char* name) {
        void* function = strncmp(name, "cuda", 4) ? dlsym(driver, name) : nullptr;
        return function ? function : dlsym(RTLD_DEFAULT, name);
    };
#define FIND(name, parameters)                                \
    name = reinterpret_cast<int(*) parameters>(found(#name)); \
    if (!name) fail(#name);
    FUNCTIONS(FIND)
}
}
#define OK(call) CHECK((call) == 0)

static uint64_t held(int device) {
    uint64_t bytes = 0;
    OK(call::cuSimPhysical(device, &bytes));
    return bytes;
}

// One of torch's streams, or the default one.
struct Queue {
    TorchStream torch;
    cudaStream_t stream;
    signed char device() const { return torch.device; }
    Queue(const Torch& torch, TorchStream which) : torch(which), stream(torch.native(which)) {}
};

struct Tensor {
    char* at = nullptr;
    size_t bytes = 0;
    const Queue* queue = nullptr;
    unsigned char value = 0;
    // Allocated as torch's tensors are, not as its extensions allocate.
    bool whole = false;
    DataPtr pointer{};
    size_t spots() const { return (bytes - SPOT) / APART + 2; }
    char* spot(size_t i) const { return i + 1 == spots() ? at + bytes - SPOT : at + i * APART; }
    uint64_t address() const { return reinterpret_cast<uint64_t>(at); }
};

// What a thread does, the same for a seed whoever lends the memory.
struct Job {
    const Torch& torch;
    uint64_t seed;
    std::vector<Queue> queues;
    std::vector<Tensor> tensors;
    size_t live = 0, peak = 0, physical = 0, refused = 0;
    // Of four tensors so many are an extension's.
    size_t raw = 1;
    bool shares = false, scopes = true;
    uint64_t sum = 0xcbf29ce484222325;
    unsigned char* seen = nullptr;
    std::vector<unsigned char> wanted;

    Job(const Torch& torch, uint64_t seed, std::vector<Queue> queues) : torch(torch), seed(seed), queues(queues) {
        void* pinned = nullptr;
        OK(call::cudaMallocHost(&pinned, SEEN));
        seen = static_cast<unsigned char*>(pinned);
    }
    size_t below(size_t limit) {
        seed += 0x9E3779B97F4A7C15;
        uint64_t mixed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
        return (mixed ^ (mixed >> 31)) % limit;
    }
    // With RANGES in the environment: is it in one allocation, as programs ask for it?
    void is_in_one(const Tensor& tensor) const {
        if (!getenv("RANGES")) return;
        uint64_t base = 0;
        size_t bytes = 0;
        OK(call::cuMemGetAddressRange_v2(&base, &bytes, tensor.address()));
        CHECK(tensor.address() + tensor.bytes <= base + bytes);
    }
    void runs(const Queue& queue, const Tensor& tensor, bool writes, double microseconds) {
        CUsimRange range{tensor.address(), tensor.bytes, writes};
        OK(call::cuSimLaunch(queue.stream, &range, 1, microseconds));
    }
    bool allocate(size_t bytes, const Queue& queue, bool whole) {
        Tensor tensor;
        tensor.bytes = bytes, tensor.queue = &queue, tensor.whole = whole;
        tensor.value = 1 + below(255);
        bool served = Torch::served([&] {
            OK(call::cudaSetDevice(queue.device()));
            if (whole) torch.make_current(queue.torch);
            void* at = whole ? torch.allocate(bytes, &tensor.pointer) : torch.raw_allocate(bytes, queue.stream);
            tensor.at = static_cast<char*>(at);
        });
        if (!served) return false;
        CHECK(tensor.at != nullptr);
        is_in_one(tensor);
        OK(call::cuSimClaim(tensor.address(), bytes, queue.stream));
        runs(queue, tensor, true, 5 + below(100));
        for (size_t i = 0; i < tensor.spots(); i++)
            OK(call::cudaMemsetAsync(tensor.spot(i), tensor.value, SPOT, queue.stream));
        live += bytes;
        peak = std::max(peak, live);
        physical = std::max<size_t>(physical, held(queue.device()));
        tensors.push_back(tensor);
        return true;
    }
    // Another stream reads it, and torch is told.
    void share(const Tensor& tensor, const Queue& reader) {
        if (!tensor.whole || reader.stream == tensor.queue->stream || reader.device() != tensor.queue->device()) return;
        cudaEvent_t written = nullptr;
        OK(call::cudaEventCreateWithFlags(&written, NO_TIMING));
        OK(call::cudaEventRecord(written, tensor.queue->stream));
        OK(call::cudaStreamWaitEvent(reader.stream, written, 0));
        OK(call::cudaEventDestroy(written));
        runs(reader, tensor, false, 300);
        torch.record_stream(&tensor.pointer, reader.torch);
    }
    void free(size_t index) {
        Tensor tensor = tensors[index];
        tensors.erase(tensors.begin() + index);
        if (wanted.size() + tensor.spots() * SPOT > SEEN) look();
        // The default stream is the current device's.
        OK(call::cudaSetDevice(tensor.queue->device()));
        for (size_t i = 0; i < tensor.spots(); i++) {
            void* to = seen + wanted.size();
            OK(call::cudaMemcpyAsync(to, tensor.spot(i), SPOT, TO_HOST, tensor.queue->stream));
            wanted.insert(wanted.end(), SPOT, tensor.value);
        }
        is_in_one(tensor);
        OK(call::cuSimRelease(tensor.address()));
        if (tensor.whole) torch.free(tensor.at);
        else torch.raw_free(tensor.at);
        live -= tensor.bytes;
    }
    void clear() {
        while (!tensors.empty()) free(below(tensors.size()));
    }
    // What was read so far: nobody is waited for before it must be known.
    void look() {
        for (const Queue& queue : queues) {
            OK(call::cudaSetDevice(queue.device()));
            OK(call::cudaStreamSynchronize(queue.stream));
        }
        for (size_t i = 0; i < wanted.size(); i++) {
            if (seen[i] != wanted[i]) fail("a tensor does not hold what was written to it", i);
            sum = (sum ^ seen[i]) * 0x100000001b3;
        }
        wanted.clear();
    }
    // Tensors of all sizes, freed in no order; never more alive than `most` bytes.
    template <typename Size> bool churn(int rounds, size_t most, Size size) {
        for (int i = 0; i < rounds; i++) {
            size_t bytes = size();
            while (live + bytes > most) free(below(tensors.size()));
            const Queue& queue = queues[below(queues.size())];
            if (!allocate(bytes, queue, below(4) >= raw)) return false;
            if (shares && below(6) == 0) share(tensors.back(), queues[below(queues.size())]);
            if (!tensors.empty() && below(3) == 0) free(below(tensors.size()));
        }
        return true;
    }
    size_t mixed() {
        switch (below(8)) {
        case 0: case 1: case 2: return 512 + below(MIB);
        case 3: case 4: case 5: return MIB + below(20 * MIB);
        default: return 20 * MIB + below(180 * MIB);
        }
    }
    // Steps of a training whose batches are of other lengths each time.
    bool train(int steps, size_t layers) {
        const Queue& queue = queues[0];
        for (int step = 0; step < steps; step++) {
            size_t length = 40 + below(100), before = tensors.size();
            for (size_t layer = 0; layer < layers; layer++)
                for (size_t part : {1, 2, 4})
                    if (!allocate(length * part * 64 * KIB + 512, queue, true)) return false;
            while (tensors.size() > before) free(tensors.size() - 1);
        }
        return true;
    }
    // A private pool, some of whose tensors outlive the scope.
    bool pooled() {
        const Queue& queue = queues[1];
        // Torch's counter of them begins at 1.
        static std::atomic<unsigned long long> pools{0};
        const MempoolId pool(0, ++pools);
        size_t before = tensors.size();
        if (scopes) torch.open_pool(pool, queue.device(), queue.stream);
        for (int i = 0; i < 12; i++) {
            if (!allocate(mixed() / 2 + SPOT, queue, i % 3 != 0)) return false;
            if (i % 4 == 3) free(tensors.size() - 2);
        }
        if (scopes) torch.close_pool(pool, queue.device(), queue.stream);
        if (!churn(10, live + 300 * MIB, [&] { return mixed(); })) return false;
        while (tensors.size() > before) free(tensors.size() - 1);
        if (scopes) torch.release_pool(pool, queue.device());
        return true;
    }
};
