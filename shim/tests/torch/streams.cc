// Stand-in for a libc10_cuda.so whose expandable segments know streams, as torch 2.11
// has them: a reservation for each pool, stream and size of pages; blocks that are free
// in the order of their stream at once; blocks used on other streams too, free when
// events say so; private pools of captures; and the ladder, which waits for the stream
// of a block, unmaps its pages, and asks again.
#include "segment.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <new>

extern "C" {
int cudaEventCreateWithFlags(cudaEvent_t*, unsigned);
int cudaEventDestroy(cudaEvent_t);
int cudaEventRecord(cudaEvent_t, cudaStream_t);
int cudaEventQuery(cudaEvent_t);
int cudaEventSynchronize(cudaEvent_t);
}

Numbers numbers;
Waits waits;
bool torch_fails, torch_stays;
void (*torch_waited)(cudaStream_t);
static const size_t MIB = 1 << 20;
static const int NOT_READY = 600;

int device_count() {
    int count = 0;
    return cudaGetDeviceCount(&count) ? 0 : count;
}

namespace c10::cuda::CUDACachingAllocator {
namespace Native {
struct Capture {
    u64 pool;
    std::function<bool(cudaStream_t)> takes;
};
struct __attribute__((visibility("hidden"))) DeviceCachingAllocator {
    int device;
    std::vector<int> readers;
    std::recursive_mutex mutex;
    std::list<Segment> segments;
    std::map<void*, std::pair<Segment*, size_t>> lent;
    std::vector<Capture> captures;
    std::set<u64> freeable;
    std::list<std::pair<cudaEvent_t, void*>> events;
    std::vector<void*> deferred;
    size_t large = 20 * MIB;
    bool on_ladder = false;

    explicit DeviceCachingAllocator(int device) : device(device) {}
    u64 pool_of(cudaStream_t stream) {
        for (auto& capture : captures)
            if (capture.takes(stream)) return capture.pool;
        return 0;
    }
    void* lend(Segment& segment, Segment::At at, size_t bytes) {
        segment.split(at, bytes)->second.kind = Kind::Used;
        void* out = reinterpret_cast<void*>(segment.base + at->first);
        lent[out] = {&segment, at->first};
        return out;
    }
    template <typename F> void each(cudaStream_t stream, u64 pool, size_t page, F visit) {
        for (auto& segment : segments)
            if (segment.stream == stream && segment.pool == pool && segment.page == page) visit(segment);
    }
    // The smallest free block of the stream's pool that is large enough.
    void* cached(size_t bytes, cudaStream_t stream, u64 pool, size_t page) {
        Segment* best = nullptr;
        Segment::At found;
        each(stream, pool, page, [&](Segment& segment) {
            for (auto at = segment.blocks.begin(); at != segment.blocks.end(); ++at) {
                bool fits = at->second.kind == Kind::Free && at->second.bytes >= bytes;
                if (fits && (!best || at->second.bytes < found->second.bytes)) best = &segment, found = at;
            }
        });
        return best ? lend(*best, found, bytes) : nullptr;
    }
    // From the first free or unmapped block on, whatever of them is not mapped is.
    void* mapped(size_t bytes, cudaStream_t stream, u64 pool, size_t page) {
        Segment* found = nullptr;
        size_t from = 0;
        each(stream, pool, page, [&](Segment& segment) {
            size_t room = 0;
            for (auto& [at, block] : segment.blocks) {
                room = block.kind <= Kind::Free ? room + block.bytes : 0;
                if (!found && room >= bytes) found = &segment, from = at + block.bytes - room;
            }
        });
        if (!found) found = &segments.emplace_back(device, stream, pool, page, readers);
        for (auto at = found->blocks.find(from);;) {
            size_t has = at->second.kind == Kind::Free ? at->second.bytes : 0;
            if (has >= bytes) return lend(*found, at, bytes);
            auto next = has ? std::next(at) : at;
            if (!found->map(next, std::min(bytes - has, next->second.bytes))) return nullptr;
            at = found->blocks.find(from);
        }
    }
    void* get(size_t asked, cudaStream_t stream) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        size_t bytes = (asked + 511) / 512 * 512, page = bytes <= MIB ? 2 * MIB : large;
        u64 pool = pool_of(stream);
        if (captures.empty()) process_events(false);
        void* out = cached(bytes, stream, pool, page);
        if (!out && !(out = mapped(bytes, stream, pool, page))) {
            count([] { numbers.retries++; });
            on_ladder = true;
            if (captures.empty()) release_cached();
            on_ladder = false;
            if (captures.empty()) out = mapped(bytes, stream, pool, page);
        }
        if (!out) throw std::bad_alloc();
        count([&] {
            numbers.live += bytes;
            numbers.peak_live = std::max(numbers.peak_live, numbers.live);
        });
        return out;
    }
    void release_cached() {
        if (torch_fails) throw std::runtime_error("an event cannot be waited for");
        process_events(true);
        for (auto segment = segments.begin(); segment != segments.end();) {
            auto one = segment++;
            if (one->pool && !freeable.count(one->pool)) continue;
            std::vector<size_t> free;
            for (auto& [at, block] : one->blocks)
                if (block.kind == Kind::Free) free.push_back(at);
            for (size_t at : free) one->unmap(one->blocks.find(at), on_ladder);
            if (!one->is_empty()) continue;
            MUST(calls.give_up(one->base, one->handles.size() * one->page));
            segments.erase(one);
        }
    }
    void process_events(bool wait) {
        for (void* block : std::exchange(deferred, {})) insert_events(block);
        for (auto event = events.begin(); event != events.end();) {
            auto one = event++;
            int code = wait ? cudaEventSynchronize(one->first) : cudaEventQuery(one->first);
            if (code == NOT_READY) continue;
            must(code, "an event");
            MUST(cudaEventDestroy(one->first));
            void* pointer = one->second;
            events.erase(one);
            if (--block_of(pointer)->second.events == 0) free(pointer);
        }
    }
    Segment::At block_of(void* pointer) {
        auto [segment, at] = lent.at(pointer);
        return segment->blocks.find(at);
    }
    void insert_events(void* pointer) {
        Block& block = block_of(pointer)->second;
        for (auto [user, device] : std::exchange(block.users, {})) {
            cudaEvent_t event = nullptr;
            OnDevice there(device);
            MUST(cudaEventCreateWithFlags(&event, 2));
            MUST(cudaEventRecord(event, user));
            events.push_back({event, pointer});
            block.events++;
        }
    }
    void free(void* pointer) {
        auto at = block_of(pointer);
        at->second.kind = Kind::Free;
        Segment* segment = lent.at(pointer).first;
        lent.erase(pointer);
        segment->merge(at);
    }
    void give_back(void* pointer) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        auto at = block_of(pointer);
        count([&] { numbers.live -= at->second.bytes; });
        if (at->second.users.empty()) return free(pointer);
        at->second.kind = Kind::Waits;
        if (captures.empty()) insert_events(pointer);
        else deferred.push_back(pointer);
    }
    // As torch up to 2.12, which forgets what it is told while a private pool is open.
    void record_or_forget(void* pointer, User user) {
        if (captures.empty()) record_stream(pointer, user);
    }
    void record_stream(void* pointer, User user) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        block_of(pointer)->second.users.insert(user);
    }
    void empty() {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        if (captures.empty()) release_cached();
    }
    void begin(u64 pool, std::function<bool(cudaStream_t)> takes) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        captures.push_back({pool, takes});
    }
    void end(u64 pool) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        auto is_its = [&](Capture& capture) { return capture.pool == pool; };
        captures.erase(std::find_if(captures.begin(), captures.end(), is_its));
    }
    void release_pool(u64 id) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        freeable.insert(id);
    }
    void add_reader(int reader) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        readers.push_back(reader);
        for (auto& segment : segments) segment.add_reader(reader);
    }
};
struct __attribute__((visibility("hidden"))) NativeCachingAllocator final : CUDAAllocator {
    std::deque<DeviceCachingAllocator> devices;
    std::mutex mutex;
    std::map<void*, DeviceCachingAllocator*> owners;

    void init(int count) override {
        std::string setting = configured("PYTORCH_CUDA_ALLOC_CONF");
        size_t at = setting.find("large_segment_size_mb:");
        for (int device = 0; device < count; device++) {
            devices.emplace_back(device);
            if (at != std::string::npos)
                devices[device].large = std::stoul(setting.substr(at + strlen("large_segment_size_mb:"))) * MIB;
            OnDevice there(device);
            void* context = nullptr;
            MUST(cudaMalloc(&context, 512));
            MUST(cudaFree(context));
        }
        driver(calls.create, "cuMemCreate");
        driver(calls.map, "cuMemMap");
        driver(calls.access, "cuMemSetAccess");
        driver(calls.unmap, "cuMemUnmap");
        driver(calls.release, "cuMemRelease");
        driver(calls.reserve, "cuMemAddressReserve");
        driver(calls.give_up, "cuMemAddressFree");
    }
    DeviceCachingAllocator& owner(void* pointer) {
        std::lock_guard<std::mutex> lock(mutex);
        return *owners.at(pointer);
    }
    // Of the current device, whose stream it need not be.
    void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
        int device = 0;
        MUST(cudaGetDevice(&device));
        void* out = devices[device].get(bytes, stream);
        std::lock_guard<std::mutex> lock(mutex);
        owners[out] = &devices[device];
        return out;
    }
    void* raw_alloc(size_t bytes) override { return raw_alloc_with_stream(bytes, nullptr); }
    void raw_delete(void* pointer) override { owner(pointer).give_back(pointer); }
    // Of all devices, and torch may leave the current one current.
    void emptyCache() override {
        int current = 0;
        MUST(cudaGetDevice(&current));
        for (auto& device : devices) {
            OnDevice there(torch_stays ? current : device.device);
            device.empty();
        }
    }
    void beginAllocateToPool(signed char device, MempoolId_t id, std::function<bool(cudaStream_t)> takes) override {
        devices[device].begin(id.second, takes);
    }
    void endAllocateToPool(signed char device, MempoolId_t id) override { devices[device].end(id.second); }
    void recordStream(const DataPtr& pointer, CUDAStream stream) override {
        owner(pointer.at).record_or_forget(pointer.at, {reinterpret_cast<cudaStream_t>(stream.id), stream.device});
    }
    void setUseOnOOM(signed char, MempoolId_t, bool) override {}
};
static NativeCachingAllocator instance;
}
std::atomic<CUDAAllocator*> allocator{&Native::instance};
static std::string backend = configured("PYTORCH_CUDA_ALLOC_CONF");
// As torch's own table of keys: by it a torch that is recent enough is told.
extern "C" EXPORT const char* newest_key() { return "large_segment_size_mb"; }
}

using c10::cuda::CUDACachingAllocator::allocator;
using c10::cuda::CUDACachingAllocator::Native::instance;
void torch_record_stream(void* at, cudaStream_t stream, int device) {
    instance.owner(at).record_stream(at, {stream, device});
}
void torch_release_pool(unsigned long long pool) {
    for (auto& device : instance.devices) device.release_pool(pool);
}
void torch_add_reader(int device, int reader) { instance.devices[device].add_reader(reader); }
u64 torch_handle(void* at) {
    auto [segment, offset] = instance.owner(at).lent.at(at);
    return *segment->handles[offset / segment->page];
}
// c10::cuda::stream_synchronize: what `Stream.synchronize()` and `.item()` wait by.
int torch_wait(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
