// A "training" over the stand-ins. usage: program CASE
// Prints "SETTING | peak live | peak reserved | retries | failures".
#include "c10.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

extern "C" int cudaMalloc(void**, size_t);
extern "C" int cudaFree(void*);
extern "C" int cudaGetLastError();
extern "C" int cudaMemset(void*, int, size_t);
extern "C" int cudaMemcpy(void*, const void*, size_t, int);
extern "C" int cudaSetDevice(int);

using c10::cuda::CUDACachingAllocator::allocator;
static const size_t MIB = 1 << 20;
static int failures;
static bool marks = true;

// A tensor has a mark of its own in every page: nobody else may write there.
static void mark(void* tensor, size_t bytes) {
    for (size_t at = 0; marks && at < bytes; at += 4 * MIB) {
        char* place = static_cast<char*>(tensor) + at;
        unsigned id = reinterpret_cast<size_t>(place) >> 21;
        if (cudaMemset(place, id % 251, 16)) failures++;
    }
}
static void check(void* tensor, size_t bytes) {
    for (size_t at = 0; marks && at < bytes; at += 4 * MIB) {
        char* place = static_cast<char*>(tensor) + at;
        unsigned char found[16], id = (reinterpret_cast<size_t>(place) >> 21) % 251;
        if (cudaMemcpy(found, place, sizeof found, 2)) failures++;
        for (unsigned char byte : found) failures += byte != id;
    }
}

struct Job {
    unsigned seed;
    std::vector<std::pair<void*, size_t>> held;
    size_t live = 0;

    unsigned random() { return seed = seed * 1664525u + 1013904223u, seed >> 8; }
    // Tensors of ever other sizes, `most` bytes of them alive.
    void churn(int rounds, size_t most) {
        for (int i = 0; i < rounds; i++) {
            size_t bytes = (24 + random() % 100) * MIB;
            while (!held.empty() && live + bytes > most) {
                size_t k = random() % held.size();
                check(held[k].first, held[k].second);
                allocator.load()->raw_delete(held[k].first);
                live -= held[k].second;
                held.erase(held.begin() + k);
            }
            try {
                held.push_back({allocator.load()->raw_alloc(bytes), bytes});
                mark(held.back().first, bytes);
                live += bytes;
            } catch (std::bad_alloc&) {
                failures++;
            }
        }
    }
    void clear() {
        for (auto& tensor : held) allocator.load()->raw_delete(tensor.first);
        held.clear(), live = 0;
    }
    ~Job() { clear(); }
};

static void foreign(size_t bytes) {
    void* p = nullptr;
    if (cudaMalloc(&p, bytes)) cudaGetLastError(), failures++;
    else if (cudaFree(p)) failures++;
}

// Torch's memory and the program's own grow at once, up to a limit of both: what is refused
// is no failure here.
static void grow_at_once() {
    std::thread own([] {
        std::vector<void*> held;
        for (int i = 0; i < 200; i++) {
            void* p = nullptr;
            if (!cudaMalloc(&p, (30 + i % 50) * MIB)) held.push_back(p);
            else cudaGetLastError();
            if (p && held.size() < 6) continue;
            for (void* one : held) cudaFree(one);
            held.clear();
        }
    });
    marks = false;
    Job{8}.churn(100, 600 * MIB);
    own.join();
    failures = 0;
}

// The first try fails inside torch, the cached blocks are too small for the second: the
// only call that the driver sees is the last try.
static void try_last() {
    std::vector<void*> small;
    for (int i = 0; i < 16; i++) small.push_back(allocator.load()->raw_alloc(20 * MIB));
    for (void* p : small) allocator.load()->raw_delete(p);
    numbers.limit = 400 * MIB;
    try {
        allocator.load()->raw_delete(allocator.load()->raw_alloc(390 * MIB));
    } catch (std::bad_alloc&) {
        failures++;
    }
    allocator.load()->emptyCache();
    numbers.limit = 0;
}

// Torch's own limit fails its first try, and what it gives back then is idle in a pool that has an
// allocator of its own: the only call that the driver sees is the last try. `own`: is it one?
static void limit_beside_a_pool(bool fraction, bool own) {
    auto& torch = *allocator.load();
    const auto none = [](c10::cuda::CUDACachingAllocator::CUDAAllocator*) {};
    auto its = own ? std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>(&torch, none) : nullptr;
    void* live = torch.raw_alloc(24 * MIB);
    fraction ? torch.setMemoryFraction(0.4, 0) : set_limit(0.4);
    failures += numbers.limit != 400 * MIB;
    torch.createOrIncrefPool(0, {0, 1}, its.get());
    torch.createOrIncrefPool(0, {0, 1}, its);
    failures += (numbers.own != 0) != own;
    try {
        torch.raw_delete(torch.raw_alloc(360 * MIB));
    } catch (std::bad_alloc&) {
        failures++;
    }
    numbers.limit = 0;
    torch.raw_delete(live);
}

// To which segment of torch's does a tensor belong? In expandable ones torch throws: by its user's wish.
static void base_allocation(bool throws) {
    auto& torch = *allocator.load();
    void *first = torch.raw_alloc(48 * MIB), *second = torch.raw_alloc(36 * MIB);
    size_t bytes = 0;
    try {
        void* within = static_cast<char*>(second) + 5 * MIB;
        failures += torch.getBaseAllocation(within, &bytes) != second || bytes != 36 * MIB;
        failures += throws || torch.getBaseAllocation(first, nullptr) != first;
    } catch (const std::runtime_error&) {
        failures += !throws;
    }
    int host = 0;
    failures += torch.getBaseAllocation(&host, &bytes) != &host;
    torch.raw_delete(first), torch.raw_delete(second);
}

// Torch's switch for expandable segments is off in private pools, and its segments have the
// size that they have by themselves or by the user's wish; or all is what it was. Once it was
// off there is no split size.
static void switched(bool paused, bool sized) {
    auto& config = c10::CachingAllocator::AcceleratorAllocatorConfig::instance();
    auto& expandable = config.expandable;
    const size_t large = config.large, own = sized ? large : 20 * MIB;
    failures += paused && (large == own) != sized;
    failures += paused && split_size() == SIZE_MAX;
    const bool before = expandable, within = before && !paused;
    failures += paused && !before;
    auto any = [](cudaStream_t) { return true; };
    for (int again = 0; again < 2; again++) {
        for (int device : {0, 1}) {
            allocator.load()->beginAllocateToPool(device, {0, 1}, any);
            failures += expandable != within || config.large != (paused ? own : large);
        }
        try {
            allocator.load()->beginAllocateToPool(0, {0, 1}, any);
            failures += paused;
        } catch (const std::runtime_error&) {
        }
        allocator.load()->endAllocateToPool(0, {0, 1});
        failures += expandable != within;
        allocator.load()->endAllocateToPool(1, {0, 1});
        failures += expandable != before || config.large != large;
    }
    // The user turns it off, and opens a pool.
    expandable = false;
    allocator.load()->beginAllocateToPool(0, {0, 1}, any);
    allocator.load()->endAllocateToPool(0, {0, 1});
    failures += expandable;
    expandable = before;
    failures += paused && split_size() != SIZE_MAX;
}

// Torch's split size is gone for good, or not, once a private pool opens, or torch is told what
// ends reclaim.
static void split(const std::string& by, bool stays) {
    auto& torch = *allocator.load();
    const size_t before = split_size(), behind = stays ? before : SIZE_MAX;
    failures += before < 20 * MIB || before == SIZE_MAX;
    if (by == "pool") torch.beginAllocateToPool(0, {0, 1}, [](cudaStream_t) { return true; });
    if (by == "oom") torch.setUseOnOOM(0, {0, 1}, true);
    if (by == "end") torch.setUseOnOOM(0, {0, 1}, false);
    if (by == "uncached") torch.enable(false);
    failures += split_size() != behind;
    if (by == "pool") torch.endAllocateToPool(0, {0, 1});
    if (by == "uncached") torch.enable(true);
    failures += split_size() != behind;
}

// While a private pool is open, only what it takes is not in pages: its thread's, or its
// stream's. Others have torch's idle pages as before.
static void beside_a_private_pool() {
    auto& torch = *allocator.load();
    Job{3}.churn(100, 600 * MIB);
    const Numbers before = numbers;
    const MempoolId_t first(0, 1), second(0, 2);
    const auto own = std::this_thread::get_id();
    torch.beginAllocateToPool(0, first, [own](cudaStream_t) { return std::this_thread::get_id() == own; });
    std::thread other([] { Job{3}.churn(300, 300 * MIB); });
    for (int i = 0; i < 300; i++) torch.raw_delete(torch.raw_alloc(MIB * (1 + i % 40)));
    other.join();
    torch.endAllocateToPool(0, first);

    static const auto its = reinterpret_cast<cudaStream_t>(&failures);
    torch.beginAllocateToPool(0, second, [large = std::vector<int>(9)](cudaStream_t asked) { return asked == its; });
    for (cudaStream_t stream : {its, (cudaStream_t) nullptr}) {
        torch.raw_delete(torch.raw_alloc_with_stream(MIB, stream));
        current_stream = stream;
        torch.raw_delete(torch.raw_alloc(MIB));
    }
    torch.endAllocateToPool(0, second);
    // Nobody waits for long: on a busy machine a few do without pages.
    failures += numbers.plain > before.plain + 30 || numbers.private_pages != before.private_pages;
    failures += !c10::CachingAllocator::AcceleratorAllocatorConfig::instance().expandable;
}

// Where not all that allocates is seen, another thread turns nothing on for a private pool's own.
static void beside_an_unseen_pool() {
    auto& torch = *allocator.load();
    Job{3}.churn(100, 600 * MIB);
    const Numbers before = numbers;
    const MempoolId_t pool(0, 1);
    const auto own = std::this_thread::get_id();
    torch.beginAllocateToPool(0, pool, [own](cudaStream_t) { return std::this_thread::get_id() == own; });
    std::thread other([] { Job{3}.churn(300, 300 * MIB); });
    for (int i = 0; i < 300; i++) torch.raw_delete(torch.allocate(MIB * (1 + i % 40)).at);
    other.join();
    torch.endAllocateToPool(0, pool);
    failures += numbers.private_pages != before.private_pages || numbers.plain != before.plain + 300;
}

// Somebody else asks for a fabric while torch has in use what it ever had.
namespace c10::cuda {
bool get_fabric_access(signed char) __attribute__((weak));
}
static void ask_for_a_fabric() {
    std::vector<void*> held;
    for (int i = 0; i < 4; i++) held.push_back(allocator.load()->raw_alloc(50 * MIB));
    fprintf(stderr, "fabric: %d\n", c10::cuda::get_fabric_access(0));
    for (void* p : held) allocator.load()->raw_delete(p);
}

int main(int, char** argv) {
    std::string what = argv[1];
    if (device_count() < 1) return 2;
    allocator.load()->init(1);
    const MempoolId_t id(0, 1);
    {
        Job job{7};
        if (what == "limited") {
            try_last();
            numbers.limit = 700 * MIB;
        }
        if (what == "scope") {
            // All of torch's idle memory is outside the scope.
            job.churn(60, 600 * MIB);
            allocator.load()->beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
            job.churn(30, 900 * MIB);
            allocator.load()->endAllocateToPool(0, id);
        }
        if (what == "paused" || what == "sized" || what == "as it was") switched(what != "as it was", what == "sized");
        if (what.rfind("split ", 0) == 0) split(what.substr(6), false);
        if (what.rfind("stays ", 0) == 0) split(what.substr(6), true);
        if (what == "no split") {
            allocator.load()->raw_delete(allocator.load()->raw_alloc(50 * MIB));
            failures += split_size() != SIZE_MAX;
        }
        if (what == "fabric") ask_for_a_fabric();
        if (what == "beside") beside_a_private_pool();
        if (what == "unseen") beside_an_unseen_pool();
        if (what == "elsewhere") {
            // From there the memory cannot be reached.
            marks = false;
            if (cudaSetDevice(1)) return 3;
        }
        if (what == "fresh") {
            // As the thread of a backward pass, which asks for memory before anything else.
            void* first = nullptr;
            std::thread([&] { first = allocator.load()->raw_alloc(60 * MIB); }).join();
            fprintf(stderr, "holding after %zu retries\n", numbers.retries);
            getchar();
            allocator.load()->raw_delete(first);
        }
        if (what.rfind("fraction", 0) == 0) limit_beside_a_pool(true, what == "fraction and allocator");
        if (what == "allocator") limit_beside_a_pool(false, true);
        if (what == "base" || what == "throws") base_allocation(what == "throws");
        if (what == "use-on-oom") allocator.load()->setUseOnOOM(0, id, true);
        if (what == "pool-ended") allocator.load()->setUseOnOOM(0, id, false);
        if (what == "stopped" || what == "stopped-last") {
            job.churn(100, 600 * MIB);
            setenv("MEMCUDA_PANIC_IN", "cuMemAlloc_v2", 1);
            allocator.load()->raw_delete(allocator.load()->raw_alloc(200 * MIB));
            foreign(2 * MIB);
            unsetenv("MEMCUDA_PANIC_IN");
        }
        if (what == "stopped-last") {
            allocator.load()->beginAllocateToPool(1, id, [](cudaStream_t) { return true; });
            job.churn(30, 900 * MIB);
            allocator.load()->endAllocateToPool(1, id);
            job.clear();
            allocator.load()->emptyCache();
            try_last();
        }
        if (what == "beyond") {
            // More than the card has: torch's own out of memory, and it goes on.
            try {
                allocator.load()->raw_alloc(16384 * MIB);
                failures++;
            } catch (std::bad_alloc&) {
            }
            numbers.peak_live = 0;
        }
        for (int i = 0; i < 20 && what != "at once"; i++) {
            job.churn(20, 600 * MIB);
            if (what == "extension") foreign((150 + 2 * i) * MIB);
        }
        if (what == "threads") {
            std::vector<std::thread> threads;
            for (unsigned t = 0; t < 4; t++) threads.emplace_back([t] { Job{t}.churn(150, 300 * MIB); });
            for (auto& t : threads) t.join();
        }
    }
    allocator.load()->emptyCache();
    if (what == "idle") {
        // Nobody uses what torch gave back: a call beside it finds room.
        foreign(900 * MIB);
        Job{9}.churn(60, 600 * MIB);
    }
    if (what == "at once") grow_at_once();
    if (what == "hold" || what == "at once") {
        fprintf(stderr, "holding after %zu retries\n", numbers.retries);
        getchar();
        Job{9}.churn(60, 300 * MIB);
    }
    const char* own = getenv("PYTORCH_CUDA_ALLOC_CONF");
    printf("%s | %s | %zu | %zu | %zu | %d\n", configured("PYTORCH_CUDA_ALLOC_CONF").c_str(), own ? own : "unset",
           numbers.peak_live / MIB, numbers.peak_reserved / MIB, numbers.retries, failures);
    return failures ? 1 : 0;
}
