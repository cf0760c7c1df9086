/* What a real driver allows: each case must pass without a word. */
#include "common.h"
#include <pthread.h>

/* The neighbours of the planted misuse, with the order that makes them legal. */
static void order_by_event(void) { start(); S a = stream(), b = stream(); P p = alloc(4096); writes(a, p, 64); edge(a, b); writes(b, p, 64); edge(b, a); reads(a, p, 64); }
static void order_by_chain(void) {
    start(); S a = stream(), b = stream(), c = stream(); P p = alloc(4096); writes(a, p, 64); edge(a, b); edge(b, c); writes(c, p, 64);
}
static void order_by_synchronise(void) {
    start(); S a = stream(), b = stream(); P p = alloc(4096), e = event();
    writes(a, p, 64); OK(cuStreamSynchronize(a)); writes(b, p, 64); OK(cuEventRecord(e, b)); OK(cuEventSynchronize(e));
    writes(a, p, 64); OK(cuCtxSynchronize()); writes(b, p, 64);
}
static void order_by_query(void) {
    start(); S a = stream(), b = stream(); P p = alloc(4096), e = event(); writes(a, p, 64); OK(cuEventRecord(e, a));
    IS(600, cuEventQuery(e)); IS(600, cuStreamQuery(a));
    int polls = 0; while (cuEventQuery(e) == 600) polls++; /* the clock passes while it polls */
    TRUE(polls > 10 && polls < 1000); writes(b, p, 64); while (cuStreamQuery(b) == 600) {} writes(a, p, 64);
}
static void order_by_context_event(void) {
    start(); S a = stream(), b = stream(), c = stream(); P p = alloc(4096), e = event(); writes(a, p, 64); writes(b, p + 64, 64);
    OK(cuCtxRecordEvent(context, e)); OK(cuStreamWaitEvent(c, e, 0)); writes(c, p, 128);
}
/* Streams that are made afterwards wait, too, and so does the event of another context's work. */
static void order_by_context_wait(void) {
    start(); S a = stream(), b = stream(); P other, p = alloc(4096), e = event(); writes(a, p, 64); OK(cuEventRecord(e, a));
    OK(cuCtxWaitEvent(context, e)); writes(b, p, 64); OK(cuEventRecord(e, b)); OK(cuCtxWaitEvent(context, e)); writes(stream(), p, 64); OK(cuCtxSynchronize());
    OK(cuDevicePrimaryCtxRetain(&other, 1)); OK(cuCtxSetCurrent(other)); P q = alloc(64), f = event(); S c = stream(); writes(c, q, 64); OK(cuEventRecord(f, c));
    OK(cuCtxSetCurrent(context)); OK(cuCtxEnablePeerAccess(other, 0)); OK(cuCtxWaitEvent(context, f)); writes(PER_THREAD, q, 64); writes(LEGACY, p, 64);
}
/* A green context's streams are the primary one's, too; those of one that is gone answer nothing. */
static void order_by_whole_context(void) {
    start(); P g = green(), view, p = alloc(4096), e = event(); S a = stream(), b = green_stream(g); OK(cuCtxFromGreenCtx(&view, g));
    writes(a, p, 64); OK(cuEventRecord(e, a)); OK(cuCtxWaitEvent(context, e)); writes(b, p, 64); OK(cuCtxSynchronize());
    writes(a, p, 64); OK(cuEventRecord(e, a)); OK(cuCtxWaitEvent(context, e)); writes(green_stream(g), p, 64); OK(cuCtxRecordEvent(context, e)); OK(cuStreamWaitEvent(a, e, 0)); writes(a, p, 64);
    writes(b, p + 64, 64); OK(cuCtxSetCurrent(view)); OK(cuCtxSynchronize()); P own = alloc(64); OK(cuCtxSetCurrent(context)); writes(a, p + 64, 64);
    writes(b, p + 128, 64); OK(cuGreenCtxDestroy(g)); IS(917, cuStreamSynchronize(b)); IS(917, cuStreamQuery(b)); OK(cuStreamDestroy_v2(b)); IS(201, cuCtxSetCurrent(view));
    OK(cuCtxSynchronize()); writes(a, p + 128, 64); writes(a, own, 64);
}
/* What a stream waits for is behind its end, too, and before the context-wide event. */
static void order_by_destroyed_stream(void) {
    start(); P other, p = alloc(4096), e = event(); S a = stream(); OK(cuDevicePrimaryCtxRetain(&other, 1));
    writes(a, p, 64); OK(cuEventRecord(e, a)); OK(cuCtxSetCurrent(other)); S b = stream(); OK(cuStreamWaitEvent(b, e, 0)); OK(cuStreamDestroy_v2(b));
    P whole = event(); OK(cuCtxRecordEvent(other, whole)); OK(cuEventSynchronize(whole)); OK(cuCtxSetCurrent(context)); writes(stream(), p, 64);
}
static void order_by_legacy_stream(void) {
    start(); S b; OK(cuStreamCreate(&b, 0)); P p = alloc(4096); writes(b, p, 64); writes(LEGACY, p, 64); writes(b, p, 64); writes(0, p, 64); writes(PER_THREAD, p, 64);
}
static void order_by_free(void) { start(); S a = stream(); P p = alloc(4096); P q = alloc(4096); writes(a, q, 64); OK(cuMemFree_v2(p)); writes(stream(), q, 64); }
static void readers_side_by_side(void) { start(); P p = alloc(4096); S a = stream(), b = stream(); reads(a, p, 64); reads(b, p, 64); }
static void same_address_again(void) { start(); S s = stream(); P h = handle(PIECE), a = mapped(PIECE, h); writes(s, a, 64); writes(s, a, 64); reads(s, a, 64); }
static void alias_behind_edge(void) {
    start(); S s = stream(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h);
    writes(s, a, 64); edge(s, s); reads(s, b, 64); writes(s, b, 64); OK(cuStreamSynchronize(s)); writes(s, a, 64);
}
static void alias_behind_reader(void) {
    start(); S s = stream(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h); reads(s, a, 64); writes(s, b, 64);
}
/* What the host knows to be complete holds no address; nor does what runs through another one. */
static void unmapped_when_known(void) {
    start(); S a = stream(), b = stream(); P h = handle(PIECE), x = mapped(PIECE, h), y = mapped(PIECE, h), e = event();
    writes(a, x, 16); edge(a, b); writes(b, y, 16); OK(cuStreamSynchronize(b)); reads(b, y, 16); OK(cuMemUnmap(x, PIECE)); map(x, PIECE, h);
    reads(a, x, 16); OK(cuEventRecord(e, a)); reads(a, y, 16); while (cuEventQuery(e) == 600) {} grant(x, PIECE, 0); grant(x, PIECE, 3);
    for (int i = 0; i < 40; i++) { S s = stream(); reads(s, x + i, 16); OK(cuStreamDestroy_v2(s)); }
    OK(cuCtxSynchronize()); reads(b, y, 16); OK(cuMemUnmap(x, PIECE));
}
static void claims_in_order(void) {
    start(); S s = stream(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h);
    OK(cuSimClaim(a, 4096, s)); OK(cuSimClaim(b + 4096, 4096, s)); writes(s, a, 4096); writes(s, b + 4096, 4096);
    OK(cuSimRelease(a)); OK(cuSimClaim(a, 4096, s)); OK(cuSimRelease(a)); OK(cuStreamSynchronize(s)); OK(cuSimClaim(b, 4096, CU_SIM_ANY_STREAM));
}

/* Memory really is shared, and moves when its work completes. */
static void aliases_see_the_same_bytes(void) {
    start(); P h = handle(2 * PIECE), a = mapped(2 * PIECE, h), b = mapped(2 * PIECE, h); char got[4];
    OK(cuMemsetD8_v2(a + PIECE, 7, 4)); OK(cuCtxSynchronize()); OK(cuMemcpyDtoH_v2(got, b + PIECE, 4)); TRUE(got[0] == 7 && got[3] == 7);
    TRUE(*(char *)(b + PIECE) == 7);
}
static void bytes_move_at_completion(void) {
    start(); S s = stream(); P p = alloc(PIECE); OK(cuMemsetD8_v2(p, 1, 64)); OK(cuCtxSynchronize());
    OK(cuSimLaunch(s, 0, 0, 1000.0)); OK(cuMemsetD8Async(p, 2, 64, s)); TRUE(*(char *)p == 1);
    OK(cuStreamSynchronize(s)); TRUE(*(char *)p == 2);
    unsigned word[2]; OK(cuMemsetD32Async(p, 0x01020304, 2, s)); OK(cuStreamSynchronize(s)); OK(cuMemcpyDtoH_v2(word, p, 8)); TRUE(word[1] == 0x01020304);
}
static void staged_and_pinned_copies(void) {
    start(); S s = stream(); P p = alloc(64), q = alloc(64); char *pinned; OK(cuMemHostAlloc((void **)&pinned, 64, 0));
    char pageable[64]; memset(pageable, 3, 64); memset(pinned, 3, 64);
    OK(cuMemcpyAsync(p, (P)pageable, 64, s)); OK(cuMemcpyAsync(q, (P)pinned, 64, s)); memset(pageable, 4, 64); memset(pinned, 4, 64);
    OK(cuStreamSynchronize(s)); TRUE(*(char *)p == 3 && *(char *)q == 4);
}
static void stream_ordered_reuse(void) {
    start(); S s = stream(); P p, q; uint64_t used; P pool; OK(cuDeviceGetDefaultMemPool(&pool, 0));
    for (int i = 0; i < 100; i++) { OK(cuMemAllocAsync(&p, 4096, s)); writes(s, p, 4096); OK(cuMemFreeAsync(p, s)); }
    OK(cuMemAllocAsync(&q, 4096, s)); TRUE(p == q); OK(cuMemPoolGetAttribute(pool, 7, &used)); TRUE(used == 4096);
    OK(cuMemFreeAsync(q, s)); OK(cuStreamSynchronize(s)); OK(cuMemPoolGetAttribute(pool, 5, &used)); TRUE(used == 0);
    P plain = alloc(64); writes(s, plain, 64); OK(cuMemFreeAsync(plain, s)); OK(cuStreamSynchronize(s)); OK(cuSimCheckLeaks());
}
static void other_stream_gets_other_bytes(void) {
    start(); S s = stream(), t = stream(); P p, q; OK(cuMemAllocAsync(&p, 4096, s)); writes(s, p, 4096); OK(cuMemFreeAsync(p, s));
    OK(cuMemAllocAsync(&q, 4096, t)); TRUE(p != q); writes(t, q, 4096);
}
/* A word that one stream writes and another one waits for. */
static uint64_t *word(void) { void *at; OK(cuMemHostAlloc(&at, 64, 0)); memset(at, 0, 64); return at; }
static void order_by_value(void) {
    start(); S a = stream(), b = stream(); P p = alloc(4096), w = (P)word(); writes(a, p, 64);
    OK(cuStreamWriteValue64_v2(a, w, 7, 0)); OK(cuStreamWaitValue64_v2(b, w, 7, 0)); writes(b, p, 64);
    TRUE(*(uint64_t *)w == 0); OK(cuStreamSynchronize(b)); TRUE(*(uint64_t *)w == 7); OK(cuStreamSynchronize(a));
    OK(cuStreamWriteValue32_v2(a, w, 9, 0)); OK(cuStreamSynchronize(a)); TRUE(*(uint32_t *)w == 9);
    /* By their names before CUDA 11.7. */
    OK(cuStreamWriteValue32(a, w, 8, 0)); OK(cuStreamWaitValue32(a, w, 8, 0)); OK(cuStreamWriteValue64(a, w, 7, 0)); OK(cuStreamWaitValue64(a, w, 7, 0)); OK(cuStreamSynchronize(a)); TRUE(*(uint64_t *)w == 7);
    unsigned status = 7; uint64_t number = 7; OK(cuStreamGetCaptureInfo(a, &status, &number)); TRUE(status == 0); IS(1, cuStreamGetCaptureInfo(a, 0, 0));
    OK(cuStreamWriteValue64_v2(a, p, 3, 0)); OK(cuStreamWaitValue64_v2(a, p, 3, 1)); OK(cuStreamSynchronize(a)); TRUE(*(uint64_t *)p == 3);
}
static void *write_later(void *at) { usleep(20000); __atomic_store_n((uint64_t *)at, 5, __ATOMIC_RELEASE); return 0; }
static void held_by_a_value(void) {
    start(); S a = stream(), b = stream(), c = stream(); P p = alloc(4096), e = event(); uint64_t *w = word(); pthread_t other;
    OK(cuStreamWaitValue64_v2(a, (P)w, 5, 0)); OK(cuMemsetD8Async(p, 1, 64, a)); OK(cuEventRecord(e, a)); OK(cuStreamWaitEvent(b, e, 0));
    OK(cuMemsetD8Async(p + 64, 2, 64, b)); OK(cuStreamWaitValue64_v2(b, (P)w, 4, 0)); OK(cuSimAdvance(1000000000));
    IS(600, cuEventQuery(e)); IS(600, cuStreamQuery(b)); TRUE(*(char *)p != 1); writes(c, p + 128, 64); OK(cuStreamSynchronize(c));
    pthread_create(&other, 0, write_later, w); OK(cuStreamSynchronize(b)); TRUE(*(char *)p == 1 && *(char *)(p + 64) == 2);
    OK(cuEventQuery(e)); writes(c, p, 128); pthread_join(other, 0);
    /* By a stream of this process, which must be let to run meanwhile. */
    OK(cuStreamWaitValue64_v2(a, (P)w, 6, 1)); writes(c, p, 64); OK(cuStreamWriteValue64_v2(c, (P)w, 6, 0)); OK(cuStreamSynchronize(a)); OK(cuCtxSynchronize());
    /* As large, where numbers wrap; any of these bits; not all bits but these. */
    *w = 3; OK(cuStreamWaitValue64_v2(a, (P)w, -1, 0)); OK(cuStreamWaitValue64_v2(a, (P)w, 6, 2)); OK(cuStreamWaitValue64_v2(a, (P)w, ~4ull, 3)); OK(cuStreamSynchronize(a));
    OK(cuStreamWaitValue32_v2(b, (P)w, ~0u, 3)); OK(cuSimAdvance(1000000)); IS(600, cuStreamQuery(b));
}
/* Who waits for a value holds up nobody else. */
static void *waits_for(void *s) { OK(cuCtxSetCurrent(context)); OK(cuStreamSynchronize(s)); return 0; }
static void calls_beside_a_held_wait(void) {
    alarm(20); start(); S a = stream(), b = stream(); P p = alloc(64); uint64_t *w = word(); pthread_t t;
    OK(cuStreamWaitValue32_v2(a, (P)w, 1, 1)); OK(cuMemsetD8Async(p, 1, 64, a)); pthread_create(&t, 0, waits_for, a); usleep(50000);
    P q = alloc(64); writes(b, q, 64); OK(cuStreamSynchronize(b)); IS(600, cuStreamQuery(a)); *(uint32_t *)w = 1; pthread_join(t, 0); TRUE(*(char *)p == 1); writes(b, p, 64);
}
/* In a graph both act when it is launched, each time. */
static void captured_values(void) {
    start(); S a = stream(), b = stream(); P p = alloc(4096), g, x; uint64_t *w = word();
    OK(cuStreamBeginCapture_v2(a, 0)); OK(cuStreamWaitValue64_v2(a, (P)w, 1, 0)); OK(cuMemsetD8Async(p, 1, 64, a));
    OK(cuStreamWriteValue64_v2(a, (P)(w + 1), 7, 0)); OK(cuStreamEndCapture(a, &g)); OK(cuGraphInstantiateWithFlags(&x, g, 0));
    OK(cuSimAdvance(1000000)); TRUE(w[1] == 0); OK(cuStreamQuery(a));
    OK(cuGraphLaunch(x, a)); OK(cuSimAdvance(1000000)); IS(600, cuStreamQuery(a)); TRUE(w[1] == 0 && *(char *)p != 1);
    OK(cuStreamWaitValue64_v2(b, (P)(w + 1), 7, 0)); OK(cuStreamWriteValue64_v2(b, (P)w + 16, 3, 0));
    OK(cuSimAdvance(1000000)); IS(600, cuStreamQuery(b)); *w = 1; OK(cuStreamSynchronize(b)); TRUE(w[1] == 7 && w[2] == 3 && *(char *)p == 1);
    *w = w[1] = 0; OK(cuGraphLaunch(x, a)); OK(cuSimAdvance(1000000)); IS(600, cuStreamQuery(a)); *w = 1; OK(cuStreamSynchronize(a)); TRUE(w[1] == 7);
}
static int order_seen[3], order_count;
static void seen(void *which) { order_seen[order_count++] = (int)(intptr_t)which; }
static void host_functions_in_order(void) {
    start(); S s = stream(); for (intptr_t i = 0; i < 3; i++) { writes(s, alloc(64), 64); OK(cuLaunchHostFunc(s, seen, (void *)i)); }
    TRUE(order_count < 3); OK(cuStreamSynchronize(s)); TRUE(order_count == 3 && order_seen[0] == 0 && order_seen[2] == 2);
}
static void graphs(void) {
    start(); S s = stream(), t = stream(); P p = alloc(64), g, x; int state;
    OK(cuStreamBeginCapture_v2(s, 0)); OK(cuMemsetD8Async(p, 5, 64, s)); edge(s, t); writes(t, p, 64); edge(t, s);
    OK(cuStreamIsCapturing(s, &state)); TRUE(state == 1); OK(cuStreamEndCapture(s, &g)); OK(cuStreamIsCapturing(t, &state)); TRUE(state == 0);
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); TRUE(*(char *)p != 5);
    OK(cuGraphLaunch(x, s)); OK(cuGraphLaunch(x, s)); OK(cuStreamSynchronize(s)); TRUE(*(char *)p == 5); OK(cuGraphExecDestroy(x)); OK(cuGraphDestroy(g));
}
/* Each launch of an executable graph is behind its last one: also where that stands at a wait. */
static void graph_on_two_streams(void) {
    start(); S a = stream(), b = stream(), c = stream(); P p = alloc(4096), q = alloc(64), g, x; uint64_t *w = word();
    OK(cuStreamBeginCapture_v2(a, 0)); writes(a, p, 64); OK(cuMemsetD8Async(q, 3, 64, a)); OK(cuStreamEndCapture(a, &g)); OK(cuGraphInstantiateWithFlags(&x, g, 0));
    OK(cuGraphLaunch(x, a)); OK(cuGraphLaunch(x, b)); writes(b, p, 64); OK(cuGraphLaunch(x, b)); OK(cuGraphLaunch(x, c)); OK(cuStreamSynchronize(c)); writes(a, p, 64); OK(cuCtxSynchronize());
    OK(cuMemsetD8_v2(q, 1, 64)); OK(cuCtxSynchronize());
    OK(cuStreamWaitValue64_v2(a, (P)w, 1, 0)); OK(cuGraphLaunch(x, a)); OK(cuSimAdvance(1000000)); IS(600, cuStreamQuery(a)); TRUE(*(char *)q == 1);
    OK(cuGraphLaunch(x, b)); OK(cuSimAdvance(1000000)); IS(600, cuStreamQuery(b)); TRUE(*(char *)q == 1); *w = 1; OK(cuStreamSynchronize(a));
    OK(cuGraphLaunch(x, c)); OK(cuStreamSynchronize(c)); OK(cuStreamSynchronize(b)); TRUE(*(char *)q == 3); OK(cuGraphExecDestroy(x)); OK(cuGraphDestroy(g));
}
/* A graph reads pageable memory when it is launched. */
static void pageable_memory_of_graph(void) {
    start(); S s = stream(); P p = alloc(64), g, x; static char from[64]; memset(from, 1, 64);
    OK(cuStreamBeginCapture_v2(s, 0)); OK(cuMemcpyAsync(p, (P)from, 64, s)); OK(cuStreamEndCapture(s, &g)); OK(cuGraphInstantiateWithFlags(&x, g, 0)); memset(from, 2, 64);
    OK(cuGraphLaunch(x, s)); OK(cuStreamSynchronize(s)); TRUE(*(char *)p == 2); memset(from, 3, 64); OK(cuGraphLaunch(x, s)); OK(cuStreamSynchronize(s)); TRUE(*(char *)p == 3);
}
/* A branch of a graph is its stream's device's. */
static void graph_of_two_devices(void) {
    start(); P other, g, x; S s = stream(), t; OK(cuDevicePrimaryCtxRetain(&other, 1)); OK(cuCtxSetCurrent(other)); t = stream(); P q = alloc(4096), f = event(); OK(cuCtxSetCurrent(context)); P p = alloc(4096);
    OK(cuStreamBeginCapture_v2(s, 0)); writes(s, p, 16); edge(s, t); writes(t, q, 16); OK(cuEventRecord(f, t)); OK(cuStreamWaitEvent(s, f, 0)); OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuGraphLaunch(x, s)); OK(cuGraphLaunch(x, s)); OK(cuStreamSynchronize(s)); writes(t, q, 16); OK(cuCtxSetCurrent(other)); OK(cuCtxSynchronize());
}
/* Events within a capture order what they stand between, through aliases too; also of a graph in a graph. */
static void edges_in_graph(void) {
    start(); S s = stream(), t = stream(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h), g, x;
    OK(cuStreamBeginCapture_v2(s, 0)); writes(s, a, 64); edge(s, s); reads(s, b, 64); edge(s, t); writes(t, a, 64); edge(t, s); reads(s, b, 64); edge(s, t); edge(t, s); OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuGraphLaunch(x, s)); OK(cuStreamSynchronize(s));
    OK(cuStreamBeginCapture_v2(t, 0)); writes(t, a, 64); edge(t, t); OK(cuGraphLaunch(x, t)); edge(t, t); writes(t, a, 64); OK(cuStreamEndCapture(t, &g)); OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuGraphLaunch(x, s)); OK(cuStreamSynchronize(s));
}
/* Recorded and waited for by a graph: when it is launched, each time. */
static void external_events(void) {
    start(); S a = stream(), b = stream(), s; P p = alloc(4096), e = event(), f = event(), g, x; int state;
    OK(cuEventRecord(e, b)); OK(cuStreamBeginCapture_v2(a, 2)); OK(cuStreamWaitEvent(a, e, 1)); writes(a, p, 64); OK(cuEventRecordWithFlags(f, a, 1));
    OK(cuEventQuery(f)); OK(cuEventQuery(e)); OK(cuStreamWaitEvent(b, f, 0)); OK(cuStreamIsCapturing(b, &state)); TRUE(state == 0);
    OK(cuStreamEndCapture(a, &g)); OK(cuGraphInstantiateWithFlags(&x, g, 0));
    for (int i = 0; i < 3; i++) {
        writes(b, p, 64); OK(cuEventRecord(e, b)); OK(cuGraphLaunch(x, a)); IS(600, cuEventQuery(f));
        if (i) OK(cuEventSynchronize(f)); else OK(cuStreamWaitEvent(b, f, 0));
    }
    s = stream(); writes(s, p, 64); OK(cuStreamSynchronize(s));
    /* In the graph of a graph. What was destroyed is recorded and waited for no more. */
    P outer, y; OK(cuStreamBeginCapture_v2(s, 0)); OK(cuGraphLaunch(x, s)); OK(cuStreamEndCapture(s, &outer)); OK(cuGraphInstantiateWithFlags(&y, outer, 0));
    OK(cuGraphLaunch(y, s)); OK(cuEventSynchronize(f)); writes(b, p, 64); OK(cuCtxSynchronize()); OK(cuEventDestroy_v2(e)); OK(cuEventDestroy_v2(f)); OK(cuGraphLaunch(y, s));
}
static void peers(void) {
    start(); P other; OK(cuDevicePrimaryCtxRetain(&other, 1)); P p = alloc(64); OK(cuCtxSetCurrent(other)); OK(cuCtxEnablePeerAccess(context, 0));
    IS(704, cuCtxEnablePeerAccess(context, 0)); reads(0, p, 64);
    OK(cuCtxSetCurrent(context)); P at = mapped(PIECE, handle(PIECE)); Access both[2] = {{{1, 0}, 3}, {{1, 1}, 3}}; OK(cuMemSetAccess(at, PIECE, both, 2));
    OK(cuCtxSetCurrent(other)); writes(0, at, 64);
}
/* Nor where zeros were when it was given back. */
static void new_memory_is_not_zero(void) {
    start(); size_t sizes[] = {512, 5120, MIB, 2 * PIECE};
    for (int i = 0; i < 8; i++) {
        size_t n = sizes[i / 2]; char *p = (char *)alloc(n); TRUE(p[0] && p[n - 1]); OK(cuMemsetD8_v2((P)p, 0, n)); OK(cuMemFree_v2((P)p));
        P h = handle(2 * PIECE), at = mapped(2 * PIECE, h); p = (char *)at; TRUE(p[0] && p[PIECE] && p[2 * PIECE - 1]);
        OK(cuMemsetD8_v2(at, 0, 2 * PIECE)); OK(cuCtxSynchronize()); OK(cuMemUnmap(at, 2 * PIECE)); OK(cuMemRelease(h));
    }
}
static void everything_given_back(void) {
    start(); size_t before, after, total; OK(cuMemGetInfo_v2(&before, &total));
    P h = handle(4 * PIECE), at = mapped(4 * PIECE, h); OK(cuMemGetInfo_v2(&after, &total)); TRUE(before - after == 4 * PIECE);
    OK(cuMemRelease(h)); OK(cuMemGetInfo_v2(&after, &total)); TRUE(before - after == 4 * PIECE);
    OK(cuMemUnmap(at, 4 * PIECE)); OK(cuMemAddressFree(at, 4 * PIECE)); OK(cuMemGetInfo_v2(&after, &total)); TRUE(before == after);
    P p[1000]; for (int i = 0; i < 1000; i++) p[i] = alloc(1 + i * 777);
    for (int i = 0; i < 1000; i++) OK(cuMemFree_v2(p[(i * 7) % 1000]));
    OK(cuMemGetInfo_v2(&after, &total)); TRUE(before == after); OK(cuSimCheckLeaks());
}
static void clock_runs(void) {
    start(); uint64_t t0 = cuSimClock(); P h = handle(PIECE); uint64_t t1 = cuSimClock(); TRUE(t1 - t0 > 9000 && t1 - t0 < 13000);
    P at = mapped(PIECE, h); S s = stream(); uint64_t t2 = cuSimClock(); OK(cuSimLaunch(s, 0, 0, 50000.0)); P p = alloc(64);
    TRUE(cuSimClock() - t2 < 1000000); OK(cuMemFree_v2(p)); TRUE(cuSimClock() - t2 >= 50000000); OK(cuMemUnmap(at, PIECE));
    float ms; P a, b; OK(cuEventCreate(&a, 0)); OK(cuEventCreate(&b, 0)); OK(cuEventRecord(a, s)); OK(cuSimLaunch(s, 0, 0, 2000.0)); OK(cuEventRecord(b, s));
    OK(cuEventSynchronize(b)); OK(cuEventElapsedTime(&ms, a, b)); TRUE(ms > 1.99 && ms < 2.01);
}
static void opening_beside_copies(void) {
    start(); S s = stream(); P p = alloc(64 * MIB), h = handle(PIECE), more, t; char *pinned; OK(cuMemHostAlloc((void **)&pinned, 64 * MIB, 0));
    OK(cuMemcpyAsync((P)pinned, p, 64 * MIB, s)); t = cuSimClock(); mapped(PIECE, h); TRUE(cuSimClock() - t > 1057000); OK(cuStreamSynchronize(s));
    OK(cuMemcpyAsync((P)pinned, p, 64 * MIB, s)); t = cuSimClock(); more = alloc(PIECE); TRUE(cuSimClock() - t > 1057000); OK(cuStreamSynchronize(s));
    OK(cuSimLaunch(s, 0, 0, 5000.0)); OK(cuMemcpyAsync((P)pinned, p, 64 * MIB, s)); t = cuSimClock(); mapped(PIECE, h); TRUE(cuSimClock() - t < 100000); OK(cuStreamSynchronize(s));
    OK(cuMemcpyAsync(p, (P)pinned, 64 * MIB, s)); t = cuSimClock(); mapped(PIECE, h); TRUE(cuSimClock() - t < 100000); OK(cuStreamSynchronize(s));
    t = cuSimClock(); mapped(PIECE, h); OK(cuMemFree_v2(more)); TRUE(cuSimClock() - t < 200000);
}
static void many_allocations(void) {
    start(); static P p[100000]; S s = stream();
    for (int i = 0; i < 100000; i++) { OK(cuMemAlloc_v2(&p[i], 1 + i % 9000)); writes(s, p[i], 1); }
    for (int i = 0; i < 100000; i++) OK(cuMemFree_v2(p[(i * 77777L) % 100000]));
    OK(cuSimCheckLeaks());
}

static void *busy(void *seed) {
    unsigned n = (unsigned)(intptr_t)seed; OK(cuCtxSetCurrent(context)); S s = stream(); P e = event();
    for (int i = 0; i < 300; i++) {
        size_t bytes = 1 + rand_r(&n) % (i % 50 ? 64 << 10 : 3 * MIB); P p = alloc(bytes), q; OK(cuMemAllocAsync(&q, bytes, s)); OK(cuSimClaim(p, bytes, s)); OK(cuSimClaim(q, bytes, s));
        writes(s, p, bytes); OK(cuMemcpyDtoDAsync_v2(q, p, bytes, s)); OK(cuEventRecord(e, s)); OK(cuStreamWaitEvent(PER_THREAD, e, 0)); reads(PER_THREAD, q, bytes);
        if (i % 3) OK(cuStreamSynchronize(PER_THREAD)); else { OK(cuEventRecord(e, PER_THREAD)); OK(cuStreamWaitEvent(s, e, 0)); }
        OK(cuSimRelease(q)); OK(cuMemFreeAsync(q, s)); OK(cuSimRelease(p)); OK(cuMemFree_v2(p));
    }
    OK(cuStreamSynchronize(s)); OK(cuStreamDestroy_v2(s)); return 0;
}
static void many_threads(void) {
    start(); pthread_t t[8]; for (intptr_t i = 0; i < 8; i++) pthread_create(&t[i], 0, busy, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
    P pool; OK(cuDeviceGetDefaultMemPool(&pool, 0)); OK(cuMemPoolTrimTo(pool, 0)); OK(cuSimCheckLeaks());
}
static void claim_behind_legacy_stream(void) { start(); S b; OK(cuStreamCreate(&b, 0)); P p = alloc(4096); writes(LEGACY, p, 64); OK(cuSimClaim(p, 4096, b)); }

static void more_mappings_than_the_kernel_grants(void) {
    /* Every other granule stays unmapped, so that neighbours cannot be joined. */
    start(); enum { COUNT = 70000 }; P h = handle(PIECE), at = reserve((size_t)COUNT * 2 * PIECE); unsigned got; P last = at + (P)(COUNT - 1) * 2 * PIECE;
    for (P i = 0; i < COUNT; i++) map(at + i * 2 * PIECE, PIECE, h);
    OK(cuMemsetD32Async(last + 64, 77, 4, LEGACY)); OK(cuCtxSynchronize()); OK(cuMemcpyDtoH_v2(&got, at + 72, 4)); TRUE(got == 77); OK(cuMemcpyDtoH_v2(&got, last + 76, 4)); TRUE(got == 77);
}

/* Rows of a part of a block, slices of a part, and nothing beside them. */
static void rows_and_slices(void) {
    start(); unsigned char host[4 * 5 * 6], back[2 * 3 * 2]; P p = alloc(64 * 5 * 6); S s = stream();
    for (int i = 0; i < 120; i++) host[i] = i;
    OK(cuMemsetD8_v2(p, 0xEE, 64 * 30));
    Copy3D up = {.from = {.kind = 1, .host = host, .pitch = 4, .height = 5}, .to = {.kind = 2, .device = p, .pitch = 64, .height = 5}, .width = 4, .height = 5, .depth = 6};
    OK(cuMemcpy3D_v2(&up)); unsigned char *seen = (unsigned char *)p; TRUE(seen[64 * 29 + 3] == 119 && seen[64 * 29 + 4] == 0xEE);
    Copy3D down = {.from = {.x = 1, .y = 2, .z = 3, .kind = 4, .device = p, .pitch = 64, .height = 5}, .to = {.kind = 4, .device = (P)back}, .width = 2, .height = 3, .depth = 2};
    OK(cuMemcpy3D_v2(&down)); TRUE(back[0] == 3 * 20 + 2 * 4 + 1 && back[11] == 4 * 20 + 4 * 4 + 2);
    Copy2D row = {.from = {.kind = 1, .host = host, .pitch = 8}, .to = {.kind = 2, .device = p, .pitch = 64}, .width = 8, .height = 3};
    OK(cuMemcpy2DAsync_v2(&row, s)); memset(host, 0, 24); OK(cuStreamSynchronize(s)); TRUE(seen[64 * 2 + 7] == 23); /* staged */
    row.to.pitch = 7; IS(1, cuMemcpy2D_v2(&row)); row.to.pitch = 64; row.to.kind = 3; IS(1, cuMemcpy2D_v2(&row)); row.to.kind = 5; IS(1, cuMemcpy2D_v2(&row));
    OK(cuMemsetD2D16_v2(p, 64, 0x0102, 3, 2)); OK(cuCtxSynchronize()); TRUE(seen[64] == 2 && seen[69] == 1 && seen[70] == 14);
}

static const Case cases[] = {
    CASE(more_mappings_than_the_kernel_grants),
    CASE(many_threads), CASE(claim_behind_legacy_stream),
    CASE(order_by_event), CASE(order_by_chain), CASE(order_by_synchronise), CASE(order_by_query), CASE(order_by_context_event), CASE(order_by_context_wait), CASE(order_by_whole_context), CASE(order_by_value), CASE(held_by_a_value), CASE(calls_beside_a_held_wait), CASE(captured_values), CASE(order_by_destroyed_stream),
    CASE(order_by_legacy_stream), CASE(order_by_free), CASE(readers_side_by_side), CASE(same_address_again), CASE(alias_behind_edge),
    CASE(alias_behind_reader), CASE(unmapped_when_known), CASE(claims_in_order), CASE(aliases_see_the_same_bytes), CASE(bytes_move_at_completion), CASE(staged_and_pinned_copies),
    CASE(stream_ordered_reuse), CASE(other_stream_gets_other_bytes), CASE(host_functions_in_order), CASE(graphs), CASE(graph_on_two_streams), CASE(pageable_memory_of_graph), CASE(graph_of_two_devices), CASE(edges_in_graph), CASE(external_events), CASE(peers),
    CASE(rows_and_slices), CASE(new_memory_is_not_zero), CASE(everything_given_back), CASE(clock_runs), CASE(opening_beside_copies), CASE(many_allocations),
};
MAIN(cases)
