// Shared by the sections of driver_facts.cu: checks, clocks, medians, handles.
#pragma once

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
typedef CUresult (*CtxWaitFn)(CUcontext, CUevent);
static CtxWaitFn p_ctx_wait;
typedef CUresult (*CtxCreateFn)(CUcontext *, unsigned, CUdevice);
static CtxCreateFn p_ctx_create;

// A word of the host's memory that kernels and fills of any context write.
struct HostWord {
    unsigned *seen;
    CUdeviceptr at;
    HostWord() {
        CK(cuMemHostAlloc((void **)&seen, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
        CK(cuMemHostGetDevicePointer(&at, seen, 0));
    }
    ~HostWord() { CK(cuMemFreeHost(seen)); }
};

// Another context of the device; the first one stays current.
static CUcontext another_context() {
    CUcontext another = NULL;
    CK(p_ctx_create(&another, 0, g_device));
    CK(cuCtxSetCurrent(g_context));
    return another;
}

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
