// What the stand-ins for torch's two libraries share: torch's names where the
// shim looks for them, and no more of torch than its out-of-memory ladder.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#define EXPORT __attribute__((visibility("default")))
typedef struct CUstream_st* cudaStream_t;
typedef std::pair<unsigned long long, unsigned long long> MempoolId_t;

// libc10.so: reads the environment for everybody.
EXPORT std::string configured(const char* name);

#ifndef OLDER
// The setting that all allocators read, since 2.9.
namespace c10::CachingAllocator {
struct EXPORT AcceleratorAllocatorConfig {
    AcceleratorAllocatorConfig();
    static AcceleratorAllocatorConfig& instance();
    void parseArgs(const std::string& setting);
    std::atomic<size_t> split{0};
    std::atomic<size_t> large{0};
    std::atomic<bool> expandable{false};
    std::string last;
};
}
#endif

// The setting of the releases 2.4 to 2.9. Each library that reads it has the pointer to it,
// and all of them use one. Before, one library reads it, and shows it to nobody.
#ifdef OLDEST
#define CUDAAllocatorConfig CachingAllocatorConfig
#define SHOWN
#else
#define SHOWN EXPORT
#endif
namespace c10::cuda::CUDACachingAllocator {
struct SHOWN CUDAAllocatorConfig {
    std::atomic<size_t> split{0};
    static CUDAAllocatorConfig& instance() {
        static CUDAAllocatorConfig* s_instance = new CUDAAllocatorConfig;
        return *s_instance;
    }
};
}

// What torch writes its own warnings with.
namespace c10 {
struct SourceLocation {
    const char* function;
    const char* file;
    unsigned line;
};
struct EXPORT MessageLogger {
    MessageLogger(SourceLocation where, int severity, bool exit_on_fatal);
    ~MessageLogger();
    SourceLocation where;
    int severity;
    const char* text = "";
    void write(const char* what) { text = what; }
};
}
#define WARN(what) (c10::MessageLogger({__func__, __FILE__, __LINE__}, 1, true).write(what))

// The names of what torch's methods are passed: a tensor's memory by its address alone, a stream.
namespace c10 {
// It is answered through memory of the asker's, as torch's.
struct DataPtr {
    void* at;
    ~DataPtr() {}
};
namespace cuda {
struct EXPORT CUDAStream {
    signed char type, device;
    long id;
    cudaStream_t stream() const;
};
}
}

namespace c10::cuda::CUDACachingAllocator {
// Torch's counters: too many for registers.
struct DeviceStats {
    size_t words[8];
};
struct CUDAAllocator {
    virtual void init(int devices) = 0;
    virtual void* raw_alloc(size_t bytes) = 0;
    virtual void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) = 0;
    virtual void raw_delete(void* pointer) = 0;
    virtual void emptyCache() = 0;
    virtual DeviceStats getDeviceStats(signed char) { return {}; }
    virtual void beginAllocateToPool(signed char, MempoolId_t, std::function<bool(cudaStream_t)>) = 0;
    virtual void endAllocateToPool(signed char, MempoolId_t) = 0;
    virtual void setUseOnOOM(signed char, MempoolId_t, bool) = 0;
    virtual void enable(bool) {}
    virtual DataPtr allocate(size_t) { return {nullptr}; }
    virtual void recordStream(const DataPtr&, CUDAStream) {}
    virtual void markCaptureBegin(signed char) {}
    virtual void* getBaseAllocation(void*, size_t*) { return nullptr; }
    virtual void setMemoryFraction(double, signed char) {}
    // Before 2.11, and since.
    virtual void createOrIncrefPool(signed char, MempoolId_t, CUDAAllocator*) {}
    virtual void createOrIncrefPool(signed char, MempoolId_t, std::shared_ptr<CUDAAllocator>) {}
};
extern EXPORT std::atomic<CUDAAllocator*> allocator;
}

struct Numbers {
    size_t live, peak_live, reserved, peak_reserved, retries, limit;
    // Of what is reserved, what lies idle in a pool with an allocator of its own.
    size_t own;
    // Of expandable.cc: allocations of private pools in pages, and of others that are not.
    size_t private_pages, plain;
};
extern "C" EXPORT Numbers numbers;
// Torch's limit, of 1000 MiB; a pool with an allocator of its own has so much.
inline void set_limit(double fraction) { numbers.limit = fraction * (1000 << 20); }
inline void make_pool(bool with_allocator) {
    if (with_allocator) numbers.own = 300 << 20, numbers.reserved += numbers.own;
}
inline void release_own() { numbers.reserved -= numbers.own, numbers.own = 0; }
// For which memory is asked where no other one is named.
extern "C" EXPORT cudaStream_t current_stream;
extern "C" EXPORT int device_count();
extern "C" EXPORT size_t split_size();
// The runtime's functions, called by the allocator's library.
extern "C" EXPORT int c10_is_capturing(cudaStream_t stream, int* status);
extern "C" EXPORT int c10_malloc(void** out, size_t bytes);
extern "C" EXPORT int c10_free(void* at);
