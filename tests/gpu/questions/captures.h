/* Beside a capture in global mode of a non-blocking stream, on the same thread. */
#define CAP(q, ...) do { if (begin(q)) { P g_ = 0; C("cuStreamBeginCapture_v2", s, 0); C("cuMemsetD8Async", d, 1, 16, s); int r_ = (__VA_ARGS__); \
    int e_ = C("cuStreamEndCapture", s, &g_); say("%d, end %d", r_, e_); if (g_) C("cuGraphDestroy", g_); C("cuCtxSynchronize"); } } while (0)
static void g_capture(void) {
    start();
    P s = stream(), o = stream(), d = alloc(1 << 20), d2 = alloc(1 << 20), e = event(), f = event(), never = event(), v = 0, g = 0, m = 0, pool = 0, c2 = other(), es = 0, ce = 0;
    static char host[1 << 20]; void *pinned, *reg = mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); Ipc ipc; unsigned st; uint64_t id; float fl; int one = 1; size_t n = 0;
    C("cuMemHostAlloc", &pinned, 1 << 20, 0); C("cuEventRecord", f, o); C("cuEventCreate", &es, 0); C("cuEventRecord", es, o);
    C("cuCtxSetCurrent", c2); ce = event(); C("cuCtxSetCurrent", ctx); C("cuCtxSynchronize");
    Prop pp = {1, 0, {1, 0}}; char props[256] = {0}; memcpy(props, &pp, sizeof pp);
    CAP("cuMemHostRegister", C("cuMemHostRegister_v2", reg, 1 << 20, 0));
    C("cuMemHostRegister_v2", reg, 1 << 20, 0);
    CAP("cuMemHostUnregister", C("cuMemHostUnregister", reg));
    CAP("cuModuleLoadData", C("cuModuleLoadData", &m, ptx));
    if (!m) C("cuModuleLoadData", &m, ptx);
    CAP("cuModuleUnload", C("cuModuleUnload", m));
    CAP("cuMemPoolCreate", C("cuMemPoolCreate", &pool, props));
    if (!pool) C("cuMemPoolCreate", &pool, props);
    Acc acc = {{1, 0}, 3};
    CAP("cuMemPoolSetAccess", C("cuMemPoolSetAccess", pool, &acc, 1));
    CAP("cuMemPoolDestroy", C("cuMemPoolDestroy", pool));
    C("cuDeviceGetDefaultMemPool", &pool, 0);
    CAP("cuDeviceSetMemPool", C("cuDeviceSetMemPool", 0, pool));
    CAP("cuIpcGetMemHandle", C("cuIpcGetMemHandle", &ipc, d));
    CAP("cuPointerSetAttribute SYNC_MEMOPS", C("cuPointerSetAttribute", &one, 6, d2));
    CAP("cuMemcpyHtoD of 4 KiB, pageable", C("cuMemcpyHtoD_v2", d2, host, 4096));
    CAP("cuMemcpyDtoH of 4 KiB, pageable", C("cuMemcpyDtoH_v2", host, d2, 4096));
    CAP("cuMemcpyHtoD, pinned", C("cuMemcpyHtoD_v2", d2, pinned, 4096));
    CAP("cuMemcpyDtoD", C("cuMemcpyDtoD_v2", d, d2, 4096));
    CAP("cuMemsetD8", C("cuMemsetD8_v2", d2, 0, 4096));
    CAP("cuMemcpyHtoDAsync elsewhere, pageable", C("cuMemcpyHtoDAsync_v2", d2, host, 4096, o));
    CAP("cuMemcpyDtoHAsync elsewhere, pageable", C("cuMemcpyDtoHAsync_v2", host, d2, 4096, o));
    CAP("cuMemcpyDtoHAsync elsewhere, pinned", C("cuMemcpyDtoHAsync_v2", pinned, d2, 4096, o));
    CAP("cuMemcpyHtoDAsync inside, pageable", C("cuMemcpyHtoDAsync_v2", d2, host, 4096, s));
    CAP("cuMemcpyDtoHAsync inside, pageable", C("cuMemcpyDtoHAsync_v2", host, d2, 4096, s));
    CAP("cuMemcpyDtoHAsync inside, pinned", C("cuMemcpyDtoHAsync_v2", pinned, d2, 4096, s));
    CAP("cuLaunchHostFunc inside", C("cuLaunchHostFunc", s, post_in, 0));
    CAP("cuLaunchHostFunc elsewhere", C("cuLaunchHostFunc", o, post_in, 0));
    CAP("cuStreamWaitEvent inside, of an event never recorded", C("cuStreamWaitEvent", s, never, 0));
    CAP("cuStreamWaitEvent inside, of a complete event from outside", C("cuStreamWaitEvent", s, f, 0));
    CAP("cuEventQuery of an event recorded in the capture", (C("cuEventRecord", e, s), C("cuEventQuery", e)));
    CAP("the same, relaxed around", (C("cuEventRecord", e, s), relaxed(2), v = C("cuEventQuery", e), relaxed(0), v));
    CAP("cuEventSynchronize of it, relaxed around", (C("cuEventRecord", e, s), relaxed(2), v = C("cuEventSynchronize", e), relaxed(0), v));
    CAP("cuEventDestroy of it", (v = event(), C("cuEventRecord", v, s), C("cuEventDestroy_v2", v)));
    CAP("cuEventElapsedTime of others", C("cuEventElapsedTime", &fl, es, es));
    CAP("cuStreamQuery of the capturing stream, relaxed around", (relaxed(2), v = C("cuStreamQuery", s), relaxed(0), v));
    CAP("cuStreamSynchronize of it, relaxed around", (relaxed(2), v = C("cuStreamSynchronize", s), relaxed(0), v));
    CAP("cuStreamBeginCapture of it again", C("cuStreamBeginCapture_v2", s, 0));
    CAP("cuStreamBeginCapture of another stream, and its end", (v = C("cuStreamBeginCapture_v2", o, 0), v * 1000 + C("cuStreamEndCapture", o, &g)));
    CAP("cuStreamEndCapture of a stream that does not capture", C("cuStreamEndCapture", o, &g));
    CAP("cuCtxSynchronize of another context", (C("cuCtxSetCurrent", c2), v = C("cuCtxSynchronize"), C("cuCtxSetCurrent", ctx), v));
    CAP("cuCtxSynchronize of another context, relaxed around", (relaxed(2), C("cuCtxSetCurrent", c2), v = C("cuCtxSynchronize"), C("cuCtxSetCurrent", ctx), relaxed(0), v));
    CAP("cuCtxRecordEvent of another context", C("cuCtxRecordEvent", c2, ce));
    CAP("cuCtxWaitEvent of another context", C("cuCtxWaitEvent", c2, f));
    CAP("cuMemAlloc in another context", (C("cuCtxSetCurrent", c2), v = C("cuMemAlloc_v2", &g, 4096), C("cuCtxSetCurrent", ctx), v));
    CAP("cuCtxCreate and cuCtxDestroy", (g = 0, v = C("cuCtxCreate_v2", &g, 0, 0), v * 1000 + (g ? C("cuCtxDestroy_v2", g) : 0) + 0 * C("cuCtxSetCurrent", ctx)));
    C("cuCtxSetCurrent", ctx);
    CAP("cuStreamGetCaptureInfo_v2 of the legacy stream", C("cuStreamGetCaptureInfo_v2", 1, &st, &id, 0, 0, 0));
    CAP("cuMemFreeHost", C("cuMemFreeHost", pinned));
    CAP("cuMemCreate, map, access, unmap, release, reserve", ({ v = handle(M2); g = reserve(M2); int z = C("cuMemMap", g, M2, 0, v, 0); z = z * 1000 + grant(g, M2, 3); z = z * 1000 + C("cuMemUnmap", g, M2); z * 1000 + C("cuMemRelease", v); }));
    CAP("cuPointerGetAttribute of the tokens", C("cuPointerGetAttribute", host, 5, d2));
    CAP("cuGraphGetNodes of the graph that is captured", (C("cuStreamGetCaptureInfo_v2", s, &st, &id, &g, 0, 0), C("cuGraphGetNodes", g, 0, &n)));
    if (begin("an event recorded in a capture that has ended: cuEventQuery, cuStreamWaitEvent elsewhere, cuEventSynchronize")) {
        C("cuStreamBeginCapture_v2", s, 0); C("cuEventRecord", e, s); C("cuStreamEndCapture", s, &g);
        int a = C("cuEventQuery", e), b = C("cuStreamWaitEvent", o, e, 0), c = C("cuEventSynchronize", e); say("%d, %d, %d", a, b, c);
    }
    if (begin("a forked stream that is not joined: end; destroyed before the end: destroy, end")) {
        P t = stream(), u = stream(), k = 0; C("cuStreamBeginCapture_v2", s, 0); C("cuEventRecord", e, s); C("cuStreamWaitEvent", t, e, 0); C("cuMemsetD8Async", d2, 1, 16, t); int a = C("cuStreamEndCapture", s, &g);
        C("cuStreamBeginCapture_v2", s, 0); C("cuEventRecord", e, s); C("cuStreamWaitEvent", u, e, 0); int b = C("cuStreamDestroy_v2", u), c = C("cuStreamEndCapture", s, &g); say("%d; %d, %d", a, b, c);
    }
    if (begin("a forked stream joined back without work of its own, end; then its cuStreamIsCapturing")) {
        P t = stream(); C("cuStreamBeginCapture_v2", s, 0); C("cuEventRecord", e, s); C("cuStreamWaitEvent", t, e, 0); C("cuEventRecord", f, t); C("cuStreamWaitEvent", s, f, 0); int a = C("cuStreamEndCapture", s, &g), b = C("cuStreamIsCapturing", t, &st); say("%d, %d, %u", a, b, st);
    }
    if (begin("a stream of another context joins: wait; then cuCtxRecordEvent there; end")) {
        C("cuCtxSetCurrent", c2); P t = stream(); C("cuCtxSetCurrent", ctx); C("cuStreamBeginCapture_v2", s, 0); C("cuEventRecord", e, s); int a = C("cuStreamWaitEvent", t, e, 0), b = C("cuCtxRecordEvent", c2, ce), c = C("cuStreamEndCapture", s, &g); say("%d, %d, %d", a, b, c);
    }
    if (begin("a copy from pageable memory in a graph: the bytes of when it")) {
        P x = 0; g = 0; memset(host, 1, 4096); C("cuStreamBeginCapture_v2", s, 2); int a = C("cuMemcpyHtoDAsync_v2", d2, host, 4096, s); C("cuStreamEndCapture", s, &g);
        C("cuGraphInstantiateWithFlags", &x, g, 0); memset(host, 2, 4096); int b = C("cuGraphLaunch", x, s); C("cuStreamSynchronize", s);
        char out[16] = {0}; C("cuMemcpyDtoH_v2", out, d2, 16); say("%d, %d, %s", a, b, out[3] == 2 ? "was launched" : out[3] == 1 ? "was captured" : "neither");
    }
    if (begin("cuStreamDestroy of the stream that captures")) { P t = stream(); C("cuStreamBeginCapture_v2", t, 0); int a = C("cuStreamDestroy_v2", t); say("%d; then cuMemAlloc: %d", a, C("cuMemAlloc_v2", &v, 4096)); }
}
/* Beside the capture of a blocking stream: the legacy stream. */
static void g_legacy(void) {
    start();
    P s = blocking(), d = alloc(1 << 20), d2 = alloc(1 << 20), e = event(), f = event(), v; unsigned st; uint64_t id; static char host[4096]; size_t n;
    C("cuEventRecord", f, 1); C("cuCtxSynchronize");
    CAP("cuStreamGetCaptureInfo", C("cuStreamGetCaptureInfo", 1, &st, &id));
    CAP("cuStreamGetCaptureInfo_v2", C("cuStreamGetCaptureInfo_v2", 1, &st, &id, 0, 0, 0));
    CAP("cuStreamGetCaptureInfo_v3", C("cuStreamGetCaptureInfo_v3", 1, &st, &id, 0, 0, 0, 0));
    CAP("cuStreamGetFlags, cuStreamGetCtx", C("cuStreamGetFlags", 1, &st) * 1000 + C("cuStreamGetCtx", 1, &v));
    CAP("cuStreamQuery", C("cuStreamQuery", 1));
    CAP("cuStreamQuery, relaxed around", (relaxed(2), v = C("cuStreamQuery", 1), relaxed(0), v));
    CAP("cuStreamSynchronize, relaxed around", (relaxed(2), v = C("cuStreamSynchronize", 1), relaxed(0), v));
    CAP("cuMemcpyHtoD", C("cuMemcpyHtoD_v2", d2, host, 4096));
    CAP("cuMemcpyDtoH", C("cuMemcpyDtoH_v2", host, d2, 4096));
    CAP("cuMemsetD8", C("cuMemsetD8_v2", d2, 0, 16));
    CAP("cuLaunchHostFunc", C("cuLaunchHostFunc", 1, post_in, 0));
    CAP("cuMemFreeAsync of 0", C("cuMemFreeAsync", 0, 1));
    CAP("cuEventRecord", C("cuEventRecord", e, 1));
    CAP("cuStreamWaitEvent of a complete event", C("cuStreamWaitEvent", 1, f, 0));
    CAP("cuStreamWaitEvent of an event never recorded", C("cuStreamWaitEvent", 1, e = event(), 0));
    CAP("cuStreamWaitEvent of an event recorded in the capture", (C("cuEventRecord", e, s), C("cuStreamWaitEvent", 1, e, 0)));
    CAP("cuEventQuery of a complete event of the legacy stream, relaxed around", (relaxed(2), v = C("cuEventQuery", f), relaxed(0), v));
    CAP("cuMemcpyHtoD of 0 bytes", C("cuMemcpyHtoD_v2", d2, host, 0));
    CAP("per-thread stream: cuEventRecord", C("cuEventRecord", e, 2));
}

static void *ends_it(void *c) { C("cuCtxDestroy_v2", c); return 0; }
