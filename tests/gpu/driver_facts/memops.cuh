// A section of driver_facts.cu.
#pragma once
#include "common.cuh"

// ---- memops: what does CU_POINTER_ATTRIBUTE_SYNC_MEMOPS wait for, and where does it hold? ----
//
// Some 40 ms of work are given to a context; then memory gets the attribute, or the context the flag
// CU_CTX_SYNC_MEMOPS: how long does that call take, and is the work over when it returns? Then memory
// has one of the two, and something is copied into it: is the copy over when its call returns?

static const u64 MEMOPS_BYTES = 2 * GIB;
static const unsigned MEMOPS_FLAG = 0x80; // CU_CTX_SYNC_MEMOPS

struct MemopsScene {
    CUdeviceptr from, to, other;
    MemopsScene() {
        CK(cuMemAlloc(&from, MEMOPS_BYTES));
        CK(cuMemAlloc(&to, MEMOPS_BYTES));
        CK(cuMemAlloc(&other, MEMOPS_BYTES));
    }
    ~MemopsScene() {
        CK(cuMemFree(from));
        CK(cuMemFree(to));
        CK(cuMemFree(other));
    }
};

static void memops_mark(CUdeviceptr at, unsigned on) {
    CK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
}

static void memops_flag(bool on) {
    unsigned flags = 0;
    CK(cuCtxGetFlags(&flags));
    CK(cuCtxSetFlags(on ? flags | MEMOPS_FLAG : flags & ~MEMOPS_FLAG));
}

static void memops_pending(const char *work, const char *asked, const std::function<void()> &begin, const std::function<void()> &ask) {
    begin();
    CUresult before = cuStreamQuery(CU_STREAM_LEGACY);
    double from = now_us();
    ask();
    double us = now_us() - from;
    CUresult after = cuStreamQuery(CU_STREAM_LEGACY);
    CK(cuCtxSynchronize());
    printf("  %-34s %-44s %10s %12.1f %10s\n", work, asked, before ? "no" : "yes", us, after ? "no" : "yes");
    fflush(stdout);
}

static void memops_copy(const char *has, const char *who, const std::function<void()> &copy) {
    copy(); // loads what it needs
    CK(cuCtxSynchronize());
    double from = now_us();
    copy();
    double us = now_us() - from;
    CUresult after = cuStreamQuery(CU_STREAM_LEGACY);
    CK(cuCtxSynchronize());
    printf("  %-34s %-44s %12.1f %10s\n", has, who, us, after ? "no" : "yes");
    fflush(stdout);
}

// Each call is made while a stream captures, by the thread that captures, whose mode is relaxed around it.
static void memops_captures() {
    struct { const char *name; CUstreamCaptureMode mode; } modes[] = {
        {"global", CU_STREAM_CAPTURE_MODE_GLOBAL}, {"thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}, {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED}};
    MemopsScene s;
    struct { const char *name; std::function<CUresult()> call; } calls[] = {
        {"the attribute, the first one", [&] { unsigned on = 1; return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, s.to); }},
        {"the attribute is taken off", [&] { unsigned on = 0; return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, s.to); }},
        {"cuCtxGetFlags", [] { unsigned flags; return cuCtxGetFlags(&flags); }},
        {"the flag of the context", [] { unsigned flags = 0; cuCtxGetFlags(&flags); return cuCtxSetFlags(flags | MEMOPS_FLAG); }},
        {"the flag is taken off", [] { unsigned flags = 0; cuCtxGetFlags(&flags); return cuCtxSetFlags(flags & ~MEMOPS_FLAG); }},
    };
    for (auto &mode : modes)
        for (auto &call : calls) {
            CUstream stream;
            CUgraph graph = nullptr;
            CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            CK(cuStreamBeginCapture(stream, mode.mode));
            CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_RELAXED;
            CK(cuThreadExchangeStreamCaptureMode(&own));
            CUresult answer = call.call();
            CK(cuThreadExchangeStreamCaptureMode(&own));
            CUresult end = cuStreamEndCapture(stream, &graph);
            if (graph) cuGraphDestroy(graph);
            CK(cuStreamDestroy(stream));
            printf("  %-34s %-44s %12d %12d\n", mode.name, call.name, answer, end);
            fflush(stdout);
        }
    unsigned off = 0;
    CK(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, s.to));
    memops_flag(false);
}

static void section_memops() {
    printf("\nmemops: what the attribute waits for\n");
    printf("  %-34s %-44s %10s %12s %10s\n", "work of before", "then", "over", "takes, us", "over after");
    struct {
        const char *name;
        std::function<void(const MemopsScene &)> begin;
    } works[] = {
        {"cuMemcpyDtoD into the memory, 40x", [](const MemopsScene &s) { for (int i = 0; i < 40; i++) CK(cuMemcpyDtoD(s.to, s.from, MEMOPS_BYTES)); }},
        {"cuMemsetD8 of the memory, 60x", [](const MemopsScene &s) { for (int i = 0; i < 60; i++) CK(cuMemsetD8(s.to, 1, MEMOPS_BYTES)); }},
        {"cuMemcpyDtoDAsync into it, 40x", [](const MemopsScene &s) { for (int i = 0; i < 40; i++) CK(cuMemcpyDtoDAsync(s.to, s.from, MEMOPS_BYTES, CU_STREAM_LEGACY)); }},
        {"a kernel", [](const MemopsScene &) { spin_kernel<<<1, 1>>>(40 * 1000000ull); CK(cudaGetLastError()); }},
    };
    for (auto &work : works) {
        MemopsScene s;
        auto begin = [&] { work.begin(s); };
        begin();
        CK(cuCtxSynchronize());
        memops_pending(work.name, "nothing is set", begin, [] {});
        memops_pending(work.name, "the attribute, on that memory", begin, [&] { memops_mark(s.to, 1); });
        memops_pending(work.name, "the same once more", begin, [&] { memops_mark(s.to, 1); });
        memops_pending(work.name, "the attribute is taken off", begin, [&] { memops_mark(s.to, 0); });
        memops_pending(work.name, "the attribute, on other memory", begin, [&] { memops_mark(s.other, 1); });
        memops_mark(s.other, 0);
        memops_pending(work.name, "the flag of the context", begin, [] { memops_flag(true); });
        memops_pending(work.name, "the flag once more", begin, [] { memops_flag(true); });
        memops_pending(work.name, "the flag is taken off", begin, [] { memops_flag(false); });
    }
    printf("memops: beside a stream that captures\n");
    printf("  %-34s %-44s %12s %12s\n", "mode of the capture", "then, under a relaxed mode", "answers", "the capture");
    memops_captures();
    printf("memops: is a copy over when its call returns?\n");
    printf("  %-34s %-44s %12s %10s\n", "has it", "the copy", "takes, us", "over");
    CUcontext second = another_context();
    MemopsScene s;
    auto rows = [&](const char *has) {
        memops_copy(has, "cuMemcpyDtoD into it, its context", [&] { CK(cuMemcpyDtoD(s.to, s.from, MEMOPS_BYTES)); });
        memops_copy(has, "cuMemcpyDtoD out of it, its context", [&] { CK(cuMemcpyDtoD(s.from, s.to, MEMOPS_BYTES)); });
        memops_copy(has, "cuMemcpyDtoD beside it, its context", [&] { CK(cuMemcpyDtoD(s.other, s.from, MEMOPS_BYTES)); });
        memops_copy(has, "cuMemsetD8 of it, its context", [&] { CK(cuMemsetD8(s.to, 1, MEMOPS_BYTES)); });
        CK(cuCtxSetCurrent(second));
        memops_copy(has, "cuMemcpyDtoD into it, another context", [&] { CK(cuMemcpyDtoD(s.to, s.from, MEMOPS_BYTES)); });
        CK(cuCtxSetCurrent(g_context));
    };
    rows("nothing");
    memops_mark(s.to, 1);
    rows("the memory, the attribute");
    memops_mark(s.to, 0);
    memops_flag(true);
    rows("the context, the flag");
    memops_flag(false);
    CK(cuCtxDestroy(second));
}
