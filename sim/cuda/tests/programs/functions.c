/* Functions of the host in the order of a stream: when they run, and what they may call. */
#include "common.h"
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

static volatile int ran;
static char *bytes;
static void fill(void *with) { memset(bytes, (int)(intptr_t)with, 64); }
static char *page_locked(void) { void *at; OK(cuMemHostAlloc(&at, 4096, 0)); memset(at, 0, 4096); return at; }
static void busy(S s) { OK(cuSimLaunch(s, 0, 0, 20000)); }

/* A copy behind a function moves what that wrote. */
static void writes_for_a_copy(void) {
    start(); S s = stream(); P p = alloc(64); bytes = page_locked(); busy(s); OK(cuLaunchHostFunc(s, fill, (void *)0x5a));
    OK(cuMemcpyAsync(p, (P)bytes, 64, s)); OK(cuLaunchHostFunc(s, fill, (void *)1)); OK(cuStreamSynchronize(s)); TRUE(*(char *)p == 0x5a && bytes[0] == 1);
}
/* So does one of another stream, which waits for two functions by one event: also for the one that returns last. */
static sem_t gate;
static void pass(void *unused) { (void)unused; sem_wait(&gate); ran = 1; }
static void nothing(void *unused) { (void)unused; }
static void behind_two(void) {
    start(); S a = stream(), b = stream(), c = stream(); P p = alloc(64), e = event(); bytes = page_locked(); sem_init(&gate, 0, 0);
    OK(cuLaunchHostFunc(b, nothing, 0)); OK(cuLaunchHostFunc(a, pass, 0)); OK(cuLaunchHostFunc(a, fill, (void *)7)); OK(cuLaunchHostFunc(b, nothing, 0));
    OK(cuCtxRecordEvent(context, e)); OK(cuStreamWaitEvent(c, e, 0)); OK(cuMemcpyAsync(p, (P)bytes, 64, c));
    OK(cuSimAdvance(1000000)); usleep(20000); IS(600, cuEventQuery(e)); IS(600, cuStreamQuery(c)); sem_post(&gate); OK(cuStreamSynchronize(c)); TRUE(ran && *(char *)p == 7);
}
static sem_t posted;
static void post(void *unused) { (void)unused; sem_post(&posted); }
static int comes(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); t.tv_sec += 20; return !sem_timedwait(&posted, &t); }
/* It needs no call of anybody's. */
static void runs_by_itself(void) { start(); S s = stream(); sem_init(&posted, 0, 0); busy(s); OK(cuLaunchHostFunc(s, post, 0)); TRUE(comes()); }
/* Whoever waits for it waits until it has returned, though others call meanwhile. */
static void slow(void *unused) { (void)unused; usleep(100000); ran = 1; }
static volatile int stop;
static void *calls(void *unused) { size_t a, b; OK(cuCtxSetCurrent(context)); while (!stop) OK(cuMemGetInfo_v2(&a, &b)); return unused; }
static void waited_for(void) {
    start(); S s = stream(); pthread_t t; OK(pthread_create(&t, 0, calls, 0)); busy(s); OK(cuLaunchHostFunc(s, slow, 0)); OK(cuStreamSynchronize(s)); TRUE(ran);
    stop = 1; OK(pthread_join(t, 0));
}
/* So does a call that takes memory away, and the copy behind the function is made before that. */
static void waited_for_by_a_free(void) {
    start(); S s = stream(); P p = alloc(PIECE), q = alloc(64); OK(cuLaunchHostFunc(s, slow, 0)); OK(cuMemcpyDtoDAsync_v2(q, p, 64, s)); OK(cuMemFree_v2(p)); TRUE(ran); OK(cuStreamQuery(s));
}
/* On another thread, of which most calls are refused. */
static struct { P p, e; S s; pthread_t thread; int current, alloc, set, info, event, stream, order, refused; } in;
static void ask(void *unused) {
    size_t a, b; P p; (void)unused; in.thread = pthread_self(); in.current = cuCtxGetCurrent(&p); in.set = cuCtxSetCurrent(context); in.alloc = cuMemAlloc_v2(&p, 64); in.refused = cuMemFree_v2(in.p);
    in.info = cuMemGetInfo_v2(&a, &b); in.event = cuEventQuery(in.e); in.stream = cuStreamQuery(in.s); in.order = cuStreamWaitEvent(in.s, in.e, 0); ran = 1;
}
static void may_call_little(void) {
    start(); in.p = alloc(64); in.e = event(); in.s = stream(); OK(cuLaunchHostFunc(stream(), ask, 0)); OK(cuCtxSynchronize()); TRUE(ran); IS(800, in.current);
    TRUE(!pthread_equal(in.thread, pthread_self())); IS(800, in.set); IS(800, in.alloc); IS(800, in.refused); IS(800, in.info); OK(in.event); OK(in.stream); OK(in.order); OK(cuMemFree_v2(in.p));
}
/* A graph runs them each time that it is launched. */
static int count;
static void counts(void *unused) { (void)unused; count++; }
static void in_a_graph(void) {
    start(); S s = stream(); P g, x; OK(cuStreamBeginCapture_v2(s, 0)); OK(cuLaunchHostFunc(s, counts, 0)); OK(cuStreamEndCapture(s, &g)); OK(cuGraphInstantiateWithFlags(&x, g, 0));
    TRUE(!count); OK(cuGraphLaunch(x, s)); OK(cuGraphLaunch(x, s)); OK(cuStreamSynchronize(s)); TRUE(count == 2);
}
/* More than there are times for at once. */
static void one_after_the_other(void) {
    start(); S s = stream(); for (int i = 0; i < 14000; i++) { OK(cuLaunchHostFunc(s, counts, 0)); if (i % 50 == 0) { usleep(100); cuStreamQuery(s); } } OK(cuStreamSynchronize(s)); TRUE(count == 14000);
}

static const Case cases[] = {
    CASE(writes_for_a_copy), CASE(behind_two), CASE(runs_by_itself), CASE(waited_for), CASE(waited_for_by_a_free), CASE(may_call_little), CASE(in_a_graph), CASE(one_after_the_other),
};
MAIN(cases)
