// What shim/tests/random asks of the simulated GPU, on a real one: kernels that take their time and look whether
// the memory is still theirs. The middle of every block, all but 256 bytes at both ends, which the program fills
// and checks itself, holds words of the block's own from its allocation to its free. Each kernel on it reads
// them before and after its time, and a writing one writes them again. A word that is another's was lent twice.
//
//     nvcc -O2 -cudart shared -o random tests/gpu/random_on_gpu.cu shim/tests/random/[!c]*.c shim/tests/random/capture.c -lpthread
//
// CUDA_MODULE_LOADING=EAGER, since a kernel that is loaded at its first launch ends a capture.

#include "../../sim/include/memcuda_sim.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <mutex>

typedef unsigned long long u64;
enum Use { READS, WRITES, BEGINS };

// The first word that was another's; in host memory, which the device writes to.
struct Fault {
    u64 count, at;
    uint32_t wanted, found;
};

struct Block {
    size_t bytes;
    uint32_t tag;
};

static const u64 END = 256;
static std::mutex lock;
static std::map<u64, Block> blocks; // by address
static uint32_t next_tag = 1;
static cudaStream_t own;
static volatile Fault *fault;

static void must(cudaError_t code, const char *what) {
    if (code == cudaSuccess) return;
    fprintf(stderr, "random on a GPU: %s: %s\n", what, cudaGetErrorString(code));
    _exit(1);
}

static void see() {
    if (fault == nullptr || fault->count == 0) return;
    usleep(100000); // the device may still be writing the rest
    fprintf(stderr, "random on a GPU: %llu foreign words, the first at %#llx: %#x instead of %#x\n", fault->count, fault->at,
            fault->found, fault->wanted);
    _exit(1);
}

__device__ static void check(const uint32_t *word, uint32_t wanted, Fault *fault) {
    uint32_t found = *(const volatile uint32_t *)word;
    if (found == wanted || atomicAdd(&fault->count, 1ull) != 0) return;
    fault->at = (u64)word;
    fault->wanted = wanted;
    fault->found = found;
}

// `words` words that are the block's from its word `first` on.
__global__ static void touch(uint32_t *at, u64 words, u64 first, uint32_t tag, Use use, u64 nanoseconds, Fault *fault) {
    u64 step = (u64)gridDim.x * blockDim.x, from = (u64)blockIdx.x * blockDim.x + threadIdx.x, began, now;
    if (use != BEGINS)
        for (u64 i = from; i < words; i += step) check(at + i, tag + (uint32_t)(first + i) * 2654435761u, fault);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - began < nanoseconds);
    for (u64 i = from; i < words; i += step) {
        uint32_t mine = tag + (uint32_t)(first + i) * 2654435761u;
        if (use == READS) check(at + i, mine, fault);
        else at[i] = mine;
    }
}

__global__ static void touch_byte(char *at) { *at = 1; }

static cudaError_t launch(cudaStream_t stream, u64 base, const Block &block, u64 from, u64 to, Use use, double microseconds) {
    u64 begin = base + END, end = base + block.bytes - END;
    if (from < begin) from = begin;
    if (to > end) to = end;
    from = (from + 3) & ~3ull;
    u64 words = to > from ? (to - from) / 4 : 0;
    unsigned grid = words < 256 ? 1 : words / 256 < 64 ? words / 256 : 64;
    touch<<<grid, 256, 0, stream>>>((uint32_t *)from, words, (from - base) / 4, block.tag, use, (u64)(microseconds * 1e3),
                                    (Fault *)fault);
    return cudaGetLastError();
}

extern "C" int cuSimLaunch(void *stream, const CUsimRange *range, unsigned, double microseconds) {
    see();
    cudaGetLastError(); // of an allocation that was refused
    u64 base = 0;
    Block block = {};
    {
        std::lock_guard<std::mutex> guard(lock);
        auto after = blocks.upper_bound(range->base);
        if (after != blocks.begin()) {
            auto found = std::prev(after);
            if (range->base < found->first + found->second.bytes) base = found->first, block = found->second;
        }
    }
    if (base == 0) { // a graph's own memory
        touch_byte<<<1, 1, 0, (cudaStream_t)stream>>>((char *)range->base);
        return cudaGetLastError();
    }
    if (block.bytes <= 2 * END) block.bytes = 2 * END;
    return launch((cudaStream_t)stream, base, block, range->base, range->base + range->bytes, range->write ? WRITES : READS,
                  microseconds);
}

static void start() {
    void *shared;
    must(cudaHostAlloc(&shared, sizeof(Fault), cudaHostAllocDefault), "cudaHostAlloc");
    memset(shared, 0, sizeof(Fault));
    must(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "cudaStreamCreate");
    fault = (Fault *)shared;
}

// The memory is this program's from now on: on `stream`, or everywhere.
extern "C" int cuSimClaim(uint64_t base, size_t bytes, void *stream) {
    Block block = {bytes, 0};
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    must(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    cudaGetLastError(); // of an allocation that was refused
    {
        std::lock_guard<std::mutex> guard(lock);
        if (fault == nullptr) start();
        block.tag = next_tag++ * 0x9E3779B9u;
        auto after = blocks.lower_bound(base);
        bool over = after != blocks.end() && after->first < base + bytes;
        if (after != blocks.begin()) over |= std::prev(after)->first + std::prev(after)->second.bytes > base;
        if (over) {
            fprintf(stderr, "random on a GPU: %#llx is lent twice\n", (u64)base);
            _exit(1);
        }
        blocks[base] = block;
    }
    bool anywhere = stream == CU_SIM_ANY_STREAM;
    if (bytes > 2 * END) {
        must(launch(anywhere ? own : (cudaStream_t)stream, base, block, base, base + bytes, BEGINS, 0), "the first kernel");
        if (anywhere) must(cudaStreamSynchronize(own), "cudaStreamSynchronize");
    }
    must(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    return 0;
}

extern "C" int cuSimRelease(uint64_t base) {
    std::lock_guard<std::mutex> guard(lock);
    return blocks.erase(base) == 1 ? 0 : 1;
}

// Asked at the end, when nothing runs. What is held is not asked: the context's own varies.
extern "C" int cuSimPhysical(int, uint64_t *bytes) {
    see();
    *bytes = 0;
    return 0;
}

// Nothing is made fail here.
extern "C" int cuSimFailures(uint64_t *calls) {
    *calls = 0;
    return 0;
}
