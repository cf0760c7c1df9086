// What the CUDA driver does, measured on one GPU: the facts that the pool's design rests on.
//
// Build:  nvcc -O2 -arch=sm_90 -o driver_facts tests/gpu/driver_facts.cu -lcuda
// Run:    ./driver_facts [SECTION...]
//         sections: align costs capture reserve pairs alias copy (the default: all of these), mappings
// Times are medians in microseconds. Nothing is left allocated, no setting of the GPU is changed.
// Exit status: 0 measured, 1 a call failed that should not, 2 no usable GPU or a wrong argument.

#include <cuda.h>
#include <cuda_runtime.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

static void fail(const char *what, int code, int line) {
    const char *name = NULL;
    cuGetErrorName((CUresult)code, &name);
    printf("FAILED line %d: %s = %d (%s)\n", line, what, code, name ? name : "?");
    fflush(stdout);
    exit(1);
}
#define CK(call)                                                  \
    do {                                                          \
        int code_ = (int)(call);                                  \
        if (code_ != 0) fail(#call, code_, __LINE__);             \
    } while (0)

typedef unsigned long long u64;
static const u64 MIB = 1ull << 20;
static const u64 GIB = 1ull << 30;
static const u64 TIB = 1ull << 40;

static CUdevice g_device;
static CUcontext g_context;

// Entry points whose spelling in the header changed between CUDA releases are taken by name.
typedef CUresult (*CaptureInfoFn)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
                                  const CUgraphNode **, size_t *);
typedef CUresult (*CtxRecordFn)(CUcontext, CUevent);
static CaptureInfoFn p_capture_info;
static CtxRecordFn p_ctx_record;

static double now_us() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v.empty() ? 0.0 : v[v.size() / 2];
}

// Median over `rounds` of the mean of `inner` calls.
static double cost_us(int rounds, int inner, const std::function<void()> &call) {
    std::vector<double> all;
    for (int r = 0; r < rounds; r++) {
        double t0 = now_us();
        for (int i = 0; i < inner; i++) call();
        all.push_back((now_us() - t0) / inner);
    }
    return median(all);
}

static std::string bytes_text(u64 b) {
    char s[64];
    if (b >= TIB && b % TIB == 0) snprintf(s, sizeof s, "%llu TiB", b / TIB);
    else if (b >= GIB && b % GIB == 0) snprintf(s, sizeof s, "%llu GiB", b / GIB);
    else if (b >= MIB && b % MIB == 0) snprintf(s, sizeof s, "%llu MiB", b / MIB);
    else if (b >= 1024 && b % 1024 == 0) snprintf(s, sizeof s, "%llu KiB", b / 1024);
    else snprintf(s, sizeof s, "%llu B", b);
    return s;
}

__global__ void spin_kernel(u64 ns) {
    u64 begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < ns);
}

static CUmemAllocationProp allocation_prop() {
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = g_device;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

static void set_access(CUdeviceptr at, u64 bytes) {
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = g_device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CK(cuMemSetAccess(at, bytes, &access, 1));
}

// ---- align: to what are the bases of allocations aligned, by size? ----

static u64 least_alignment(const std::vector<CUdeviceptr> &bases) {
    u64 all = 0;
    for (size_t i = 0; i < bases.size(); i++) all |= (u64)bases[i];
    return all & (~all + 1);
}

static void section_align() {
    const u64 sizes[] = {1, 511, 513, 4096, 65536, 65537, 512 * 1024, MIB - 1, MIB, MIB + 1, 3 * MIB / 2,
                         2 * MIB - 512, 2 * MIB, 2 * MIB + 1, 3 * MIB, 4 * MIB, 5 * MIB, 8 * MIB + 512, 10 * MIB,
                         16 * MIB, 20 * MIB, 32 * MIB, 33 * MIB, 64 * MIB, 100 * MIB, 128 * MIB, 300 * MIB, GIB};
    printf("\n[align] least alignment of the bases, distance of neighbours, 9 allocations of each size, 3 sizes in turn\n");
    printf("%14s %14s %14s %14s %14s\n", "size", "cuMemAlloc", "least gap", "MallocAsync", "least gap");
    CUstream stream;
    CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr odd[4];
    for (int i = 0; i < 4; i++) CK(cuMemAlloc(&odd[i], 700 + 3000 * i));
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        u64 size = sizes[s];
        std::vector<CUdeviceptr> plain, ordered;
        for (int i = 0; i < 9; i++) {
            CUdeviceptr p = 0, q = 0;
            CK(cuMemAlloc(&p, size));
            CK(cuMemAllocAsync(&q, size, stream));
            plain.push_back(p);
            ordered.push_back(q);
        }
        CK(cuStreamSynchronize(stream));
        u64 gap[2] = {~0ull, ~0ull};
        std::vector<CUdeviceptr> *both[2] = {&plain, &ordered};
        for (int k = 0; k < 2; k++) {
            std::vector<CUdeviceptr> sorted = *both[k];
            std::sort(sorted.begin(), sorted.end());
            for (size_t i = 1; i < sorted.size(); i++) gap[k] = std::min(gap[k], (u64)(sorted[i] - sorted[i - 1]));
        }
        printf("%14s %14s %14llu %14s %14llu\n", bytes_text(size).c_str(), bytes_text(least_alignment(plain)).c_str(),
               gap[0], bytes_text(least_alignment(ordered)).c_str(), gap[1]);
        for (int i = 0; i < 9; i++) {
            CK(cuMemFree(plain[i]));
            CK(cuMemFreeAsync(ordered[i], stream));
        }
        CK(cuStreamSynchronize(stream));
    }
    for (int i = 0; i < 4; i++) CK(cuMemFree(odd[i]));
    CK(cuStreamDestroy(stream));
}

// ---- costs: what one small call costs the host ----

static void section_costs() {
    printf("\n[costs] us a call, median of 21 rounds of 2,000\n");
    CUstream a, b;
    CUevent event, event2;
    CK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&event2, CU_EVENT_DISABLE_TIMING));
    const int R = 21, N = 2000;
    CUstreamCaptureStatus status;
    cuuint64_t id;
    printf("  cuCtxGetCurrent                       %8.3f\n", cost_us(R, N, [&] { CUcontext c; CK(cuCtxGetCurrent(&c)); }));
    printf("  cuStreamIsCapturing                   %8.3f\n", cost_us(R, N, [&] { CK(cuStreamIsCapturing(a, &status)); }));
    printf("  cuStreamIsCapturing(legacy)           %8.3f\n", cost_us(R, N, [&] { CK(cuStreamIsCapturing(CU_STREAM_LEGACY, &status)); }));
    if (p_capture_info)
        printf("  cuStreamGetCaptureInfo_v2             %8.3f\n",
               cost_us(R, N, [&] { CK(p_capture_info(a, &status, &id, NULL, NULL, NULL)); }));
    printf("  cuThreadExchangeStreamCaptureMode     %8.3f\n", cost_us(R, N, [&] {
               CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
               CK(cuThreadExchangeStreamCaptureMode(&mode));
               CK(cuThreadExchangeStreamCaptureMode(&mode));
           }) / 2);
    printf("  cuEventRecord, idle stream            %8.3f\n", cost_us(R, N, [&] { CK(cuEventRecord(event, a)); }));
    CK(cuStreamSynchronize(a));
    printf("  cuEventRecord, legacy stream          %8.3f\n", cost_us(R, N, [&] { CK(cuEventRecord(event2, CU_STREAM_LEGACY)); }));
    CK(cuCtxSynchronize());
    printf("  cuEventQuery, complete                %8.3f\n", cost_us(R, N, [&] { CK(cuEventQuery(event)); }));
    printf("  cuStreamQuery, idle                   %8.3f\n", cost_us(R, N, [&] { CK(cuStreamQuery(a)); }));
    printf("  cuStreamWaitEvent, complete           %8.3f\n", cost_us(R, N, [&] { CK(cuStreamWaitEvent(b, event, 0)); }));
    CK(cuCtxSynchronize());
    printf("  cuEventCreate+Destroy                 %8.3f\n", cost_us(R, N, [&] {
               CUevent e;
               CK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
               CK(cuEventDestroy(e));
           }));
    // A busy stream: 40 ms of work, the calls must not wait for it.
    spin_kernel<<<1, 1, 0, (cudaStream_t)a>>>(40000000ull);
    CK(cudaGetLastError());
    CK(cuEventRecord(event, a));
    printf("  cuEventQuery, not ready               %8.3f\n", cost_us(5, 500, [&] {
               CUresult r = cuEventQuery(event);
               if (r != CUDA_ERROR_NOT_READY && r != CUDA_SUCCESS) fail("cuEventQuery", r, __LINE__);
           }));
    printf("  cuEventRecord, busy stream (100)      %8.3f\n", cost_us(1, 100, [&] { CK(cuEventRecord(event2, a)); }));
    printf("  cuStreamWaitEvent, pending (100)      %8.3f\n", cost_us(1, 100, [&] { CK(cuStreamWaitEvent(b, event, 0)); }));
    CK(cuCtxSynchronize());
    CUdeviceptr p;
    CK(cuMemAlloc(&p, 64 * MIB));
    printf("  cuPointerGetAttribute(MEMORY_TYPE)    %8.3f\n", cost_us(R, N, [&] {
               unsigned type;
               CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
           }));
    CK(cuMemFree(p));
    if (!p_ctx_record) {
        printf("  cuCtxRecordEvent                      absent from this driver\n");
    } else {
        const int counts[] = {0, 8, 32, 128};
        for (int k = 0; k < 4; k++) {
            std::vector<CUstream> more(counts[k]);
            for (size_t i = 0; i < more.size(); i++) {
                CK(cuStreamCreate(&more[i], CU_STREAM_NON_BLOCKING));
                spin_kernel<<<1, 1, 0, (cudaStream_t)more[i]>>>(1000);
            }
            CK(cuCtxSynchronize());
            double idle = cost_us(11, 200, [&] { CK(p_ctx_record(g_context, event)); });
            CK(cuCtxSynchronize());
            spin_kernel<<<1, 1, 0, (cudaStream_t)a>>>(40000000ull);
            double t0 = now_us();
            CK(p_ctx_record(g_context, event));
            double busy = now_us() - t0;
            CUresult first = cuEventQuery(event);
            t0 = now_us();
            CK(cuEventSynchronize(event));
            double waited = now_us() - t0;
            printf("  cuCtxRecordEvent, %3d more streams    %8.3f   with a busy stream %.1f, then query = %d, waited %.0f us\n",
                   counts[k], idle, busy, (int)first, waited);
            for (size_t i = 0; i < more.size(); i++) CK(cuStreamDestroy(more[i]));
        }
    }
    CK(cuEventDestroy(event));
    CK(cuEventDestroy(event2));
    CK(cuStreamDestroy(a));
    CK(cuStreamDestroy(b));
}

// ---- capture: which calls does a capture survive? ----

struct CaptureScene {
    CUstream capturing, other, blocking;
    CUevent fresh, done, spare;
    CUdeviceptr memory;
};

typedef CUresult (*CaptureOp)(CaptureScene &);
struct NamedOp {
    const char *name;
    CaptureOp op;
};

static CUresult op_nothing(CaptureScene &) { return CUDA_SUCCESS; }
static CUresult op_record_legacy(CaptureScene &s) { return cuEventRecord(s.fresh, CU_STREAM_LEGACY); }
static CUresult op_record_per_thread(CaptureScene &s) { return cuEventRecord(s.fresh, CU_STREAM_PER_THREAD); }
static CUresult op_record_other(CaptureScene &s) { return cuEventRecord(s.fresh, s.other); }
static CUresult op_record_blocking(CaptureScene &s) { return cuEventRecord(s.fresh, s.blocking); }
static CUresult op_wait_other(CaptureScene &s) { return cuStreamWaitEvent(s.other, s.done, 0); }
static CUresult op_wait_legacy(CaptureScene &s) { return cuStreamWaitEvent(CU_STREAM_LEGACY, s.done, 0); }
static CUresult op_wait_capturing(CaptureScene &s) { return cuStreamWaitEvent(s.capturing, s.done, 0); }
static CUresult op_event_sync(CaptureScene &s) { return cuEventSynchronize(s.done); }
static CUresult op_event_query(CaptureScene &s) { return cuEventQuery(s.done); }
static CUresult op_stream_sync(CaptureScene &s) { return cuStreamSynchronize(s.other); }
static CUresult op_stream_query(CaptureScene &s) { return cuStreamQuery(s.other); }
static CUresult op_ctx_record(CaptureScene &s) {
    return p_ctx_record ? p_ctx_record(g_context, s.fresh) : CUDA_ERROR_NOT_SUPPORTED;
}
static CUresult op_ctx_sync(CaptureScene &) { return cuCtxSynchronize(); }
static CUresult op_is_capturing_legacy(CaptureScene &) {
    CUstreamCaptureStatus status;
    return cuStreamIsCapturing(CU_STREAM_LEGACY, &status);
}
static CUresult op_is_capturing_other(CaptureScene &s) {
    CUstreamCaptureStatus status;
    return cuStreamIsCapturing(s.other, &status);
}
static CUresult op_event_create(CaptureScene &) {
    CUevent e;
    CUresult r = cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
    return r ? r : cuEventDestroy(e);
}
static CUresult op_stream_create(CaptureScene &) {
    CUstream s;
    CUresult r = cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    return r ? r : cuStreamDestroy(s);
}
static CUresult op_memset_other(CaptureScene &s) { return cuMemsetD32Async(s.memory, 7, 16, s.other); }
static CUresult op_alloc(CaptureScene &) {
    CUdeviceptr p;
    CUresult r = cuMemAlloc(&p, MIB);
    return r ? r : cuMemFree(p);
}
static CUresult op_alloc_async_other(CaptureScene &s) {
    CUdeviceptr p;
    CUresult r = cuMemAllocAsync(&p, MIB, s.other);
    return r ? r : cuMemFreeAsync(p, s.other);
}
static CUresult op_mem_info(CaptureScene &) {
    size_t f, t;
    return cuMemGetInfo(&f, &t);
}

static const NamedOp CAPTURE_OPS[] = {
    {"(nothing)", op_nothing},
    {"EventRecord legacy", op_record_legacy},
    {"EventRecord per-thread", op_record_per_thread},
    {"EventRecord other", op_record_other},
    {"EventRecord blocking", op_record_blocking},
    {"StreamWaitEvent other", op_wait_other},
    {"StreamWaitEvent legacy", op_wait_legacy},
    {"StreamWaitEvent capturing", op_wait_capturing},
    {"EventSynchronize", op_event_sync},
    {"EventQuery", op_event_query},
    {"StreamSynchronize other", op_stream_sync},
    {"StreamQuery other", op_stream_query},
    {"CtxRecordEvent", op_ctx_record},
    {"CtxSynchronize", op_ctx_sync},
    {"StreamIsCapturing legacy", op_is_capturing_legacy},
    {"StreamIsCapturing other", op_is_capturing_other},
    {"EventCreate+Destroy", op_event_create},
    {"StreamCreate+Destroy", op_stream_create},
    {"memset on other", op_memset_other},
    {"MemAlloc+Free", op_alloc},
    {"MemAllocAsync other", op_alloc_async_other},
    {"MemGetInfo", op_mem_info},
};

// One cell: the operation's code, and "!" when the capture was lost by it.
static std::string capture_cell(const NamedOp &named, CUstreamCaptureMode mode, bool guard, bool second_thread,
                                unsigned stream_flags) {
    CaptureScene s;
    CK(cuStreamCreate(&s.capturing, stream_flags));
    CK(cuStreamCreate(&s.other, CU_STREAM_NON_BLOCKING));
    CK(cuStreamCreate(&s.blocking, CU_STREAM_DEFAULT));
    CK(cuEventCreate(&s.fresh, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&s.done, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&s.spare, CU_EVENT_DISABLE_TIMING));
    CK(cuMemAlloc(&s.memory, 4096));
    CK(cuEventRecord(s.done, s.other));
    CK(cuStreamSynchronize(s.other));
    CK(cuStreamBeginCapture(s.capturing, mode));
    CK(cuMemsetD32Async(s.memory, 1, 16, s.capturing));
    CUresult code = CUDA_SUCCESS;
    std::function<void()> body = [&] {
        CK(cuCtxSetCurrent(g_context));
        CUstreamCaptureMode swap = CU_STREAM_CAPTURE_MODE_RELAXED;
        if (guard) CK(cuThreadExchangeStreamCaptureMode(&swap));
        code = named.op(s);
        if (guard) CK(cuThreadExchangeStreamCaptureMode(&swap));
    };
    if (second_thread) {
        std::thread t(body);
        t.join();
    } else {
        body();
    }
    CUgraph graph = NULL;
    CUresult end = cuStreamEndCapture(s.capturing, &graph);
    size_t nodes = 0;
    if (end == CUDA_SUCCESS && graph) {
        CK(cuGraphGetNodes(graph, NULL, &nodes));
        CK(cuGraphDestroy(graph));
    }
    cuCtxSynchronize();
    CK(cuMemFree(s.memory));
    CK(cuEventDestroy(s.fresh));
    CK(cuEventDestroy(s.done));
    CK(cuEventDestroy(s.spare));
    CK(cuStreamDestroy(s.capturing));
    CK(cuStreamDestroy(s.other));
    CK(cuStreamDestroy(s.blocking));
    char text[32];
    if (end != CUDA_SUCCESS) snprintf(text, sizeof text, "%d!%d", (int)code, (int)end);
    else if (nodes != 1) snprintf(text, sizeof text, "%d+%d", (int)code, (int)nodes - 1);
    else snprintf(text, sizeof text, "%d", (int)code);
    return text;
}

static void section_capture() {
    printf("\n[capture] result code of a call made while a stream captures; \"!N\" = the capture was lost (EndCapture gave N);\n"
           "\"+N\" = N nodes were added to the user's graph. guard = the caller's thread mode was RELAXED around the call.\n");
    for (int variant = 0; variant < 2; variant++) {
        unsigned flags = variant ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
        printf("capturing stream is %s\n", variant ? "blocking (legacy-synchronising)" : "non-blocking");
        printf("  %-26s %10s %10s %10s %10s | other thread: %10s %10s\n", "call", "global", "thread", "relaxed",
               "glob+guard", "global", "glob+guard");
        for (size_t i = 0; i < sizeof CAPTURE_OPS / sizeof *CAPTURE_OPS; i++) {
            const NamedOp &op = CAPTURE_OPS[i];
            printf("  %-26s %10s %10s %10s %10s | %24s %10s\n", op.name,
                   capture_cell(op, CU_STREAM_CAPTURE_MODE_GLOBAL, false, false, flags).c_str(),
                   capture_cell(op, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, false, flags).c_str(),
                   capture_cell(op, CU_STREAM_CAPTURE_MODE_RELAXED, false, false, flags).c_str(),
                   capture_cell(op, CU_STREAM_CAPTURE_MODE_GLOBAL, true, false, flags).c_str(),
                   capture_cell(op, CU_STREAM_CAPTURE_MODE_GLOBAL, false, true, flags).c_str(),
                   capture_cell(op, CU_STREAM_CAPTURE_MODE_GLOBAL, true, true, flags).c_str());
            fflush(stdout);
        }
    }
}

// ---- reserve: what does a large reservation of address space cost? ----

static u64 status_kib(const char *field) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    u64 value = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field))) value = strtoull(line + strlen(field) + 1, NULL, 10);
    fclose(f);
    return value;
}

static void section_reserve() {
    printf("\n[reserve] address space: us to reserve, to map + set access + unmap 2 MiB at its start, middle and end, to free\n");
    const u64 sizes[] = {GIB, 64 * GIB, TIB, 8 * TIB, 32 * TIB, 64 * TIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CUdeviceptr base = 0;
        u64 pte0 = status_kib("VmPTE:"), rss0 = status_kib("VmRSS:");
        double t0 = now_us();
        CUresult r = cuMemAddressReserve(&base, sizes[i], 0, 0, 0);
        double reserve = now_us() - t0;
        if (r != CUDA_SUCCESS) {
            printf("  %8s refused: %d\n", bytes_text(sizes[i]).c_str(), (int)r);
            continue;
        }
        CUmemAllocationProp prop = allocation_prop();
        CUmemGenericAllocationHandle handle;
        CK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
        double touch[3];
        const u64 at[3] = {0, (sizes[i] / 2) & ~(2 * MIB - 1), sizes[i] - 2 * MIB};
        for (int k = 0; k < 3; k++) {
            t0 = now_us();
            CK(cuMemMap(base + at[k], 2 * MIB, 0, handle, 0));
            set_access(base + at[k], 2 * MIB);
            CK(cuMemUnmap(base + at[k], 2 * MIB));
            touch[k] = now_us() - t0;
        }
        u64 pte1 = status_kib("VmPTE:"), rss1 = status_kib("VmRSS:");
        CK(cuMemRelease(handle));
        t0 = now_us();
        CK(cuMemAddressFree(base, sizes[i]));
        double freed = now_us() - t0;
        printf("  %8s reserve %9.1f  touch %8.1f %8.1f %8.1f  free %9.1f  page tables +%lld KiB, resident +%lld KiB, alignment %s\n",
               bytes_text(sizes[i]).c_str(), reserve, touch[0], touch[1], touch[2], freed, (long long)(pte1 - pte0),
               (long long)(rss1 - rss0), bytes_text((u64)base & (~(u64)base + 1)).c_str());
    }
}

// ---- pairs: an allocation and its free ----

static void section_pairs() {
    printf("\n[pairs] us for an allocation and its free, warm\n");
    CUmemoryPool pool;
    CK(cuDeviceGetDefaultMemPool(&pool, g_device));
    cuuint64_t before = 0, keep = ~0ull;
    CK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &before));
    CK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    CUstream stream;
    CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const u64 sizes[] = {512, 64 * 1024, MIB, 20 * MIB, 64 * MIB, GIB};
    printf("  %10s %22s %22s %18s\n", "size", "cuMemAllocAsync+Free", "cudaMallocAsync+Free", "cudaMalloc+Free");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        u64 size = sizes[i];
        double driver = cost_us(21, 500, [&] {
            CUdeviceptr p;
            CK(cuMemAllocAsync(&p, size, stream));
            CK(cuMemFreeAsync(p, stream));
        });
        double runtime = cost_us(21, 500, [&] {
            void *p;
            CK(cudaMallocAsync(&p, size, (cudaStream_t)stream));
            CK(cudaFreeAsync(p, (cudaStream_t)stream));
        });
        CK(cuStreamSynchronize(stream));
        double plain = cost_us(7, size >= GIB ? 5 : 50, [&] {
            void *p;
            CK(cudaMalloc(&p, size));
            CK(cudaFree(p));
        });
        printf("  %10s %22.3f %22.3f %18.1f\n", bytes_text(size).c_str(), driver, runtime, plain);
    }
    CK(cuStreamSynchronize(stream));
    CK(cuMemPoolTrimTo(pool, 0));
    CK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &before));
    CK(cuStreamDestroy(stream));
}

// ---- alias: may a kernel that started early read old bytes through another address? ----

static __device__ __forceinline__ unsigned load_cached(const unsigned *p) {
    unsigned v;
    asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

// Lets its successor start at once, waits, then writes.
__global__ void early_writer(unsigned *out, unsigned words, unsigned value, u64 ns) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    u64 begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < ns);
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) out[i] = value;
}

// Optionally pulls the old bytes into its cache, waits for its predecessor, then counts words that are old.
__global__ void late_reader(const unsigned *in, unsigned words, unsigned expected, int touch_first, unsigned *sink,
                            u64 *stale, u64 *early) {
    unsigned sum = 0, fresh_before = 0;
    if (touch_first)
        for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
            unsigned v = load_cached(in + i);
            sum += v;
            fresh_before += v == expected;
        }
    asm volatile("griddepcontrol.wait;" ::: "memory");
    u64 wrong = 0;
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) wrong += load_cached(in + i) != expected;
    if (wrong) atomicAdd(stale, wrong);
    if (touch_first && fresh_before == 0 && threadIdx.x == 0) atomicAdd(early, 1ull);
    if (sum == 0xffffffffu) *sink = sum;
}

static void section_alias() {
    printf("\n[alias] words read old by a kernel launched with programmatic stream serialization, of words read, 500 pairs;\n"
           "early = blocks that started before the writer wrote (touch-first rows)\n");
    const unsigned WORDS = 16 * 1024;  // 64 KiB: fits the first-level cache of every SM
    CUmemAllocationProp prop = allocation_prop();
    CUmemGenericAllocationHandle handle;
    CK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    CUdeviceptr a, b;
    CK(cuMemAddressReserve(&a, 2 * MIB, 0, 0, 0));
    CK(cuMemAddressReserve(&b, 2 * MIB, 0, 0, 0));
    CK(cuMemMap(a, 2 * MIB, 0, handle, 0));
    CK(cuMemMap(b, 2 * MIB, 0, handle, 0));
    set_access(a, 2 * MIB);
    set_access(b, 2 * MIB);
    u64 *counters = NULL;
    CK(cudaMalloc((void **)&counters, 4096));
    cudaStream_t stream;
    cudaEvent_t event;
    CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    int sms = 0;
    CK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    const int blocks = sms;
    printf("  %-44s %14s %16s %10s\n", "case", "stale words", "words read", "early");
    for (int alias = 0; alias < 2; alias++)
        for (int touch = 0; touch < 2; touch++)
            for (int edge = 0; edge < 4; edge++) {
                // edge: 0 early launch; 1 early launch + event record and wait; 2 early launch + record only; 3 plain launch
                const char *edges[] = {"early launch", "early launch, record+wait", "early launch, record", "plain launch"};
                CK(cudaMemset(counters, 0, 4096));
                unsigned *to = (unsigned *)a;
                const unsigned *from = (const unsigned *)(alias ? b : a);
                for (unsigned n = 1; n <= 500; n++) {
                    early_writer<<<blocks, 128, 0, stream>>>(to, WORDS, n, 20000ull);
                    CK(cudaGetLastError());
                    if (edge == 1 || edge == 2) CK(cudaEventRecord(event, stream));
                    if (edge == 1) CK(cudaStreamWaitEvent(stream, event, 0));
                    cudaLaunchAttribute attribute[1];
                    memset(attribute, 0, sizeof attribute);
                    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
                    attribute[0].val.programmaticStreamSerializationAllowed = edge == 3 ? 0 : 1;
                    cudaLaunchConfig_t config;
                    memset(&config, 0, sizeof config);
                    config.gridDim = dim3(blocks);
                    config.blockDim = dim3(256);
                    config.stream = stream;
                    config.attrs = attribute;
                    config.numAttrs = 1;
                    unsigned words = WORDS, expected = n;
                    unsigned *sink = (unsigned *)(counters + 8);
                    u64 *stale = counters, *early = counters + 1;
                    CK(cudaLaunchKernelEx(&config, late_reader, from, words, expected, touch, sink, stale, early));
                    // Without this the next writer could overtake a reader that is still counting.
                    CK(cudaStreamSynchronize(stream));
                }
                u64 result[2];
                CK(cudaMemcpy(result, counters, sizeof result, cudaMemcpyDeviceToHost));
                char name[96];
                snprintf(name, sizeof name, "%s, %s%s", alias ? "other address" : "same address",
                         touch ? "touched first, " : "", edges[edge]);
                printf("  %-44s %14llu %16llu %10llu\n", name, result[0], (u64)500 * blocks * WORDS, result[1]);
                fflush(stdout);
            }
    CK(cudaFree(counters));
    CK(cudaEventDestroy(event));
    CK(cudaStreamDestroy(stream));
    CK(cuMemUnmap(a, 2 * MIB));
    CK(cuMemUnmap(b, 2 * MIB));
    CK(cuMemRelease(handle));
    CK(cuMemAddressFree(a, 2 * MIB));
    CK(cuMemAddressFree(b, 2 * MIB));
}

// ---- copy: bandwidth of a device copy by the size of the handles below it ----

struct Stitched {
    CUdeviceptr base;
    u64 bytes, piece;
    std::vector<CUmemGenericAllocationHandle> handles;
};

static u64 g_random = 88172645463325252ull;
static u64 next_random() {
    g_random ^= g_random << 13;
    g_random ^= g_random >> 7;
    g_random ^= g_random << 17;
    return g_random;
}

// Two ranges whose handles were made in turn and are mapped shuffled.
static void stitch_two(Stitched *two, u64 bytes, u64 piece, bool shuffled) {
    CUmemAllocationProp prop = allocation_prop();
    std::vector<CUmemGenericAllocationHandle> all(2 * bytes / piece);
    for (size_t i = 0; i < all.size(); i++) CK(cuMemCreate(&all[i], piece, &prop, 0));
    if (shuffled)
        for (size_t i = all.size() - 1; i > 0; i--) std::swap(all[i], all[next_random() % (i + 1)]);
    for (int k = 0; k < 2; k++) {
        two[k].bytes = bytes;
        two[k].piece = piece;
        two[k].handles.assign(all.begin() + k * (all.size() / 2), all.begin() + (k + 1) * (all.size() / 2));
        CK(cuMemAddressReserve(&two[k].base, bytes, 0, 0, 0));
        for (size_t i = 0; i < two[k].handles.size(); i++)
            CK(cuMemMap(two[k].base + i * piece, piece, 0, two[k].handles[i], 0));
        set_access(two[k].base, bytes);
    }
}

static void drop(Stitched &s) {
    CK(cuMemUnmap(s.base, s.bytes));
    for (size_t i = 0; i < s.handles.size(); i++) CK(cuMemRelease(s.handles[i]));
    CK(cuMemAddressFree(s.base, s.bytes));
}

static double copy_gbs(CUdeviceptr to, CUdeviceptr from, u64 bytes, CUstream stream, CUevent begin, CUevent end) {
    std::vector<double> all;
    for (int i = 0; i < 16; i++) {
        float ms = 0;
        CK(cuEventRecord(begin, stream));
        CK(cuMemcpyDtoDAsync(to, from, bytes, stream));
        CK(cuEventRecord(end, stream));
        CK(cuEventSynchronize(end));
        CK(cuEventElapsedTime(&ms, begin, end));
        if (i) all.push_back(2.0 * (double)bytes / ms * 1e-6);
    }
    return median(all);
}

static void section_copy() {
    const u64 BYTES = 8 * GIB;
    size_t free_bytes, total;
    CK(cuMemGetInfo(&free_bytes, &total));
    if (free_bytes < 5 * BYTES) {
        printf("\n[copy] needs 40 GiB of free memory, %llu MiB are free\n", (u64)free_bytes / MIB);
        exit(1);
    }
    printf("\n[copy] 8 GiB device to device, GB/s read + written, against cuMemAlloc measured before and after\n");
    CUstream stream;
    CUevent begin, end;
    CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    CUdeviceptr x, y;
    CK(cuMemAlloc(&x, BYTES));
    CK(cuMemAlloc(&y, BYTES));
    printf("  %-28s %10s %10s %8s\n", "backing", "stitched", "plain", "ratio");
    const u64 pieces[] = {2, 4, 8, 16, 32, 64, 128, 2};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        bool shuffled = i != sizeof pieces / sizeof *pieces - 1;
        Stitched two[2];
        stitch_two(two, BYTES, pieces[i] * MIB, shuffled);
        double before = copy_gbs(y, x, BYTES, stream, begin, end);
        double stitched = copy_gbs(two[0].base, two[1].base, BYTES, stream, begin, end);
        double again = copy_gbs(two[0].base, two[1].base, BYTES, stream, begin, end);
        double after = copy_gbs(y, x, BYTES, stream, begin, end);
        double plain = (before + after) / 2, mean = (stitched + again) / 2;
        printf("  %4llu MiB handles, %-10s %10.0f %10.0f %8.3f\n", pieces[i], shuffled ? "shuffled" : "in order", mean,
               plain, mean / plain);
        fflush(stdout);
        drop(two[0]);
        drop(two[1]);
    }
    CK(cuMemFree(x));
    CK(cuMemFree(y));
    CK(cuEventDestroy(begin));
    CK(cuEventDestroy(end));
    CK(cuStreamDestroy(stream));
}

// ---- mappings (only when named): how many mappings does the driver take? ----

static void section_mappings() {
    const u64 WANTED = 600000, PIECE = 2 * MIB;
    printf("\n[mappings] one handle mapped again and again, up to %llu times\n", WANTED);
    CUmemAllocationProp prop = allocation_prop();
    CUmemGenericAllocationHandle handle;
    CK(cuMemCreate(&handle, PIECE, &prop, 0));
    CUdeviceptr base;
    CK(cuMemAddressReserve(&base, WANTED * PIECE, 0, 0, 0));
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = g_device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    u64 done = 0;
    double t0 = now_us();
    for (; done < WANTED; done++) {
        CUdeviceptr at = base + done * PIECE;
        CUresult m = cuMemMap(at, PIECE, 0, handle, 0);
        CUresult s = m ? m : cuMemSetAccess(at, PIECE, &access, 1);
        if (s != CUDA_SUCCESS) {
            printf("  stopped after %llu: map = %d, set access = %d\n", done, (int)m, (int)s);
            if (!m) CK(cuMemUnmap(at, PIECE));
            break;
        }
        if ((done + 1) % 100000 == 0) {
            printf("  %llu mappings, %.1f us each so far\n", done + 1, (now_us() - t0) / (done + 1));
            fflush(stdout);
        }
    }
    t0 = now_us();
    for (u64 i = 0; i < done; i += 4096) CK(cuMemUnmap(base + i * PIECE, std::min<u64>(4096, done - i) * PIECE));
    printf("  %llu mapped; unmapped at %.1f us each\n", done, done ? (now_us() - t0) / done : 0.0);
    CK(cuMemRelease(handle));
    CK(cuMemAddressFree(base, WANTED * PIECE));
}

struct Section {
    const char *name;
    void (*body)();
    bool by_default;
};
static const Section SECTIONS[] = {
    {"align", section_align, true}, {"costs", section_costs, true}, {"capture", section_capture, true},
    {"reserve", section_reserve, true}, {"pairs", section_pairs, true}, {"alias", section_alias, true},
    {"copy", section_copy, true}, {"mappings", section_mappings, false},
};
static const size_t SECTION_COUNT = sizeof SECTIONS / sizeof *SECTIONS;

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        bool known = false;
        for (size_t s = 0; s < SECTION_COUNT; s++) known = known || !strcmp(argv[i], SECTIONS[s].name);
        if (!known) {
            printf("unknown section '%s'; known: align costs capture reserve pairs alias copy mappings\n", argv[i]);
            return 2;
        }
    }
    int count = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
        printf("no usable CUDA device: nothing was measured\n");
        return 2;
    }
    CK(cudaSetDevice(0));
    CK(cudaFree(0));
    CK(cuDeviceGet(&g_device, 0));
    CK(cuCtxGetCurrent(&g_context));
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library) {
        p_capture_info = (CaptureInfoFn)dlsym(library, "cuStreamGetCaptureInfo_v2");
        p_ctx_record = (CtxRecordFn)dlsym(library, "cuCtxRecordEvent");
    }
    char name[128];
    int version = 0;
    CK(cuDeviceGetName(name, sizeof name, g_device));
    CK(cuDriverGetVersion(&version));
    printf("%s, driver API %d.%d, built with CUDA %d\n", name, version / 1000, version % 1000 / 10, CUDART_VERSION);
    for (size_t s = 0; s < SECTION_COUNT; s++) {
        bool wanted = argc == 1 && SECTIONS[s].by_default;
        for (int i = 1; i < argc; i++) wanted = wanted || !strcmp(argv[i], SECTIONS[s].name);
        if (wanted) SECTIONS[s].body();
        fflush(stdout);
    }
    printf("\ndone\n");
    return 0;
}
