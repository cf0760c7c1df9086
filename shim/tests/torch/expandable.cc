// Stand-in for a libc10_cuda.so with expandable segments: one range of addresses,
// tensors of whole pages (with TAILS they begin where the last one ended, as torch's do), each
// page a handle of its own. It makes, maps, unmaps and
// releases them by the driver's calls that torch makes, in torch's order, and has
// torch's ladder: out of memory, every free page is unmapped, and it asks again. With its
// switch off it has memory by cudaMalloc, and its idle pages wait.
#include "mappings.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

static const int OUT_OF_MEMORY = 2;
Numbers numbers;
int device_count() {
    int count = 0;
    return cudaGetDeviceCount(&count) ? 0 : count;
}

// As torch since 2.13: is there a fabric to share memory through? Where FABRIC is "yes" the
// driver says it; where it is "unknown", torch ends the program.
static bool fabric_is(const std::string& what) { return getenv("FABRIC") && getenv("FABRIC") == what; }
namespace c10::cuda {
namespace {
bool isFabricSupported() {
    int (*create)(u64*, size_t, const Properties*, u64) = nullptr;
    int (*release)(u64) = nullptr;
    driver(create, "cuMemCreate");
    driver(release, "cuMemRelease");
    Properties about{1, 8, 1, 0, nullptr, 0, 0, 0, {}};
    u64 handle = 0;
    return !create(&handle, 2 << 20, &about, 0) && !release(handle);
}
}
static int clique = -1;
EXPORT bool get_fabric_access(signed char) {
    if (fabric_is("unknown")) abort();
    if (fabric_is("yes") && isFabricSupported()) clique = 7;
    return clique == 7;
}
EXPORT int get_fabric_clique_id(signed char device) {
    get_fabric_access(device);
    return clique;
}
}

// Torch's current device and stream, as its allocator asks for them.
namespace c10::cuda {
EXPORT signed char current_device() {
    int device = 0;
    return cudaGetDevice(&device) ? -1 : device;
}
cudaStream_t CUDAStream::stream() const { return reinterpret_cast<cudaStream_t>(id); }
EXPORT CUDAStream getCurrentCUDAStream(signed char device) {
    return {1, device, reinterpret_cast<long>(current_stream)};
}
}
cudaStream_t current_stream;

namespace c10::cuda::CUDACachingAllocator {
namespace Native {
struct Page {
    u64 handle = 0;
    // By how many tensors.
    int used = 0;
    // Once it was passed on, until it is unmapped.
    int descriptor = -1;
};
namespace {
// What was received of another process, whose stream is not known.
struct ExpandableSegment {
    int code = 0;
    __attribute__((noinline)) void unmapHandles(size_t, size_t) { code = cudaDeviceSynchronize(); }
};
}
// UNSEEN: nobody looks for its `allocate` here, as on machines on which that answers in another way.
struct __attribute__((visibility("hidden"))) Base : CUDAAllocator {
    virtual void* alloc(size_t bytes, cudaStream_t stream) = 0;
    DataPtr allocate(size_t bytes) override { return {alloc(bytes, current_stream)}; }
};
struct __attribute__((visibility("hidden"))) NativeCachingAllocator final : Base {
    std::recursive_mutex mutex;
    std::vector<Page> pages = std::vector<Page>(4096);
    std::map<void*, size_t> lent;
    std::map<std::pair<int, MempoolId_t>, std::function<bool(cudaStream_t)>> recording;
    int scopes = 0;
    size_t page = 20 << 20;
    char* base = nullptr;
    // Behind the last tensor, within a page.
    u64 tail = 0;
    int (*create)(u64*, size_t, const Properties*, u64) = nullptr;
    int (*map)(u64, size_t, size_t, u64, u64) = nullptr;
    int (*access)(u64, size_t, const Access*, size_t) = nullptr;
    int (*unmap)(u64, size_t) = nullptr;
    int (*release)(u64) = nullptr;

    void init(int) override {
        std::string setting = configured("PYTORCH_CUDA_ALLOC_CONF");
        size_t at = setting.find("large_segment_size_mb:");
        if (at != std::string::npos) page = std::stoul(setting.substr(at + strlen("large_segment_size_mb:"))) << 20;
        if (setting.find("expandable_segments:True") == std::string::npos) return;
        if (configured("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC") == "1") fprintf(stderr, "pages can be shared\n");
        void* context = nullptr;
        cudaMalloc(&context, 512), cudaFree(context);
        if (getenv("FABRIC_CLIQUE")) fprintf(stderr, "clique %d\n", get_fabric_clique_id(0));
        driver(create, "cuMemCreate");
        driver(map, "cuMemMap");
        driver(access, "cuMemSetAccess");
        driver(unmap, "cuMemUnmap");
        driver(release, "cuMemRelease");
        int (*reserve)(u64*, size_t, size_t, u64, u64) = nullptr;
        driver(reserve, "cuMemAddressReserve");
        // Who has no pages then ends at the first one.
        if (reserve(reinterpret_cast<u64*>(&base), pages.size() * page, 0, 0, 0)) return;
        u64 probe = 0;
        Properties fabric = properties();
        fabric.handles = 8;
        if (!create(&probe, page, &fabric, 0)) release(probe);
        if (create(&probe, page, &(fabric = properties()), 0)) base = nullptr;
        else release(probe);
    }
    // For network cards, too, as torch's where the device says that it has such.
    static Properties properties() { return Properties{1, 1, 1, 0, nullptr, 0, 1, 0, {}}; }
    u64 address(size_t index) { return reinterpret_cast<u64>(base) + index * page; }
    void count(long by) {
        numbers.reserved += by * (long)page;
        numbers.peak_reserved = std::max(numbers.peak_reserved, numbers.reserved);
    }
    // FABRIC=try: as torch before 2.13, whose pages are for a fabric if the first one could be.
    int make(u64* handle) {
        static bool tries = fabric_is("try"), said = false;
        Properties wanted = properties();
        if (tries) wanted.handles = 8;
        int code = create(handle, page, &wanted, 0);
        if (tries && !code && !std::exchange(said, true)) fprintf(stderr, "pages are for a fabric\n");
        if (!tries || !code || code == OUT_OF_MEMORY) return code;
        tries = false;
        return make(handle);
    }
    // Pages of a range that are not mapped are made, all of them before any is mapped.
    bool map_range(size_t begin, size_t end) {
        static bool fabric = get_fabric_access(0);
        if (fabric) fprintf(stderr, "pages are for a fabric\n"), fabric = false;
        std::vector<size_t> made;
        for (size_t i = begin; i < end; i++) {
            if (pages[i].handle) continue;
            if (make(&pages[i].handle)) {
                pages[i].handle = 0;
                WARN("expandable_segments: memory mapping failed with OOM");
                for (size_t j : made) {
                    if (release(pages[j].handle)) abort();
                    pages[j].handle = 0;
                }
                return false;
            }
            made.push_back(i);
        }
        Access own{1, 0, 3};
        for (size_t i : made)
            if (map(address(i), page, 0, pages[i].handle, 0)) abort();
        if (access(address(begin), (end - begin) * page, &own, 1)) abort();
        return count(made.size()), true;
    }
    bool get(size_t asked, void** out) {
        size_t need = (asked + page - 1) / page, run = 0;
        if (numbers.limit && numbers.reserved + asked > numbers.limit) return false;
        if (has_room_behind(asked)) return take(tail, asked, out);
        for (size_t i = 0; i < pages.size(); i++) {
            run = pages[i].used ? 0 : run + 1;
            if (run == need) return take(address(i + 1 - need), asked, out);
        }
        return false;
    }
    size_t index(u64 at) { return (at - address(0)) / page; }
    bool has_room_behind(size_t asked) {
        if (!getenv("TAILS") || !tail || !pages[index(tail)].used) return false;
        for (size_t i = index(tail) + 1; i <= index(tail + asked - 1); i++)
            if (pages[i].used) return false;
        return true;
    }
    bool take(u64 at, size_t asked, void** out) {
        const size_t begin = index(at), end = index(at + asked - 1) + 1;
        if (!map_range(begin, end)) return false;
        for (size_t i = begin; i < end; i++) pages[i].used++;
        tail = (at + asked - address(0)) % page ? at + asked : 0;
        return *out = reinterpret_cast<void*>(at), true;
    }
    void release_all() {
        release_own();
        if (cudaStreamSynchronize(nullptr)) abort();
        // As if work were under way.
        if (getenv("BUSY_MS")) usleep(1000 * atoi(getenv("BUSY_MS")));
        for (size_t i = 0; i < pages.size(); i++) {
            if (pages[i].used || !pages[i].handle) continue;
            if (unmap(address(i), page)) abort();
            if (pages[i].descriptor >= 0) close(pages[i].descriptor);
            if (release(pages[i].handle)) abort();
            pages[i] = Page();
            count(-1);
        }
    }
    void* plain(size_t bytes) {
        void* out = nullptr;
        if (cudaMalloc(&out, bytes)) throw std::bad_alloc();
        return out;
    }
    bool has_pages() {
        const bool has = c10::CachingAllocator::AcceleratorAllocatorConfig::instance().expandable;
        if (has && !base) abort();
        return has;
    }
    bool is_page(void* at) { return base && at >= base && at < base + pages.size() * page; }
    // Is it a private pool that takes this?
    bool is_private(cudaStream_t stream) {
        for (auto& [pool, takes] : recording)
            if (pool.first == current_device() && takes(stream)) return true;
        return false;
    }
    void* alloc(size_t bytes, cudaStream_t stream) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        void* out = nullptr;
        const bool in_pages = has_pages(), in_pool = is_private(stream);
        if (in_pages == in_pool) (in_pool ? numbers.private_pages : numbers.plain)++;
        if (!in_pages) out = plain(bytes);
        else if (!get(bytes, &out)) {
            numbers.retries++;
            if (scopes == 0) release_all();
            if (scopes != 0 || !get(bytes, &out)) throw std::bad_alloc();
        }
        lent[out] = bytes;
        numbers.live += bytes;
        numbers.peak_live = std::max(numbers.peak_live, numbers.live);
        return out;
    }
    void* raw_alloc(size_t bytes) override { return alloc(bytes, current_stream); }
    void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override { return alloc(bytes, stream); }
#ifndef UNSEEN
    DataPtr allocate(size_t bytes) override { return {alloc(bytes, current_stream)}; }
#endif
    void raw_delete(void* pointer) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        auto block = lent.find(pointer);
        numbers.live -= block->second;
        if (is_page(pointer)) {
            const u64 at = reinterpret_cast<u64>(pointer);
            for (size_t i = index(at); i <= index(at + block->second - 1); i++) pages[i].used--;
        } else {
            cudaFree(pointer);
        }
        lent.erase(block);
    }
    void emptyCache() override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        if (base) release_all();
    }
    void beginAllocateToPool(signed char device, MempoolId_t id, std::function<bool(cudaStream_t)> takes) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        if (!recording.insert({{device, id}, takes}).second) throw std::runtime_error("already recording to mempool_id");
        scopes++;
    }
    void endAllocateToPool(signed char device, MempoolId_t id) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        recording.erase({device, id});
        scopes--;
    }
    void* getBaseAllocation(void* at, size_t*) override {
        if (is_page(at)) throw std::runtime_error("in expandable segments");
        return at;
    }
    void setMemoryFraction(double fraction, signed char) override { set_limit(fraction); }
    void createOrIncrefPool(signed char, MempoolId_t, std::shared_ptr<CUDAAllocator> its) override { make_pool(its != nullptr); }
    DeviceStats getDeviceStats(signed char device) override { return {{numbers.reserved, size_t(device)}}; }
    void setUseOnOOM(signed char, MempoolId_t, bool) override {}
    void enable(bool) override {}
};
static NativeCachingAllocator instance;
}
std::atomic<CUDAAllocator*> allocator{&Native::instance};
static std::string backend = configured("PYTORCH_CUDA_ALLOC_CONF");
// As torch's own table of keys: by it a torch that is recent enough is told.
extern "C" EXPORT const char* newest_key() { return "large_segment_size_mb"; }
// As torch since 2.10, whose allocator reads it.
extern "C" EXPORT const char* newest_variable() { return "PYTORCH_ALLOC_CONF"; }
}
extern "C" size_t split_size() { return c10::CachingAllocator::AcceleratorAllocatorConfig::instance().split; }

// Torch's memory for a program of C.
using c10::cuda::CUDACachingAllocator::Native::instance;
extern "C" EXPORT void* torch_alloc(size_t bytes) {
    static bool once = (instance.init(1), true);
    return once ? instance.raw_alloc(bytes) : nullptr;
}
// As torch allocates a tensor.
extern "C" EXPORT void* torch_tensor(size_t bytes) {
    static bool once = (instance.init(1), true);
    return once ? c10::cuda::CUDACachingAllocator::allocator.load()->allocate(bytes).at : nullptr;
}
extern "C" EXPORT void torch_free(void* at) { instance.raw_delete(at); }
extern "C" EXPORT void torch_empty() { instance.emptyCache(); }
// Passes the page around an address on.
extern "C" EXPORT int torch_share(void* at) {
    auto& page = instance.pages[(reinterpret_cast<u64>(at) - instance.address(0)) / instance.page];
    int (*pass)(int*, u64, int, u64) = nullptr;
    driver(pass, "cuMemExportToShareableHandle");
    return page.descriptor >= 0 ? 0 : pass(&page.descriptor, page.handle, 1, 0);
}
// What the driver answers as received memory goes.
extern "C" EXPORT int torch_let_go() {
    c10::cuda::CUDACachingAllocator::Native::ExpandableSegment received;
    received.unmapHandles(0, 1);
    return received.code;
}
