/* Planted misuse: each case must end the program. */
#include "common.h"
#include <pthread.h>

static void touch_reserved(void) { start(); writes(0, reserve(PIECE), 16); }
static void touch_nothing(void) { start(); writes(0, 0x1000, 16); }
static void touch_no_access(void) {
    start(); P at = reserve(PIECE); OK(cuMemMap(at, PIECE, 0, handle(PIECE), 0)); reads(0, at, 16);
}
static void write_read_only(void) {
    start(); P at = reserve(PIECE); OK(cuMemMap(at, PIECE, 0, handle(PIECE), 0)); grant(at, PIECE, 1);
    reads(0, at, 16); OK(cuCtxSynchronize()); writes(0, at, 16);
}
static void touch_unmapped(void) {
    start(); P at = mapped(PIECE, handle(PIECE)); writes(0, at, 16); OK(cuCtxSynchronize()); OK(cuMemUnmap(at, PIECE)); writes(0, at, 16);
}
static void touch_beyond_end(void) { start(); P p = alloc(1024); writes(0, p, 1025); }
static void touch_across_hole(void) {
    start(); P at = reserve(3 * PIECE); map(at, PIECE, handle(PIECE)); map(at + 2 * PIECE, PIECE, handle(PIECE)); reads(0, at, 3 * PIECE);
}
static void touch_freed(void) { start(); P p = alloc(4096); OK(cuMemFree_v2(p)); writes(0, p, 16); }
static void memset_freed(void) { start(); P p = alloc(4096); OK(cuMemFree_v2(p)); cuMemsetD8Async(p, 0, 16, 0); }
static void copy_from_freed(void) { start(); P p = alloc(4096), q = alloc(4096); OK(cuMemFree_v2(p)); cuMemcpyDtoDAsync_v2(q, p, 16, 0); }
static void copy_to_freed(void) { start(); P p = alloc(4096); char c[16] = {0}; OK(cuMemFree_v2(p)); cuMemcpyHtoD_v2(p, c, 16); }
static void touch_freed_in_order(void) {
    start(); S s = stream(); P p; OK(cuMemAllocAsync(&p, 4096, s)); writes(s, p, 16); OK(cuMemFreeAsync(p, s)); writes(s, p, 16);
}
static void touch_freed_plain_in_order(void) {
    start(); S s = stream(); P p = alloc(4096); writes(s, p, 16); OK(cuMemFreeAsync(p, s)); writes(s, p, 16);
}
static void free_in_order_under_other_stream(void) {
    start(); S s = stream(), t = stream(); P p; OK(cuMemAllocAsync(&p, 4096, s)); edge(s, t); writes(t, p, 16); cuMemFreeAsync(p, s);
}
static void free_pool_memory_in_use(void) { start(); S s = stream(); P p; OK(cuMemAllocAsync(&p, 4096, s)); writes(s, p, 16); cuMemFree_v2(p); }
static void free_under_another_context(void) {
    start(); P p = alloc(4096), other; OK(cuCtxCreate_v2(&other, 0, 0)); writes(stream(), p, 16); OK(cuCtxSetCurrent(context)); cuMemFree_v2(p);
}
static void unmap_in_use(void) { start(); P at = mapped(PIECE, handle(PIECE)); reads(stream(), at, 16); cuMemUnmap(at, PIECE); }
static void unmap_late_by_the_clock_only(void) {
    /* The kernel is over by the clock, but nothing told the host so. */
    start(); P at = mapped(PIECE, handle(PIECE)); writes(stream(), at, 16); OK(cuSimAdvance(1000000000)); cuMemUnmap(at, PIECE);
}
/* It is not over while another thread still waits for it. */
static void *waits_for(void *s) { OK(cuCtxSetCurrent(context)); OK(cuStreamSynchronize(s)); return 0; }
static void unmap_under_a_wait(void) {
    setenv("MEMCUDA_SIM_CLOCK", "real", 1); start(); S s = stream(); P at = mapped(PIECE, handle(PIECE)); CUsimRange r = {at, 16, 1}; pthread_t t;
    OK(cuSimLaunch(s, &r, 1, 2000000.0)); pthread_create(&t, 0, waits_for, s); usleep(100000); cuMemUnmap(at, PIECE);
}
static void take_access_in_use(void) {
    start(); P at = mapped(PIECE, handle(PIECE)); writes(stream(), at, 16); Access a = {{1, 0}, 0}; cuMemSetAccess(at, PIECE, &a, 1);
}
/* A later use through another address takes none away: an ordered write, a read on the same stream. */
static void unmap_under_ordered_alias(void) {
    start(); S a = stream(), b = stream(); P h = handle(PIECE), x = mapped(PIECE, h), y = mapped(PIECE, h); writes(a, x, 16); edge(a, b); writes(b, y, 16); cuMemUnmap(x, PIECE);
}
static void unmap_under_second_reader(void) { start(); S s = stream(); P h = handle(PIECE), x = mapped(PIECE, h), y = mapped(PIECE, h); reads(s, x, 16); reads(s, y, 16); cuMemUnmap(x, PIECE); }
static void unmap_under_one_of_many(void) {
    start(); S s = stream(); P h = handle(PIECE), x = mapped(PIECE, h), y = mapped(PIECE, h), p = alloc(64); reads(s, x, 16); reads(s, y, 16);
    for (int i = 0; i < 40; i++) { S t = stream(); reads(t, x + 64, 16); writes(t, p, 16); OK(cuStreamSynchronize(t)); }
    cuMemUnmap(x, PIECE);
}
static void take_access_under_ordered_alias(void) {
    start(); S a = stream(), b = stream(); P h = handle(PIECE), x = mapped(PIECE, h), y = mapped(PIECE, h); writes(a, x, 16); edge(a, b); writes(b, y, 16);
    Access n = {{1, 0}, 0}; cuMemSetAccess(x, PIECE, &n, 1);
}
static void free_address_of_mapping(void) { start(); P at = mapped(PIECE, handle(PIECE)); cuMemAddressFree(at, PIECE); }

static void race_write_write(void) { start(); P p = alloc(4096); writes(stream(), p, 16); writes(stream(), p + 8, 16); }
static void race_write_read(void) { start(); P p = alloc(4096); writes(stream(), p, 16); reads(stream(), p, 16); }
static void race_read_write(void) { start(); P p = alloc(4096); reads(stream(), p, 16); writes(stream(), p, 16); }
static void race_second_reader(void) {
    start(); S a = stream(), b = stream(), c = stream(); P p = alloc(4096); reads(a, p, 4096); reads(b, p + 64, 64); edge(a, c); writes(c, p, 4096);
}
static void race_memset(void) { start(); P p = alloc(4096); writes(stream(), p, 16); cuMemsetD8Async(p, 1, 16, stream()); }
static void race_copy_of_rows(void) {
    start(); P p = alloc(4096), q = alloc(4096); writes(stream(), p + 100, 1);
    Copy2D rows = {.from = {.kind = 2, .device = p, .pitch = 64}, .to = {.kind = 2, .device = q, .pitch = 64}, .width = 40, .height = 3}; cuMemcpy2DAsync_v2(&rows, stream());
}
static void race_copy_source(void) { start(); P p = alloc(4096), q = alloc(4096); writes(stream(), p, 16); cuMemcpyDtoDAsync_v2(q, p, 16, stream()); }
static void race_through_alias(void) {
    start(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h); writes(stream(), a + 4096, 16); writes(stream(), b + 4096, 16);
}
static void race_legacy_and_non_blocking(void) { start(); P p = alloc(4096); writes(LEGACY, p, 16); writes(stream(), p, 16); }
static void race_event_too_early(void) {
    start(); S a = stream(), b = stream(); P p = alloc(4096), e = event();
    OK(cuEventRecord(e, a)); writes(a, p, 16); OK(cuStreamWaitEvent(b, e, 0)); writes(b, p, 16);
}
/* The wait puts nobody behind what was queued elsewhere before it. */
static void race_with_work_before_context_wait(void) {
    start(); S a = stream(), b = stream(); P p = alloc(4096), q = alloc(4096), e = event(); writes(a, p, 16); OK(cuEventRecord(e, a)); writes(b, q, 16); OK(cuCtxWaitEvent(context, e)); writes(b, p, 16);
    cuMemsetD8Async(q, 1, 16, a);
}
static void race_in_context_that_waits_not(void) {
    start(); P other, p = alloc(4096), e = event(); S a = stream(); OK(cuDevicePrimaryCtxRetain(&other, 1)); writes(a, p, 16); OK(cuEventRecord(e, a));
    OK(cuCtxWaitEvent(context, e)); OK(cuCtxSetCurrent(other)); OK(cuCtxEnablePeerAccess(context, 0)); writes(stream(), p, 16);
}
static void race_behind_green_context(void) {
    start(); P g = green(), view, p = alloc(4096); S a = stream(); OK(cuCtxFromGreenCtx(&view, g)); writes(a, p, 16); OK(cuCtxSetCurrent(view)); OK(cuCtxSynchronize()); writes(green_stream(g), p, 16);
}
static void race_after_green_context(void) { start(); P g = green(), p = alloc(4096); writes(green_stream(g), p, 16); OK(cuGreenCtxDestroy(g)); writes(stream(), p, 16); }
static void race_after_query_not_ready(void) {
    start(); S a = stream(); P p = alloc(4096), e = event(); writes(a, p, 16); OK(cuEventRecord(e, a)); IS(600, cuEventQuery(e)); writes(stream(), p, 16);
}
static void race_after_destroyed_stream(void) { start(); S a = stream(); P p = alloc(4096); writes(a, p, 16); OK(cuStreamDestroy_v2(a)); writes(stream(), p, 16); }
static P shared;
static void *on_own_stream(void *unused) { (void)unused; OK(cuCtxSetCurrent(context)); writes(PER_THREAD, shared, 16); return 0; }
static void race_of_threads(void) {
    start(); shared = alloc(4096); pthread_t t[2];
    for (int i = 0; i < 2; i++) { pthread_create(&t[i], 0, on_own_stream, 0); pthread_join(t[i], 0); }
}
static void race_of_graph(void) {
    start(); S s = stream(); P p = alloc(4096), g, x; OK(cuStreamBeginCapture_v2(s, 0)); writes(s, p, 16); OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuGraphLaunch(x, s)); writes(stream(), p, 16);
}
/* One graph made executable twice: their launches are ordered by nothing. */
static void race_of_two_executable_graphs(void) {
    start(); S s = stream(); P p = alloc(4096), g, x, y; OK(cuStreamBeginCapture_v2(s, 0)); writes(s, p, 16); OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuGraphInstantiateWithFlags(&y, g, 0)); OK(cuGraphLaunch(x, s)); cuGraphLaunch(y, stream());
}
static void event_gone(void) { start(); P e = event(); OK(cuEventDestroy_v2(e)); cuEventQuery(e); }
/* Two branches, with no event between. */
static void race_of_branches(void) {
    start(); S s = stream(), t = stream(); P p = alloc(4096), g, x; OK(cuStreamBeginCapture_v2(s, 0)); edge(s, t); writes(s, p, 16); writes(t, p, 16); edge(t, s); OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuGraphLaunch(x, s));
}
/* The next launch is behind the last one, not behind what followed that. */
static void race_after_launch(void) {
    start(); S s = stream(), t = stream(); P p = alloc(4096), q = alloc(4096), g, x; OK(cuStreamBeginCapture_v2(s, 0)); writes(s, p, 16); OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuGraphLaunch(x, s)); writes(s, q, 16); OK(cuGraphLaunch(x, t)); writes(t, q, 16);
}
/* A graph's event stands for its last launch, and it waits for what was recorded before that. */
static void race_with_external_record(void) {
    start(); S s = stream(), t = stream(); P p = alloc(4096), e = event(), g, x; P q = alloc(4096); OK(cuStreamBeginCapture_v2(s, 0)); writes(s, q, 16); OK(cuEventRecordWithFlags(e, s, 1)); writes(s, p, 16); OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuGraphLaunch(x, s)); OK(cuStreamWaitEvent(t, e, 0)); writes(t, q, 16); cuMemsetD8Async(p, 1, 16, t);
}
static void race_with_external_wait(void) {
    start(); S s = stream(), t = stream(); P p = alloc(4096), e = event(), g, x; writes(t, p, 16); OK(cuStreamBeginCapture_v2(s, 0)); OK(cuStreamWaitEvent(s, e, 1)); writes(s, p, 16);
    OK(cuStreamEndCapture(s, &g)); OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuEventRecord(e, t)); writes(t, p, 16); cuGraphLaunch(x, s);
}
static void graph_over_freed(void) {
    start(); S s = stream(); P p = alloc(4096), g, x; OK(cuStreamBeginCapture_v2(s, 0)); writes(s, p, 16); OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuMemFree_v2(p)); cuGraphLaunch(x, s);
}
static void stale_alias_read(void) { start(); S s = stream(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h); writes(s, a, 64); reads(s, b + 32, 64); }
static void stale_alias_write(void) { start(); S s = stream(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h); writes(s, a, 64); writes(s, b, 64); }
static void stale_alias_early_edge(void) {
    start(); S s = stream(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h); edge(s, s); writes(s, a, 64); reads(s, b, 64);
}
/* Two launches on one stream are no event that was waited for. */
static void stale_alias_beside_launches(void) {
    start(); S s = stream(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h), p = alloc(64), g, x; OK(cuStreamBeginCapture_v2(s, 0)); writes(s, p, 16); OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); writes(s, a, 64); OK(cuGraphLaunch(x, s)); OK(cuGraphLaunch(x, s)); reads(s, b, 64);
}
static void peer_without_access(void) {
    start(); P other; OK(cuDevicePrimaryCtxRetain(&other, 1)); P p = alloc(4096); OK(cuCtxSetCurrent(other)); reads(0, p, 16);
}
static void mapping_of_other_device(void) {
    start(); P other; OK(cuDevicePrimaryCtxRetain(&other, 1)); P at = mapped(PIECE, handle(PIECE)); OK(cuCtxSetCurrent(other)); reads(0, at, 16);
}

static void claim_twice(void) { start(); P p = alloc(4096); OK(cuSimClaim(p, 1024, 0)); cuSimClaim(p + 512, 1024, 0); }
static void claim_through_alias(void) {
    start(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h); OK(cuSimClaim(a, 8192, 0)); cuSimClaim(b + 4096, 8192, 0);
}
static void claim_in_use(void) { start(); P p = alloc(4096); writes(stream(), p, 16); cuSimClaim(p, 4096, CU_SIM_ANY_STREAM); }
static void claim_for_unordered_stream(void) { start(); P p = alloc(4096); writes(stream(), p, 16); cuSimClaim(p, 4096, stream()); }
static void claim_of_nothing(void) { start(); cuSimClaim(reserve(PIECE), PIECE, 0); }
static void touch_claim_through_alias(void) {
    start(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h); OK(cuSimClaim(a, 8192, 0)); writes(0, b, 16);
}
static void touch_second_claim_through_alias(void) {
    start(); P h = handle(PIECE), a = mapped(PIECE, h), b = mapped(PIECE, h); OK(cuSimClaim(b, 4096, 0)); OK(cuSimClaim(a + 4096, 4096, 0)); writes(0, a, 8192);
}
static void unmap_claim(void) { start(); P at = mapped(PIECE, handle(PIECE)); OK(cuSimClaim(at, 512, 0)); cuMemUnmap(at, PIECE); }
static void free_claim(void) { start(); P p = alloc(4096); OK(cuSimClaim(p, 4096, 0)); cuMemFree_v2(p); }

static void leak_allocation(void) { start(); alloc(1); cuSimCheckLeaks(); }
static void leak_handle(void) { start(); handle(PIECE); cuSimCheckLeaks(); }
static void leak_reservation(void) { start(); reserve(PIECE); cuSimCheckLeaks(); }
static void leak_array(void) { start(); struct { size_t w, h; int format; unsigned channels; } d = {64, 64, 0x20, 1}; P a; OK(cuArrayCreate_v2(&a, &d)); cuSimCheckLeaks(); }
static void leak_mapping(void) { start(); P h = handle(PIECE); mapped(PIECE, h); OK(cuMemRelease(h)); cuSimCheckLeaks(); }

static const Case cases[] = {
    CASE(touch_reserved), CASE(touch_nothing), CASE(touch_no_access), CASE(write_read_only), CASE(touch_unmapped), CASE(touch_beyond_end),
    CASE(touch_across_hole), CASE(touch_freed), CASE(memset_freed), CASE(copy_from_freed), CASE(copy_to_freed), CASE(touch_freed_in_order),
    CASE(touch_freed_plain_in_order), CASE(free_in_order_under_other_stream), CASE(free_pool_memory_in_use), CASE(free_under_another_context), CASE(unmap_in_use),
    CASE(unmap_late_by_the_clock_only), CASE(unmap_under_a_wait), CASE(take_access_in_use), CASE(unmap_under_ordered_alias), CASE(unmap_under_second_reader), CASE(unmap_under_one_of_many), CASE(take_access_under_ordered_alias), CASE(free_address_of_mapping), CASE(race_write_write), CASE(race_write_read),
    CASE(race_read_write), CASE(race_second_reader), CASE(race_memset), CASE(race_copy_source), CASE(race_copy_of_rows), CASE(race_through_alias),
    CASE(race_legacy_and_non_blocking), CASE(race_event_too_early), CASE(race_with_work_before_context_wait), CASE(race_in_context_that_waits_not), CASE(race_behind_green_context), CASE(race_after_green_context), CASE(race_after_query_not_ready), CASE(race_after_destroyed_stream),
    CASE(race_of_threads), CASE(race_of_graph), CASE(race_of_two_executable_graphs), CASE(race_of_branches), CASE(event_gone), CASE(race_after_launch), CASE(race_with_external_record), CASE(race_with_external_wait), CASE(graph_over_freed), CASE(stale_alias_read), CASE(stale_alias_write),
    CASE(stale_alias_early_edge), CASE(stale_alias_beside_launches), CASE(peer_without_access), CASE(mapping_of_other_device), CASE(claim_twice), CASE(claim_through_alias),
    CASE(claim_in_use), CASE(claim_for_unordered_stream), CASE(claim_of_nothing), CASE(touch_claim_through_alias), CASE(touch_second_claim_through_alias), CASE(unmap_claim),
    CASE(free_claim), CASE(leak_allocation), CASE(leak_handle), CASE(leak_reservation), CASE(leak_mapping), CASE(leak_array),
};
MAIN(cases)
