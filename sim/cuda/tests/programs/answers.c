/* The answers of a real driver (H200, driver 580, CUDA 13.0), call by call. */
#include "common.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

static void allocation(void) {
    start(); P p, q, base; size_t bytes; P h = handle(PIECE), vmm = mapped(PIECE, h);
    IS(1, cuMemAlloc_v2(&p, 0)); OK(cuMemFree_v2(0)); IS(2, cuMemAlloc_v2(&p, 400ull << 30)); IS(1, cuMemFree_v2(0x1234)); IS(1, cuMemFree_v2(vmm));
    p = alloc(1); q = alloc(1); TRUE(q - p == 512 || p - q == 512);
    p = alloc(4096); IS(1, cuMemFree_v2(p + 512)); OK(cuMemGetAddressRange_v2(&base, &bytes, p + 100)); TRUE(base == p && bytes == 4096);
    OK(cuMemGetAddressRange_v2(0, 0, p)); OK(cuMemGetAddressRange_v2(&base, &bytes, vmm + 5)); TRUE(base == vmm && bytes == PIECE);
    OK(cuMemFree_v2(p)); IS(1, cuMemFree_v2(p)); IS(500, cuMemGetAddressRange_v2(&base, &bytes, p));
    OK(cuMemAllocPitch_v2(&p, &bytes, 1000, 3, 4)); TRUE(bytes == 1024); OK(cuMemFree_v2(p));
    OK(cuMemGetInfo_v2(0, 0)); p = alloc(40 * MIB); TRUE(p % PIECE == 0);
}
static void managed_and_arrays(void) {
    start(); P p, a; unsigned managed = 0; size_t before, after, total; struct { size_t width, height; int format; unsigned channels; } d = {4096, 1024, 0x20, 1};
    OK(cuMemAllocManaged(&p, 4096, 1)); OK(cuPointerGetAttribute(&managed, 8, p)); TRUE(managed); IS(1, cuIpcGetMemHandle((Ipc *)&d, p)); writes(0, p, 4096); OK(cuMemFree_v2(p));
    OK(cuMemGetInfo_v2(&before, &total)); OK(cuArrayCreate_v2(&a, &d)); OK(cuMemGetInfo_v2(&after, &total)); TRUE(before - after == 16 * MIB); OK(cuArrayDestroy(a)); IS(400, cuArrayDestroy(a));
    d.width = d.height = 1 << 20; IS(2, cuArrayCreate_v2(&a, &d)); d.format = 77; IS(1, cuArrayCreate_v2(&a, &d)); OK(cuSimCheckLeaks());
}
static void stream_ordered(void) {
    start(); P p = alloc(64), q; S s = stream(); OK(cuMemFreeAsync(p, s)); IS(1, cuMemFreeAsync(p, s)); OK(cuStreamSynchronize(s));
    OK(cuMemAllocAsync(&q, 64, s)); IS(1, cuMemFreeAsync(q + 8, s)); OK(cuMemFree_v2(q)); IS(1, cuMemFreeAsync(q, s));
    IS(2, cuMemAllocAsync(&q, 400ull << 30, s)); OK(cuMemAllocAsync(&q, 0, s)); OK(cuMemFreeAsync(0, s)); IS(400, cuMemAllocAsync(&q, 64, (S)0x77));
}
/* Lengths whose sums and products no address can hold, and such that leave the device. */
static void copies_without_end(P p, const void *host, size_t n, int of_host) {
    for (int which = 0; which < 10; which++) {
        Copy3D c = {.from = {.kind = 1, .host = host, .pitch = 16, .height = 2}, .to = {.kind = 2, .device = p, .pitch = 64, .height = 2}, .width = 8, .height = 2, .depth = 2};
        End3D *e = of_host ? &c.from : &c.to; size_t *lengths[] = {&e->x, &e->y, &e->z, &e->pitch, &e->height, &c.width, &c.height, &c.depth}; OK(cuMemcpy3D_v2(&c));
        if (which < 8) *lengths[which] = n; else if (which == 8) e->x = e->pitch = n; else { e->pitch = e->height = 0; c.width = c.height = c.depth = n; }
        IS(1, cuMemcpy3D_v2(&c)); if (which == 2 || which == 4 || which == 7) continue;
        Copy2D rows = {{c.from.x, c.from.y, 1, host, 0, 0, c.from.pitch}, {c.to.x, c.to.y, 2, 0, p, 0, c.to.pitch}, c.width, c.height}; IS(1, cuMemcpy2D_v2(&rows)); IS(1, cuMemcpy2DAsync_v2(&rows, 0));
    }
}
static void lengths_without_end(void) {
    start(); P p = alloc(MIB), q; S s = stream(); static char host[4096]; size_t most[] = {SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2 + 1, (size_t)1 << 62, (size_t)1 << 48, (size_t)1 << 42}; Access a = {{1, 0}, 3};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        size_t n = most[i], words = n & ~(size_t)3, pieces = n & ~(PIECE - 1);
        IS(1, cuMemcpyHtoD_v2(p, host, n)); IS(1, cuMemcpyDtoH_v2(host, p, n)); IS(1, cuMemcpyDtoD_v2(p, p + 4096, n)); IS(1, cuMemcpy(p, (P)host, n)); IS(1, cuMemcpyAsync(p, (P)host, n, s)); IS(1, cuMemcpyPeer(p, context, p + 64, context, n));
        IS(1, cuMemsetD8_v2(p, 1, n)); IS(1, cuMemsetD8Async(p, 1, n, s)); IS(1, cuMemsetD32Async(p, 1, n, s));
        IS(1, cuMemsetD2D16_v2(p, 64, 1, n, 2)); IS(1, cuMemsetD2D16_v2(p, words, 1, 4, 3)); IS(1, cuMemsetD2D16_v2(p, 64, 1, 4, n)); IS(1, cuMemsetD2D16_v2(p, words, 1, n, n));
        copies_without_end(p, host, n, 0); if (i < 3) copies_without_end(p, host, n, 1); /* where the host's memory ends nobody knows */
        IS(2, cuMemAlloc_v2(&q, n)); IS(2, cuMemAllocAsync(&q, n, s)); IS(n > 64ull << 40 ? 2 : 0, cuMemAddressReserve(&q, pieces, 0, 0, 0)); IS(1, cuMemSetAccess(p, n, &a, 1)); IS(1, cuMemUnmap(p, n));
    }
    IS(1, cuMemHostRegister_v2(host, SIZE_MAX, 0)); IS(1, cuMemsetD2D16_v2(p, 7, 1, 2, 2)); IS(1, cuMemsetD2D16_v2(p, 2, 1, 2, 2)); OK(cuMemsetD2D16_v2(p, 7, 1, 2, 1)); OK(cuMemcpyDtoD_v2(p, p + 64, 0)); OK(cuStreamSynchronize(s));
}
static void virtual_memory(void) {
    start(); size_t g; Properties pr = properties(); OK(cuMemGetAllocationGranularity(&g, &pr, 0)); TRUE(g == PIECE); OK(cuMemGetAllocationGranularity(&g, &pr, 1)); TRUE(g == PIECE);
    P h = handle(2 * PIECE), at = reserve(8 * PIECE), x; Access a = {{1, 0}, 3};
    IS(801, cuMemMap(at, PIECE, 0, h, 0)); IS(801, cuMemMap(at, PIECE, PIECE, h, 0)); IS(1, cuMemMap(at, 4 * PIECE, 0, h, 0));
    map(at, 2 * PIECE, h); IS(1, cuMemMap(at + PIECE, 2 * PIECE, 0, h, 0)); IS(1, cuMemMap(at + 7 * PIECE, 2 * PIECE, 0, h, 0));
    OK(cuMemMap(at + 2 * PIECE, 2 * PIECE, 0, h, 0)); IS(1, cuMemUnmap(at, PIECE)); IS(1, cuMemUnmap(at + PIECE, PIECE)); IS(1, cuMemUnmap(at, 8 * PIECE));
    IS(1, cuMemSetAccess(at, 8 * PIECE, &a, 1)); OK(cuMemUnmap(at, 4 * PIECE)); IS(1, cuMemUnmap(at, 2 * PIECE));
    OK(cuMemRelease(h)); IS(1, cuMemRelease(h)); IS(1, cuMemMap(at, 2 * PIECE, 0, h, 0)); IS(1, cuMemAddressFree(at, PIECE)); OK(cuMemAddressFree(at, 8 * PIECE));
    OK(cuMemAddressReserve(&x, 64ull << 40, 0, 0, 0)); OK(cuMemAddressFree(x, 64ull << 40)); IS(2, cuMemAddressReserve(&x, 128ull << 40, 0, 0, 0));
    IS(1, cuMemCreate(&h, PIECE + 1, &pr, 0)); IS(2, cuMemCreate(&h, 400ull << 30, &pr, 0)); pr.location.id = 99; IS(101, cuMemCreate(&h, PIECE, &pr, 0));
    OK(cuSimCheckLeaks());
}
static P attribute(int which, P at) { P value = 0; OK(cuPointerGetAttribute(&value, which, at)); return value; }
static void pointer_attributes(void) {
    start(); size_t n = 64 * MIB; P plain = alloc(n), ordered, one = mapped(n, handle(n)), four = reserve(n); unsigned on = 1; int type = 9; P base = 9;
    for (int i = 0; i < 4; i++) map(four + i * (n / 4), n / 4, handle(n / 4));
    OK(cuMemAllocAsync(&ordered, n, 0)); P mid = 33 * MIB, all[4] = {plain, one, four, ordered}, pool; OK(cuDeviceGetDefaultMemPool(&pool, 0));
    for (int i = 0; i < 4; i++) {
        TRUE(attribute(2, all[i] + mid) == 2 && attribute(9, all[i] + mid) == 0 && attribute(8, all[i] + mid) == 0 && attribute(16, all[i] + mid) == 3);
        IS(1, cuPointerGetAttribute(&base, 4, all[i] + mid)); TRUE(attribute(11, all[i] + mid) == all[i] && attribute(12, all[i] + mid) == n);
        TRUE(attribute(1, all[i]) == (i ? 0 : context)); TRUE(attribute(10, all[i]) == !i && attribute(15, all[i]) == !i && attribute(21, all[i]) == !i);
        TRUE(attribute(14, all[i]) == (i == 1 || i == 2)); TRUE(attribute(17, all[i]) == (i == 3 ? pool : 0));
        int vmm = i == 1 || i == 2; IS(vmm ? 801 : 0, cuPointerSetAttribute(&on, 6, all[i])); P h; IS(vmm ? 0 : 1, cuMemRetainAllocationHandle(&h, all[i]));
    }
    TRUE(attribute(18, four + mid) == n / 4 && attribute(19, four + mid) == four + n / 2); TRUE(attribute(18, plain + mid) == n && attribute(19, one + mid) == one);
    TRUE(attribute(18, ordered + mid) == 32 * MIB && attribute(19, ordered + mid) == ordered + 32 * MIB); TRUE(attribute(7, four) != attribute(7, four + mid) && attribute(7, one) == attribute(7, one + mid));
    P old = attribute(7, plain); OK(cuMemFree_v2(plain)); IS(1, cuPointerGetAttribute(&base, 2, plain)); plain = alloc(n); TRUE(attribute(7, plain) != old);
    int which[2] = {2, 11}; void *out[2] = {&type, &base}; base = 9; OK(cuPointerGetAttributes(2, which, out, (P)&type)); TRUE(type == 0 && base == 9);
    which[0] = 4; out[0] = &old; OK(cuPointerGetAttributes(1, which, out, (P)&type)); TRUE(old == (P)&type);
}

/* Copies between two devices, of memory of each kind. */
static P there;
static int copies(P to, P from) {
    int code = cuMemcpyDtoD_v2(to, from, 4096);
    IS(code, cuMemcpy(to, from, 4096)); IS(code, cuMemcpyAsync(to, from, 4096, 0)); IS(code, cuMemcpyDtoDAsync_v2(to, from, 4096, 0));
    OK(cuMemcpyPeer(to, there, from, context, 4096)); OK(cuMemcpyPeerAsync(to, there, from, context, 4096, 0)); OK(cuCtxSynchronize());
    TRUE(!memcmp((void *)to, (void *)from, 4096));
    return code;
}
static void open_both(P at, int flags) { Access both[2] = {{{1, 0}, flags}, {{1, 1}, 3}}; OK(cuMemSetAccess(at, PIECE, both, 2)); }
static void between_devices(void) {
    start(); OK(cuDevicePrimaryCtxRetain(&there, 1)); P plain = alloc(4096), own = mapped(PIECE, handle(PIECE)), ordered, pool, to, mapping, its, h, g; S s = stream();
    Properties p = properties(); p.location.id = 1; OK(cuMemAllocAsync(&ordered, 4096, 0)); IS(217, cuCtxEnablePeerAccess(context, 0));
    OK(cuCtxSetCurrent(there)); to = alloc(4096); OK(cuMemAllocAsync(&its, 4096, 0)); OK(cuCtxSynchronize());
    OK(cuMemCreate(&h, PIECE, &p, 0)); mapping = reserve(PIECE); OK(cuMemMap(mapping, PIECE, 0, h, 0)); open_both(mapping, 0); OK(cuCtxSetCurrent(context));
    OK(cuMemsetD8_v2(plain, 1, 4096)); OK(cuMemsetD8_v2(own, 2, 4096)); OK(cuMemsetD8_v2(ordered, 3, 4096)); OK(cuCtxSynchronize());
    for (int enabled = 0; enabled < 2; enabled++) {
        OK(copies(to, plain)); OK(copies(to, own)); OK(copies(to, ordered)); IS(1, copies(mapping, plain)); IS(1, copies(mapping, own)); IS(1, copies(its, plain));
        OK(cuCtxSetCurrent(there)); OK(copies(to, plain)); IS(1, copies(to, own)); IS(1, copies(to, ordered)); OK(copies(mapping, plain)); OK(copies(its, plain));
        IS(enabled ? 704 : 0, cuCtxEnablePeerAccess(context, 0)); OK(cuCtxSetCurrent(context)); IS(enabled ? 704 : 0, cuCtxEnablePeerAccess(there, 0));
    }
    /* A copy that is refused leaves a capture as it is; one that names contexts ends it. */
    OK(cuStreamBeginCapture_v2(s, 0)); IS(1, cuMemcpyDtoDAsync_v2(mapping, plain, 4096, s)); OK(cuStreamEndCapture(s, &g));
    OK(cuStreamBeginCapture_v2(s, 0)); IS(900, cuMemcpyPeerAsync(mapping, there, plain, context, 4096, s)); IS(901, cuStreamEndCapture(s, &g));
    /* The host's memory is no other end. A fill is carried for nobody. */
    static char host[4096]; OK(cuCtxDisablePeerAccess(there)); OK(cuMemcpyHtoD_v2(to, host, 4096)); OK(cuMemcpyDtoH_v2(host, to, 4096));
    IS(1, cuMemcpyHtoD_v2(mapping, host, 4096)); IS(1, cuMemcpyDtoH_v2(host, mapping, 4096)); IS(1, cuMemcpyHtoD_v2(its, host, 4096));
    IS(1, cuMemsetD8_v2(to, 1, 4096)); IS(1, cuMemsetD8_v2(mapping, 1, 4096)); OK(cuCtxEnablePeerAccess(there, 0)); OK(cuMemsetD8_v2(to, 1, 4096)); IS(1, cuMemsetD8_v2(mapping, 1, 4096));
    /* The current context counts, not the stream's. */
    OK(cuCtxSetCurrent(there)); IS(1, cuMemcpyDtoDAsync_v2(mapping, own, 4096, s)); OK(cuMemcpyDtoDAsync_v2(mapping, plain, 4096, s)); OK(cuStreamSynchronize(s)); OK(cuCtxSetCurrent(context));
    /* A context that does not have the memory helps no more than none. */
    OK(cuMemcpyPeer(mapping, there, own, context, 4096)); IS(1, cuMemcpyPeer(mapping, context, own, context, 4096)); OK(cuCtxSynchronize());
    open_both(mapping, 1); IS(1, copies(mapping, plain)); open_both(mapping, 3); OK(copies(mapping, plain)); Access a = {{1, 1}, 3}; OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAccess(pool, &a, 1)); OK(cuCtxSetCurrent(there)); OK(copies(to, ordered)); OK(copies(mapping, ordered)); IS(1, copies(mapping, own));
}

/* A call during capture: what it answers, and whether the capture lives. */
static P scratch_event;
static int try_alloc(void) { P p; return cuMemAlloc_v2(&p, 64); }
static int try_free(void) { return cuMemFree_v2(0); }
static int try_query(void) { return cuEventQuery(scratch_event); }
static int try_synchronize(void) { return cuCtxSynchronize(); }
static int try_context_event(void) { return cuCtxRecordEvent(context, scratch_event); }
static int try_virtual_memory(void) {
    P h = handle(PIECE), at = mapped(PIECE, h); int fd; OK(cuMemExportToShareableHandle(&fd, h, 1, 0)); close(fd);
    OK(cuMemUnmap(at, PIECE)); OK(cuMemAddressFree(at, PIECE)); return cuMemRelease(h);
}
static int try_info(void) { return cuMemGetInfo_v2(0, 0); }
static int try_other_record(void) { return cuEventRecord(scratch_event, stream()); }
static int try_status(void) { int state; return cuStreamIsCapturing(stream(), &state); }
static int try_stream_query(void) { return cuStreamQuery(stream()); }
static int try_stream_wait(void) { return cuStreamSynchronize(stream()); }
static int try_ordered(void) { S s = stream(); P p; int code = cuMemAllocAsync(&p, 64, s); return code ? code : cuMemFreeAsync(p, s); }
static void capture(void) {
    start(); scratch_event = event(); S s = stream(); P g;
    struct { int (*call)(void); int strict, relaxed; } rows[] = {
        {try_virtual_memory, 0, 0}, {try_info, 0, 0}, {try_other_record, 0, 0}, {try_status, 0, 0},
        {try_alloc, 900, 0}, {try_free, 900, 0}, {try_query, 900, 0}, {try_stream_query, 900, 0}, {try_stream_wait, 900, 0}, {try_ordered, 900, 0}, {try_synchronize, 900, 900}, {try_context_event, 900, 900}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int mode = 0; mode < 4; mode++) { /* the fourth: global, inside a relaxed guard */
            int relaxed = 2, expected = mode < 2 ? rows[i].strict : rows[i].relaxed;
            OK(cuStreamBeginCapture_v2(s, mode == 3 ? 0 : mode));
            if (mode == 3) OK(cuThreadExchangeStreamCaptureMode(&relaxed));
            IS(expected, rows[i].call());
            if (mode == 3) OK(cuThreadExchangeStreamCaptureMode(&relaxed));
            IS(expected ? 901 : 0, cuStreamEndCapture(s, &g));
            if (!expected) OK(cuGraphDestroy(g)); else TRUE(g == 0);
        }
    OK(cuCtxRecordEvent(context, scratch_event)); OK(cuCtxSynchronize());
}
/* A stream that joined a capture of another context's captures, too. No GPU was asked. */
static void capture_across_contexts(void) {
    start(); P other, g, e = event(), f, back; S a = stream(), b; OK(cuDevicePrimaryCtxRetain(&other, 1)); OK(cuCtxSetCurrent(other)); b = stream(); f = event(); back = event();
    for (int call = 0; call < 4; call++) {
        OK(cuCtxSetCurrent(context)); OK(cuStreamBeginCapture_v2(a, 2)); OK(cuEventRecord(e, a)); OK(cuCtxRecordEvent(other, f)); OK(cuCtxWaitEvent(other, f)); OK(cuStreamWaitEvent(b, e, 0)); OK(cuCtxSetCurrent(other));
        if (call < 3) IS(900, call == 0 ? cuCtxRecordEvent(other, f) : call == 1 ? cuCtxWaitEvent(other, f) : cuCtxSynchronize());
        else { OK(cuEventRecord(back, b)); OK(cuStreamWaitEvent(a, back, 0)); }
        IS(call < 3 ? 901 : 0, cuStreamEndCapture(a, &g)); OK(cuCtxRecordEvent(other, f));
    }
}
static void capture_of_streams(void) {
    start(); S s = stream(), t = stream(), b; P e = event(), f = event(), g; int state; OK(cuStreamCreate(&b, 0));
    OK(cuStreamBeginCapture_v2(s, 0)); IS(900, cuStreamSynchronize(s)); OK(cuStreamIsCapturing(s, &state)); TRUE(state == 2); IS(901, cuStreamEndCapture(s, &g));
    OK(cuStreamBeginCapture_v2(s, 0)); OK(cuEventRecord(e, s)); IS(907, cuEventQuery(e)); IS(901, cuStreamEndCapture(s, &g));
    OK(cuEventRecord(f, t)); OK(cuStreamBeginCapture_v2(s, 0)); IS(905, cuStreamWaitEvent(s, f, 0)); IS(901, cuStreamEndCapture(s, &g));
    OK(cuStreamBeginCapture_v2(s, 0)); OK(cuEventRecord(e, s)); OK(cuStreamWaitEvent(t, e, 0)); IS(904, cuStreamEndCapture(s, &g));
    OK(cuStreamBeginCapture_v2(s, 0)); OK(cuStreamBeginCapture_v2(t, 0)); OK(cuEventRecord(e, s)); IS(902, cuStreamWaitEvent(t, e, 0));
    IS(901, cuStreamEndCapture(s, &g)); IS(901, cuStreamEndCapture(t, &g)); IS(900, cuStreamBeginCapture_v2(LEGACY, 0));
    IS(401, cuEventRecordWithFlags(f, t, 1)); IS(401, cuStreamWaitEvent(t, f, 1));
    OK(cuStreamBeginCapture_v2(s, 0)); OK(cuEventRecordWithFlags(f, s, 1)); OK(cuStreamWaitEvent(s, f, 1)); OK(cuStreamEndCapture(s, &g)); size_t nodes; OK(cuGraphGetNodes(g, 0, &nodes)); TRUE(nodes == 2);
    OK(cuStreamBeginCapture_v2(b, 0)); IS(906, cuEventRecord(e, LEGACY)); IS(901, cuStreamEndCapture(b, &g));
    P p; OK(cuStreamBeginCapture_v2(s, 0)); OK(cuMemAllocAsync(&p, 64, s)); OK(cuMemFreeAsync(p, s)); OK(cuStreamEndCapture(s, &g)); OK(cuGraphDestroy(g)); OK(cuSimCheckLeaks());
    OK(cuStreamBeginCapture_v2(s, 0)); OK(cuMemAllocAsync(&p, 64, s)); OK(cuStreamDestroy_v2(s)); OK(cuMemFree_v2(alloc(64))); OK(cuSimCheckLeaks()); /* over with its stream */
}
static void reset(void) {
    start(); P h = handle(PIECE), at = mapped(PIECE, h), p = alloc(64); OK(cuMemsetD8_v2(at, 9, 64)); OK(cuCtxSynchronize());
    OK(cuDevicePrimaryCtxReset_v2(0)); IS(709, cuMemFree_v2(p)); OK(cuDevicePrimaryCtxRetain(&context, 0)); OK(cuCtxSetCurrent(context));
    IS(1, cuMemFree_v2(p)); TRUE(*(char *)at == 9); char c; OK(cuMemcpyDtoH_v2(&c, at, 1)); TRUE(c == 9); OK(cuMemUnmap(at, PIECE));
}
static void crash(void) {
    start(); P p = alloc(4096), e = event(), q; S s = stream(); writes(s, p, 64); OK(cuSimCrash(s)); OK(cuMemAlloc_v2(&q, 64)); OK(cuEventRecord(e, s));
    IS(700, cuStreamSynchronize(s)); IS(700, cuMemAlloc_v2(&q, 64)); IS(700, cuEventQuery(e)); IS(700, cuCtxSynchronize()); IS(700, cuMemFree_v2(p)); IS(700, cuMemcpyHtoD_v2(p, "x", 1));
    unsigned flags; OK(cuCtxGetFlags(&flags)); OK(cuCtxGetApiVersion(0, &flags)); OK(cuCtxGetApiVersion(context, &flags));
    P other; OK(cuDevicePrimaryCtxRetain(&other, 1)); OK(cuCtxSetCurrent(other)); OK(cuMemAlloc_v2(&q, 64));
}
static void crash_seen_by_a_free(void) {
    start(); P p = alloc(4096), q; OK(cuSimCrash(stream())); IS(700, cuMemFree_v2(p)); IS(700, cuMemAlloc_v2(&q, 64));
}
/* Under the wall clock: what the wait was for crashed meanwhile. */
static void crash_seen_by_a_wait(void) {
    start(); S s = stream(); P q, e = event(); OK(cuSimLaunch(s, 0, 0, 50000.0)); OK(cuSimCrash(s)); OK(cuEventRecord(e, s)); OK(cuMemAlloc_v2(&q, 64)); IS(700, cuStreamSynchronize(s)); IS(700, cuEventSynchronize(e));
}
/* And a wait for a word that nobody will write any more. */
static void crash_seen_by_a_held_wait(void) {
    alarm(20); start(); S s = stream(); void *w; OK(cuMemHostAlloc(&w, 64, 0)); memset(w, 0, 64); OK(cuStreamWaitValue32_v2(s, (P)w, 1, 1)); OK(cuSimCrash(stream())); IS(700, cuStreamSynchronize(s));
}
static void contexts(void) {
    OK(cuInit(0)); P p, c, got; IS(201, cuMemAlloc_v2(&p, 64)); OK(cuCtxGetCurrent(&got)); TRUE(got == 0); IS(201, cuCtxSynchronize());
    OK(cuCtxCreate_v2(&c, 0, 0)); OK(cuMemAlloc_v2(&p, 64)); OK(cuCtxGetCurrent(&got)); TRUE(got == c); OK(cuCtxDestroy_v2(c)); IS(1, cuMemFree_v2(p)); IS(101, cuCtxCreate_v2(&c, 0, 9)); IS(1, cuCtxDestroy_v2(0)); IS(201, cuCtxDestroy_v2(c)); IS(201, cuGreenCtxDestroy(0));
}
/* A context that another thread ended is still this one's; streams of others live. */
static void *end_it(void *which) { OK(cuCtxDestroy_v2(*(P *)which)); return 0; }
static void context_ended_elsewhere(void) {
    start(); S s = stream(); P at = mapped(PIECE, handle(PIECE)), to = alloc(64), c, p, g, x; pthread_t t; OK(cuMemsetD8_v2(at, 1, 64)); OK(cuCtxSynchronize());
    OK(cuStreamBeginCapture_v2(s, 2)); OK(cuMemcpyDtoDAsync_v2(to, at, 64, s)); OK(cuStreamEndCapture(s, &g)); OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuGraphDestroy(g));
    OK(cuCtxCreate_v2(&c, 0, 0)); S own = stream(); OK(cuStreamBeginCapture_v2(own, 2)); OK(cuMemsetD8Async(at, 3, 16, own)); OK(cuStreamEndCapture(own, &g));
    pthread_create(&t, 0, end_it, &c); pthread_join(t, 0);
    IS(709, cuMemAlloc_v2(&p, 64)); IS(709, cuMemsetD8Async(at, 0, 16, 0)); IS(709, cuMemcpyDtoDAsync_v2(to, at, 64, s)); IS(1, cuGraphInstantiateWithFlags(&p, g, 0));
    OK(cuMemsetD8Async(at, 2, 16, s)); writes(s, at, 16); OK(cuGraphLaunch(x, s)); OK(cuStreamSynchronize(s)); TRUE(*(char *)at == 2 && *(char *)to == 2);
}
/* Its memory goes with it, also where another context's stream has yet to free that: the address is another allocation's by then. */
static void freed_and_ended(void) {
    start(); S s = stream(); P c, p; OK(cuCtxCreate_v2(&c, 0, 0)); p = alloc(PIECE); OK(cuCtxSetCurrent(context)); writes(s, alloc(64), 64);
    OK(cuMemFreeAsync(p, s)); OK(cuCtxDestroy_v2(c)); TRUE(alloc(PIECE) == p); OK(cuStreamSynchronize(s)); OK(cuMemFree_v2(p));
}
static void before_init(void) { P p; IS(3, cuMemAlloc_v2(&p, 64)); int v; OK(cuDriverGetVersion(&v)); TRUE(v == 13000); }
static void forked(void) {
    start(); alloc(64); pid_t child = fork();
    if (!child) { P p; _exit(cuMemAlloc_v2(&p, 64) == 3 && cuInit(0) == 3 ? 0 : 1); }
    int status; waitpid(child, &status, 0); TRUE(status == 0); alloc(64);
}
static void values(void) {
    start(); S s = stream(); P p = alloc(64); char *host = aligned_alloc(4096, 4096); void *f; int found;
    IS(1, cuStreamWriteValue64_v2(s, (P)host, 1, 0)); IS(1, cuStreamWaitValue64_v2(s, (P)host, 1, 0)); /* pageable */
    OK(cuMemHostRegister_v2(host, 4096, 3)); OK(cuStreamWriteValue64_v2(s, (P)host, 1, 0)); OK(cuStreamWaitValue64_v2(s, (P)host, 1, 1 << 30));
    OK(cuStreamWriteValue64_v2(s, (P)host + 4088, 1, 1)); IS(1, cuStreamWriteValue64_v2(s, (P)host + 4096, 1, 0));
    IS(1, cuStreamWriteValue64_v2(s, p + 4, 1, 0)); OK(cuStreamWriteValue32_v2(s, p + 4, 1, 0)); IS(1, cuStreamWriteValue64_v2(s, p, 1, 2));
    IS(1, cuStreamWaitValue64_v2(s, p, 1, 4)); OK(cuStreamSynchronize(s)); OK(cuMemHostUnregister(host)); IS(1, cuStreamWriteValue64_v2(s, (P)host, 1, 0));
    OK(cuGetProcAddress_v2("cuStreamWaitValue64", &f, 12000, 0, &found)); TRUE(f == (void *)cuStreamWaitValue64_v2);
    OK(cuGetProcAddress_v2("cuStreamWaitValue64", &f, 11060, 0, &found)); TRUE(f == (void *)cuStreamWaitValue64);
    IS(500, cuGetProcAddress_v2("cuStreamWaitValue64", &f, 8000, 0, &found)); TRUE(found == 2);
}
static void lookup(void) {
    void *f; int status; char name[64]; const char *text;
    OK(cuGetProcAddress_v2("cuMemAlloc", &f, 3020, 0, 0)); TRUE(f == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    IS(500, cuGetProcAddress_v2("cuMemAlloc", &f, 2000, 0, &status)); TRUE(status == 2); IS(500, cuGetProcAddress_v2("", &f, 0, 0, 0)); IS(500, cuGetProcAddress_v2("cuNoSuchCall", &f, 13000, 0, &status)); TRUE(status == 1);
    OK(cuGetProcAddress_v2("cuMemAllocAsync", &f, 11020, 2, &status)); TRUE(f == dlsym(RTLD_DEFAULT, "cuMemAllocAsync_ptsz") && status == 0);
    OK(cuGetProcAddress_v2("cuMemAllocAsync", &f, 11020, 1, 0)); TRUE(f == dlsym(RTLD_DEFAULT, "cuMemAllocAsync")); OK(cuGetProcAddress_v2("cuMemcpy", &f, 4000, 2, 0)); TRUE(f == dlsym(RTLD_DEFAULT, "cuMemcpy_ptds"));
    OK(cuGetProcAddress_v2("cuGetProcAddress", &f, 11030, 0, 0)); TRUE(f == dlsym(RTLD_DEFAULT, "cuGetProcAddress")); OK(cuGetProcAddress_v2("cuGetProcAddress", &f, 12000, 0, 0)); TRUE(f == dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"));
    OK(cuGetProcAddress_v2("cuIpcOpenMemHandle", &f, 4010, 0, 0)); TRUE(f == dlsym(RTLD_DEFAULT, "cuIpcOpenMemHandle")); OK(cuGetProcAddress_v2("cuCtxGetDevice", &f, 13000, 0, 0)); TRUE(f == dlsym(RTLD_DEFAULT, "cuCtxGetDevice_v2"));
    OK(cuGetProcAddress_v2("cuCtxGetDevice", &f, 12080, 0, 0)); TRUE(f == dlsym(RTLD_DEFAULT, "cuCtxGetDevice"));
    OK(cuInit(0)); OK(cuDeviceGetName(name, 64, 0)); TRUE(!strcmp(name, "memcuda simulated GPU")); OK(cuGetErrorName(2, &text)); TRUE(!strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY")); IS(1, cuGetErrorName(54321, &text));
}
/* With MEMCUDA_SIM_FAIL=cuMemCreate@3=2,cuMemMap%2=999,cuMemAlloc@1=700 */
static void faults(void) {
    start(); P h[4], p; Properties pr = properties(); for (int i = 0; i < 4; i++) IS(i == 2 ? 2 : 0, cuMemCreate(&h[i], PIECE, &pr, 0));
    P at = reserve(4 * PIECE); OK(cuMemMap(at, PIECE, 0, h[0], 0)); IS(999, cuMemMap(at + PIECE, PIECE, 0, h[1], 0)); OK(cuMemMap(at + PIECE, PIECE, 0, h[1], 0));
    IS(700, cuMemAlloc_v2(&p, 64)); IS(700, cuMemAlloc_v2(&p, 64)); IS(700, cuCtxSynchronize());
}
/* With MEMCUDA_SIM_FAIL=*@5=2: cuInit is not counted. */
static void fault_anywhere(void) { start(); P p = alloc(64); OK(cuMemFree_v2(p)); IS(2, cuMemAlloc_v2(&p, 64)); OK(cuMemAlloc_v2(&p, 64)); }
/* Whose a green context's stream is: by the first form, unless that is refused, by the second one. */
static void green_streams(int refused, P *whole) {
    P g = green(), view, got = 0, its = 0; S s = green_stream(g); OK(cuCtxFromGreenCtx(&view, g)); OK(cuCtxGetCurrent(whole));
    IS(refused, cuStreamGetCtx(s, &got)); TRUE(refused || got == view); OK(cuStreamGetCtx(stream(), &got)); TRUE(got == *whole); OK(cuStreamGetCtx_v2(s, &got, &its)); TRUE(got == *whole && its == g);
}
static void green_streams_told(void) { start(); P c; green_streams(0, &c); }
/* What MEMCUDA_SIM_LACKS takes away. */
static int has(int attribute) { int value; OK(cuDeviceGetAttribute(&value, attribute, 0)); return value; }
static void without_mappings(void) { start(); P at, h; Properties pr = properties(); TRUE(!has(102) && !has(103) && !has(110)); IS(801, cuMemAddressReserve(&at, PIECE, 0, 0, 0)); IS(801, cuMemCreate(&h, PIECE, &pr, 0)); OK(cuMemAlloc_v2(&at, 64)); }
static void without_kinds_of_handles(void) {
    start(); P h; Properties pr = properties(), plain = properties(), cards = properties(); plain.handle_types = 0; cards.handle_types = 0; cards.flags[1] = 1;
    TRUE(has(102) && !has(103) && !has(110)); IS(801, cuMemCreate(&h, PIECE, &pr, 0)); IS(801, cuMemCreate(&h, PIECE, &cards, 0)); OK(cuMemCreate(&h, PIECE, &plain, 0));
}
static void without_access_for_cards(void) {
    start(); P h; Properties cards = properties(); cards.flags[1] = 1; Access a = {{1, 0}, 3}; TRUE(has(102) && has(110)); OK(cuMemCreate(&h, PIECE, &cards, 0));
    P at = reserve(2 * PIECE); OK(cuMemMap(at, PIECE, 0, h, 0)); IS(999, cuMemSetAccess(at, PIECE, &a, 1)); map(at + PIECE, PIECE, handle(PIECE));
}
static void without_tables(void) {
    start(); P at = mapped(PIECE, handle(PIECE)), all; OK(cuDevicePrimaryCtxRetain(&there, 1)); OK(cuCtxSetCurrent(there)); OK(cuMemAlloc_v2(&all, 64 << 20));
    Access a = {{1, 1}, 3}; IS(2, cuMemSetAccess(at, PIECE, &a, 1)); a.flags = 0; OK(cuMemSetAccess(at, PIECE, &a, 1)); OK(cuMemFree_v2(all)); open_both(at, 3);
}
static void without_green_streams(void) { start(); P c = 0, got; green_streams(801, &c); P other = 1; OK(cuStreamGetCtx_v2(stream(), &got, &other)); TRUE(got == c && other == 0); }
static void refused_settings(void) { IS(1, cuInit(0)); }
static void real_clock(void) { start(); S s = stream(); P p = alloc(64), e = event(); OK(cuSimLaunch(s, 0, 0, 50000.0)); OK(cuMemsetD8Async(p, 1, 64, s)); OK(cuEventRecord(e, s)); IS(600, cuEventQuery(e)); OK(cuStreamSynchronize(s)); OK(cuEventQuery(e)); TRUE(*(char *)p == 1 && cuSimClock() >= 50000000); }
static void no_clock(void) { start(); S s = stream(); P e = event(); OK(cuSimLaunch(s, 0, 0, 50000.0)); OK(cuEventRecord(e, s)); OK(cuEventQuery(e)); TRUE(cuSimClock() == 0); }

static void fabric(void) {
    start(); Properties p = properties(); P h, other; int fd; char shared[64]; p.handle_types = 8; OK(cuMemCreate(&h, PIECE, &p, 0));
    OK(cuMemExportToShareableHandle(shared, h, 8, 0)); IS(1, cuMemExportToShareableHandle(&fd, h, 1, 0)); OK(cuMemImportFromShareableHandle(&other, shared, 8));
    P one = mapped(PIECE, h), same = mapped(PIECE, other); char seen = 0; OK(cuMemsetD8_v2(one, 7, PIECE)); OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(&seen, same + PIECE - 1, 1)); TRUE(seen == 7);
}
static const Case cases[] = {
    CASE(allocation), CASE(managed_and_arrays), CASE(stream_ordered), CASE(lengths_without_end), CASE(virtual_memory), CASE(pointer_attributes), CASE(between_devices), CASE(capture), CASE(capture_of_streams), CASE(capture_across_contexts), CASE(reset), CASE(crash), CASE(crash_seen_by_a_free), CASE(crash_seen_by_a_wait), CASE(crash_seen_by_a_held_wait),
    CASE(contexts), CASE(context_ended_elsewhere), CASE(freed_and_ended), CASE(before_init), CASE(forked), CASE(lookup), CASE(values), CASE(faults), CASE(fault_anywhere), CASE(without_mappings), CASE(without_kinds_of_handles), CASE(without_access_for_cards), CASE(without_tables), CASE(green_streams_told), CASE(without_green_streams), CASE(refused_settings), CASE(real_clock), CASE(no_clock), CASE(fabric),
};
MAIN(cases)
