// Stand-in for libc10_cuda.so: a caching allocator with torch's ladder. Cached
// blocks are never split; a failed cudaMalloc frees cached blocks, and the last
// rung is missing while a private-pool scope is open.
#include "c10.h"

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <set>

extern "C" {
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int cudaStreamIsCapturing(cudaStream_t, int*);
int cudaGetDeviceCount(int*);
int cudaGetLastError();
}

Numbers numbers;
cudaStream_t current_stream;
int device_count() {
    int count = 0;
    return cudaGetDeviceCount(&count) ? 0 : count;
}
int c10_is_capturing(cudaStream_t stream, int* status) { return cudaStreamIsCapturing(stream, status); }
int c10_malloc(void** out, size_t bytes) { return cudaMalloc(out, bytes); }
int c10_free(void* at) { return cudaFree(at); }

namespace c10::cuda::CUDACachingAllocator {
namespace Native {
struct __attribute__((visibility("hidden"))) NativeCachingAllocator final : CUDAAllocator {
    std::recursive_mutex mutex;
    std::multimap<size_t, void*> cached;
    std::map<void*, size_t> lent;
    int scopes = 0;

    void init(int) override {
        std::string setting = configured("PYTORCH_CUDA_ALLOC_CONF");
        size_t at = setting.find("max_split_size_mb:");
        auto& split = CUDAAllocatorConfig::instance().split;
        if (at != std::string::npos) split = std::stoul(setting.substr(at + 18)) << 20;
    }
    bool get(size_t bytes, void** out) {
        if (numbers.limit && numbers.reserved + bytes > numbers.limit) return false;
        int status = 0;
        if (cudaStreamIsCapturing(current_stream, &status) || status) throw std::bad_alloc();
        if (cudaMalloc(out, bytes)) {
            cudaGetLastError();
            WARN("memory allocation failed with OOM");
            return false;
        }
        numbers.reserved += bytes;
        numbers.peak_reserved = std::max(numbers.peak_reserved, numbers.reserved);
        return true;
    }
    void release(std::multimap<size_t, void*>::iterator block) {
        if (cudaFree(block->second)) throw std::bad_alloc();
        numbers.reserved -= block->first;
        cached.erase(block);
    }
    bool release_available(size_t bytes) {
        const size_t split = CUDAAllocatorConfig::instance().split;
        if (!split || split == SIZE_MAX) return false;
        auto fits = cached.lower_bound(bytes);
        if (fits != cached.end()) return release(fits), true;
        size_t brought = 0;
        while (brought < bytes && !cached.empty() && cached.rbegin()->first >= split) {
            // The releases 2.5 to 2.8 read it once more when it is gone.
            if (getenv("READS_DELETED")) std::terminate();
            brought += cached.rbegin()->first;
            release(std::prev(cached.end()));
        }
        return brought >= bytes;
    }
    bool release_all() {
        release_own();
        while (!cached.empty()) release(cached.begin());
        return true;
    }
    void* raw_alloc(size_t asked) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        size_t bytes = (asked + (2 << 20) - 1) & ~size_t((2 << 20) - 1);
        void* out = nullptr;
        auto hit = cached.lower_bound(bytes);
        if (hit != cached.end() && hit->first <= bytes + (4 << 20)) {
            bytes = hit->first, out = hit->second;
            cached.erase(hit);
        } else if (!get(bytes, &out)) {
            numbers.retries++;
            if (!(release_available(bytes) && get(bytes, &out)) &&
                !(scopes == 0 && release_all() && get(bytes, &out)))
                throw std::bad_alloc();
        }
        lent[out] = bytes;
        numbers.live += bytes;
        numbers.peak_live = std::max(numbers.peak_live, numbers.live);
        return out;
    }
    void* raw_alloc_with_stream(size_t bytes, cudaStream_t) override { return raw_alloc(bytes); }
    void raw_delete(void* pointer) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        auto block = lent.find(pointer);
        cached.emplace(block->second, pointer);
        numbers.live -= block->second;
        lent.erase(block);
    }
    void emptyCache() override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        release_all();
    }
    void beginAllocateToPool(signed char, MempoolId_t, std::function<bool(cudaStream_t)>) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        scopes++;
    }
    void endAllocateToPool(signed char, MempoolId_t) override {
        std::lock_guard<std::recursive_mutex> lock(mutex);
        scopes--;
    }
    // In a private pool it forgets who else uses a tensor; from 2.13 on, with -DMARKS, it does not.
    void recordStream(const DataPtr&, CUDAStream) override {}
#ifdef MARKS
    void markCaptureBegin(signed char) override {}
#endif
    void setMemoryFraction(double fraction, signed char) override { set_limit(fraction); }
    void createOrIncrefPool(signed char, MempoolId_t, CUDAAllocator* its) override { make_pool(its); }
    DeviceStats getDeviceStats(signed char device) override { return {{numbers.reserved, size_t(device)}}; }
    void setUseOnOOM(signed char, MempoolId_t, bool) override {}
    void enable(bool) override {}
};
static NativeCachingAllocator instance;
}
std::atomic<CUDAAllocator*> allocator{&Native::instance};
// As torch before 2.10, whose allocator reads it itself.
extern "C" EXPORT const char* own_key() { return "max_split_size_mb"; }
// As torch: the backend is read while the library is loaded.
static std::string backend = configured("PYTORCH_CUDA_ALLOC_CONF");
static std::string uncached = configured("PYTORCH_NO_CUDA_MEMORY_CACHING");
}
extern "C" size_t split_size() { return c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::instance().split; }
