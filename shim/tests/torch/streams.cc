// Stand-in for a libc10_cuda.so whose expandable segments know streams, as torch 2.11
// has them: a reservation for each pool, stream and size of pages; blocks that are free
// in the order of their stream at once; blocks used on other streams too, free when
// events say so; private pools of captures; and the ladder, which waits for the stream
// of a block, unmaps its pages, and asks again.
#include "mappings.h"
#include "streams.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

extern "C" {
int cudaEventCreateWithFlags(cudaEvent_t*, unsigned);
int cudaEventDestroy(cudaEvent_t);
int cudaEventRecord(cudaEvent_t, cudaStream_t);
int cudaEventQuery(cudaEvent_t);
int cudaEventSynchronize(cudaEvent_t);
}

Numbers numbers;
Waits waits;
bool torch_fails;
static const size_t MIB = 1 << 20;
static const int NOT_READY = 600;

int device_count() {
    int count = 0;
    return cudaGetDeviceCount(&count) ? 0 : count;
}

// As C10_CUDA_CHECK: what torch does not expect ends what it was doing.
static void must(int code, const char* what) {
    if (code) throw std::runtime_error(std::string(what) + " answered " + std::to_string(code));
}
#define MUST(call) must((call), #call)

namespace c10::cuda::CUDACachingAllocator {
namespace Native {
static struct {
    int (*create)(u64*, size_t, const Properties*, u64);
    int (*map)(u64, size_t, size_t, u64, u64);
    int (*access)(u64, size_t, const Access*, size_t);
    int (*unmap)(u64, size_t);
    int (*release)(u64);
    int (*reserve)(u64*, size_t, size_t, u64, u64);
    int (*give_up)(u64, size_t);
} calls;
static bool on_ladder;
static const Properties PAGE{1, 1, 1, 0, nullptr, 0, 0, 0, {}};

enum class Kind { Unmapped, Free, Used, Waits };
struct Block {
    size_t bytes;
    Kind kind;
    std::set<cudaStream_t> users;
    int events = 0;
};
// A reservation, and the blocks that tile it, by their first byte in it.
struct Segment {
    cudaStream_t stream;
    u64 pool;
    size_t page, base = 0;
    std::vector<std::optional<u64>> handles;
    std::map<size_t, Block> blocks;
    typedef std::map<size_t, Block>::iterator At;

    Segment(cudaStream_t stream, u64 pool, size_t page) : stream(stream), pool(pool), page(page), handles(256) {
        MUST(calls.reserve(reinterpret_cast<u64*>(&base), handles.size() * page, 0, 0, 0));
        blocks[0] = Block{handles.size() * page, Kind::Unmapped, {}};
    }
    At split(At at, size_t bytes) {
        if (at->second.bytes == bytes) return at;
        Block rest{at->second.bytes - bytes, at->second.kind, {}};
        at->second.bytes = bytes;
        blocks.emplace(at->first + bytes, rest);
        return at;
    }
    At merge(At at) {
        auto joins = [&](At one, At other) {
            return one->second.kind == other->second.kind && one->second.kind <= Kind::Free;
        };
        for (At next = std::next(at); next != blocks.end() && joins(at, next); next = std::next(at)) {
            at->second.bytes += next->second.bytes;
            blocks.erase(next);
        }
        if (at == blocks.begin() || !joins(std::prev(at), at)) return at;
        At before = std::prev(at);
        before->second.bytes += at->second.bytes;
        blocks.erase(at);
        return before;
    }
    // Maps the beginning of an unmapped block: all pages are made, then mapped, then opened.
    bool map(At at, size_t bytes) {
        size_t begin = at->first / page, end = (at->first + bytes + page - 1) / page;
        for (size_t i = begin; i < end; i++) {
            u64 handle = 0;
            int code = calls.create(&handle, page, &PAGE, 0);
            if (code) {
                for (size_t j = begin; j < i; j++) MUST(calls.release(*handles[j])), handles[j].reset();
                if (code != 2) must(code, "cuMemCreate");
                return false;
            }
            handles[i] = handle;
        }
        for (size_t i = begin; i < end; i++) MUST(calls.map(base + i * page, page, 0, *handles[i], 0));
        Access own{1, 0, 3};
        MUST(calls.access(base + begin * page, (end - begin) * page, &own, 1));
        numbers.reserved += (end - begin) * page;
        numbers.peak_reserved = std::max(numbers.peak_reserved, numbers.reserved);
        split(at, (end - begin) * page)->second.kind = Kind::Free;
        merge(at);
        return true;
    }
    void unmap_handles(size_t begin, size_t end) {
        u64 before = cuSimClock();
        MUST(cudaStreamSynchronize(stream));
        waits.count += on_ladder;
        waits.nanoseconds += on_ladder ? cuSimClock() - before : 0;
        for (size_t i = begin; i < end; i++) {
            u64 handle = *handles[i];
            handles[i].reset();
            MUST(calls.unmap(base + i * page, page));
            MUST(calls.release(handle));
            numbers.reserved -= page;
        }
    }
    // Unmaps the whole pages of a free block.
    void unmap(At at) {
        size_t begin = (at->first + page - 1) / page, end = (at->first + at->second.bytes) / page;
        if (begin >= end) return;
        unmap_handles(begin, end);
        if (begin * page > at->first) at = std::next(split(at, begin * page - at->first));
        split(at, (end - begin) * page)->second.kind = Kind::Unmapped;
        merge(at);
    }
    bool is_empty() const { return blocks.size() == 1 && blocks.begin()->second.kind == Kind::Unmapped; }
};
struct Capture {
    u64 pool;
    std::function<bool(cudaStream_t)> takes;
};
struct __attribute__((visibility("hidden"))) NativeCachingAllocator final : CUDAAllocator {
    std::recursive_mutex mutex;
    std::list<Segment> segments;
    std::map<void*, std::pair<Segment*, size_t>> lent;
    std::vector<Capture> captures;
    std::set<u64> freeable;
    std::list<std::pair<cudaEvent_t, void*>> events;
    std::vector<void*> deferred;
    size_t large = 20 * MIB;

    void init(int) override {
        std::string setting = configured("PYTORCH_CUDA_ALLOC_CONF");
        size_t at = setting.find("large_segment_size_mb:");
        if (at != std::string::npos) large = std::stoul(setting.substr(at + strlen("large_segment_size_mb:"))) * MIB;
        void* context = nullptr;
        MUST(cudaMalloc(&context, 512));
        MUST(cudaFree(context));
        driver(calls.create, "cuMemCreate");
        driver(calls.map, "cuMemMap");
        driver(calls.access, "cuMemSetAccess");
        driver(calls.unmap, "cuMemUnmap");
        driver(calls.release, "cuMemRelease");
        driver(calls.reserve, "cuMemAddressReserve");
        driver(calls.give_up, "cuMemAddressFree");
    }
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
        if (!found) found = &segments.emplace_back(stream, pool, page);
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
            numbers.retries++;
            on_ladder = true;
            if (captures.empty()) release_cached();
            on_ladder = false;
            if (captures.empty()) out = mapped(bytes, stream, pool, page);
        }
        if (!out) throw std::bad_alloc();
        numbers.live += bytes;
        numbers.peak_live = std::max(numbers.peak_live, numbers.live);
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
            for (size_t at : free) one->unmap(one->blocks.find(at));
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
        for (cudaStream_t user : std::exchange(block.users, {})) {
            cudaEvent_t event = nullptr;
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
    void* raw_alloc(size_t bytes) override { return get(bytes, nullptr); }
    void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override { return get(bytes, stream); }
    void raw_delete(void* pointer) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        auto at = block_of(pointer);
        numbers.live -= at->second.bytes;
        if (at->second.users.empty()) return free(pointer);
        at->second.kind = Kind::Waits;
        if (captures.empty()) insert_events(pointer);
        else deferred.push_back(pointer);
    }
    void record_stream(void* pointer, cudaStream_t stream) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        block_of(pointer)->second.users.insert(stream);
    }
    void emptyCache() override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        if (captures.empty()) release_cached();
    }
    void beginAllocateToPool(signed char, MempoolId_t id, std::function<bool(cudaStream_t)> takes) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        captures.push_back({id.second, takes});
    }
    void endAllocateToPool(signed char, MempoolId_t id) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        auto is_its = [&](Capture& capture) { return capture.pool == id.second; };
        captures.erase(std::find_if(captures.begin(), captures.end(), is_its));
    }
    void release_pool(u64 id) {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        freeable.insert(id);
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
void torch_record_stream(void* at, cudaStream_t stream) { instance.record_stream(at, stream); }
void torch_release_pool(unsigned long long pool) { instance.release_pool(pool); }
u64 torch_handle(void* at) {
    auto [segment, offset] = instance.lent.at(at);
    return *segment->handles[offset / segment->page];
}
// c10::cuda::stream_synchronize: what `Stream.synchronize()` and `.item()` wait by.
int torch_wait(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
