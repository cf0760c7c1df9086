// A section of driver_facts.cu.
#pragma once
#include "common.cuh"

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
