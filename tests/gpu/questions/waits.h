/* What host functions may do, and which calls wait for work. */
/* Does a call wait for 120 ms of work on that stream? */
#define WAITS(q, s, ...) do { if (begin(q)) { busy(s, 120); double t_ = ms(); int r_ = (__VA_ARGS__); t_ = ms() - t_; \
    say("%d, %s", r_, t_ > 60 ? "waits" : "at once"); C("cuStreamSynchronize", s); } } while (0)

/* What host functions may do. */
static struct { P s, done, fresh, a, b, c, o, r, h, reg, at, mapped; int own; } hf;
static int done_in; static char told[2048];
#define T(n, ...) do { strcat(told, n " "); printf("[" n "]"); fflush(stdout); int r_ = (__VA_ARGS__); sprintf(told + strlen(told), "%d; ", r_); } while (0)
static void in_host(void *which) {
    P c = 0, v = 0; size_t n, m; unsigned st; long w = (long)which;
    told[0] = 0;
    if (w == 1) {
        C("cuCtxGetCurrent", &c);
        sprintf(told, "current context %s; ", c == ctx ? "the stream's" : c ? "another" : "none");
        C("cuCtxSetCurrent", ctx);
        sprintf(told + strlen(told), "set current %d; ", C("cuCtxSetCurrent", ctx));
        strcat(told, "info "); sprintf(told + strlen(told), "%d; ", C("cuMemGetInfo_v2", &n, &m));
        strcat(told, "attribute "); sprintf(told + strlen(told), "%d; ", C("cuPointerGetAttribute", &v, 2, hf.a));
        strcat(told, "range "); sprintf(told + strlen(told), "%d; ", C("cuMemGetAddressRange_v2", &v, &n, hf.a));
        strcat(told, "priorities "); sprintf(told + strlen(told), "%d; ", C("cuCtxGetStreamPriorityRange", 0, 0));
        strcat(told, "capturing "); sprintf(told + strlen(told), "%d; ", C("cuStreamIsCapturing", hf.o, &st));
        strcat(told, "query event "); sprintf(told + strlen(told), "%d; ", C("cuEventQuery", hf.done));
        strcat(told, "query stream "); sprintf(told + strlen(told), "%d; ", C("cuStreamQuery", hf.o));
        strcat(told, "record "); sprintf(told + strlen(told), "%d; ", C("cuEventRecord", hf.fresh, hf.o));
        strcat(told, "record context "); sprintf(told + strlen(told), "%d; ", C("cuCtxRecordEvent", ctx, hf.fresh));
        strcat(told, "wait event "); sprintf(told + strlen(told), "%d; ", C("cuStreamWaitEvent", hf.o, hf.done, 0));
    } else if (w == 2) {
        C("cuCtxSetCurrent", ctx);
        P h = 0, r = 0; Prop p = {1, 1, {1, 0}, 0, {0}};
        sprintf(told, "create %d; ", C("cuMemCreate", &h, M2, &p, 0));
        sprintf(told + strlen(told), "reserve %d; ", C("cuMemAddressReserve", &r, M2, 0, 0, 0));
        sprintf(told + strlen(told), "map %d; ", C("cuMemMap", hf.r, M2, 0, hf.h, 0));
        sprintf(told + strlen(told), "access %d; ", grant(hf.mapped, M2, 3));
        sprintf(told + strlen(told), "unmap %d; ", C("cuMemUnmap", hf.mapped, M2));
        sprintf(told + strlen(told), "release %d; ", C("cuMemRelease", hf.h));
    } else if (w == 3) { C("cuCtxSetCurrent", ctx); sprintf(told, "%d", C("cuMemAlloc_v2", &v, 4096)); }
    else if (w == 4) { C("cuCtxSetCurrent", ctx); sprintf(told, "%d", C("cuMemFree_v2", hf.a)); }
    else if (w == 5) { C("cuCtxSetCurrent", ctx); sprintf(told, "%d", C("cuMemAllocAsync", &v, 4096, hf.o)); }
    else if (w == 6) { C("cuCtxSetCurrent", ctx); sprintf(told, "%d", C("cuMemFreeAsync", hf.b, hf.o)); }
    else if (w == 7) { C("cuCtxSetCurrent", ctx); sprintf(told, "%d", C("cuMemHostAlloc", &v, 1 << 20, 0)); }
    else if (w == 8) { C("cuCtxSetCurrent", ctx); sprintf(told, "%d", C("cuStreamCreate", &v, 1)); }
    else if (w == 9) { C("cuCtxSetCurrent", ctx); sprintf(told, "%d", C("cuMemFree_v2", 0)); }
    else if (w == 10) { sprintf(told, "%d", C("cuMemFree_v2", hf.c)); }
    else if (w == 11) { C("cuCtxSetCurrent", ctx); sprintf(told, "%d", C("cuStreamDestroy_v2", hf.o)); }
    else if (w == 12) { C("cuCtxSetCurrent", ctx); int z = C("cuCtxRecordEvent", ctx, hf.fresh); sprintf(told, "%d, %d", z, C("cuEventSynchronize", hf.fresh)); }
    else if (w == 13) { C("cuCtxSetCurrent", ctx); sprintf(told, "%d", C("cuCtxSynchronize")); }
    done_in = 1;
}
static char *pin; static sem_t sem;
static void fill_in(void *u) { memset(pin, 0x5a, 4096); }
static void post_in(void *u) { sem_post(&sem); }
static void g_host(void) {
    start();
    hf.o = stream(); hf.s = stream(); hf.done = event(); hf.fresh = event(); C("cuEventRecord", hf.done, hf.o);
    hf.a = alloc(4096); hf.c = alloc(4096); C("cuMemAllocAsync", &hf.b, 4096, hf.o);
    hf.h = handle(M2); hf.r = reserve(M2); hf.mapped = mapped(handle(M2)); C("cuCtxSynchronize");
    const char *names[] = {"", "questions, events in a host function", "mappings in a host function", "cuMemAlloc in a host function", "cuMemFree in a host function",
        "cuMemAllocAsync in a host function", "cuMemFreeAsync in a host function", "cuMemHostAlloc in a host function", "cuStreamCreate in a host function", "cuMemFree(0) in a host function",
        "cuMemFree in a host function, no context set", "cuStreamDestroy of another stream in a host function",
        "cuCtxRecordEvent and cuEventSynchronize behind itself in a host function", "cuCtxSynchronize in a host function"};
    for (long w = 1; w <= 13; w++)
        if (begin(names[w])) {
            done_in = 0;
            C("cuLaunchHostFunc", hf.s, in_host, w);
            int r = C("cuStreamSynchronize", hf.s);
            say("%s (ran: %s, synchronize %d)", told, done_in ? "yes" : "no", r);
        }
    if (begin("bytes that a host function wrote, copied behind it")) {
        P p = alloc(4096); char out[4096];
        C("cuMemHostAlloc", &pin, 4096, 0); memset(pin, 0, 4096);
        busy(hf.s, 20); C("cuLaunchHostFunc", hf.s, fill_in, 0); C("cuMemcpyHtoDAsync_v2", p, pin, 4096, hf.s); C("cuStreamSynchronize", hf.s);
        C("cuMemcpyDtoH_v2", out, p, 4096);
        say("%#x", out[5]);
    }
    if (begin("a host function runs while nobody calls the driver")) {
        sem_init(&sem, 0, 0); busy(hf.s, 20); C("cuLaunchHostFunc", hf.s, post_in, 0);
        struct timespec t; clock_gettime(CLOCK_REALTIME, &t); t.tv_sec += 2;
        say("%s", sem_timedwait(&sem, &t) ? "no" : "yes");
    }
}

/* What waits. */
static void g_waits(void) {
    start();
    P s = stream(), o = other(), t, e;
    void *small, *middle, *large, *reg = mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    C("cuCtxSetCurrent", o); t = stream(); load(); busy(t, 1); C("cuCtxSynchronize"); C("cuCtxSetCurrent", ctx); load();
    C("cuMemHostAlloc", &small, 4096, 0); C("cuMemHostAlloc", &middle, 65536, 0); C("cuMemHostAlloc", &large, 1 << 20, 0);
    WAITS("cuMemFreeHost of 4 KiB", s, C("cuMemFreeHost", small));
    WAITS("cuMemFreeHost of 64 KiB", s, C("cuMemFreeHost", middle));
    WAITS("cuMemFreeHost of 1 MiB", s, C("cuMemFreeHost", large));
    C("cuMemHostAlloc", &large, 1 << 20, 0);
    /* From here on t is busy: work of another context. */
#define OTHER(q, ...) do { if (begin(q)) { C("cuCtxSetCurrent", o); busy(t, 120); C("cuCtxSetCurrent", ctx); double t_ = ms(); int r_ = (__VA_ARGS__); t_ = ms() - t_; \
    say("%d, %s", r_, t_ > 60 ? "waits" : "at once"); C("cuCtxSetCurrent", o); C("cuStreamSynchronize", t); C("cuCtxSetCurrent", ctx); } } while (0)
    OTHER("cuMemFreeHost of 1 MiB, work in another context", C("cuMemFreeHost", large));
    C("cuMemHostAlloc", &large, 1 << 20, 0);
    OTHER("cuMemFreeHost of 1 MiB of this context, the other one current", (C("cuCtxSetCurrent", o), C("cuMemFreeHost", large)));
    C("cuMemHostRegister_v2", reg, 1 << 20, 0);
    WAITS("cuMemHostUnregister of 1 MiB", s, C("cuMemHostUnregister", reg));
    WAITS("cuMemHostRegister of 1 MiB", s, C("cuMemHostRegister_v2", reg, 1 << 20, 0));
    WAITS("cuMemHostAlloc of 1 MiB", s, C("cuMemHostAlloc", &large, 1 << 20, 0));
    P pool = 0, ar = 0, g, x, m = 0, p; int c0[32] = {1, 1, 1, 0};
    Prop pp = {1, 0, {1, 0}}; char props[256] = {0}; memcpy(props, &pp, sizeof pp);
    C("cuMemPoolCreate", &pool, props); C("cuMemAllocFromPoolAsync", &p, 64 << 20, pool, s); C("cuMemFreeAsync", p, s);
    WAITS("cuMemPoolTrimTo of a pool with idle memory", s, C("cuMemPoolTrimTo", pool, 0));
    C("cuMemAllocFromPoolAsync", &p, 64 << 20, pool, s); C("cuMemFreeAsync", p, s);
    WAITS("cuMemPoolDestroy", s, C("cuMemPoolDestroy", pool));
    struct { size_t w, h; unsigned f, n; } ad = {1024, 1024, 0x20, 1};
    C("cuArrayCreate_v2", &ar, &ad);
    WAITS("cuArrayDestroy", s, C("cuArrayDestroy", ar));
    C("cuStreamBeginCapture_v2", s, 2); busy(s, 150); C("cuStreamEndCapture", s, &g); C("cuGraphInstantiateWithFlags", &x, g, 0);
    if (begin("cuGraphExecDestroy of a graph that runs")) { C("cuGraphLaunch", x, s); double a = ms(); int r = C("cuGraphExecDestroy", x); say("%d, %s", r, ms() - a > 60 ? "waits" : "at once"); C("cuStreamSynchronize", s); }
    WAITS("cuStreamDestroy", s, C("cuStreamDestroy_v2", stream()));
    C("cuModuleLoadData", &m, ptx);
    WAITS("cuModuleUnload", s, C("cuModuleUnload", m));
    WAITS("cuCtxSynchronize of another context", s, ({ C("cuCtxSetCurrent", o); int z = C("cuCtxSynchronize"); C("cuCtxSetCurrent", ctx); z; }));
    WAITS("cuCtxDestroy of another context, work in this one", s, C("cuCtxDestroy_v2", other()));
    P h = handle(M2), at_ = mapped(h); Acc none = {{1, 0}, 0};
    if (begin("cuMemSetAccess takes access of idle memory, work elsewhere")) { busy(s, 120); double a = ms(); int r = C("cuMemSetAccess", at_, M2, &none, 1); say("%d, %s", r, ms() - a > 60 ? "waits" : "at once"); C("cuStreamSynchronize", s); }
    P d = alloc(1 << 20); static char host[1 << 20];
    WAITS("cuMemcpyHtoD of 4 KiB, pageable, a non-blocking stream works", s, C("cuMemcpyHtoD_v2", d, host, 4096));
    P b = blocking();
    WAITS("cuMemcpyHtoD of 4 KiB, pageable, a blocking stream works", b, C("cuMemcpyHtoD_v2", d, host, 4096));
    WAITS("cuMemcpyHtoDAsync of 4 KiB, pageable, on the busy stream", s, C("cuMemcpyHtoDAsync_v2", d, host, 4096, s));
    WAITS("cuMemcpyHtoDAsync of 1 MiB, pageable, on the busy stream", s, C("cuMemcpyHtoDAsync_v2", d, host, 1 << 20, s));
    WAITS("cuMemcpyDtoHAsync of 4 KiB, pageable, on the busy stream", s, C("cuMemcpyDtoHAsync_v2", host, d, 4096, s));
    WAITS("cuMemcpyDtoH of 4 KiB, a non-blocking stream works", s, C("cuMemcpyDtoH_v2", host, d, 4096));
    WAITS("cuMemsetD8 of mapped memory, a blocking stream works", b, C("cuMemsetD8_v2", d, 0, 4096));
    if (begin("cuCtxDestroy of a context whose stream works")) { C("cuCtxSetCurrent", o); loadedin = 0; busy(t, 150); C("cuCtxSetCurrent", ctx); double a = ms(); int r = C("cuCtxDestroy_v2", o); say("%d, %s", r, ms() - a > 60 ? "waits" : "at once"); loadedin = 0; }
}

