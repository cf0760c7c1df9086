// Streams for which torch's wait before it unmaps is refused, or is for another stream: those that
// were destroyed, and those that capture. With memory of cudaMalloc's there is no such wait:
// cudaFree waits for the device. usage: ended CASE [SEED]
// The simulated GPU ends the program where an order is missing, as in ladder.cc.
#pragma GCC diagnostic ignored "-Wunused-function"
#include "ladder.h"

static const int INVALID_HANDLE = 400, LOST = 901;

// What the cache's end throws; empty where it does not.
static std::string emptied() {
    try {
        allocator.load()->emptyCache();
    } catch (std::runtime_error& error) {
        return error.what();
    }
    return "";
}

// A stream that is gone, of which torch still has memory, that it used for so long. `beside`: when
// it is destroyed this one captures, beside which no event tells of it.
static cudaStream_t gone(double us, cudaStream_t beside = nullptr) {
    cudaStream_t stream = new_stream();
    void *held = tensor(96, stream), *graph = nullptr;
    use(held, 96, stream, us);
    if (us == 0) OK(cudaStreamSynchronize(stream));
    if (beside) OK(cudaStreamBeginCapture(beside, 2));
    OK(cudaStreamDestroy(stream));
    if (beside) OK(cudaStreamEndCapture(beside, &graph));
    drop(held);
    return stream;
}

// Nothing runs: torch is asked for what it has each time that there would be more than ever.
static void asked(cudaStream_t one) {
    cudaStream_t stream = gone(0);
    for (size_t mib = 110; mib < 200; mib += 20) drop(tensor(mib, one));
    CHECK(numbers.retries > 0);
    // Whoever else waits for it, by torch or by itself, is told what the driver says.
    CHECK(torch_wait(stream) == INVALID_HANDLE);
    CHECK(cudaStreamSynchronize(stream) == INVALID_HANDLE && cuStreamSynchronize(stream) == INVALID_HANDLE);
}

// As cudaFree: who empties the cache is told of a crash.
static void crashed(cudaStream_t one) {
    gone(0);
    OK(cuSimCrash(one));
    CHECK(emptied().find("answered 700") != std::string::npos);
}

// Its work goes on.
static void runs(cudaStream_t one) {
    gone(BUSY_US);
    CHECK(!at_once([] { CHECK(emptied() == ""); }));
    use(tensor(48, one), 48, one);
}

// The driver gives its handle to another stream, which is not waited for as the one before.
static void again(cudaStream_t one, bool asks, bool beside) {
    void* kept = tensor(12, one);
    cudaStream_t stream = gone(BUSY_US, beside ? one : nullptr);
    CHECK(new_stream() == stream);
    if (asks) CHECK(!at_once([=] { drop(tensor(110, one)); }));
    else CHECK(!at_once([] { CHECK(emptied() == ""); }));
    use(tensor(48, one), 48, one);
    OK(cudaDeviceSynchronize());
    drop(tensor(12, stream));
    use(kept, 12, one);
    CHECK(at_once([] { CHECK(emptied() == ""); }));
}

// It was a green context's, which is gone as well.
static void green(cudaStream_t one, double us) {
    View view;
    gone(us);
    CHECK(at_once([&] { view.end(); }) == (us == 0));
    CHECK(emptied() == "");
    use(tensor(48, one), 48, one);
}

// It is left behind by its green context, and answers nothing; it may be destroyed later.
static void left(cudaStream_t one, bool destroyed) {
    View view;
    cudaStream_t stream = new_stream();
    void* held = tensor(96, stream);
    use(held, 96, stream);
    view.end();
    if (destroyed) OK(cudaStreamDestroy(stream));
    CHECK(cudaStreamSynchronize(stream) != 0);
    drop(held);
    CHECK(emptied() == "");
    use(tensor(48, one), 48, one);
}

// Another thread captures, on a stream of which torch has idle memory of before. `blocking`: on
// one that the default stream waits for, and torch has memory of that one.
static void captured(cudaStream_t one, int mode, bool blocking) {
    const bool full = getenv("MEMCUDA_SIM_FAIL");
    cudaStream_t stream = nullptr;
    OK(cudaStreamCreateWithFlags(&stream, !blocking));
    void *held = tensor(96, blocking ? nullptr : stream), *graph = nullptr;
    use(held, 96, blocking ? nullptr : stream);
    drop(held);
    OK(cudaStreamBeginCapture(stream, mode));
    std::string threw;
    bool waited = false;
    std::thread([&] {
        OK(cudaSetDevice(0));
        waited = !at_once([&] { threw = emptied(); });
        if (threw.empty()) use(tensor(48, one), 48, one);
    }).join();
    int code = cudaStreamEndCapture(stream, &graph);
    if (mode == 0) {
        // As cudaFree: refused, and the capture is lost.
        CHECK(threw.find("answered 900") != std::string::npos && code == LOST);
    } else if (full) {
        CHECK(threw.find("answered 2") != std::string::npos && code == 0);
    } else {
        CHECK(threw == "" && waited && code == 0);
    }
}

// Streams that come and go, some before their work is over, in a random order, beside one that
// stays. Torch would lend what it has of a stream that still runs to the next of its handle: the
// cache is emptied between the two.
static void storm(cudaStream_t one, unsigned seed) {
    struct Short {
        cudaStream_t stream;
        std::vector<std::pair<void*, size_t>> tensors;
    };
    std::vector<Short> streams;
    auto below = [&](unsigned n) { return unsigned(rand_r(&seed)) % n; };
    bool runs = false;
    for (int step = 0; step < 1500; step++) {
        if (streams.size() < 3 || below(8) == 0) {
            if (runs) CHECK(emptied() == ""), runs = false;
            streams.push_back({new_stream(), {}});
        }
        Short& it = streams[below(streams.size())];
        if (below(3)) {
            size_t mib = 2 + below(40);
            if (it.tensors.size() > 2) drop(it.tensors.back().first), it.tensors.pop_back();
            it.tensors.push_back({tensor(mib, it.stream), mib});
            use(it.tensors.back().first, mib, it.stream, below(2) * BUSY_US);
        } else if (below(2)) {
            size_t mib = 60 + below(200);
            void* held = tensor(mib, one);
            use(held, mib, one, below(2) * BUSY_US);
            drop(held);
        } else {
            bool waits = below(2), before = below(2);
            if (waits) OK(cudaStreamSynchronize(it.stream));
            runs |= !waits;
            if (!before) OK(cudaStreamDestroy(it.stream));
            for (auto& held : it.tensors) drop(held.first);
            if (before) OK(cudaStreamDestroy(it.stream));
            std::swap(it, streams.back());
            streams.pop_back();
            if (below(4) == 0) CHECK(emptied() == ""), runs = false;
        }
    }
    CHECK(numbers.retries > 10);
}

int main(int argc, char** argv) {
    std::string what = argv[1];
    OK(cudaSetDevice(0));
    allocator.load()->init(1);
    cudaStream_t one = new_stream();
    tensor(24, one);
    if (what == "asked") asked(one);
    else if (what == "runs") runs(one);
    else if (what == "crashed") return crashed(one), 0;
    else if (what == "again") again(one, false, false);
    else if (what == "again_asked") again(one, true, false);
    else if (what == "again_beside") again(one, false, true);
    else if (what == "green") green(one, 0);
    else if (what == "green_runs") green(one, BUSY_US);
    else if (what == "left") left(one, false);
    else if (what == "left_destroyed") left(one, true);
    else if (what == "captured_global") captured(one, 0, false);
    else if (what == "captured_thread") captured(one, 1, false);
    else if (what == "captured_relaxed") captured(one, 2, false);
    else if (what == "captured_blocking") captured(one, 1, true);
    else if (what == "storm") storm(one, argc > 2 ? atoi(argv[2]) : 1);
    else CHECK(!"a case");
    OK(cudaDeviceSynchronize());
    return 0;
}
