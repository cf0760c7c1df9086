// A reservation of torch's as the stand-in of an allocator that knows streams (streams.cc)
// has it: the blocks that tile it, mapped and unmapped by whole pages. What unmaps has torch's
// own name.
#pragma once
#include "mappings.h"
#include "streams.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern "C" {
int cudaGetDevice(int*);
int cudaSetDevice(int);
}

// As C10_CUDA_CHECK: what torch does not expect ends what it was doing.
static void must(int code, const char* what) {
    if (code) throw std::runtime_error(std::string(what) + " answered " + std::to_string(code));
}
#define MUST(call) must((call), #call)

static struct {
    int (*create)(u64*, size_t, const Properties*, u64);
    int (*map)(u64, size_t, size_t, u64, u64);
    int (*access)(u64, size_t, const Access*, size_t);
    int (*unmap)(u64, size_t);
    int (*release)(u64);
    int (*reserve)(u64*, size_t, size_t, u64, u64);
    int (*give_up)(u64, size_t);
} calls;
// A user of a block beside its own stream: of which device.
typedef std::pair<cudaStream_t, int> User;
// Held for changes of what is counted, of all devices.
static std::mutex counting;
template <typename F> static void count(F change) {
    std::lock_guard<std::mutex> lock(counting);
    change();
}
// As torch's own it makes no context current where the device is already.
struct OnDevice {
    int before = 0, device;
    OnDevice(int device) : device(device) {
        MUST(cudaGetDevice(&before));
        if (device != before) MUST(cudaSetDevice(device));
    }
    ~OnDevice() {
        if (device != before) cudaSetDevice(before);
    }
};

enum class Kind { Unmapped, Free, Used, Waits };
struct Block {
    size_t bytes;
    Kind kind;
    std::set<User> users;
    int events = 0;
};
namespace c10::cuda::CUDACachingAllocator::Native {
namespace {
// A reservation, and the blocks that tile it, by their first byte in it.
struct ExpandableSegment {
    int device;
    cudaStream_t stream;
    u64 pool;
    size_t page, base = 0;
    std::vector<int> readers;
    std::vector<std::optional<u64>> handles;
    std::map<size_t, Block> blocks;
    typedef std::map<size_t, Block>::iterator At;

    ExpandableSegment(int device, cudaStream_t stream, u64 pool, size_t page, std::vector<int> readers)
        : device(device), stream(stream), pool(pool), page(page), readers(readers), handles(256) {
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
    void open(int reader, size_t begin, size_t end) {
        Access access{1, reader, 3};
        MUST(calls.access(base + begin * page, (end - begin) * page, &access, 1));
    }
    void add_reader(int reader) {
        readers.push_back(reader);
        for (size_t i = 0; i < handles.size(); i++)
            if (handles[i]) open(reader, i, i + 1);
    }
    // Maps the beginning of an unmapped block: all pages are made, then mapped, then opened.
    bool map(At at, size_t bytes) {
        size_t begin = at->first / page, end = (at->first + bytes + page - 1) / page;
        Properties about{1, 1, 1, device, nullptr, 0, 0, 0, {}};
        for (size_t i = begin; i < end; i++) {
            u64 handle = 0;
            int code = calls.create(&handle, page, &about, 0);
            if (code) {
                for (size_t j = begin; j < i; j++) MUST(calls.release(*handles[j])), handles[j].reset();
                if (code != 2) must(code, "cuMemCreate");
                return false;
            }
            handles[i] = handle;
        }
        for (size_t i = begin; i < end; i++) MUST(calls.map(base + i * page, page, 0, *handles[i], 0));
        open(device, begin, end);
        for (int reader : readers) open(reader, begin, end);
        count([&] {
            numbers.reserved += (end - begin) * page;
            numbers.peak_reserved = std::max(numbers.peak_reserved, numbers.reserved);
        });
        split(at, (end - begin) * page)->second.kind = Kind::Free;
        merge(at);
        return true;
    }
    __attribute__((noinline)) void unmapHandles(size_t begin, size_t end, bool on_ladder) {
        u64 before = cuSimClock();
        MUST(cudaStreamSynchronize(stream));
        if (torch_waited) torch_waited(stream);
        count([&] {
            waits.count += on_ladder;
            waits.nanoseconds += on_ladder ? cuSimClock() - before : 0;
            numbers.reserved -= (end - begin) * page;
        });
        static const bool at_once = getenv("ORDER_AT_ONCE");
        if (at_once) MUST(calls.unmap(base + begin * page, (end - begin) * page));
        for (size_t i = begin; i < end; i++) {
            u64 handle = *handles[i];
            handles[i].reset();
            if (!at_once) MUST(calls.unmap(base + i * page, page));
            MUST(calls.release(handle));
        }
    }
    // Unmaps the whole pages of a free block.
    void unmap(At at, bool on_ladder) {
        size_t begin = (at->first + page - 1) / page, end = (at->first + at->second.bytes) / page;
        if (begin >= end) return;
        unmapHandles(begin, end, on_ladder);
        if (begin * page > at->first) at = std::next(split(at, begin * page - at->first));
        split(at, (end - begin) * page)->second.kind = Kind::Unmapped;
        merge(at);
    }
    bool is_empty() const { return blocks.size() == 1 && blocks.begin()->second.kind == Kind::Unmapped; }
};
}
typedef ExpandableSegment Segment;
}
