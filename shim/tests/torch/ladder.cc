// One ladder of torch's over pages, and who uses the pages next. usage: ladder CASE
// The simulated GPU ends the program where an order is missing; the clock says whether
// the host has waited. Prints "waits WAITS in MICROSECONDS us".
// LADDER_CONTEXTS=1: the program has a second context, for which the first one's waits
// on the device are nothing: the host waits; "unseen": it came before the library had
// started. LADDER_DEFAULT=1: the first stream is the default one.
#include "ladder.h"

// A graph that nobody keeps is still replayed, on another stream than it was captured
// on. Torch waits for that one alone; whoever uses the memory comes after both.
// `captured`: while another stream captures, no context can be waited for: the device is.
// `elsewhere`: what was mapped in a green context has replays in the primary one. `early`: a
// tensor of the graph's pool from before the capture. `alone`: one of no graph's pool.
static void replayed(Job& job, const std::string& how) {
    const MempoolId_t pool(0, 1);
    void *graph = nullptr, *ready = nullptr, *own = nullptr;
    View* view = how == "elsewhere" ? new View : nullptr;
    cudaStream_t stream = new_stream();
    if (how != "alone")
        allocator.load()->beginAllocateToPool(0, pool, [=](cudaStream_t asked) { return asked == stream; });
    if (how == "early") own = tensor(Job::HOLE, stream);
    OK(cudaStreamBeginCapture(stream, 2));
    if (how != "early") own = tensor(Job::HOLE, stream);
    use(own, Job::HOLE, stream);
    OK(cudaStreamEndCapture(stream, &graph));
    if (how != "alone") allocator.load()->endAllocateToPool(0, pool);
    if (view != nullptr) view->leave();
    OK(cudaGraphInstantiate(&ready, graph, 0));
    OK(cudaGraphLaunch(ready, job.other));
    drop(own);
    if (how != "alone") torch_release_pool(1);
    if (how != "captured") {
        job.ladder();
        return use(tensor(48, job.one), 48, job.one);
    }
    OK(cudaStreamBeginCapture(job.third, 2));
    bool threw = false;
    try {
        allocator.load()->emptyCache();
    } catch (std::runtime_error& error) {
        threw = strstr(error.what(), "unmap") && strstr(error.what(), "answered 2");
    }
    // Beside a capture it takes memory to wait, of which there is none: the pages stay torch's.
    CHECK(threw == (getenv("MEMCUDA_SIM_FAIL") != nullptr));
    void* next = tensor(48, job.one);
    use(next, 48, job.one);
    OK(cudaStreamEndCapture(job.third, &graph));
    // A wait that was not made is none that a context would end behind.
    OK(cudaDeviceReset());
}

static void run(const std::string& what) {
    Job job;
    if (what == "new") {
        // The addresses of a reservation that is no more are another's.
        drop(tensor(12, new_stream()));
        job.ladder();
    }
    if (what == "shared") {
        // Others may have it open: it is not kept, so nothing may run on it.
        int descriptor = -1;
        OK(cuMemExportToShareableHandle(&descriptor, torch_handle(job.hole), 1, 0));
        use(job.hole, Job::HOLE, job.one);
        drop(job.hole);
        CHECK(!at_once([&] { job.ladder(); }));
        return;
    }
    if (what == "refused") {
        // There was no memory for what it was asked for.
        bool threw = false;
        try {
            tensor(2000, job.one);
        } catch (std::bad_alloc&) {
            threw = true;
        }
        CHECK(threw);
    }
    if (what == "emptied") {
        // A handle of somebody else's is no page, for which torch would be asked.
        Properties about{1, 1, 1, 0, nullptr, 0, 0, 0, {}};
        u64 handle = 0;
        OK(cuMemCreate(&handle, 600 * MIB, &about, 0));
        OK(cuMemRelease(handle));
    }
    if (what == "emptied" || what == "refused") {
        // Nobody is asked for anything: who empties the cache waits.
        use(job.hole, Job::HOLE, job.one);
        drop(job.hole);
        CHECK(!at_once([] { allocator.load()->emptyCache(); }));
        return;
    }
    if (what == "captured_beside") {
        // To give pages up torch makes calls that a capture forbids: it is asked for none.
        void* graph = nullptr;
        job.prepare();
        size_t retries = numbers.retries;
        OK(cudaStreamBeginCapture(job.other, 2));
        tensor(24, job.third);
        CHECK(numbers.retries == retries);
        OK(cudaStreamEndCapture(job.other, &graph));
        return;
    }
    job.give_up();
    if (what == "same") {
        CHECK(job.next(48, job.one, false) == job.hole);
    } else if (what == "moved") {
        CHECK(job.next(2 * Job::HOLE, job.one, false) > job.behind);
    } else if (what == "other") {
        job.next(48, job.other, several);
    } else if (what == "third") {
        // All of the stream's work is over, so another one may use what it is given.
        OK(cudaStreamSynchronize(job.other));
        use(tensor(48, job.other), 48, job.third);
    } else if (what == "joined") {
        // So may a context that comes: it does when nothing runs that it does not wait for.
        OK(cudaStreamSynchronize(job.other));
        void* next = tensor(48, job.other);
        cudaStream_t stream = nullptr;
        CHECK(!at_once([&] { stream = another_context(); }));
        use(next, 48, stream);
    } else if (what == "new") {
        // Nobody knows on which stream a new reservation is used.
        job.next(48, new_stream(), several);
    } else if (what == "back") {
        // To another stream and back again: it comes after that one, too.
        void* there = job.next(72, job.other, several);
        job.prepare();
        drop(there);
        job.ask();
        void* back = tensor(72, job.one);
        CHECK(back == job.hole);
        use(back, 72, job.one);
    } else if (what == "viewed" || what == "stays") {
        // To a green context, and from one that is gone before its work is over.
        View view;
        cudaStream_t there = new_stream();
        tensor(12, there);
        if (what == "stays") CHECK(cuGreenCtxDestroy(view.green) == 999);
        void* next = tensor(48, there);
        use(next, 48, there);
        view.leave();
        job.prepare();
        drop(next);
        CHECK(at_once([&] { job.ask(); }));
        CHECK(!at_once([&] { view.end(); }));
        return use(tensor(48, job.one), 48, job.one);
    } else if (what == "released") {
        // Another user of the primary context comes and goes, and it stays.
        void* context = nullptr;
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuDevicePrimaryCtxRelease_v2(0));
        use(tensor(48, job.other), 48, job.other);
    } else if (what == "recycled") {
        // The stream ends; another one gets its handle, as the driver may do.
        OK(cudaStreamDestroy(job.one));
        cudaStream_t fresh = new_stream();
        CHECK(fresh == job.one);
        void* again = tensor(48, fresh);
        CHECK(again == job.hole);
        use(again, 48, fresh);
    } else if (what == "reset") {
        // The context ends with the work behind pages that nobody uses, and the stream.
        OK(cudaDeviceReset());
        cudaStream_t fresh = new_stream();
        use(tensor(48, fresh), 48, fresh);
    } else if (what == "captured" || what == "captured_own") {
        // A stream that captures can wait for nothing: the host does.
        void *graph = nullptr, *ready = nullptr;
        cudaStream_t stream = what == "captured" ? job.other : job.one;
        OK(cudaStreamBeginCapture(stream, 2));
        job.next(2 * Job::HOLE, stream, true);
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphInstantiate(&ready, graph, 0));
        OK(cudaGraphLaunch(ready, job.third));
    } else if (what.rfind("replay", 0) == 0) {
        replayed(job, what.substr(what.find('_') + 1));
    } else if (what == "crashed") {
        // As cudaMalloc: who was told of a crash gets no page, though some are idle.
        OK(cuSimCrash(job.third));
        CHECK(cudaDeviceSynchronize() == CRASHED);
        int code = 0;
        try {
            tensor(48, job.one);
        } catch (std::runtime_error& error) {
            code = strstr(error.what(), "cuMemCreate answered 700") ? CRASHED : -1;
        }
        CHECK(code == CRASHED);
        return;
    } else if (what == "held") {
        puts("held");
        fflush(stdout);
        getchar();
        job.next(48, job.one, false);
    } else if (what == "foreign") {
        // Somebody else needs the memory: pages on which work may run do not leave.
        void* foreign = nullptr;
        int code = cudaMalloc(&foreign, 1800 * MIB);
        CHECK(code == 2 || (code == 0 && cudaFree(foreign) == 0));
    } else {
        CHECK(!"a case");
    }
    OK(cudaDeviceSynchronize());
}

// Torch waits for the thread's own default stream in truth, after a wait that it did not make.
// What it unmaps then is nothing of the other stream's, and its addresses are used beside that.
static void own_stream() {
    Job job;
    cudaStream_t own = reinterpret_cast<cudaStream_t>(2);
    void *kept = tensor(12, own), *given = tensor(12, own);
    CHECK(given > kept);
    job.prepare();
    drop(job.hole), drop(given);
    job.ask();
    job.hole = tensor(Job::HOLE, job.one);
    OK(cudaDeviceSynchronize());
    job.give_up();
    use(tensor(48, own), 48, own);
    OK(cudaDeviceSynchronize());
}

// Torch waits for the own default stream of its thread. Another thread's is another stream, by
// the same name: it has the same addresses next, and they are mapped anew for it.
static void other_thread() {
    Job job;
    cudaStream_t own = reinterpret_cast<cudaStream_t>(2);
    void *kept = tensor(12, own), *given = tensor(48, own);
    CHECK(given > kept);
    job.prepare();
    use(given, 48, own);
    drop(given);
    job.ask();
    std::thread([&] {
        OK(cudaSetDevice(0));
        use(tensor(48, own), 48, own);
    }).join();
    OK(cudaDeviceSynchronize());
}

// A mapping of the program's own, whose stream torch has waited for: it may go.
static u64 mapped;
static cudaStream_t mapped_for;
static void unmaps(cudaStream_t stream) {
    if (mapped == 0 || stream != mapped_for) return;
    OK(cuMemUnmap(mapped, 12 * MIB));
    mapped = 0;
}
static void beside() {
    Job job;
    Properties about{1, 1, 1, 0, nullptr, 0, 0, 0, {}};
    Access access{1, 0, 3};
    u64 handle = 0, at = 0;
    OK(cuMemAddressReserve(&at, 12 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 12 * MIB, &about, 0));
    OK(cuMemMap(at, 12 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(at, 12 * MIB, &access, 1));
    OK(cuMemRelease(handle));
    job.prepare();
    use(reinterpret_cast<void*>(at), 12, job.one);
    drop(job.hole);
    mapped = at, mapped_for = job.one, torch_waited = unmaps;
    CHECK(!at_once([&] { job.ask(); }));
    CHECK(mapped == 0);
    OK(cuMemAddressFree(at, 12 * MIB));
}

// Torch's ladder ends by an exception: nothing asks it for anything any more, and its
// next waits for streams are meant.
static void thrown() {
    cudaStream_t one = new_stream();
    void* held = tensor(24, one);
    use(held, 24, one);
    bool threw = false;
    torch_fails = true;
    try {
        tensor(60, one);
    } catch (std::runtime_error&) {
        threw = true;
    }
    CHECK(threw && numbers.retries == 1);
    CHECK(!at_once([&] { OK(torch_wait(one)); }));
    use(held, 24, one);
    CHECK(!at_once([&] { OK(cudaStreamSynchronize(one)); }));
    use(held, 24, one);
    CHECK(!at_once([&] { OK(cuStreamSynchronize(one)); }));
}

// Torch empties the cache of another device, and waits for its own default stream. With
// memory of cudaMalloc's that is legal: cudaFree waits for the memory's device. `captured`:
// beside a capture no event stands for a wait. The memory came while a green context was current
// that lives (`view`) or not (`gone`), or in whose default stream it is used (`inside`).
static void elsewhere(const std::string& how) {
    const bool captured = how == "captured";
    void* graph = nullptr;
    cudaStream_t here = new_stream();
    OK(cudaSetDevice(1));
    cudaStream_t other = new_stream();
    View* view = how.empty() || captured ? nullptr : new View(1);
    void* held = tensor(24, nullptr);
    if (how == "gone") view->end();
    if (how == "view") view->leave();
    use(held, 24, nullptr);
    drop(held);
    OK(cudaSetDevice(0));
    torch_stays = true;
    if (captured) OK(cudaStreamBeginCapture(here, 2));
    CHECK(!at_once([] { allocator.load()->emptyCache(); }));
    if (captured) OK(cudaStreamEndCapture(here, &graph));
    OK(cudaSetDevice(1));
    use(tensor(24, other), 24, other);
    OK(cudaDeviceSynchronize());
}

// One default stream to torch, two in truth: it waits for that of the context that is current when
// it empties the cache, or is `asked` for what it has, whichever the memory was used in.
static void view_default(bool asked) {
    cudaStream_t other = new_stream();
    tensor(12, other);
    for (bool inside : {true, false}) {
        View view;
        void* held = tensor(24, nullptr);
        if (!inside) view.leave();
        use(held, 24, nullptr);
        inside ? view.leave() : OK(cuCtxSetCurrent(view.context));
        drop(held);
        size_t retries = numbers.retries;
        CHECK(!at_once([&] { asked ? drop(tensor(48, other)) : allocator.load()->emptyCache(); }));
        CHECK(numbers.retries == retries + asked);
        use(tensor(24, other), 24, other);
        OK(cudaDeviceSynchronize());
        view.end();
    }
}

// One allocation, though a part of it was mapped while a green context was current: also for
// copies to a device that has no access, while that context lives and behind its end.
static void spans() {
    cudaStream_t stream = new_stream();
    void* far = nullptr;
    u64 base = 0, ids[2]{};
    size_t bytes = 0;
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&far, 50 * MIB));
    OK(cudaSetDevice(0));
    tensor(7, stream);
    View view;
    const u64 at = reinterpret_cast<u64>(tensor(50, stream));
    for (bool lives : {true, false}) {
        lives ? view.leave() : view.end();
        OK(cuMemGetAddressRange_v2(&base, &bytes, at));
        CHECK(base + bytes >= at + 50 * MIB);
        OK(cuPointerGetAttribute(&ids[0], 7, at));
        OK(cuPointerGetAttribute(&ids[1], 7, at + 40 * MIB));
        CHECK(ids[0] == ids[1]);
        OK(cuMemcpyDtoD_v2(reinterpret_cast<u64>(far), at, 50 * MIB));
    }
}

// Under a limit what somebody else has freed, and work still uses, is torch's once that is over.
static void limited() {
    cudaStream_t one = new_stream();
    void* freed = nullptr;
    tensor(12, one);
    OK(cudaMallocAsync(&freed, 900 * MIB, one));
    use(freed, 900, one, 2e5);
    OK(cudaFreeAsync(freed, one));
    tensor(480, new_stream());
}

int main(int, char** argv) {
    std::string what = argv[1];
    int devices = 0;
    const bool unseen = several && !strcmp(getenv("LADDER_CONTEXTS"), "unseen");
    if (unseen) unseen_context();
    OK(cudaGetDeviceCount(&devices));
    OK(cudaSetDevice(0));
    allocator.load()->init(devices);
    if (several && !unseen) another_context();
    if (what == "thrown") thrown();
    else if (what.rfind("elsewhere", 0) == 0) elsewhere(what.substr(std::min<size_t>(what.size(), 10)));
    else if (what.rfind("default", 0) == 0) view_default(what == "default_asked");
    else if (what == "spans") spans();
    else if (what == "own_stream") own_stream();
    else if (what == "other_thread") other_thread();
    else if (what == "beside") beside();
    else if (what == "limited") limited();
    else run(what);
    printf("waits %zu in %zu us\n", waits.count, waits.nanoseconds / 1000);
    return 0;
}
