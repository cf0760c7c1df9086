/* Two devices: what a context is told of the other's memory, who may reach whom after a reset, fills and copies in a graph
 * that name the other's context, and copies between them without a current context; access to what is left of a handle's mappings. */
enum { PLAIN_, SMALL_, ORDERED_, ONE_HANDLE, TWO_HANDLES, KINDS_ };
static const char *const kinds_[] = {"cuMemAlloc", "4 KiB of cuMemAlloc", "cuMemAllocAsync", "a mapping", "two mappings"};
static char text_[5 << 20];
static P context_of[2], stream_of[2], memory_of[2][KINDS_];

/* 12 MiB of one handle or two; what is asked of them, at most 5 MiB, lies on the first. */
static P mapped_on(int device, int handles) {
    Prop p = {1, 1, {1, device}, 0, {0}};
    Acc a = {{1, device}, 3};
    P at = reserve(6 * M2), h = 0;
    for (int i = 0; i < handles; i++) {
        C("cuMemCreate", &h, 6 * M2 / handles, &p, 0);
        C("cuMemMap", at + i * (6 * M2 / handles), 6 * M2 / handles, 0, h, 0);
    }
    C("cuMemSetAccess", at, 6 * M2, &a, 1);
    return at;
}
static void get_all(int d) {
    P *m = memory_of[d];
    C("cuCtxSetCurrent", context_of[d]);
    stream_of[d] = stream();
    m[PLAIN_] = alloc(5 << 20);
    m[SMALL_] = alloc(4096);
    C("cuMemAllocAsync", &m[ORDERED_], 5 << 20, stream_of[d]);
    m[ONE_HANDLE] = mapped_on(d, 1);
    m[TWO_HANDLES] = mapped_on(d, 2);
    C("cuCtxSynchronize");
}
static void ranges_seen(const char *when) {
    char q[160];
    for (int c = 0; c < 2; c++)
        for (int d = 0; d < 2; d++) {
            sprintf(q, "%s, cuMemGetAddressRange from %d of memory of %d: both, the base, the length, of the last byte", when, c, d);
            C("cuCtxSetCurrent", context_of[c]);
            if (!begin(q)) continue;
            char said[400] = "";
            for (int k = 0; k < KINDS_; k++) {
                P at = memory_of[d][k], base, n;
                int both = C("cuMemGetAddressRange_v2", &base, &n, at), one = C("cuMemGetAddressRange_v2", &base, 0, at);
                int other_ = C("cuMemGetAddressRange_v2", 0, &n, at);
                int last = C("cuMemGetAddressRange_v2", &base, &n, at + (k == SMALL_ ? 4095 : (5 << 20) - 1));
                sprintf(said + strlen(said), "%s %d %d %d %d%s", kinds_[k], both, one, other_, last, k + 1 < KINDS_ ? "; " : "");
            }
            say("%s", said);
        }
}
/* A fill or a copy in a graph of its own: added, made ready, begun, waited for. */
static void in_graph(const char *what, int (*add)(P graph, P at, P other, P named), int d, int kind, int named) {
    char q[200];
    P g = 0, x = 0, at = memory_of[d][kind], there = memory_of[!d][kind], name = named < 0 ? 0 : context_of[named];
    sprintf(q, "%s of %s of %d, the context of %d named: added, made ready, begun, over", what, kinds_[kind], d, named);
    C("cuCtxSetCurrent", context_of[0]);
    if (!begin(q)) return;
    C("cuGraphCreate", &g, 0);
    int added = add(g, at, there, name), ready = -1, begun = -1, over = -1;
    if (!added) ready = C("cuGraphInstantiateWithFlags", &x, g, 0L);
    if (!added && !ready) begun = C("cuGraphLaunch", x, stream_of[0]), over = C("cuStreamSynchronize", stream_of[0]);
    say("%d, %d, %d, %d", added, ready, begun, over);
    if (over > 0) _exit(8);
}
static int add_fill(P graph, P at, P unused, P named) {
    struct { P at; size_t pitch; unsigned value, element; size_t width, rows; } fill = {at, 0, 7, 4, 256, 1};
    P node = 0;
    (void)unused;
    return C("cuGraphAddMemsetNode", &node, graph, 0, 0, &fill, named);
}
static int add_copy(P graph, P at, P other, P named) {
    Planes planes = {{0, 0, 0, 0, 2, 0, at, 0, 0, 4096, 1}, {0, 0, 0, 0, 2, 0, other, 0, 0, 4096, 1}, 4096, 1, 1};
    P node = 0;
    return C("cuGraphAddMemcpyNode", &node, graph, 0, 0, &planes, named);
}
static void graphs_across(void) {
    for (int d = 0; d < 2; d++)
        for (int kind = 0; kind < KINDS_; kind++)
            for (int named = -1; named < 2; named++) {
                in_graph("a fill", add_fill, d, kind, named);
                in_graph("a copy to the other", add_copy, d, kind, named);
            }
}
static void nowhere_across(void) {
    static const size_t lengths[] = {4096, 5 << 20};
    char q[200];
    for (int kind = 0; kind < KINDS_; kind++)
        for (int l = 0; l < 2; l++) {
            P a = memory_of[0][kind], b = memory_of[1][kind], s = stream_of[0];
            size_t n = lengths[l];
            if (kind == SMALL_ && l) continue;
#define ACROSS(name, ...) do { sprintf(q, "%s: %s, %zu bytes on 0's stream", kinds_[kind], name, n); N(q, __VA_ARGS__); } while (0)
            ACROSS("cuMemcpyDtoDAsync to 1", C("cuMemcpyDtoDAsync_v2", b, a, n, s));
            ACROSS("cuMemcpyDtoDAsync from 1", C("cuMemcpyDtoDAsync_v2", a, b, n, s));
            ACROSS("cuMemcpyAsync to 1", C("cuMemcpyAsync", b, a, n, s));
            ACROSS("cuMemcpyPeerAsync to 1", C("cuMemcpyPeerAsync", b, context_of[1], a, context_of[0], n, s));
            ACROSS("cuMemcpyPeerAsync from 1", C("cuMemcpyPeerAsync", a, context_of[0], b, context_of[1], n, s));
            ACROSS("cuMemcpyPeerAsync within 1", C("cuMemcpyPeerAsync", b, context_of[1], b + n / 2, context_of[1], n / 2, s));
            ACROSS("cuMemsetD8Async of 1's", C("cuMemsetD8Async", b, 1, n, s));
            ACROSS("cuMemcpyDtoHAsync of 1's", C("cuMemcpyDtoHAsync_v2", text_, b, n, s));
        }
}
/* Who may reach whom, in turn, with memory there. */
static void reached(const char *when) {
    char q[160];
    for (int c = 0; c < 2; c++) {
        sprintf(q, "%s, from %d: enabled, again, disabled, again", when, c);
        C("cuCtxSetCurrent", context_of[c]);
        if (!begin(q)) continue;
        P to = context_of[!c];
        int one = C("cuCtxEnablePeerAccess", to, 0), two = C("cuCtxEnablePeerAccess", to, 0);
        int three = C("cuCtxDisablePeerAccess", to), four = C("cuCtxDisablePeerAccess", to);
        say("%d %d %d %d", one, two, three, four);
    }
}
static int have_two(void) {
    start();
    context_of[0] = ctx;
    if (C("cuDevicePrimaryCtxRetain", &context_of[1], 1)) return 0;
    for (int d = 0; d < 2; d++) get_all(d);
    return 1;
}
static void g_devices(void) {
    if (!have_two()) return;
    ranges_seen("at first");
    reached("at first");
    ranges_seen("after that");
    graphs_across();
    C("cuCtxSetCurrent", context_of[0]);
    C("cuCtxEnablePeerAccess", context_of[1], 0);
    ranges_seen("0 reaches 1");
}
static void g_across(void) {
    if (!have_two()) return;
    C("cuCtxSetCurrent", context_of[0]);
    nowhere_across();
}
static void g_resets(void) {
    if (!have_two()) return;
    for (int d = 0; d < 2; d++)
        for (int way = 0; way < 2; way++) {
            char when[60];
            C("cuCtxSetCurrent", context_of[d]);
            C("cuCtxSynchronize");
            C("cuDevicePrimaryCtxReset_v2", d);
            if (way) C("cuDevicePrimaryCtxRetain", &context_of[d], d);
            get_all(d);
            sprintf(when, "after a reset of %d%s", d, way ? " and a retain" : "");
            ranges_seen(when);
            reached(when);
        }
}
/* Who is let into what is left of a handle's mappings, once one of them went. */
static P shown(P h, size_t n) {
    P at = reserve(n);
    C("cuMemMap", at, n, 0, h, 0);
    grant(at, n, 3);
    return at;
}
static int let_in(P at, size_t n) {
    Acc a = {{1, 1}, 3};
    return C("cuMemSetAccess", at, n, &a, 1);
}
static void g_torn(void) {
    start();
    if (C("cuDevicePrimaryCtxRetain", &context_of[1], 1)) return;
    for (size_t n = M2; n <= 6 * M2; n += 4 * M2) {
        char q[160];
        P h = handle(n), first = shown(h, n), second = shown(h, n), third = shown(h, n);
        sprintf(q, "a handle of %zu at three places: the other device let into each; the third gone: into both", n);
        if (begin(q)) {
            int a = let_in(first, n), b = let_in(second, n), c = let_in(third, n);
            C("cuMemUnmap", third, n);
            say("%d %d %d; %d %d", a, b, c, let_in(first, n), let_in(second, n));
        }
        h = handle(n), first = shown(h, n), second = shown(h, n), third = shown(h, n);
        sprintf(q, "of %zu, the third gone: into both; the first gone: into the second; mapped anew: into both", n);
        if (begin(q)) {
            C("cuMemUnmap", third, n);
            int a = let_in(first, n), b = let_in(second, n);
            C("cuMemUnmap", first, n);
            int c = let_in(second, n);
            first = shown(h, n);
            say("%d %d; %d; %d %d", a, b, c, let_in(first, n), let_in(second, n));
        }
        h = handle(n), first = shown(h, n), second = shown(h, n);
        sprintf(q, "of %zu, the first gone before anybody was let in: into the second; mapped anew: into both; all gone, mapped anew", n);
        if (begin(q)) {
            C("cuMemUnmap", first, n);
            int a = let_in(second, n);
            first = shown(h, n);
            int b = let_in(first, n), c = let_in(second, n);
            C("cuMemUnmap", first, n);
            C("cuMemUnmap", second, n);
            first = shown(h, n);
            say("%d; %d %d; %d", a, b, c, let_in(first, n));
        }
        h = handle(n), first = shown(h, n);
        sprintf(q, "of %zu at one place, gone, and at another one: into that", n);
        if (begin(q)) {
            C("cuMemUnmap", first, n);
            first = shown(h, n);
            say("%d", let_in(first, n));
        }
        h = handle(n), first = shown(h, n), second = shown(h, n);
        sprintf(q, "of %zu, the first gone, by both at once: into the second", n);
        if (begin(q)) {
            Acc both[2] = {{{1, 0}, 3}, {{1, 1}, 3}};
            C("cuMemUnmap", first, n);
            say("%d", C("cuMemSetAccess", second, n, both, 2));
        }
    }
}
