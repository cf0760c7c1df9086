/* Handles that are gone: each may end the process. */
static void g_gone(void) {
    start();
    P e = event(), o, s, t, h, g, x, c, r; unsigned st; uint64_t id, id2; int dev;
    if (begin("a stream's handle right after its destruction: the next one's")) { s = stream(); C("cuStreamDestroy_v2", s); t = stream(); say("%s", s == t ? "the same" : "another"); }
    if (begin("cuStreamGetId of these two")) { s = stream(); C("cuStreamGetId", s, &id); C("cuStreamDestroy_v2", s); t = stream(); C("cuStreamGetId", t, &id2); say("%s", id == id2 ? "the same" : "differ"); }
    if (begin("an event's handle likewise")) { s = event(); C("cuEventDestroy_v2", s); t = event(); say("%s", s == t ? "the same" : "another"); }
    if (begin("a memory handle likewise")) { s = handle(M2); C("cuMemRelease", s); t = handle(M2); say("%s", s == t ? "the same" : "another"); C("cuMemRelease", t); }
    if (begin("a context's handle likewise; cuCtxGetId")) { s = other(); C("cuCtxGetId", s, &id); C("cuCtxDestroy_v2", s); t = other(); C("cuCtxGetId", t, &id2); say("%s; %s", s == t ? "the same" : "another", id == id2 ? "the same" : "differ"); C("cuCtxDestroy_v2", t); }
    Q("cuMemHostAlloc with flags 8", C("cuMemHostAlloc", &o, 4096, 8));
    if (begin("cuMemHostAlloc with flags 4: code, cuMemHostGetFlags; with 0")) { o = r = 0; int k = C("cuMemHostAlloc", &o, 4096, 4), l; unsigned f = 0, f2 = 0; C("cuMemHostGetFlags", &f, o); l = C("cuMemHostAlloc", &r, 4096, 0); C("cuMemHostGetFlags", &f2, r); say("%d, %u; %d, %u", k, f, l, f2); }
    Q("cuMemHostRegister with flags 64", (o = (P)mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), C("cuMemHostRegister_v2", o, 4096, 64)));
    Q("cuEventRecordWithFlags external outside a capture", C("cuEventRecordWithFlags", event(), stream(), 1));
    Q("cuStreamWaitEvent external outside a capture", (o = event(), s = stream(), C("cuEventRecord", o, s), C("cuStreamWaitEvent", s, o, 1)));
    if (begin("our current context ended by another thread: cuCtxGetDevice, cuMemAlloc, cuStreamQuery of the primary one's stream, a fill there, a copy there")) {
        pthread_t th; P m = alloc(64); s = stream(); c = other(); C("cuCtxSetCurrent", c); pthread_create(&th, 0, ends_it, (void *)c); pthread_join(th, 0);
        int a1 = C("cuCtxGetDevice", &dev), a2 = C("cuMemAlloc_v2", &o, 64), a3 = C("cuStreamQuery", s), a4 = C("cuMemsetD8Async", m, 0, 16, s), a5 = C("cuMemcpyHtoDAsync_v2", m, &st, 4, s);
        C("cuCtxSetCurrent", ctx); say("%d, %d, %d, %d, %d", a1, a2, a3, a4, a5);
    }
    C("cuCtxSetCurrent", ctx);
    Q("cuEventDestroy of a destroyed event", (o = event(), C("cuEventDestroy_v2", o), C("cuEventDestroy_v2", o)));
    Q("cuEventQuery of a destroyed event", (o = event(), C("cuEventDestroy_v2", o), C("cuEventQuery", o)));
    Q("cuStreamIsCapturing of a destroyed stream", (s = stream(), C("cuStreamDestroy_v2", s), C("cuStreamIsCapturing", s, &st)));
    Q("cuEventRecord on a destroyed stream", (s = stream(), C("cuStreamDestroy_v2", s), C("cuEventRecord", e, s)));
    Q("cuStreamQuery of a destroyed stream", (s = stream(), C("cuStreamDestroy_v2", s), C("cuStreamQuery", s)));
    Q("cuStreamDestroy of a destroyed stream", (s = stream(), C("cuStreamDestroy_v2", s), C("cuStreamDestroy_v2", s)));
    Q("cuMemRelease twice", (h = handle(M2), C("cuMemRelease", h), C("cuMemRelease", h)));
    Q("cuMemRelease twice, mapped", (h = handle(M2), r = mapped(h), C("cuMemRelease", h), C("cuMemRelease", h)));
    Q("cuMemMap of a released handle that is mapped", (h = handle(M2), r = mapped(h), C("cuMemRelease", h), C("cuMemMap", reserve(M2), M2, 0, h, 0)));
    Q("cuMemExportToShareableHandle of it", (h = handle(M2), r = mapped(h), C("cuMemRelease", h), C("cuMemExportToShareableHandle", &dev, h, 1, 0)));
    Q("cuGraphLaunch of a destroyed graph", (s = stream(), C("cuStreamBeginCapture_v2", s, 0), C("cuMemsetD8Async", alloc(64), 1, 16, s), C("cuStreamEndCapture", s, &g), C("cuGraphInstantiateWithFlags", &x, g, 0), C("cuGraphExecDestroy", x), C("cuGraphLaunch", x, s)));
    Q("cuCtxSetCurrent of a destroyed context", (c = other(), C("cuCtxDestroy_v2", c), C("cuCtxSetCurrent", c)));
    C("cuCtxSetCurrent", ctx);
    Q("cuStreamQuery of a destroyed context's stream", (c = other(), C("cuCtxSetCurrent", c), s = stream(), C("cuCtxSetCurrent", ctx), C("cuCtxDestroy_v2", c), C("cuStreamQuery", s)));
    Q("cuStreamDestroy of a destroyed context's stream", (c = other(), C("cuCtxSetCurrent", c), s = stream(), C("cuCtxSetCurrent", ctx), C("cuCtxDestroy_v2", c), C("cuStreamDestroy_v2", s)));
    Q("cuEventQuery of a destroyed context's event", (c = other(), C("cuCtxSetCurrent", c), o = event(), C("cuCtxSetCurrent", ctx), C("cuCtxDestroy_v2", c), C("cuEventQuery", o)));
    Q("cuEventDestroy of a destroyed context's event", (c = other(), C("cuCtxSetCurrent", c), o = event(), C("cuCtxSetCurrent", ctx), C("cuCtxDestroy_v2", c), C("cuEventDestroy_v2", o)));
    Q("cuStreamWaitEvent for an event recorded in a context destroyed since", (c = other(), C("cuCtxSetCurrent", c), o = event(), C("cuEventRecord", o, stream()), C("cuCtxSetCurrent", ctx), C("cuCtxDestroy_v2", c), C("cuStreamWaitEvent", stream(), o, 0)));
    Q("cuEventCreate with INTERPROCESS alone", C("cuEventCreate", &o, 4));
    Q("cuEventCreate with all flags", C("cuEventCreate", &o, 7));
    Q("cuEventQuery without a current context", (o = event(), C("cuCtxSetCurrent", 0), dev = C("cuEventQuery", o), C("cuCtxSetCurrent", ctx), dev));
    Q("cuEventRecord likewise", (o = event(), s = stream(), C("cuCtxSetCurrent", 0), dev = C("cuEventRecord", o, s), C("cuCtxSetCurrent", ctx), dev));
    Q("cuStreamIsCapturing likewise", (s = stream(), C("cuCtxSetCurrent", 0), dev = C("cuStreamIsCapturing", s, &st), C("cuCtxSetCurrent", ctx), dev));
    Q("cuMemUnmap, cuMemRelease likewise", (h = handle(M2), r = mapped(h), C("cuCtxSetCurrent", 0), dev = 1000 * C("cuMemUnmap", r, M2) + C("cuMemRelease", h), C("cuCtxSetCurrent", ctx), dev));
    Q("cuMemCreate, cuMemSetAccess without a current context", (r = reserve(M2), C("cuCtxSetCurrent", 0), h = handle(M2), C("cuMemMap", r, M2, 0, h, 0), dev = grant(r, M2, 3), C("cuCtxSetCurrent", ctx), h ? dev : -2));
    Q("cuMemsetD8Async likewise, on a stream of ours", (o = alloc(64), s = stream(), C("cuCtxSetCurrent", 0), dev = C("cuMemsetD8Async", o, 0, 16, s), C("cuCtxSetCurrent", ctx), dev));
    Q("cuMemFreeAsync likewise", (o = alloc(64), s = stream(), C("cuCtxSetCurrent", 0), dev = C("cuMemFreeAsync", o, s), C("cuCtxSetCurrent", ctx), dev));
    Q("cuMemcpyHtoDAsync likewise", (o = alloc(64), s = stream(), C("cuCtxSetCurrent", 0), dev = C("cuMemcpyHtoDAsync_v2", o, &st, 4, s), C("cuCtxSetCurrent", ctx), dev));
}

/* A primary context that ends. */
static void g_ends(void) {
    start();
    P s = stream(), e = event(), p = alloc(4096), q = 0, h = handle(M2), at_ = mapped(h), c2, v = 0; uint64_t id, id2; int dev; unsigned fl; int ac; size_t n, m;
    C("cuMemAllocAsync", &q, 4096, s); C("cuEventRecord", e, s); C("cuStreamSynchronize", s); C("cuCtxGetId", ctx, &id);
    C("cuDevicePrimaryCtxRelease_v2", 0);
    Q("primary context released to nothing, still current: cuCtxGetDevice", C("cuCtxGetDevice", &dev));
    Q("cuMemAlloc", C("cuMemAlloc_v2", &v, 4096));
    Q("cuMemGetInfo", C("cuMemGetInfo_v2", &n, &m));
    Q("cuMemFree of its memory", C("cuMemFree_v2", p));
    Q("cuMemsetD8 of mapped memory", C("cuMemsetD8_v2", at_, 1, 16));
    Q("cuPointerGetAttribute of mapped memory", C("cuPointerGetAttribute", &dev, 2, at_));
    Q("cuMemUnmap, cuMemRelease", 1000 * C("cuMemUnmap", at_, M2) + C("cuMemRelease", h));
    Q("cuMemCreate", (h = handle(M2), h ? 0 : 1));
    Q("cuEventQuery of its event", C("cuEventQuery", e));
    Q("cuStreamQuery of its stream", C("cuStreamQuery", s));
    Q("cuStreamDestroy of its stream", C("cuStreamDestroy_v2", s));
    Q("cuCtxSetCurrent of it", C("cuCtxSetCurrent", ctx));
    Q("cuCtxPushCurrent of it", C("cuCtxPushCurrent_v2", ctx));
    c2 = ctx;
    if (begin("retained again: code; the same handle; cuCtxGetId")) { int r = C("cuDevicePrimaryCtxRetain", &ctx, 0); C("cuCtxSetCurrent", ctx); C("cuCtxGetId", ctx, &id2); say("%d; %s; %s", r, ctx == c2 ? "yes" : "no", id == id2 ? "the same" : "differ"); }
    C("cuDevicePrimaryCtxRetain", &ctx, 0); C("cuCtxSetCurrent", ctx);
    Q("stream-ordered memory of before: cuMemFree", C("cuMemFree_v2", q));
    if (begin("cuDevicePrimaryCtxReset: code; then the context: flags, active; cuMemAlloc")) { int r = C("cuDevicePrimaryCtxReset_v2", 0), g = C("cuDevicePrimaryCtxGetState", 0, &fl, &ac); say("%d; %d, %d; %d", r, g, ac, C("cuMemAlloc_v2", &v, 4096)); }
}

/* After a crash: mappings, events, streams. */
static void g_crash(void) {
    start();
    P s = stream(), o = stream(), e = event(), f = event(), h = handle(M2), h2 = handle(M2), at_ = mapped(h), r = reserve(M2), v = 0, c2 = other(), p = alloc(4096); void *pinned; int fd = -1, fd2 = -1, ac; unsigned fl; size_t n, m;
    C("cuMemHostAlloc", &pinned, 1 << 20, 0); C("cuMemExportToShareableHandle", &fd2, h2, 1, 0); C("cuEventRecord", f, o); C("cuCtxSynchronize");
    crash(s);
    if (begin("cuStreamSynchronize")) say("%d", C("cuStreamSynchronize", s)); else C("cuStreamSynchronize", s);
    Q("cuCtxGetStreamPriorityRange", C("cuCtxGetStreamPriorityRange", 0, 0));
    Q("cuMemCreate", (v = handle(M2), v ? 0 : 1));
    Q("cuMemAddressReserve", (v = reserve(M2), v ? 0 : 1));
    Q("cuMemMap", C("cuMemMap", r, M2, 0, h2, 0));
    Q("cuMemSetAccess", grant(r, M2, 3));
    Q("cuMemExportToShareableHandle", C("cuMemExportToShareableHandle", &fd, h2, 1, 0));
    Q("cuMemImportFromShareableHandle", C("cuMemImportFromShareableHandle", &v, fd2, 1));
    Q("cuMemUnmap", C("cuMemUnmap", at_, M2));
    Q("cuMemRelease", C("cuMemRelease", h));
    Q("cuMemAddressFree", C("cuMemAddressFree", at_, M2));
    Q("cuMemGetAccess", C("cuMemGetAccess", &v, here, r));
    Q("cuEventCreate", C("cuEventCreate", &v, 2));
    Q("cuEventQuery", C("cuEventQuery", f));
    Q("cuStreamCreate", C("cuStreamCreate", &v, 1));
    Q("cuCtxRecordEvent", C("cuCtxRecordEvent", ctx, e));
    Q("cuCtxWaitEvent", C("cuCtxWaitEvent", ctx, f));
    Q("cuStreamWaitEvent", C("cuStreamWaitEvent", o, f, 0));
    Q("cuStreamBeginCapture", C("cuStreamBeginCapture_v2", o, 0));
    Q("cuMemFreeHost", C("cuMemFreeHost", pinned));
    Q("cuIpcGetMemHandle", C("cuIpcGetMemHandle", text, p));
    Q("cuPointerSetAttribute SYNC_MEMOPS", (ac = 1, C("cuPointerSetAttribute", &ac, 6, p)));
    Q("cuMemGetHandleForAddressRange", C("cuMemGetHandleForAddressRange", &fd, p, 4096, 1, 0));
    Q("cuEventDestroy", C("cuEventDestroy_v2", e));
    Q("cuStreamDestroy", C("cuStreamDestroy_v2", o));
    C("cuCtxSetCurrent", c2);
    Q("another context of the device: cuMemAlloc", C("cuMemAlloc_v2", &v, 4096));
    Q("the same: cuCtxSynchronize", C("cuCtxSynchronize"));
    Q("the same: cuCtxGetStreamPriorityRange", C("cuCtxGetStreamPriorityRange", 0, 0));
    Q("the same: cuMemGetInfo", C("cuMemGetInfo_v2", &n, &m));
    Q("cuCtxDestroy of it", C("cuCtxDestroy_v2", c2));
    C("cuCtxSetCurrent", ctx);
    Q("cuDevicePrimaryCtxGetState: active", C("cuDevicePrimaryCtxGetState", 0, &fl, &ac) * 10 + ac);
    Q("cuDevicePrimaryCtxRetain", C("cuDevicePrimaryCtxRetain", &v, 0));
    Q("cuDevicePrimaryCtxReset", C("cuDevicePrimaryCtxReset_v2", 0));
    Q("cuMemUnmap after the reset", C("cuMemUnmap", r, M2));
    Q("cuMemRelease after the reset", C("cuMemRelease", h2));
    Q("cuMemCreate after the reset", (v = handle(M2), v ? 0 : 1));
}

