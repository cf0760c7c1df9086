// A segment that is still used when torch gives it back, and who has it next.
// usage: segments CASE
// The simulated GPU ends the program where an order is missing. Prints "in MICROSECONDS us",
// which is how long the host took for the second segment.
#include "../../../sim/include/memcuda_sim.h"
#include "c10.h"
#include "checks.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

extern "C" {
int cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
int cudaStreamSynchronize(cudaStream_t);
int cudaStreamDestroy(cudaStream_t);
int cudaStreamBeginCapture(cudaStream_t, int);
int cudaStreamEndCapture(cudaStream_t, void**);
int cudaGraphInstantiate(void**, void*, unsigned long long);
int cudaGraphLaunch(void*, cudaStream_t);
int cudaDeviceSynchronize();
int cuPointerSetAttribute(const void*, int, unsigned long long);
int cuDeviceGetDevResource(int, void*, int);
int cuDevResourceGenerateDesc(void**, void*, unsigned);
int cuGreenCtxCreate(void**, void*, int, unsigned);
int cuGreenCtxDestroy(void*);
int cuGreenCtxStreamCreate(cudaStream_t*, void*, unsigned, int);
}

using c10::cuda::CUDACachingAllocator::allocator;
static const size_t BYTES = 64 << 20;
static const double BUSY_US = 1e6;
static const int RELAXED = 2;
static const cudaStream_t PER_THREAD = reinterpret_cast<cudaStream_t>(2);

static cudaStream_t new_stream() {
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, 1));
    return stream;
}
static void* segment(cudaStream_t stream) {
    current_stream = stream;
    return allocator.load()->raw_alloc(BYTES);
}
static void use(void* at, cudaStream_t stream) {
    CUsimRange range{reinterpret_cast<uint64_t>(at), BYTES, 1};
    OK(cuSimLaunch(stream, &range, 1, BUSY_US));
}

static void give_up(void* segment) {
    allocator.load()->raw_delete(segment);
    allocator.load()->emptyCache();
}
// Is it the first one again?
static void* next(void* first, cudaStream_t stream) {
    uint64_t before = cuSimClock();
    void* second = segment(stream);
    printf("%s in %llu us\n", second == first ? "again" : "elsewhere", (unsigned long long)(cuSimClock() - before) / 1000);
    return second;
}

static void by_another_stream() {
    cudaStream_t one = new_stream(), other = new_stream(), third = new_stream();
    void* first = segment(one);
    use(first, one);
    give_up(first);
    // All of this stream's work is over, so a third one may use what it is given.
    OK(cudaStreamSynchronize(other));
    use(next(first, other), third);
}

// Each thread's own default stream has the same name.
static void by_another_thread() {
    void* first = segment(PER_THREAD);
    use(first, PER_THREAD);
    give_up(first);
    std::thread([=] { use(next(first, PER_THREAD), PER_THREAD); }).join();
}

// A graph on memory of a private pool is replayed on another stream.
static void by_its_stream_after_a_graph() {
    const MempoolId_t pool(0, 1);
    cudaStream_t one = new_stream(), other = new_stream();
    void *graph = nullptr, *ready = nullptr;
    allocator.load()->beginAllocateToPool(0, pool, [](cudaStream_t) { return true; });
    void* first = segment(one);
    allocator.load()->endAllocateToPool(0, pool);
    OK(cudaStreamBeginCapture(one, RELAXED));
    use(first, one);
    OK(cudaStreamEndCapture(one, &graph));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphLaunch(ready, other));
    give_up(first);
    use(next(first, one), one);
}

// So is one on memory that was asked for beside its capture.
static void by_its_stream_after_a_capture_beside() {
    cudaStream_t one = new_stream(), two = new_stream(), other = new_stream();
    void *graph = nullptr, *ready = nullptr;
    OK(cudaStreamBeginCapture(two, RELAXED));
    void* first = segment(one);
    use(first, two);
    OK(cudaStreamEndCapture(two, &graph));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphLaunch(ready, other));
    give_up(first);
    use(next(first, one), one);
}

// The thread that gives it up has another stream of that name.
static void given_up_by_another_thread() {
    void* first = segment(PER_THREAD);
    use(first, PER_THREAD);
    cudaStream_t other = new_stream();
    std::thread([=] { give_up(first); use(next(first, other), other); }).join();
}

// Its handle is the next stream's. `ends`: before the segment is given up.
static void by_a_stream_of_its_handle(cudaStream_t one, bool ends) {
    void* first = segment(one);
    use(first, one);
    if (ends) OK(cudaStreamDestroy(one));
    if (!ends) give_up(first);
    if (!ends) OK(cudaStreamDestroy(one));
    cudaStream_t again = new_stream();
    if (again != one) printf("the handle is another\n");
    if (ends) {
        use(segment(again), again);
        give_up(first);
    }
    use(next(first, again), again);
}

// A stream of a green context, used while the primary context is current.
static void* green_context() {
    char resource[256] = {};
    void *description = nullptr, *green = nullptr;
    OK(cuDeviceGetDevResource(0, resource, 1));
    OK(cuDevResourceGenerateDesc(&description, resource, 1));
    OK(cuGreenCtxCreate(&green, description, 0, 1));
    return green;
}
static cudaStream_t stream_of(void* green) {
    cudaStream_t stream = nullptr;
    OK(cuGreenCtxStreamCreate(&stream, green, 1, 0));
    return stream;
}

// Another stream reads it when it is given up. Torch was told so while somebody's private pool was
// open, and has forgotten it: it relies on cudaFree to wait. Where it does not forget, or was told
// while none was open, nobody waits.
static void by_its_stream_beside_a_reader(bool in_scope, bool forgets) {
    const MempoolId_t pool(0, 1);
    cudaStream_t one = new_stream(), reader = new_stream();
    void* first = segment(one);
    auto record = [=] {
        allocator.load()->recordStream({first}, {1, 0, reinterpret_cast<long>(reader)});
    };
    if (!in_scope) record();
    allocator.load()->beginAllocateToPool(0, pool, [](cudaStream_t) { return false; });
    if (in_scope) record();
    allocator.load()->endAllocateToPool(0, pool);
    const bool waits = in_scope && forgets;
    use(first, waits ? reader : one);
    uint64_t before = cuSimClock();
    give_up(first);
    CHECK((cuSimClock() - before > 1000 * BUSY_US / 2) == waits);
    use(next(first, one), one);
}

// What is left of a green context that ended is in nobody's way.
static void after_its_green_context() {
    void *green = green_context(), *late = segment(stream_of(green));
    cudaStream_t stream = stream_of(green);
    void* first = segment(stream);
    use(first, stream);
    give_up(first);
    OK(cudaDeviceSynchronize());
    OK(cuGreenCtxDestroy(green));
    give_up(late);
    // All of the device, but for what one more segment takes: only by joining what is idle.
    current_stream = new_stream();
    void* large = allocator.load()->raw_alloc(960u << 20);
    printf("%s in 0 us\n", large ? "again" : "nothing");
}

// Torch is asked for what it has idle, unless what it has is registered, as for a network card.
static void asked(bool registers) {
    const unsigned yes = 1, sync_memops = 6;
    void *held = segment(nullptr), *idle = segment(nullptr);
    if (registers) OK(cuPointerSetAttribute(&yes, sync_memops, reinterpret_cast<uint64_t>(held)));
    allocator.load()->raw_delete(idle);
    const size_t before = numbers.retries;
    allocator.load()->raw_alloc(2 * BYTES);
    CHECK((numbers.retries == before) == registers);
    CHECK((split_size() == SIZE_MAX) == registers);
    printf("again in 0 us\n");
}

int main(int, char** argv) {
    std::string what = argv[1];
    if (device_count() < 1) return 2;
    allocator.load()->init(1);
    if (what == "stream") by_another_stream();
    if (what == "thread") by_another_thread();
    if (what == "graph") by_its_stream_after_a_graph();
    if (what == "beside") by_its_stream_after_a_capture_beside();
    if (what == "given") given_up_by_another_thread();
    if (what == "ended") by_a_stream_of_its_handle(new_stream(), true);
    if (what == "green") by_a_stream_of_its_handle(stream_of(green_context()), false);
    if (what == "recorded") by_its_stream_beside_a_reader(true, true);
    if (what == "recorded before") by_its_stream_beside_a_reader(false, true);
    if (what == "marked") by_its_stream_beside_a_reader(true, false);
    if (what == "green ended") after_its_green_context();
    if (what == "asked" || what == "registered") asked(what == "registered");
    OK(cudaDeviceSynchronize());
    return 0;
}
