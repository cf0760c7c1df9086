/* Virtual memory. */
static void g_mapping(void) {
    start();
    P r = reserve(8 * M2), h = handle(M2), b = handle(2 * M2), v = 0, v2 = 0, s = stream(); Acc a = {{1, 0}, 3}; uint64_t f = 9; int i; static char host[64];
    int attributes[] = {2, 3, 7, 9, 11, 12, 13, 16, 18};
    for (i = 0; i < 9; i++) { char q[80]; sprintf(q, "attribute %d of a reserved address", attributes[i]); if (begin(q)) { v = 77; int c = C("cuPointerGetAttribute", &v, attributes[i], r); say("%d%s", c, c ? "" : v == r ? ", the reservation" : v == 8 * M2 ? ", its length" : (int)v == 0 ? ", 0" : (int)v == 1 ? ", 1" : ", some"); } }
    Q("cuMemGetAddressRange of a reserved address", C("cuMemGetAddressRange_v2", &v, &v2, r));
    Q("cuMemGetAccess of a reserved address", C("cuMemGetAccess", &f, &a.l, r));
    C("cuMemMap", r, M2, 0, h, 0);
    for (i = 0; i < 9; i++) { char q[80]; sprintf(q, "attribute %d of a mapping without access", attributes[i]); if (begin(q)) { v = 77; int c = C("cuPointerGetAttribute", &v, attributes[i], r); say("%d%s", c, c ? "" : v == r ? ", the base" : v == 8 * M2 ? ", the reservation's length" : v == M2 ? ", its length" : (int)v == 0 ? ", 0" : (int)v == 1 ? ", 1" : ", some"); } }
    if (begin("cuMemGetAccess of a mapping without access")) { f = 9; int c = C("cuMemGetAccess", &f, &a.l, r); say("%d, %d", c, (int)f); }
    X("cuMemsetD8Async of a mapping without access", C("cuMemsetD8Async", r, 0, 16, s));
    X("cuMemcpyHtoDAsync of it", C("cuMemcpyHtoDAsync_v2", r, host, 16, s));
    grant(r, M2, 1);
    X("cuMemSetAccess for reading alone: cuMemsetD8Async", C("cuMemsetD8Async", r, 0, 16, s));
    X("cuMemSetAccess for reading alone: cuMemcpyHtoDAsync", C("cuMemcpyHtoDAsync_v2", r, host, 16, s));
    Q("cuMemSetAccess with flags 2", grant(r, M2, 2));
    Q("cuMemSetAccess with no descriptor", C("cuMemSetAccess", r, M2, &a, 0));
    Q("cuMemSetAccess of no bytes", C("cuMemSetAccess", r, 0, &a, 1));
    Q("cuMemSetAccess for the host (kind 2)", (a.l.type = 2, i = C("cuMemSetAccess", r, M2, &a, 1), a.l.type = 1, i));
    C("cuMemMap", r + 2 * M2, 2 * M2, 0, b, 0);
    Q("cuMemSetAccess of half a mapping", grant(r + 2 * M2, M2, 3));
    Q("cuMemSetAccess over a hole", grant(r, 4 * M2, 3));
    Q("cuMemGetAccess behind it: the first part was opened", (f = 9, C("cuMemGetAccess", &f, &a.l, r + 2 * M2) * 10 + (int)f));
    Q("cuMemUnmap over a hole", C("cuMemUnmap", r, 4 * M2));
    Q("cuMemUnmap of no bytes", C("cuMemUnmap", r, 0));
    Q("cuMemMap again with the rest there", C("cuMemMap", r, M2, 0, h, 0));
    Q("cuMemMap beyond the reservation", C("cuMemMap", r + 7 * M2, 2 * M2, 0, b, 0));
    Q("cuMemMap at an odd MiB", C("cuMemMap", r + 5 * M2 + M2 / 2, M2, 0, h, 0));
    Q("cuMemAddressFree with mappings inside", C("cuMemAddressFree", r, 8 * M2));
    Q("cuMemGetAddressRange there afterwards", C("cuMemGetAddressRange_v2", &v, &v2, r));
    Q("cuMemUnmap afterwards", C("cuMemUnmap", r, M2));
    P g = reserve(4 * M2); C("cuMemAddressFree", g, 4 * M2);
    if (begin("cuMemAddressReserve at an address that is free")) { v = 0; int c = C("cuMemAddressReserve", &v, 2 * M2, 0, g, 0); say("%d, %s", c, v == g ? "there" : "elsewhere"); }
    if (begin("the next right behind it")) { v2 = 0; int c = C("cuMemAddressReserve", &v2, 2 * M2, 0, v + 2 * M2, 0); say("%d, %s", c, v2 == v + 2 * M2 ? "there" : "elsewhere"); }
    if (v && v2 == v + 2 * M2) Q("cuMemMap across both", C("cuMemMap", v + M2, 2 * M2, 0, b, 0)); else if (begin("cuMemMap across both")) say("not asked");
    if (begin("cuMemAddressReserve with an alignment of 3 MiB; 4 KiB; 64 MiB: aligned")) { P x = 0, y = 0, z = 0; int c = C("cuMemAddressReserve", &x, M2, 3 << 20, 0, 0), d = C("cuMemAddressReserve", &y, M2, 4096, 0, 0), e = C("cuMemAddressReserve", &z, M2, 64 << 20, 0, 0); say("%d; %d; %d: %s", c, d, e, z % (64 << 20) ? "no" : "yes"); }
    Q("cuMemRelease of a handle, then cuMemRetainAllocationHandle of its mapping", (h = handle(M2), v = mapped(h), C("cuMemRelease", h), C("cuMemRetainAllocationHandle", &v2, v)));
    if (begin("the handle that it gives: the released one")) { h = handle(M2); v = mapped(h); C("cuMemRelease", h); C("cuMemRetainAllocationHandle", &v2, v); say("%s", v2 == h ? "yes" : "no"); }
    if (begin("a kernel's reach: unmap at once under 50 ms of work that touches nothing there")) { v = mapped(handle(M2)); busy(s, 50); int c = C("cuMemUnmap", v, M2); say("%d, then %d", c, C("cuStreamSynchronize", s)); }
    X("cuMemcpyDtoDAsync whose ends overlap", (v = alloc(1 << 20), C("cuMemcpyDtoDAsync_v2", v + 4096, v, 65536, s)));
    X("cuMemsetD8Async of freed memory of 64 MiB", (v = alloc(64 << 20), C("cuMemFree_v2", v), C("cuMemsetD8Async", v, 0, 16, s)));
    X("cuMemcpyHtoD to freed memory of 64 MiB", (v = alloc(64 << 20), C("cuMemFree_v2", v), C("cuMemcpyHtoD_v2", v, host, 16)));
    X("cuMemsetD8Async of a reserved address", (v = reserve(M2), C("cuMemsetD8Async", v, 0, 16, s)));
    X("cuMemsetD8Async beyond the end of 4 KiB", (v = alloc(4096), C("cuMemsetD8Async", v, 0, 4097, s)));
    X("cuMemcpyHtoDAsync beyond the end of 64 MiB, by 2 MiB", (v = alloc(64 << 20), C("cuMemcpyDtoDAsync_v2", v, v + (33 << 20), (31 << 20) + M2, s)));
}

/* Stream-ordered memory, and a graph's. */
static void g_pools(void) {
    start();
    P s = stream(), t = stream(), p, q, g = 0, x = 0, e = event(), pool; Acc a = {{2, 0}, 3}; P host = 0;
    C("cuDeviceGetDefaultMemPool", &pool, 0);
    Q("cuMemPoolSetAccess for the host (kind 2)", C("cuMemPoolSetAccess", pool, &a, 1));
    Q("cuMemPoolSetAccess with flags 2", (a.l.type = 1, a.flags = 2, C("cuMemPoolSetAccess", pool, &a, 1)));
    Q("cuMemPoolSetAccess of no descriptor", C("cuMemPoolSetAccess", pool, 0, 0));
    Q("cuMemPoolSetAttribute of what is used (7)", (q = 0, C("cuMemPoolSetAttribute", pool, 7, &q)));
    Q("cuMemPoolSetAttribute of the most used to 5", (q = 5, C("cuMemPoolSetAttribute", pool, 8, &q)));
    if (begin("freed on s, allocated on t at once, s busy: the same memory")) { C("cuMemAllocAsync", &p, 8 << 20, s); busy(s, 60); C("cuMemFreeAsync", p, s); C("cuMemAllocAsync", &q, 8 << 20, t); say("%s", p == q ? "yes" : "no"); C("cuCtxSynchronize"); C("cuMemFreeAsync", q, t); C("cuCtxSynchronize"); }
    if (begin("freed on s, allocated on s at once: the same memory")) { C("cuMemAllocAsync", &p, 8 << 20, s); busy(s, 20); C("cuMemFreeAsync", p, s); C("cuMemAllocAsync", &q, 8 << 20, s); say("%s", p == q ? "yes" : "no"); C("cuMemFreeAsync", q, s); C("cuCtxSynchronize"); }
    C("cuStreamBeginCapture_v2", s, 2); C("cuMemAllocAsync", &p, 4096, s); C("cuMemsetD8Async", p, 1, 16, s); C("cuStreamEndCapture", s, &g); int made = C("cuGraphInstantiateWithFlags", &x, g, 0);
    Q("a graph that allocates and frees not: instantiated", made);
    Q("launched", C("cuGraphLaunch", x, s));
    Q("launched again, its memory not freed", C("cuGraphLaunch", x, s));
    C("cuStreamSynchronize", s);
    Q("made executable a second time", C("cuGraphInstantiateWithFlags", &q, g, 0));
    Q("cuMemGetAddressRange of its memory", C("cuMemGetAddressRange_v2", &q, &host, p));
    Q("cuPointerGetAttribute of its memory", C("cuPointerGetAttribute", &q, 2, p));
    Q("cuMemFree of its memory", C("cuMemFree_v2", p));
    Q("cuMemFreeAsync of it, then", C("cuMemFreeAsync", p, s));
    Q("cuMemFreeAsync once more", C("cuMemFreeAsync", p, s));
    Q("launched after a free", C("cuGraphLaunch", x, s));
    Q("cuGraphExecDestroy with memory not freed", C("cuGraphExecDestroy", x));
    X("its memory after that: cuMemsetD8", C("cuMemsetD8_v2", p, 0, 16));
    Q("cuMemFreeAsync of plain memory, on a stream of another context", (p = alloc(4096), q = other(), C("cuCtxSetCurrent", q), t = stream(), C("cuCtxSetCurrent", ctx), C("cuMemFreeAsync", p, t)));
    Q("cuMemAllocAsync on a stream of another context: its device's pool", C("cuMemAllocAsync", &p, 4096, t));
}

/* Between two processes: the parent exports, we open. */
static int to_child[2], to_parent[2];
static void exporter(void) {
    start();
    P big = alloc(8 << 20), small = alloc(4096), gone = alloc(4 << 20); Ipc h[3]; char c;
    C("cuMemsetD8_v2", big, 7, 8 << 20); C("cuCtxSynchronize");
    C("cuIpcGetMemHandle", &h[0], big); C("cuIpcGetMemHandle", &h[1], small); C("cuIpcGetMemHandle", &h[2], gone);
    write(to_child[1], h, sizeof h);
    read(to_parent[0], &c, 1); /* "free that one" */
    C("cuMemFree_v2", gone); write(to_child[1], "x", 1);
    read(to_parent[0], &c, 1);
    _exit(0);
}
static void g_ipc(void) {
    pipe(to_child); pipe(to_parent);
    pid_t child = fork();
    if (!child) { close(to_child[0]); close(to_parent[1]); alarm(30); exporter(); }
    close(to_child[1]); close(to_parent[0]);
    Ipc h[3]; alarm(20);
    if (read(to_child[0], h, sizeof h) != sizeof h) { printf("no exporter\n"); exit(9); }
    start();
    int (*open_)(P *, Ipc, unsigned) = sym("cuIpcOpenMemHandle_v2");
    P a = 0, b = 0, c = 0, d = 0, o, s = stream(), v, g = 0; size_t n; int r; char host[16];
    if (begin("open twice: codes, the same address")) { r = open_(&a, h[0], 1); int k = open_(&b, h[0], 1); say("%d, %d, %s", r, k, a == b ? "yes" : "no"); } else { open_(&a, h[0], 1); open_(&b, h[0], 1); }
    if (begin("open in another context of the device: code, the same address")) { o = other(); C("cuCtxSetCurrent", o); r = open_(&c, h[0], 1); C("cuCtxSetCurrent", ctx); say("%d, %s", r, r ? "-" : a == c ? "yes" : "no"); C("cuCtxSetCurrent", o); if (!r) C("cuIpcCloseMemHandle", c); C("cuCtxSetCurrent", ctx); C("cuCtxDestroy_v2", o); }
    Q("open with flags 0", open_(&d, h[0], 0));
    if (begin("cuMemGetAddressRange of it: code, base is it, length")) { r = C("cuMemGetAddressRange_v2", &v, &n, a + 100); say("%d, %s, %zu", r, v == a ? "yes" : "no", n); }
    if (begin("its context attribute: code, the opening one")) { r = C("cuPointerGetAttribute", &v, 1, a); say("%d, %s", r, v == ctx ? "yes" : "no"); }
    Q("its legacy IPC attribute", (v = 0, C("cuPointerGetAttribute", &v, 10, a) * 10 + (int)v));
    Q("its RDMA attribute", (v = 0, C("cuPointerGetAttribute", &v, 15, a) * 10 + (int)v));
    Q("its decompress attribute", (v = 0, C("cuPointerGetAttribute", &v, 21, a) * 10 + (int)v));
    if (begin("its mapping size and block id")) { uint64_t z = 0; int k = C("cuPointerGetAttribute", &z, 18, a); v = 0; r = C("cuPointerGetAttribute", &v, 20, a); say("%d %llu, %d %s", k, (unsigned long long)z, r, v ? "some" : "0"); }
    Q("cuIpcGetMemHandle of it", C("cuIpcGetMemHandle", text, a));
    Q("cuMemFree of it", C("cuMemFree_v2", a));
    Q("cuMemFreeAsync of it", C("cuMemFreeAsync", a, s));
    Q("cuPointerSetAttribute SYNC_MEMOPS of it", (r = 1, C("cuPointerSetAttribute", &r, 6, a)));
    Q("cuIpcCloseMemHandle of an address inside", C("cuIpcCloseMemHandle", a + 512));
    Q("cuIpcCloseMemHandle, once", C("cuIpcCloseMemHandle", a));
    Q("it is there still: cuMemcpyDtoH", C("cuMemcpyDtoH_v2", host, a, 16));
    WAITS("cuIpcCloseMemHandle, the last, beside work", s, C("cuIpcCloseMemHandle", a));
    Q("cuIpcCloseMemHandle again", C("cuIpcCloseMemHandle", a));
    X("cuMemcpyDtoH afterwards", C("cuMemcpyDtoH_v2", host, a, 16));
    a = 0;
    if (begin("4 KiB: open, range, close")) { r = open_(&a, h[1], 1); int k = C("cuMemGetAddressRange_v2", &v, &n, a); say("%d, %d %s %zu, %d", r, k, v == a ? "itself" : "another base", n, C("cuIpcCloseMemHandle", a)); }
    if (begin("in a capture in global mode: open, end")) { C("cuStreamBeginCapture_v2", s, 0); r = open_(&d, h[0], 1); int k = C("cuStreamEndCapture", s, &g); say("%d, %d", r, k); if (!r) C("cuIpcCloseMemHandle", d); }
    if (begin("in a capture in global mode: close, end")) { open_(&d, h[0], 1); C("cuStreamBeginCapture_v2", s, 0); r = C("cuIpcCloseMemHandle", d); int k = C("cuStreamEndCapture", s, &g); say("%d, %d", r, k); if (r) C("cuIpcCloseMemHandle", d); }
    if (begin("relaxed around: close, end")) { open_(&d, h[0], 1); C("cuStreamBeginCapture_v2", s, 0); relaxed(2); r = C("cuIpcCloseMemHandle", d); relaxed(0); int k = C("cuStreamEndCapture", s, &g); say("%d, %d", r, k); if (r) C("cuIpcCloseMemHandle", d); }
    if (begin("opened in a context that is destroyed: close afterwards; opened again")) { o = other(); C("cuCtxSetCurrent", o); d = 0; r = open_(&d, h[0], 1); C("cuCtxSetCurrent", ctx); C("cuCtxDestroy_v2", o); int k = C("cuIpcCloseMemHandle", d), l = open_(&c, h[0], 1); say("%d, %d, %d", r, k, l); if (!l) C("cuIpcCloseMemHandle", c); }
    write(to_parent[1], "f", 1); read(to_child[0], host, 1);
    if (begin("open of memory that its process has freed")) say("%d", open_(&d, h[2], 1));
    if (begin("open without a context")) { C("cuCtxSetCurrent", 0); say("%d", open_(&d, h[0], 1)); C("cuCtxSetCurrent", ctx); }
    while (a && !C("cuIpcCloseMemHandle", a)) ;
    write(to_parent[1], "e", 1);
    waitpid(child, 0, 0);
    if (begin("open of memory of a process that has ended")) say("%d", open_(&d, h[1], 1));
}
