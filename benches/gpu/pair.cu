// What an allocation and its free cost, and how fast copies between allocations
// are; benches/gpu/pair.py runs this bare and under the shim and compares.
//
// Build:  nvcc -O2 -o pair benches/gpu/pair.cu -lcuda
// Run:    ./pair SECTION [SCALE]     sections: pairs growth cross fresh comb comb-small
//         SCALE divides counts and sizes, to try it on a small (or simulated) GPU.
// Prints one JSON line a figure: {"case": ..., "value": ..., "unit": ...}.
// Exit status: 0 measured, 1 a call failed that should not, 2 no GPU or a wrong argument.

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

typedef unsigned long long u64;
static const u64 KIB = 1ull << 10, MIB = 1ull << 20, GIB = 1ull << 30;
static u64 g_scale = 1;

static void fail(const char *what, int code, int line) {
    fprintf(stderr, "pair.cu:%d: %s = %d\n", line, what, code);
    exit(1);
}
#define CK(call)                                     \
    do {                                             \
        int code_ = (int)(call);                     \
        if (code_ != 0) fail(#call, code_, __LINE__); \
    } while (0)

static double now_ns() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

static void say(const std::string &name, double value, const char *unit) {
    printf("{\"case\": \"%s\", \"value\": %.3f, \"unit\": \"%s\"}\n", name.c_str(), value, unit);
    fflush(stdout);
}

static std::string bytes_text(u64 b) {
    char s[32];
    if (b >= GIB) snprintf(s, sizeof s, "%llu GiB", b / GIB);
    else if (b >= MIB) snprintf(s, sizeof s, "%llu MiB", b / MIB);
    else if (b >= KIB) snprintf(s, sizeof s, "%llu KiB", b / KIB);
    else snprintf(s, sizeof s, "%llu B", b);
    return s;
}

static u64 g_random = 88172645463325252ull;
static u64 below(u64 n) {
    g_random ^= g_random << 13;
    g_random ^= g_random >> 7;
    g_random ^= g_random << 17;
    return g_random % n;
}

// Median over 51 rounds of the mean of a round; a round takes about a
// millisecond and at least 10 calls. Nanoseconds.
template <typename Call>
static double cost_ns(Call call) {
    for (int i = 0; i < 100; i++) call();
    double t0 = now_ns();
    for (int i = 0; i < 20; i++) call();
    int inner = (int)std::min(20000.0, std::max(10.0, 1e6 / ((now_ns() - t0) / 20)));
    std::vector<double> all;
    for (int round = 0; round < 51; round++) {
        t0 = now_ns();
        for (int i = 0; i < inner; i++) call();
        all.push_back((now_ns() - t0) / inner);
    }
    return median(all);
}

// Median of 51 calls, each after 10 ms of rest: what a program pays that does other things between. A driver that
// cleans freed memory behind the program's back has done so by then.
template <typename Call>
static double rested_ns(Call call) {
    std::vector<double> all;
    for (int i = 0; i < 51; i++) {
        usleep(10000);
        double t0 = now_ns();
        call();
        all.push_back(now_ns() - t0);
    }
    return median(all);
}

static void async_pair(u64 bytes, CUstream stream) {
    CUdeviceptr p;
    CK(cuMemAllocAsync(&p, bytes, stream));
    CK(cuMemFreeAsync(p, stream));
}

// ---- pairs that hit, one stream ----

static void section_pairs() {
    CUstream stream;
    CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const u64 sizes[] = {512, 64 * KIB, MIB, 20 * MIB, 64 * MIB, GIB};
    for (u64 bytes : sizes) {
        std::string text = bytes_text(bytes);
        say("cuMemAllocAsync " + text, cost_ns([&] { async_pair(bytes, stream); }), "ns");
        say("cudaMallocAsync " + text, cost_ns([&] {
                void *p;
                CK(cudaMallocAsync(&p, bytes, (cudaStream_t)stream));
                CK(cudaFreeAsync(p, (cudaStream_t)stream));
            }), "ns");
        CK(cuStreamSynchronize(stream));
        // A program mostly has some small block alive, and then the page it lies in is there already for a small pair;
        // with nothing else alive each pair may have to get and give a page.
        auto pair = [&] {
            void *p;
            CK(cudaMalloc(&p, bytes));
            CK(cudaFree(p));
        };
        void *small;
        say("cudaMalloc " + text + ", nothing else alive", cost_ns(pair), "ns");
        CK(cudaMalloc(&small, 512));
        say("cudaMalloc " + text + ", beside a small block", cost_ns(pair), "ns");
        if (bytes >= 64 * MIB) say("cudaMalloc " + text + ", beside a small block, after a rest", rested_ns(pair), "ns");
        CK(cudaFree(small));
    }
}

// ---- the same with many live blocks ----

// Mostly 512 B to 16 KiB; one in 100 of 300 KiB, one in 500 of 3 MiB.
static u64 live_size(u64 i) {
    if (i % 500 == 7) return 3 * MIB;
    if (i % 100 == 3) return 300 * KIB;
    return 512 * (1 + below(32));
}

static void section_growth() {
    CUstream stream;
    CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::vector<CUdeviceptr> live;
    std::vector<u64> bytes;
    const u64 sizes[] = {512, 64 * KIB, MIB, 20 * MIB, 64 * MIB};
    for (u64 count : {1000ull, 10000ull, 100000ull, 1000000ull}) {
        std::string text = std::to_string(count) + " live, ";
        double begin = now_ns();
        u64 before = live.size();
        while (live.size() < count / g_scale) {
            CUdeviceptr p;
            bytes.push_back(live_size(live.size()));
            CK(cuMemAllocAsync(&p, bytes.back(), stream));
            live.push_back(p);
            if (now_ns() - begin > 15e9) {
                say(text + "not reached in 15 s, blocks", (double)live.size(), "");
                return;
            }
        }
        if (live.size() > before) say(text + "one more", (now_ns() - begin) / (live.size() - before), "ns");
        for (u64 size : sizes) say(text + bytes_text(size), cost_ns([&] { async_pair(size, stream); }), "ns");
        // A block anywhere is freed and made again: what a busy program's caches see.
        std::vector<u64> order(1 << 16);
        for (u64 &i : order) i = below(live.size());
        size_t turn = 0;
        say(text + "any block", cost_ns([&] {
                u64 i = order[turn++ & 0xffff];
                CK(cuMemFreeAsync(live[i], stream));
                CK(cuMemAllocAsync(&live[i], bytes[i], stream));
            }), "ns");
    }
    for (CUdeviceptr p : live) CK(cuMemFreeAsync(p, stream));
    CK(cuStreamSynchronize(stream));
}

// ---- from one stream to another ----

static void section_cross() {
    CUstream a, b;
    CUevent event;
    CK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (u64 bytes : {64 * KIB, 20 * MIB}) {
        std::string text = bytes_text(bytes);
        u64 moved = 0, same = 0;
        auto pair = [&](CUstream first, CUstream second, bool ordered) {
            CUdeviceptr p, q;
            CK(cuMemAllocAsync(&p, bytes, first));
            CK(cuMemFreeAsync(p, first));
            if (ordered) {
                CK(cuEventRecord(event, first));
                CK(cuStreamWaitEvent(second, event, 0));
            }
            CK(cuMemAllocAsync(&q, bytes, second));
            CK(cuMemFreeAsync(q, second));
            moved++, same += p == q;
        };
        say("cross, event between, " + text, cost_ns([&] { pair(a, b, true), pair(b, a, true); }) / 2, "ns");
        say("cross, event between, same address, " + text, 100.0 * same / moved, "%");
        say("cross, no event, " + text, cost_ns([&] { pair(a, b, false), pair(b, a, false); }) / 2, "ns");
    }
    say("cross, record + wait alone", cost_ns([&] {
            CK(cuEventRecord(event, a));
            CK(cuStreamWaitEvent(b, event, 0));
        }), "ns");
}

// ---- copies ----

// Median of 9 copies, read + written, 1e9 bytes a second.
static double copy_gbs(CUdeviceptr to, CUdeviceptr from, u64 bytes, CUstream stream) {
    CUevent begin, end;
    CK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    std::vector<double> all;
    for (int i = 0; i < 11; i++) {
        float ms = 0;
        CK(cuEventRecord(begin, stream));
        CK(cuMemcpyDtoDAsync(to, from, bytes, stream));
        CK(cuEventRecord(end, stream));
        CK(cuEventSynchronize(end));
        CK(cuEventElapsedTime(&ms, begin, end));
        if (i > 1) all.push_back(2.0 * bytes / ms * 1e-6);
    }
    CK(cuEventDestroy(begin));
    CK(cuEventDestroy(end));
    return median(all);
}

// Memory of one handle each, made by calls that the shim leaves to the driver:
// what the same GPU does at the same moment without the pool.
struct Plain {
    CUdeviceptr base[2];
    CUmemGenericAllocationHandle handle[2];
    u64 bytes;

    explicit Plain(u64 size) : bytes(size) {
        CUmemAllocationProp prop;
        CUmemAccessDesc access;
        memset(&prop, 0, sizeof prop);
        memset(&access, 0, sizeof access);
        prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        for (int i = 0; i < 2; i++) {
            CK(cuMemCreate(&handle[i], bytes, &prop, 0));
            CK(cuMemAddressReserve(&base[i], bytes, 0, 0, 0));
            CK(cuMemMap(base[i], bytes, 0, handle[i], 0));
            CK(cuMemSetAccess(base[i], bytes, &access, 1));
        }
    }
    ~Plain() {
        for (int i = 0; i < 2; i++) {
            CK(cuMemUnmap(base[i], bytes));
            CK(cuMemRelease(handle[i]));
            CK(cuMemAddressFree(base[i], bytes));
        }
    }
};

static void compare_copies(const char *name, CUdeviceptr x, CUdeviceptr y, u64 bytes) {
    CUstream stream;
    CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    Plain plain(bytes);
    double before = copy_gbs(plain.base[1], plain.base[0], bytes, stream);
    double there = copy_gbs(y, x, bytes, stream);
    double back = copy_gbs(x, y, bytes, stream);
    double after = copy_gbs(plain.base[1], plain.base[0], bytes, stream);
    say(std::string(name) + " copy", (there + back) / 2, "GB/s");
    say(std::string(name) + " copy, one plain handle", (before + after) / 2, "GB/s");
    CK(cuStreamDestroy(stream));
}

static void section_fresh() {
    u64 bytes = 8 * GIB / g_scale;
    CUdeviceptr x, y;
    CK(cuMemAlloc(&x, bytes));
    CK(cuMemAlloc(&y, bytes));
    compare_copies("fresh 8 GiB", x, y, bytes);
    CK(cuMemFree(x));
    CK(cuMemFree(y));
}

// 40 GiB of blocks between two sizes, every second one freed, then 2 x 8 GiB:
// on the pool they are stitched from what was freed.
static void section_comb(const char *name, u64 least, u64 most) {
    u64 bytes = 8 * GIB / g_scale, sum = 0;
    std::vector<CUdeviceptr> blocks;
    while (sum < 5 * bytes) {
        u64 size = (least + below(most - least) / g_scale) & ~(2 * MIB - 1);
        CUdeviceptr p;
        CK(cuMemAlloc(&p, size));
        blocks.push_back(p);
        sum += size;
    }
    for (size_t i = 0; i < blocks.size(); i += 2) CK(cuMemFree(blocks[i]));
    CUdeviceptr x, y;
    double begin = now_ns();
    CK(cuMemAlloc(&x, bytes));
    CK(cuMemAlloc(&y, bytes));
    say(std::string(name) + " both allocations", (now_ns() - begin) / 1e6, "ms");
    compare_copies(name, x, y, bytes);
    CK(cuMemFree(x));
    CK(cuMemFree(y));
    for (size_t i = 1; i < blocks.size(); i += 2) CK(cuMemFree(blocks[i]));
}

int main(int argc, char **argv) {
    std::string section = argc > 1 ? argv[1] : "";
    if (argc > 2) g_scale = strtoull(argv[2], NULL, 10);
    if (argc < 2 || argc > 3 || g_scale == 0) {
        fprintf(stderr, "usage: pair pairs|growth|cross|fresh|comb|comb-small [SCALE]\n");
        return 2;
    }
    int count = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
        fprintf(stderr, "no usable CUDA device: nothing was measured\n");
        return 2;
    }
    CK(cudaSetDevice(0));
    CK(cudaFree(0));
    // Freed memory stays with the driver's pool, so that bare pairs hit as well.
    CUmemoryPool pool;
    u64 all = ~0ull;
    CK(cuDeviceGetDefaultMemPool(&pool, 0));
    CK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    if (section == "pairs") section_pairs();
    else if (section == "growth") section_growth();
    else if (section == "cross") section_cross();
    else if (section == "fresh") section_fresh();
    else if (section == "comb") section_comb("comb of 64-512 MiB,", 64 * MIB, 512 * MIB);
    else if (section == "comb-small") section_comb("comb of 2-64 MiB,", 2 * MIB, 64 * MIB);
    else {
        fprintf(stderr, "unknown section '%s'\n", section.c_str());
        return 2;
    }
    return 0;
}
