// A section of driver_facts.cu.
#pragma once
#include "common.cuh"

// ---- waits: whom does cuCtxWaitEvent hold up, and what does it cost? ----
//
// Stream A runs a kernel for WAIT_SPIN_MS and records event e behind it. The context waits for e.
// Then another stream is given a fill of a word that the host sees: it must not come before e.

static const u64 WAIT_SPIN_MS = 40;

struct WaitScene {
    CUcontext of_a;
    CUstream a;
    CUevent e;
    CtxWaitFn wait; // NULL: nobody waits
    volatile unsigned *word;
    CUdeviceptr word_at;
};

// One row: `fill` gives a fill of the word with 1 to the stream in question.
static void wait_row(const WaitScene &scene, const char *who, const std::function<void(CUdeviceptr)> &fill) {
    fill(scene.word_at); // loads what it needs
    CK(cuCtxSynchronize());
    *scene.word = 0;
    CK(cuCtxSetCurrent(scene.of_a));
    spin_kernel<<<1, 1, 0, (cudaStream_t)scene.a>>>(WAIT_SPIN_MS * 1000000);
    CK(cudaGetLastError());
    CK(cuEventRecord(scene.e, scene.a));
    CK(cuCtxSetCurrent(g_context));
    double begin = now_us();
    CUresult waits = scene.wait ? scene.wait(g_context, scene.e) : CUDA_SUCCESS;
    double call_us = now_us() - begin;
    fill(scene.word_at);
    double filled_us = now_us() - begin - call_us;
    // The word is looked at first: if it is set and e is asked afterwards and not over, it came before e.
    bool before = false;
    double set_ms = -1;
    while (set_ms < 0 && now_us() - begin < 2e6) {
        bool set = *scene.word != 0;
        CUresult over = cuEventQuery(scene.e);
        if (set) {
            before = over == CUDA_ERROR_NOT_READY;
            set_ms = (now_us() - begin) / 1000;
        }
    }
    printf("  %-42s %6d %9.1f %9.1f %10.2f %10s\n", who, (int)waits, call_us, filled_us, set_ms, before ? "yes" : "no");
    fflush(stdout);
    CK(cuCtxSynchronize());
    CK(cuCtxSetCurrent(scene.of_a));
    CK(cuCtxSynchronize());
    CK(cuCtxSetCurrent(g_context));
}

static void wait_rows(const WaitScene &scene) {
    auto on = [](CUstream stream) { return [stream](CUdeviceptr at) { CK(cuMemsetD32Async(at, 1, 1, stream)); }; };
    auto on_new = [](unsigned flags) {
        return [flags](CUdeviceptr at) {
            CUstream fresh;
            CK(cuStreamCreate(&fresh, flags));
            CK(cuMemsetD32Async(at, 1, 1, fresh));
            CK(cuStreamDestroy(fresh));
        };
    };
    CUstream plain, blocking, urgent;
    CK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    CK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -5));
    wait_row(scene, "a stream that does not block", on(plain));
    wait_row(scene, "one that blocks", on(blocking));
    wait_row(scene, "one of another priority", on(urgent));
    wait_row(scene, "the legacy default stream", on(CU_STREAM_LEGACY));
    wait_row(scene, "the per-thread default stream", on(CU_STREAM_PER_THREAD));
    wait_row(scene, "that of a new thread", [](CUdeviceptr at) {
        std::thread([at] {
            CK(cuCtxSetCurrent(g_context));
            CK(cuMemsetD32Async(at, 1, 1, CU_STREAM_PER_THREAD));
        }).join();
    });
    wait_row(scene, "made afterwards, does not block", on_new(CU_STREAM_NON_BLOCKING));
    wait_row(scene, "made afterwards, blocks", on_new(CU_STREAM_DEFAULT));
    unsigned one = 1;
    wait_row(scene, "a copy from pageable memory, no stream", [&](CUdeviceptr at) { CK(cuMemcpyHtoD(at, &one, 4)); });
    CUgraph graph;
    CUgraphExec replay;
    CK(cuStreamBeginCapture(plain, CU_STREAM_CAPTURE_MODE_RELAXED));
    CK(cuMemsetD32Async(scene.word_at, 1, 1, plain));
    CK(cuStreamEndCapture(plain, &graph));
    CK(cuGraphInstantiateWithFlags(&replay, graph, 0));
    wait_row(scene, "a graph's launch", [&](CUdeviceptr) { CK(cuGraphLaunch(replay, plain)); });
    CK(cuGraphExecDestroy(replay));
    CK(cuGraphDestroy(graph));
    for (CUstream stream : {plain, blocking, urgent}) CK(cuStreamDestroy(stream));
}

// The stream of a green context of the primary one.
static void wait_row_green(const WaitScene &scene) {
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUstream stream;
    unsigned groups = 1;
    CK(cuDeviceGetDevResource(g_device, &all, CU_DEV_RESOURCE_TYPE_SM));
    CK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
    CK(cuDevResourceGenerateDesc(&description, &part, 1));
    CK(cuGreenCtxCreate(&green, description, g_device, CU_GREEN_CTX_DEFAULT_STREAM));
    CK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    wait_row(scene, "a green context's", [stream](CUdeviceptr at) { CK(cuMemsetD32Async(at, 1, 1, stream)); });
    CK(cuStreamDestroy(stream));
    CK(cuGreenCtxDestroy(green));
}

// What the call costs, and the next use of a stream, beside so many idle streams.
static void wait_costs(CUdeviceptr word_at) {
    printf("  %-8s %14s %14s %22s\n", "streams", "complete, us", "pending, us", "fill after it, us");
    for (int count : {1, 32, 128, 512}) {
        std::vector<CUstream> streams(count);
        for (CUstream &stream : streams) {
            CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            CK(cuMemsetD32Async(word_at, 1, 1, stream));
        }
        CUevent e;
        CK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        CK(cuEventRecord(e, streams[0]));
        CK(cuCtxSynchronize());
        double complete = cost_us(21, 1, [&] { CK(p_ctx_wait(g_context, e)); });
        std::vector<double> pending, after;
        for (int i = 0; i < 11; i++) {
            spin_kernel<<<1, 1, 0, (cudaStream_t)streams[0]>>>(2000000);
            CK(cuEventRecord(e, streams[0]));
            double begin = now_us();
            CK(p_ctx_wait(g_context, e));
            double waited = now_us();
            CK(cuMemsetD32Async(word_at, 1, 1, streams[count - 1]));
            after.push_back(now_us() - waited);
            pending.push_back(waited - begin);
            CK(cuCtxSynchronize());
        }
        printf("  %-8d %14.2f %14.2f %22.2f\n", count, complete, median(pending), median(after));
        for (CUstream &stream : streams) CK(cuStreamDestroy(stream));
        CK(cuEventDestroy(e));
    }
}

// During a capture of a stream that nobody touches: the answer, and what the capture's end says.
static void wait_in_capture() {
    CUstream capturing, other;
    CUevent e;
    CK(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    CK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    CK(cuEventRecord(e, other));
    CK(cuStreamSynchronize(other));
    CK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUresult waits = p_ctx_wait(g_context, e);
    CUgraph graph = NULL;
    CUresult ends = cuStreamEndCapture(capturing, &graph);
    printf("  in a relaxed capture: the call %d, the capture's end %d\n", (int)waits, (int)ends);
    if (graph) CK(cuGraphDestroy(graph));
    CK(cuEventDestroy(e));
    CK(cuStreamDestroy(capturing));
    CK(cuStreamDestroy(other));
}

static void section_waits() {
    if (!p_ctx_wait || !p_ctx_create) {
        printf("  the driver has no cuCtxWaitEvent, or no cuCtxCreate_v2: not measured\n");
        return;
    }
    printf("\n[waits] A is busy for %llu ms, event e behind it; cuCtxWaitEvent(context, e), then a fill by:\n", WAIT_SPIN_MS);
    HostWord word;
    CUcontext another = another_context();
    const char *titles[] = {"nobody waits", "e of the same context", "e of another context of the device"};
    for (int kind = 0; kind < 3; kind++) {
        WaitScene scene = {kind == 2 ? another : g_context, NULL, NULL, kind ? p_ctx_wait : NULL, word.seen, word.at};
        CK(cuCtxSetCurrent(scene.of_a));
        CK(cuStreamCreate(&scene.a, CU_STREAM_NON_BLOCKING));
        CK(cuEventCreate(&scene.e, CU_EVENT_DISABLE_TIMING));
        spin_kernel<<<1, 1, 0, (cudaStream_t)scene.a>>>(1000);
        CK(cuStreamSynchronize(scene.a));
        CK(cuCtxSetCurrent(g_context));
        printf("  %-42s %6s %9s %9s %10s %10s\n", titles[kind], "answer", "call, us", "fill, us", "set at, ms", "before e");
        wait_rows(scene);
        wait_row_green(scene);
        CK(cuCtxSetCurrent(scene.of_a));
        CK(cuEventDestroy(scene.e));
        CK(cuStreamDestroy(scene.a));
        CK(cuCtxSetCurrent(g_context));
    }
    CK(cuCtxDestroy(another));
    CK(cuCtxSetCurrent(g_context));
    wait_costs(word.at);
    wait_in_capture();
}
