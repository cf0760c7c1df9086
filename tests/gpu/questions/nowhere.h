/* A thread without a current context: what is asked and done by address or on a stream of a context. */
static void leave(void) { C("cuCtxSetCurrent", 0); }
static void back(void) { C("cuCtxSetCurrent", ctx); C("cuCtxSynchronize"); }
/* The code of one call from nowhere. */
#define N(q, ...) do { if (begin(q)) { leave(); int r_ = (__VA_ARGS__); back(); say("%d", r_); } } while (0)

typedef struct { size_t x, y; int type; const void *host; P device; P array; size_t pitch; } Side2;
typedef struct { Side2 from, to; size_t width, height; } Rows;
typedef struct { size_t x, y, z, lod; int type; const void *host; P device; P array; void *none; size_t pitch, height; } Side3;
typedef struct { Side3 from, to; size_t width, height, depth; } Planes;

static void of_memory(const char *kind, P a, P b, P s) {
    static char pageable[4096];
    P pinned = 0, v = 0, n = 0;
    char q[120];
    C("cuMemAllocHost_v2", &pinned, 4096);
#define ON(what, ...) do { sprintf(q, "%s: %s", kind, what); N(q, __VA_ARGS__); } while (0)
    P streams[] = {s, 0, 1, 2};
    const char *names[] = {"a stream", "the default stream", "the legacy stream", "the thread's stream"};
    for (int i = 0; i < 4; i++) {
        P on = streams[i];
        Rows rows = {{0, 0, 2, 0, a, 0, 64}, {0, 0, 2, 0, b, 0, 64}, 64, 4}, unified = rows;
        unified.from.type = unified.to.type = 4;
        Planes planes = {{0, 0, 0, 0, 2, 0, a, 0, 0, 64, 4}, {0, 0, 0, 0, 2, 0, b, 0, 0, 64, 4}, 64, 4, 1};
        char w[100];
#define CALL(name, ...) do { sprintf(w, "%s on %s", #name, names[i]); ON(w, C(#name, __VA_ARGS__)); } while (0)
        CALL(cuMemcpyDtoDAsync_v2, b, a, 4096, on);
        CALL(cuMemcpyAsync, b, a, 4096, on);
        CALL(cuMemcpyHtoDAsync_v2, a, pinned, 4096, on);
        CALL(cuMemcpyDtoHAsync_v2, pinned, a, 4096, on);
        if (i) continue;
        CALL(cuMemcpyHtoDAsync_v2, a, pageable, 4096, on);
        CALL(cuMemcpyDtoHAsync_v2, pageable, a, 4096, on);
        CALL(cuMemcpyAsync, a, pinned, 4096, on);
        CALL(cuMemcpyAsync, pageable, a, 4096, on);
        CALL(cuMemcpy2DAsync_v2, &rows, on);
        CALL(cuMemcpy2DAsync_v2, &unified, on);
        CALL(cuMemcpy3DAsync_v2, &planes, on);
        CALL(cuMemcpyPeerAsync, b, ctx, a, ctx, 4096, on);
        CALL(cuMemsetD8Async, a, 1, 4096, on);
        CALL(cuMemsetD32Async, a, 1, 1024, on);
        CALL(cuMemsetD2D8Async, a, 64, 1, 32, 4, on);
        CALL(cuStreamWriteValue32_v2, on, a, 1, 0);
        CALL(cuMemPrefetchAsync, a, 4096, 0, on);
    }
    ON("cuMemcpyDtoD", C("cuMemcpyDtoD_v2", b, a, 4096));
    ON("cuMemcpyHtoD", C("cuMemcpyHtoD_v2", a, pageable, 4096));
    ON("cuMemcpyDtoH", C("cuMemcpyDtoH_v2", pageable, a, 4096));
    ON("cuMemcpy", C("cuMemcpy", b, a, 4096));
    ON("cuMemsetD8", C("cuMemsetD8_v2", a, 1, 4096));
    ON("cuMemcpyPeer", C("cuMemcpyPeer", b, ctx, a, ctx, 4096));
    ON("cuMemGetAddressRange", C("cuMemGetAddressRange_v2", &v, &n, a));
    ON("cuPointerGetAttribute of the context", C("cuPointerGetAttribute", &v, 1, a));
    ON("cuPointerGetAttribute of the address", C("cuPointerGetAttribute", &v, 3, a));
    ON("cuPointerSetAttribute of SYNC_MEMOPS", (n = 1, C("cuPointerSetAttribute", &n, 6, a)));
    ON("cuMemRetainAllocationHandle", C("cuMemRetainAllocationHandle", &v, a));
    ON("cuMemGetHandleForAddressRange", (n = -1, C("cuMemGetHandleForAddressRange", &n, a, 2 << 20, 1, 0)));
    ON("cuIpcGetMemHandle", (int)C("cuIpcGetMemHandle", pageable, a));
    ON("cuMemHostGetFlags", C("cuMemHostGetFlags", &v, a));
    ON("cuMemHostRegister", C("cuMemHostRegister_v2", a, 4096, 0));
    ON("cuMemHostUnregister", C("cuMemHostUnregister", a));
    ON("cuCtxGetDevice", C("cuCtxGetDevice", &v));
}

/* Copies between memory of two kinds, of lengths within a page, of a page and beyond. */
static void of_pairs(const char *kinds, P to, P from, P s) {
    static const size_t lengths[] = {4096, 65536, M2 - 4096, M2, M2 + 1, 5 << 20};
    char q[120];
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        sprintf(q, "%s: cuMemcpyDtoDAsync of %zu", kinds, lengths[i]);
        N(q, C("cuMemcpyDtoDAsync_v2", to, from, lengths[i], s));
        sprintf(q, "%s: cuMemcpyAsync of %zu", kinds, lengths[i]);
        N(q, C("cuMemcpyAsync", to, from, lengths[i], s));
        sprintf(q, "%s: cuMemsetD8Async of %zu", kinds, lengths[i]);
        N(q, C("cuMemsetD8Async", to, 1, lengths[i], s));
    }
}

static P long_mapping(void) {
    P at = reserve(6 * M2);
    C("cuMemMap", at, 6 * M2, 0, handle(6 * M2), 0);
    grant(at, 6 * M2, 3);
    return at;
}

static P stitched(void) {
    P at = reserve(6 * M2);
    for (int i = 0; i < 6; i++) C("cuMemMap", at + i * M2, M2, 0, handle(M2), 0);
    grant(at, 6 * M2, 3);
    return at;
}

static void g_nowhere(void) {
    start();
    P s = stream(), t = stream(), o = 0, q = 0, e = event(), blocking_ = blocking();
    C("cuMemAllocAsync", &o, 5 << 20, s);
    C("cuMemAllocAsync", &q, 5 << 20, s);
    of_memory("cuMemAlloc", alloc(5 << 20), alloc(9 << 20), s);
    of_memory("cuMemAllocAsync", o, q, s);
    of_memory("a mapping", mapped(handle(M2)), mapped(handle(M2)), s);
    of_memory("one of each", alloc(5 << 20), o, s);
    of_memory("small", alloc(5000), alloc(4096), s);
    P odd = 0, twin = 0;
    C("cuMemAllocAsync", &odd, M2 + 1, 0);
    of_pairs("of one memory pool", o, q, s);
    of_pairs("to cuMemAlloc's from a memory pool", alloc(5 << 20), o, s);
    of_pairs("to a memory pool from cuMemAlloc's", o, alloc(5 << 20), s);
    of_pairs("of cuMemAlloc", alloc(5 << 20), alloc(5 << 20), s);
    of_pairs("of a mapping", long_mapping(), long_mapping(), s);
    of_pairs("of several mappings", stitched(), stitched(), s);
    of_pairs("to several mappings from one", stitched(), long_mapping(), s);
    of_pairs("to a mapping from cuMemAlloc's", long_mapping(), alloc(5 << 20), s);
    twin = alloc(5 << 20);
    N("of 2 MiB and a byte, to cuMemAlloc's from memory of a default stream", C("cuMemcpyDtoDAsync_v2", twin, odd, M2 + 1, s));
    N("the same on a stream that blocks", C("cuMemcpyDtoDAsync_v2", twin, odd, M2 + 1, blocking_));
    N("cuMemAllocAsync on a stream", C("cuMemAllocAsync", &q, 4096, s));
    N("cuMemFreeAsync of it", C("cuMemFreeAsync", q, s));
    N("cuMemFree of cuMemAlloc's", (q = 0, C("cuMemFree_v2", q)));
    N("cuStreamSynchronize", C("cuStreamSynchronize", s));
    N("cuStreamWaitEvent", (C("cuEventRecord", e, s), C("cuStreamWaitEvent", t, e, 0)));
    N("cuMemPoolTrimTo", (C("cuDeviceGetDefaultMemPool", &q, 0), C("cuMemPoolTrimTo", q, 0)));
    if (begin("cuMemAllocPitch of 400 GiB: the code, the address, the pitch; without a context; of no element")) {
        P a = 7, b = 7, c = 7, r = 7, u = 7, w = 7;
        int one = C("cuMemAllocPitch_v2", &a, &r, 1 << 20, 400 << 10, 4), two, three;
        leave();
        two = C("cuMemAllocPitch_v2", &b, &u, 1000, 300, 4);
        back();
        three = C("cuMemAllocPitch_v2", &c, &w, 1000, 300, 3);
        say("%d %lu %lu; %d %lu %lu; %d %lu %lu", one, a, r, two, b, u, three, c, w);
    }
    /* A copy to or from the host without a context, of memory on several handles. */
    {
        P host = 0, far = stitched();
        static char paged[5 << 20];
        C("cuMemAllocHost_v2", &host, 5 << 20);
        N("of several mappings: cuMemcpyHtoDAsync of 5 MiB", C("cuMemcpyHtoDAsync_v2", far, host, 5 << 20, s));
        N("of several mappings: cuMemcpyDtoHAsync of 5 MiB", C("cuMemcpyDtoHAsync_v2", host, far, 5 << 20, s));
        N("of several mappings: cuMemcpyAsync to it of 5 MiB", C("cuMemcpyAsync", far, host, 5 << 20, s));
        N("of several mappings: cuMemcpyHtoDAsync of 5 MiB of pages", C("cuMemcpyHtoDAsync_v2", far, paged, 5 << 20, s));
        N("of several mappings: cuMemcpyDtoHAsync of 5 MiB of pages", C("cuMemcpyDtoHAsync_v2", paged, far, 5 << 20, s));
        Rows rows = {{0, 0, 2, 0, far, 0, 1 << 20}, {0, 0, 2, 0, alloc(5 << 20), 0, 1 << 20}, 1 << 20, 4};
        N("of several mappings: cuMemcpy2DAsync of 4 MiB", C("cuMemcpy2DAsync_v2", &rows, s));
        P near = stitched(), plain = alloc(5 << 20);
        N("of several mappings: cuMemcpyPeerAsync of 5 MiB", C("cuMemcpyPeerAsync", plain, ctx, far, ctx, 5 << 20, s));
        N("to one of several from across two: cuMemcpyPeerAsync of 2 MiB", C("cuMemcpyPeerAsync", near, ctx, far + M2 / 2, ctx, M2, s));
        N("to across two from one of several: cuMemcpyPeerAsync of 2 MiB", C("cuMemcpyPeerAsync", near + M2 / 2, ctx, far, ctx, M2, s));
        N("to across two from across two: cuMemcpyPeerAsync of 2 MiB", C("cuMemcpyPeerAsync", near + M2 / 2, ctx, far + M2 / 2, ctx, M2, s));
        N("the same by cuMemcpyDtoDAsync", C("cuMemcpyDtoDAsync_v2", near + M2 / 2, far + M2 / 2, M2, s));
        N("of cuMemAlloc's to across two: cuMemcpyPeerAsync of 2 MiB", C("cuMemcpyPeerAsync", near + M2 / 2, ctx, plain, ctx, M2, s));
        N("to cuMemAlloc's from across two: cuMemcpyPeerAsync of 2 MiB", C("cuMemcpyPeerAsync", plain, ctx, far + M2 / 2, ctx, M2, s));
        N("within several mappings, to one from across two, overlapping: cuMemcpyPeerAsync of 2 MiB", C("cuMemcpyPeerAsync", far, ctx, far + M2 / 2, ctx, M2, s));
    }
    /* What is freed by cuMemFree and was stream-ordered: still used, by the pool's word? */
    if (begin("what a memory pool has used: with 8 MiB, freed by cuMemFree, after a wait, after one more allocation and its free in the order of a stream, after a trim")) {
        P pool, used[5] = {0};
        C("cuDeviceGetDefaultMemPool", &pool, 0);
        C("cuMemAllocAsync", &q, 8 << 20, s); C("cuCtxSynchronize");
        C("cuMemPoolGetAttribute", pool, 7, &used[0]);
        C("cuMemFree_v2", q); C("cuMemPoolGetAttribute", pool, 7, &used[1]);
        C("cuCtxSynchronize"); C("cuMemPoolGetAttribute", pool, 7, &used[2]);
        C("cuMemAllocAsync", &q, 4 << 20, s); C("cuMemFreeAsync", q, s); C("cuCtxSynchronize"); C("cuMemPoolGetAttribute", pool, 7, &used[3]);
        C("cuMemPoolTrimTo", pool, 0); C("cuMemPoolGetAttribute", pool, 7, &used[4]);
        say("%lu, %lu, %lu, %lu, %lu", used[0], used[1], used[2], used[3], used[4]);
    }
}
