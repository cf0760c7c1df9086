// Random work over torch's allocator with streams: legal on a real GPU, so that the
// simulated one, which knows every order that is missing, ends it only where pages were
// given to the next user too early. What tensors hold is looked at, too.
// usage: order SEED OPERATIONS THREADS
// ORDER_SMALL=1: an allocation may be out of memory; ORDER_FOREIGN=1: others need memory.
#include "streams.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

typedef void* Graph;
extern "C" {
int cudaSetDevice(int);
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
}

using c10::cuda::CUDACachingAllocator::allocator;
static const size_t MIB = 1 << 20, SPOT = 16, APART = 4 * MIB, SEEN = 1 << 16;
static const int TRIES = 10, ON_DEVICE = 3, TO_HOST = 2, RELAXED = 2;
static bool may_fail, small, foreign;
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

struct Tensor {
    char* at;
    size_t bytes;
    cudaStream_t stream;
    unsigned char value;
    size_t spots() const { return bytes / APART + 1; }
    char* spot(size_t i) const { return i == bytes / APART ? at + bytes - SPOT : at + i * APART; }
};
// A graph on memory of its own, replayed on whatever stream.
struct Replay {
    Graph graph = nullptr, ready = nullptr;
    unsigned long long pool = 0;
    std::vector<Tensor> tensors;
    cudaStream_t last = nullptr;
};

struct Job {
    unsigned long long seed;
    size_t most, live = 0, operations = 0, graphs = 0;
    std::vector<cudaStream_t> streams{nullptr};
    cudaStream_t captures = nullptr;
    std::vector<Tensor> tensors;
    Replay replay;
    unsigned char* seen = nullptr;
    std::vector<unsigned char> wanted;

    Job(unsigned long long seed, size_t most) : seed(seed * 0x9E3779B97F4A7C15u + 1), most(most) {
        MUST(cudaSetDevice(0));
        for (unsigned flags : {1, 1, 0}) {
            streams.push_back(nullptr);
            MUST(cudaStreamCreateWithFlags(&streams.back(), flags));
        }
        MUST(cudaStreamCreateWithFlags(&captures, 1));
        MUST(cudaMallocHost(reinterpret_cast<void**>(&seen), SEEN));
    }
    size_t pick(size_t below) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        return (seed * 0x2545F4914F6CDD1Du >> 11) % below;
    }
    cudaStream_t any_stream() { return streams[pick(streams.size())]; }
    double any_time() { return 50.0 + pick(pick(8) ? 500 : 20000); }

    void behind(cudaStream_t later, cudaStream_t earlier) {
        if (later == earlier) return;
        cudaEvent_t event = nullptr;
        MUST(cudaEventCreateWithFlags(&event, 2));
        MUST(cudaEventRecord(event, earlier));
        MUST(cudaStreamWaitEvent(later, event, 0));
        MUST(cudaEventDestroy(event));
    }
    void launch(const Tensor& tensor, cudaStream_t stream, bool write) {
        CUsimRange range{reinterpret_cast<uint64_t>(tensor.at), tensor.bytes, write};
        double time = any_time();
        MUST(cuSimLaunch(stream, &range, 1, time));
    }
    void fill(Tensor& tensor, cudaStream_t stream) {
        tensor.value = pick(256);
        for (size_t i = 0; i < tensor.spots(); i++) MUST(cudaMemsetAsync(tensor.spot(i), tensor.value, SPOT, stream));
    }
    void look(const Tensor& tensor, cudaStream_t stream) {
        for (size_t i = 0; i < tensor.spots(); i++) {
            if (wanted.size() == SEEN / SPOT) verify();
            MUST(cudaMemcpyAsync(seen + wanted.size() * SPOT, tensor.spot(i), SPOT, TO_HOST, stream));
            wanted.push_back(tensor.value);
        }
    }
    void verify() {
        {
            std::lock_guard<std::mutex> lock(whole);
            MUST(cudaDeviceSynchronize());
        }
        for (size_t i = 0; i < wanted.size(); i++)
            for (size_t j = 0; j < SPOT; j++)
                if (seen[i * SPOT + j] != wanted[i]) fail("a tensor has other bytes", seen[i * SPOT + j]);
        wanted.clear();
    }
    bool allocate(std::vector<Tensor>& into, cudaStream_t stream) {
        size_t bytes = pick(4) == 0 ? (pick(MIB) + 32) & ~size_t(15) : (pick(40) + 2) * MIB + pick(2) * 4096;
        Tensor tensor{nullptr, bytes, stream, 0};
        try {
            tensor.at = static_cast<char*>(allocator.load()->raw_alloc_with_stream(bytes, stream));
        } catch (std::bad_alloc&) {
            if (!small) fail("out of memory", 2);
            return false;
        }
        launch(tensor, stream, true);
        fill(tensor, stream);
        into.push_back(tensor);
        live += bytes;
        return true;
    }
    void release(size_t i) {
        Tensor tensor = tensors[i];
        if (pick(4) == 0 && !may_fail) {
            // Its last use is on another stream, and nothing waits for that but the events
            // of torch, which does not live without them.
            cudaStream_t user = any_stream();
            behind(user, tensor.stream);
            launch(tensor, user, false);
            if (pick(2)) look(tensor, user);
            if (user != tensor.stream) torch_record_stream(tensor.at, user);
        } else if (pick(2)) {
            look(tensor, tensor.stream);
        }
        allocator.load()->raw_delete(tensor.at);
        live -= tensor.bytes;
        tensors[i] = tensors.back();
        tensors.pop_back();
    }
    // A use on its own stream, or on another one that the own then waits for.
    void use(Tensor& tensor) {
        cudaStream_t user = pick(2) ? tensor.stream : any_stream();
        behind(user, tensor.stream);
        switch (pick(4)) {
        case 0: launch(tensor, user, false); break;
        case 1: launch(tensor, user, true); break;
        case 2: fill(tensor, user); break;
        default: copy(tensors[pick(tensors.size())], tensor, user);
        }
        behind(tensor.stream, user);
    }
    void copy(const Tensor& from, Tensor& to, cudaStream_t stream) {
        if (from.at == to.at || from.spots() < to.spots()) return;
        behind(stream, from.stream);
        for (size_t i = 0; i < to.spots(); i++)
            MUST(cudaMemcpyAsync(to.spot(i), from.spot(i), SPOT, ON_DEVICE, stream));
        to.value = from.value;
        behind(from.stream, stream);
    }
    void capture() {
        static std::atomic<unsigned long long> pools{0};
        drop_replay();
        std::lock_guard<std::mutex> lock(whole);
        cudaStream_t stream = captures;
        MempoolId_t id(0, replay.pool = ++pools);
        allocator.load()->beginAllocateToPool(0, id, [stream](cudaStream_t asked) { return asked == stream; });
        MUST(cudaStreamBeginCapture(stream, RELAXED));
        for (size_t i = 0; i < 1 + pick(3); i++) allocate(replay.tensors, stream);
        if (replay.tensors.size() > 1 && pick(2)) {
            // Its place may be another tensor's of the graph.
            allocator.load()->raw_delete(replay.tensors[0].at);
            live -= replay.tensors[0].bytes;
            replay.tensors.erase(replay.tensors.begin());
            allocate(replay.tensors, stream);
        }
        MUST(cudaStreamEndCapture(stream, &replay.graph));
        allocator.load()->endAllocateToPool(0, id);
        MUST(cudaGraphInstantiate(&replay.ready, replay.graph, 0));
        graphs++;
        replay.last = any_stream();
        MUST(cudaGraphLaunch(replay.ready, replay.last));
    }
    void launch_again() {
        if (!replay.ready) return;
        cudaStream_t stream = any_stream();
        behind(stream, replay.last);
        MUST(cudaGraphLaunch(replay.ready, replay.last = stream));
        for (auto& tensor : replay.tensors)
            if (pick(2)) look(tensor, stream);
    }
    void drop_replay() {
        if (!replay.ready) return;
        // Torch waits for the stream of the capture alone when it unmaps.
        MUST(cudaStreamSynchronize(replay.last));
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
        else if (what < 68) MUST(torch_wait(any_stream()));
        else if (what < 70) verify();
        else if (what < 72 && foreign) other_memory();
        else if (what < 500 && !tensors.empty()) use(tensors[pick(tensors.size())]);
        else if ((live > most || what > 800) && !tensors.empty()) release(pick(tensors.size()));
        else allocate(tensors, any_stream());
        if (pick(50) == 0) most += 8 * MIB;
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

int main(int, char** argv) {
    unsigned long long seed = strtoull(argv[1], nullptr, 10);
    size_t steps = strtoull(argv[2], nullptr, 10), count = strtoull(argv[3], nullptr, 10);
    may_fail = getenv("MEMCUDA_SIM_FAIL");
    small = getenv("ORDER_SMALL") || may_fail;
    foreign = getenv("ORDER_FOREIGN");
    MUST(cudaSetDevice(0));
    until_it_fails([] { allocator.load()->init(1); });
    std::atomic<size_t> graphs{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; i++)
        threads.emplace_back([&, i] {
            until_it_fails([&] {
                Job job(seed * 64 + i, 300 * MIB / count);
                job.run(steps);
                graphs += job.graphs;
            });
        });
    for (auto& thread : threads) thread.join();
    until_it_fails([] { allocator.load()->emptyCache(); });
    printf("ladders %zu waits %zu microseconds %zu graphs %zu\n", numbers.retries, waits.count,
           waits.nanoseconds / 1000, graphs.load());
    return 0;
}
