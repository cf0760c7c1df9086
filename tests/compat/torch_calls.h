// Torch's own CUDA allocator as torch calls it: by the words of its vtable, which are the
// program's arguments (NAME=WORD), and by functions that its library exports. Includes
// nothing of torch, so one build is for every release. Never calls a method by its symbol:
// what has taken its place in the vtable is what runs.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

typedef struct CUstream_st* cudaStream_t;
typedef std::pair<unsigned long long, unsigned long long> MempoolId;

[[noreturn]] inline void fail(const char* what, long code = 0) {
    fprintf(stderr, "FAIL: %s: %ld\n", what, code);
    _Exit(1);
}
inline void must(bool holds, const char* what, int line) {
    if (!holds) fail(what, line);
}
#define CHECK(holds) must((holds), #holds, __LINE__)

// c10::cuda::CUDAStream: type and index of the device, then torch's number of the stream.
struct TorchStream {
    signed char type, device;
    long id;
};
// c10::DataPtr, which torch writes where it is told to.
struct DataPtr {
    void* words[8];
};

class Torch {
    std::map<std::string, size_t> word;
    void* library;
    void* self = nullptr;

    template <typename F> F method(const char* name) const {
        auto found = word.find(name);
        if (found == word.end()) fail(name);
        return reinterpret_cast<F>((*static_cast<void***>(self))[found->second]);
    }
    bool has(const char* name) const { return word.count(name) != 0; }

  public:
    Torch(const char* path, char** words) {
        for (; *words; words++) {
            char* equal = strchr(*words, '=');
            CHECK(equal != nullptr);
            word[std::string(*words, equal)] = strtoul(equal + 1, nullptr, 10);
        }
        // Torch 2.1 only looks whether it is loaded.
        dlopen("libnvidia-ml.so.1", RTLD_LAZY);
        // Functions of the runtime that the simulator lacks are never called.
        library = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);
        if (!library) fail(dlerror());
    }
    template <typename F> F exported(const char* name, bool optional = false) const {
        void* found = dlsym(library, name);
        if (!found && !optional) fail(name);
        return reinterpret_cast<F>(found);
    }
    // As torch sets itself up: who knows whether a device has a context, how many devices
    // there are, the allocator.
    void start(bool (*has_context)(signed char)) {
        exported<void (*)(bool (*)(signed char))>("_ZN3c104cuda9_internal20setHasPrimaryContextEPFbaE")(has_context);
        int devices = exported<signed char (*)()>("_ZN3c104cuda12device_countEv")();
        CHECK(devices > 0);
        // From 2.11 on.
        auto init_peers = exported<void (*)(long)>("_ZN3c104cuda6detail21init_p2p_access_cacheEl", true);
        if (init_peers) init_peers(devices);
        self = *exported<void**>("_ZN3c104cuda20CUDACachingAllocator9allocatorE");
        CHECK(self != nullptr);
        method<void (*)(void*, int)>("init")(self, devices);
    }
    TorchStream stream(signed char device) const {
        return exported<TorchStream (*)(bool, signed char)>("_ZN3c104cuda17getStreamFromPoolEba")(false, device);
    }
    TorchStream default_stream(signed char device) const {
        return exported<TorchStream (*)(signed char)>("_ZN3c104cuda20getDefaultCUDAStreamEa")(device);
    }
    cudaStream_t native(TorchStream stream) const {
        return exported<cudaStream_t (*)(const TorchStream*)>("_ZNK3c104cuda10CUDAStream6streamEv")(&stream);
    }
    void make_current(TorchStream stream) const {
        exported<void (*)(TorchStream)>("_ZN3c104cuda20setCurrentCUDAStreamENS0_10CUDAStreamE")(stream);
    }
    // Of the current stream, as tensors are.
    void* allocate(size_t bytes, DataPtr* out) const {
        method<DataPtr* (*)(DataPtr*, void*, size_t)>("allocate")(out, self, bytes);
        return out->words[0];
    }
    void free(void* pointer) const {
        auto deleter = method<void (*(*)(const void*))(void*)>("raw_deleter");
        deleter(self)(pointer);
    }
    void* raw_allocate(size_t bytes, cudaStream_t stream) const {
        return method<void* (*)(void*, size_t, cudaStream_t)>("raw_alloc_with_stream")(self, bytes, stream);
    }
    void raw_free(void* pointer) const { method<void (*)(void*, void*)>("raw_delete")(self, pointer); }
    void record_stream(const DataPtr* pointer, TorchStream stream) const {
        method<void (*)(void*, const DataPtr*, TorchStream)>("recordStream")(self, pointer, stream);
    }
    // From 2.9 on.
    void* configuration() const {
        auto instance = exported<void* (*)()>("_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig8instanceEv", true);
        return instance ? instance() : nullptr;
    }
    // What the allocator of pinned memory does first.
    void pinned() const { configuration(); }
    // Changes the settings of a program that runs; from 2.10 on.
    void set(const std::string& settings) const {
        exported<void (*)(void*, const std::string&)>(
            "_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig9parseArgsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE")(
            configuration(), settings);
    }
    // Makes a handle that another process could open; it is not kept.
    void share(void* pointer) const {
        struct {
            long offset;
            std::string handle;
        } out{};
        method<void* (*)(void*, void*, void*)>("shareIpcHandle")(&out, self, pointer);
    }
    // From 2.11 on.
    bool has_fabric(signed char device) const {
        return exported<bool (*)(signed char)>("_ZN3c104cuda17get_fabric_accessEa")(device);
    }
    // Releases before 2.9 have no argument, and leave the registers of this one alone.
    void empty() const { method<void (*)(void*, MempoolId)>("emptyCache")(self, MempoolId(0, 0)); }
    // What is asked for on this stream comes from the pool, until it is closed.
    void open_pool(MempoolId pool, signed char device, cudaStream_t stream) const {
        if (has("beginAllocateStreamToPool"))
            return method<void (*)(void*, signed char, cudaStream_t, MempoolId)>("beginAllocateStreamToPool")(
                self, device, stream, pool);
        auto takes = [stream](cudaStream_t asked) { return asked == stream; };
        method<void (*)(void*, signed char, MempoolId, std::function<bool(cudaStream_t)>)>("beginAllocateToPool")(
            self, device, pool, takes);
    }
    void close_pool(MempoolId pool, signed char device, cudaStream_t stream) const {
        if (has("endAllocateStreamToPool"))
            return method<void (*)(void*, signed char, cudaStream_t)>("endAllocateStreamToPool")(self, device, stream);
        method<void (*)(void*, signed char, MempoolId)>("endAllocateToPool")(self, device, pool);
    }
    void release_pool(MempoolId pool, signed char device) const {
        method<void (*)(void*, signed char, MempoolId)>("releasePool")(self, device, pool);
    }
    // What a torch.cuda.MemPool does that nobody allocates in, from 2.11 on.
    void begin_and_end_pool(MempoolId pool, signed char device) const {
        method<void (*)(void*, signed char, MempoolId, std::shared_ptr<void>)>("createOrIncrefPool")(
            self, device, pool, nullptr);
        method<void (*)(void*, signed char, MempoolId, bool)>("setUseOnOOM")(self, device, pool, false);
        release_pool(pool, device);
        method<void (*)(void*, MempoolId)>("emptyCache")(self, pool);
    }
    // All words of its DeviceStats, whatever they count in this release.
    std::vector<long> counters() const {
        static const long NONE = -1;
        std::vector<long> out(4096, NONE);
        method<void* (*)(void*, void*, signed char)>("getDeviceStats")(out.data(), self, 0);
        while (out.back() == NONE) out.pop_back();
        return out;
    }
    // Runs what may be out of memory: false where it is, and nothing else may be thrown.
    template <typename F> static bool served(F call) {
        try {
            call();
            return true;
        } catch (std::exception& error) {
            std::string thrown = abi::__cxa_current_exception_type()->name();
            if (thrown.find("OutOfMemoryError") == std::string::npos) fail(error.what());
            return false;
        }
    }
};
