// Random work over torch's allocator with streams: legal on a real GPU, so that the
// simulated one, which knows every order that is missing, ends it only where pages were
// given to the next user too early. What tensors hold is looked at, too.
// usage: order SEED OPERATIONS THREADS
// ORDER_SMALL=1: an allocation may be out of memory; ORDER_FOREIGN=1: others need memory;
// ORDER_DEVICES=2: each thread works on two devices; ORDER_AT_ONCE=1: torch unmaps all
// pages of a block by one call; ORDER_CONTEXTS=1: a library beside makes and ends contexts;
// ORDER_SHARED=1: pages are exported.
#include "streams.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>

typedef void* Graph;
extern "C" {
int cudaSetDevice(int);
int cudaDeviceEnablePeerAccess(int, unsigned);
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int cudaMallocHost(void**, size_t);
int cudaDeviceSynchronize();
int cudaMemsetAsync(void*, int, size_t, cudaStream_t);
int cudaMemcpyAsync(void*, const void*, size_t, int, cudaStream_t);
int cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
int cudaStreamSynchronize(cudaStream_t);
int cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
int cudaStreamBeginCapture(cudaStream_t, int);
int cudaStreamEndCapture(cudaStream_t, Graph*);
int cudaEventCreateWithFlags(cudaEvent_t*, unsigned);
int cudaEventRecord(cudaEvent_t, cudaStream_t);
int cudaEventDestroy(cudaEvent_t);
int cudaGraphInstantiate(Graph*, Graph, unsigned long long);
int cudaGraphLaunch(Graph, cudaStream_t);
int cudaGraphDestroy(Graph);
int cudaGraphExecDestroy(Graph);
int cuDevicePrimaryCtxRetain(void**, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxCreate_v2(void**, unsigned, int);
int cuCtxDestroy_v2(void*);
int cuMemExportToShareableHandle(void*, unsigned long long, int, unsigned long long);
}

using c10::cuda::CUDACachingAllocator::allocator;
static const size_t MIB = 1 << 20, SPOT = 16, APART = 4 * MIB, SEEN = 1 << 16;
static const int TRIES = 10, ON_DEVICE = 3, TO_HOST = 2, RELAXED = 2;
static bool may_fail, small, foreign, shared;
static int devices = 1;
// A capture ends where anybody waits for the whole device.
static std::mutex whole;

[[noreturn]] static void fail(const char* what, int code) {
    fprintf(stderr, "order: %s: %d\n", what, code);
    _Exit(1);
}
// Calls that may fail on purpose are made again.
template <typename F> static void must(F call, const char* what) {
    int code = call();
    for (int i = 0; i < TRIES && code && may_fail; i++) code = call();
    if (code) fail(what, code);
}
#define MUST(call) must([&] { return call; }, #call)

// A stream, and whose.
struct Queue {
    int device;
    cudaStream_t stream;
    bool operator==(const Queue& other) const { return device == other.device && stream == other.stream; }
};
struct Tensor {
    char* at;
    size_t bytes;
    int device;
    // In whose order it is: torch does not ask that it be its device's.
    Queue queue;
    unsigned char value;
    size_t spots() const { return bytes / APART + 1; }
    char* spot(size_t i) const { return i == bytes / APART ? at + bytes - SPOT : at + i * APART; }
};
// A graph on memory of its own, replayed on whatever stream.
struct Replay {
    Graph graph = nullptr, ready = nullptr;
    unsigned long long pool = 0;
    std::vector<Tensor> tensors;
    int device = 0;
    Queue last{0, nullptr};
};

struct Job {
    unsigned long long seed;
    size_t most, live = 0, operations = 0, graphs = 0;
    std::vector<Queue> queues;
    std::vector<cudaStream_t> captures;
    std::vector<Tensor> tensors;
    Replay replay;
    unsigned char* seen = nullptr;
    std::vector<unsigned char> wanted;

    Job(unsigned long long seed, size_t most) : seed(seed * 0x9E3779B97F4A7C15u + 1), most(most) {
        for (int device = 0; device < devices; device++) {
            MUST(cudaSetDevice(device));
            queues.push_back({device, nullptr});
            for (unsigned flags : {1, 1, 0}) {
                queues.push_back({device, nullptr});
                MUST(cudaStreamCreateWithFlags(&queues.back().stream, flags));
            }
            captures.push_back(nullptr);
            MUST(cudaStreamCreateWithFlags(&captures.back(), 1));
        }
        MUST(cudaMallocHost(reinterpret_cast<void**>(&seen), SEEN + 1));
    }
    size_t pick(size_t below) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        return (seed * 0x2545F4914F6CDD1Du >> 11) % below;
    }
    Queue any_queue() { return queues[pick(queues.size())]; }
    Queue any_queue_of(int device) {
        Queue any = any_queue();
        return any.device == device ? any : any_queue_of(device);
    }
    // Calls for this queue are the next ones.
    cudaStream_t on(const Queue& queue) {
        MUST(cudaSetDevice(queue.device));
        return queue.stream;
    }
    double any_time() { return 50.0 + pick(pick(8) ? 500 : 20000); }

    void behind(Queue later, Queue earlier) {
        if (later == earlier) return;
        cudaEvent_t event = nullptr;
        cudaStream_t stream = on(earlier);
        MUST(cudaEventCreateWithFlags(&event, 2));
        MUST(cudaEventRecord(event, stream));
        stream = on(later);
        MUST(cudaStreamWaitEvent(stream, event, 0));
        MUST(cudaEventDestroy(event));
    }
    void launch(const Tensor& tensor, Queue queue, bool write) {
        CUsimRange range{reinterpret_cast<uint64_t>(tensor.at), tensor.bytes, write};
        cudaStream_t stream = on(queue);
        double time = any_time();
        MUST(cuSimLaunch(stream, &range, 1, time));
    }
    void fill(Tensor& tensor, Queue queue) {
        cudaStream_t stream = on(queue);
        tensor.value = pick(256);
        for (size_t i = 0; i < tensor.spots(); i++) MUST(cudaMemsetAsync(tensor.spot(i), tensor.value, SPOT, stream));
    }
    void look(const Tensor& tensor, Queue queue) {
        for (size_t i = 0; i < tensor.spots(); i++) {
            if (wanted.size() == SEEN / SPOT) verify();
            cudaStream_t stream = on(queue);
            MUST(cudaMemcpyAsync(seen + wanted.size() * SPOT, tensor.spot(i), SPOT, TO_HOST, stream));
            wanted.push_back(tensor.value);
        }
    }
    void verify() {
        {
            std::lock_guard<std::mutex> lock(whole);
            for (int device = 0; device < devices; device++) {
                MUST(cudaSetDevice(device));
                MUST(cudaDeviceSynchronize());
            }
        }
        for (size_t i = 0; i < wanted.size(); i++)
            for (size_t j = 0; j < SPOT; j++)
                if (seen[i * SPOT + j] != wanted[i]) fail("a tensor has other bytes", seen[i * SPOT + j]);
        wanted.clear();
    }
    // For this queue's order; its first user is another one now and then.
    bool allocate(std::vector<Tensor>& into, int device, Queue queue, Queue user) {
        size_t bytes = pick(4) == 0 ? (pick(MIB) + 32) & ~size_t(15) : (pick(40) + 2) * MIB + pick(2) * 4096;
        Tensor tensor{nullptr, bytes, device, queue, 0};
        MUST(cudaSetDevice(device));
        try {
            tensor.at = static_cast<char*>(allocator.load()->raw_alloc_with_stream(bytes, queue.stream));
        } catch (std::bad_alloc&) {
            if (!small) fail("out of memory", 2);
            return false;
        }
        launch(tensor, user, true);
        fill(tensor, user);
        behind(queue, user);
        into.push_back(tensor);
        live += bytes;
        return true;
    }
    void release(size_t i) {
        Tensor tensor = tensors[i];
        if (pick(4) == 0 && !may_fail) {
            // Its last use is on another stream, and nothing waits for that but the events
            // of torch, which does not live without them.
            Queue user = any_queue();
            behind(user, tensor.queue);
            launch(tensor, user, false);
            if (pick(2)) look(tensor, user);
            if (!(user == tensor.queue)) torch_record_stream(tensor.at, user.stream, user.device);
        } else if (pick(2)) {
            look(tensor, tensor.queue);
        }
        allocator.load()->raw_delete(tensor.at);
        live -= tensor.bytes;
        tensors[i] = tensors.back();
        tensors.pop_back();
    }
    // A use on its own stream, or on another one that the own then waits for.
    void use(Tensor& tensor) {
        Queue user = pick(2) ? tensor.queue : any_queue();
        behind(user, tensor.queue);
        switch (pick(4)) {
        case 0: launch(tensor, user, false); break;
        case 1: launch(tensor, user, true); break;
        case 2: fill(tensor, user); break;
        default: copy(tensors[pick(tensors.size())], tensor, user);
        }
        behind(tensor.queue, user);
    }
    void copy(const Tensor& from, Tensor& to, Queue queue) {
        if (from.at == to.at || from.spots() < to.spots()) return;
        behind(queue, from.queue);
        cudaStream_t stream = on(queue);
        for (size_t i = 0; i < to.spots(); i++)
            MUST(cudaMemcpyAsync(to.spot(i), from.spot(i), SPOT, ON_DEVICE, stream));
        to.value = from.value;
        behind(from.queue, queue);
    }
    void capture() {
        static std::atomic<unsigned long long> pools{0};
        drop_replay();
        std::lock_guard<std::mutex> lock(whole);
        int device = replay.device = pick(devices);
        Queue queue{device, captures[device]};
        cudaStream_t stream = on(queue);
        MempoolId_t id(0, replay.pool = ++pools);
        allocator.load()->beginAllocateToPool(device, id, [stream](cudaStream_t asked) { return asked == stream; });
        MUST(cudaStreamBeginCapture(stream, RELAXED));
        for (size_t i = 0; i < 1 + pick(3); i++) allocate(replay.tensors, device, queue, queue);
        if (replay.tensors.size() > 1 && pick(2)) {
            // Its place may be another tensor's of the graph.
            allocator.load()->raw_delete(replay.tensors[0].at);
            live -= replay.tensors[0].bytes;
            replay.tensors.erase(replay.tensors.begin());
            allocate(replay.tensors, device, queue, queue);
        }
        MUST(cudaStreamEndCapture(on(queue), &replay.graph));
        allocator.load()->endAllocateToPool(device, id);
        MUST(cudaGraphInstantiate(&replay.ready, replay.graph, 0));
        graphs++;
        replay.last = any_queue_of(device);
        stream = on(replay.last);
        MUST(cudaGraphLaunch(replay.ready, stream));
    }
    void launch_again() {
        if (!replay.ready) return;
        Queue queue = any_queue_of(replay.device);
        behind(queue, replay.last);
        cudaStream_t stream = on(replay.last = queue);
        MUST(cudaGraphLaunch(replay.ready, stream));
        for (auto& tensor : replay.tensors)
            if (pick(2)) look(tensor, queue);
    }
    void drop_replay() {
        if (!replay.ready) return;
        // Torch waits for the stream of the capture alone when it unmaps.
        cudaStream_t last = on(replay.last);
        MUST(cudaStreamSynchronize(last));
        MUST(cudaGraphExecDestroy(replay.ready));
        MUST(cudaGraphDestroy(replay.graph));
        for (auto& tensor : replay.tensors) allocator.load()->raw_delete(tensor.at), live -= tensor.bytes;
        torch_release_pool(replay.pool);
        replay = Replay();
    }
    void step() {
        operations++;
        size_t what = pick(1000);
        if (what < 8) capture();
        else if (what < 60) launch_again();
        else if (what < 64) allocator.load()->emptyCache();
        else if (what < 68) item();
        else if (what < 70) verify();
        else if (what < 72 && foreign) other_memory();
        else if (what < 78 && shared && !tensors.empty()) share(tensors[pick(tensors.size())]);
        else if (what < 500 && !tensors.empty()) use(tensors[pick(tensors.size())]);
        else if ((live > most || what > 800) && !tensors.empty()) release(pick(tensors.size()));
        else allocate();
        if (pick(50) == 0) most += 8 * MIB;
    }
    void allocate() {
        Queue queue = any_queue(), user = queue;
        // When all work of its stream is over, whatever torch has for it is anybody's. (Its
        // own: on a default stream other threads work.)
        if (queue.stream && pick(8) == 0) {
            cudaStream_t stream = on(queue);
            MUST(cudaStreamSynchronize(stream));
            user = any_queue();
        }
        // Of another device's default stream torch does not know whose it is.
        allocate(tensors, queue.stream && pick(8) == 0 ? pick(devices) : queue.device, queue, user);
    }
    // As `.item()`: what the host has waited for it reads.
    void item() {
        if (tensors.empty()) return;
        const Tensor& tensor = tensors[pick(tensors.size())];
        cudaStream_t stream = on(tensor.queue);
        unsigned char* read = seen + SEEN;
        *read = ~tensor.value;
        MUST(cudaMemcpyAsync(read, tensor.spot(0), 1, TO_HOST, stream));
        MUST(torch_wait(stream));
        if (*read != tensor.value) fail("a value has not come", *read);
    }
    // Others could open a page from now on.
    void share(const Tensor& tensor) {
        int descriptor = -1;
        MUST(cuMemExportToShareableHandle(&descriptor, torch_handle(tensor.at), 1, 0));
        close(descriptor);
    }
    // Another library of the process needs memory of its own.
    void other_memory() {
        void* at = nullptr;
        int code = cudaMalloc(&at, (64 + pick(400)) * MIB);
        if (code && code != 2 && !may_fail) fail("cudaMalloc", code);
        if (!code) MUST(cudaFree(at));
    }
    void run(size_t steps) {
        while (operations < steps) step();
        drop_replay();
        while (!tensors.empty()) release(0);
        verify();
    }
};

// A call of torch's own may fail on purpose: then its job does.
template <typename F> static void until_it_fails(F run) {
    try {
        run();
    } catch (std::runtime_error& error) {
        if (!may_fail) fail(error.what(), 0);
        printf("stopped\n");
        fflush(stdout);
        _Exit(0);
    }
}

static void contexts_come_and_go(const std::atomic<bool>& over) {
    while (!over) {
        void* context = nullptr;
        MUST(cuDevicePrimaryCtxRetain(&context, 0));
        MUST(cuDevicePrimaryCtxRelease_v2(0));
        // A context takes memory of a card that may be full.
        std::lock_guard<std::mutex> lock(whole);
        if (cuCtxCreate_v2(&context, 0, 0) == 0) MUST(cuCtxDestroy_v2(context));
    }
}

int main(int, char** argv) {
    unsigned long long seed = strtoull(argv[1], nullptr, 10);
    size_t steps = strtoull(argv[2], nullptr, 10), count = strtoull(argv[3], nullptr, 10);
    may_fail = getenv("MEMCUDA_SIM_FAIL");
    small = getenv("ORDER_SMALL") || may_fail;
    foreign = getenv("ORDER_FOREIGN");
    shared = getenv("ORDER_SHARED");
    devices = getenv("ORDER_DEVICES") ? atoi(getenv("ORDER_DEVICES")) : 1;
    MUST(cudaSetDevice(0));
    until_it_fails([] { allocator.load()->init(devices); });
    for (int device = 0; device < devices; device++)
        for (int other = 0; other < devices; other++) {
            if (other == device) continue;
            MUST(cudaSetDevice(other));
            MUST(cudaDeviceEnablePeerAccess(device, 0));
            torch_add_reader(device, other);
        }
    std::atomic<size_t> graphs{0};
    std::vector<std::thread> threads;
    std::atomic<bool> over{false};
    std::thread beside;
    if (getenv("ORDER_CONTEXTS")) beside = std::thread([&] { contexts_come_and_go(over); });
    for (size_t i = 0; i < count; i++)
        threads.emplace_back([&, i] {
            until_it_fails([&] {
                Job job(seed * 64 + i, 300 * MIB / count);
                job.run(steps);
                graphs += job.graphs;
            });
        });
    for (auto& thread : threads) thread.join();
    over = true;
    if (beside.joinable()) beside.join();
    until_it_fails([] { allocator.load()->emptyCache(); });
    printf("ladders %zu waits %zu microseconds %zu graphs %zu\n", numbers.retries, waits.count,
           waits.nanoseconds / 1000, graphs.load());
    return 0;
}
