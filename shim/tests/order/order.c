/* What a program may rely on between its streams while memory goes from one to
 * another in the order of their work. Prints "whole" at the end; what is wrong
 * ends it in the simulated GPU, or leaves it waiting for itself. */
#include "../support/cuda.h"
#include <pthread.h>
#include <stdatomic.h>

#define BLOCKING 0
#define NON_BLOCKING 1
#define RELAXED 2
#define EQUAL 1
#define ALLOW_DEPENDENCIES 3

struct range {
    uint64_t base;
    size_t bytes;
    uint32_t write;
};
int cuSimLaunch(CUstream, const struct range *, unsigned, double us);
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);
CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuCtxSynchronize_v2(CUcontext);

static const size_t SIZE = 4 * MiB;
static CUdevice device;
static CUcontext context;
static CUstream legacy = (CUstream)1;

static CUstream stream(unsigned flags) {
    CUstream made;
    OK(cuStreamCreate(&made, flags));
    return made;
}

static CUdeviceptr take(size_t bytes, CUstream on) {
    CUdeviceptr at;
    OK(cuMemAllocAsync(&at, bytes, on));
    return at;
}

static void write_to(CUdeviceptr at, CUstream on, double us) {
    struct range all = {at, 4096, 1};
    OK(cuSimLaunch(on, &all, 1, us));
}

/* A word for which a stream can be made to wait until the host sets it. */
static volatile unsigned *word(void) {
    void *at;
    OK(cuMemHostAlloc(&at, 64, 0));
    *(volatile unsigned *)at = 0;
    return at;
}

static void hold(CUstream on, volatile unsigned *until) {
    OK(cuStreamWaitValue32_v2(on, (CUdeviceptr)(uintptr_t)until, 1, EQUAL));
}

/* A free on the legacy default stream comes after all blocking streams' work, and theirs
 * after it: also that on memory which has nothing to do with it. */
static void barrier(void) {
    CUstream first = stream(BLOCKING), second = stream(BLOCKING);
    CUdeviceptr shared = take(SIZE, legacy), freed = take(SIZE, legacy);
    OK(cuCtxSynchronize());
    write_to(shared, first, 100000);
    OK(cuMemFreeAsync(freed, legacy));
    write_to(shared, second, 10);
}

/* So does who gets the memory. */
static void taken_again(void) {
    CUstream first = stream(BLOCKING), second = stream(BLOCKING);
    CUdeviceptr at = take(SIZE, legacy);
    OK(cuCtxSynchronize());
    write_to(at, first, 100000);
    OK(cuMemFreeAsync(at, legacy));
    write_to(take(SIZE, legacy), second, 10);
}

/* Also of memory that was made during another stream's capture. */
static void of_a_capture(void) {
    CUstream first = stream(BLOCKING), second = stream(BLOCKING), captures = stream(NON_BLOCKING);
    CUdeviceptr shared = take(SIZE, legacy), freed;
    CUgraph graph;
    OK(cuStreamBeginCapture_v2(captures, RELAXED));
    OK(cuMemAlloc_v2(&freed, SIZE));
    OK(cuStreamEndCapture(captures, &graph));
    OK(cuCtxSynchronize());
    write_to(shared, first, 100000);
    OK(cuMemFreeAsync(freed, legacy));
    write_to(shared, second, 10);
}

static volatile int ends;

/* Makes the pool look at its streams all the time. */
static void *looks_for_memory(void *unused) {
    CUstream on;
    unsigned random = 1;
    OK(cuCtxSetCurrent(context));
    on = stream(NON_BLOCKING);
    while (!ends) {
        random = random * 1103515245u + 12345u;
        OK(cuMemFreeAsync(take(2 * MiB + (random >> 16) % 4096 * 2048, on), on));
    }
    return unused;
}

/* And beside such a thread. */
static void watched(void) {
    CUstream first = stream(BLOCKING), second = stream(BLOCKING);
    CUdeviceptr shared = take(SIZE, legacy);
    pthread_t thread;
    OK(pthread_create(&thread, NULL, looks_for_memory, NULL));
    for (int turn = 0; turn < 10000; turn++) {
        CUdeviceptr freed = take(SIZE, legacy);
        OK(cuCtxSynchronize());
        write_to(shared, first, 100000);
        OK(cuMemFreeAsync(freed, legacy));
        write_to(shared, second, 10);
    }
    ends = 1;
    OK(pthread_join(thread, NULL));
}

#define TURNS 200
static CUdeviceptr passed_on;
static atomic_int turn_begun, turn_ended;

/* Takes until it is given what the other thread frees, and writes to that. */
static void *takes_at_once(void *on) {
    CUdeviceptr taken[64];
    OK(cuCtxSetCurrent(context));
    for (int turn = 1; turn <= TURNS; turn++) {
        int count = 0;
        while (atomic_load(&turn_begun) < turn) {}
        do taken[count] = take(SIZE, legacy);
        while (taken[count++] != passed_on && count < 64);
        if (taken[count - 1] == passed_on) write_to(passed_on, on, 10);
        for (int i = 0; i < count; i++) OK(cuMemFreeAsync(taken[i], legacy));
        atomic_store(&turn_ended, turn);
    }
    return NULL;
}

/* Whoever is given the memory by another thread comes after the barrier, too. */
static void taken_at_once(void) {
    CUstream first = stream(BLOCKING);
    pthread_t thread;
    OK(pthread_create(&thread, NULL, takes_at_once, stream(BLOCKING)));
    for (int turn = 1; turn <= TURNS; turn++) {
        passed_on = take(SIZE, legacy);
        OK(cuCtxSynchronize());
        write_to(passed_on, first, 100000);
        atomic_store(&turn_begun, turn);
        OK(cuMemFreeAsync(passed_on, legacy));
        while (atomic_load(&turn_ended) < turn) {}
        OK(cuCtxSynchronize());
    }
    OK(pthread_join(thread, NULL));
}

/* Two blocks as one: the event of the frees is order enough there. */
static void joined(void) {
    CUdeviceptr at[] = {take(SIZE, legacy), take(SIZE, legacy)};
    for (int i = 0; i < 2; i++) write_to(at[i], legacy, 1000);
    for (int i = 0; i < 2; i++) OK(cuMemFreeAsync(at[i], legacy));
    CUdeviceptr both = take(2 * SIZE, legacy);
    write_to(both, legacy, 10);
    write_to(both + SIZE, legacy, 10);
}

/* Also where there were a slab and other streams' work before. */
static void joined_later(void) {
    CUstream busy = stream(NON_BLOCKING);
    volatile unsigned *until = word();
    CUdeviceptr at[] = {take(SIZE, legacy), take(SIZE, legacy)}, kept = take(SIZE, busy);
    OK(cuCtxSynchronize());
    write_to(kept, busy, 300000);
    take(4096, legacy);
    take(64 * MiB, legacy);
    write_to(at[0], legacy, 10);
    hold(legacy, until);
    for (int i = 0; i < 2; i++) OK(cuMemFreeAsync(at[i], legacy));
    CUdeviceptr both = take(2 * SIZE, legacy);
    write_to(both, legacy, 10);
    write_to(both + SIZE, legacy, 10);
    *until = 1;
}

/* The host sets `until` only when the other stream is through. */
static void through(CUstream on, volatile unsigned *until) {
    OK(cuStreamSynchronize(on));
    *until = 1;
}

/* No allocation stands behind what another stream was given after its free. */
static void held(size_t bytes) {
    CUstream first = stream(NON_BLOCKING), second = stream(NON_BLOCKING);
    volatile unsigned *until = word();
    for (int turn = 0; turn < 3; turn++, *until = 0) {
        CUdeviceptr freed = take(bytes, first);
        write_to(freed, first, 10);
        OK(cuMemFreeAsync(freed, first));
        hold(first, until);
        CUdeviceptr at = take(bytes, second);
        write_to(at, second, 10);
        through(second, until);
        OK(cuMemFreeAsync(at, second));
        OK(cuCtxSynchronize());
    }
}

/* As held_after, where the event that follows is that of another free on the same stream, of
 * what the other one was lent: long after anybody last looked at that stream. */
static void held_between(void) {
    CUstream first = stream(NON_BLOCKING), second = stream(NON_BLOCKING);
    volatile unsigned *until = word();
    CUdeviceptr others = take(2 * SIZE, second), freed = take(SIZE, first);
    for (int pair = 0; pair < 40000; pair++) OK(cuMemFreeAsync(take(MiB, first), first));
    write_to(freed, first, 10);
    OK(cuMemFreeAsync(freed, first));
    hold(first, until);
    OK(cuMemFreeAsync(others, first));
    write_to(take(SIZE, second), second, 10);
    through(second, until);
}

/* The stream that asks is known before: so the free is followed by an event that it could be
 * ordered behind. */
static void forbidden(void) {
    CUstream first = stream(NON_BLOCKING), second = stream(NON_BLOCKING);
    volatile unsigned *until = word();
    CUmemoryPool pool;
    int allowed = 0;
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuMemPoolSetAttribute(pool, ALLOW_DEPENDENCIES, &allowed));
    take(4096, second);
    CUdeviceptr freed = take(SIZE, first);
    write_to(freed, first, 10);
    hold(first, until);
    OK(cuMemFreeAsync(freed, first));
    write_to(take(SIZE, second), second, 10);
    through(second, until);
}

/* What is over is known to be over, whatever the stream was given since. */
static void full(void) {
    CUstream first = stream(NON_BLOCKING);
    volatile unsigned *until = word();
    CUdeviceptr most = take(700 * MiB, first), again;
    write_to(most, first, 10);
    OK(cuMemFreeAsync(most, first));
    OK(cuStreamSynchronize(first));
    hold(first, until);
    OK(cuMemAlloc_v2(&again, 700 * MiB));
    *until = 1;
}

static CUresult wait_for_stream(CUstream on) { return cuStreamSynchronize(on); }
static CUresult wait_for_context(CUstream unused) { return cuCtxSynchronize(); }
static CUresult wait_for_named(CUstream unused) { return cuCtxSynchronize_v2(context); }
static CUresult wait_for_current(CUstream unused) { return cuCtxSynchronize_v2(NULL); }

/* What the program has waited for itself is free, also of so few bytes that no event followed. */
static void waited_for(CUresult (*wait)(CUstream), int plain) {
    CUstream first = stream(NON_BLOCKING), second = stream(NON_BLOCKING);
    volatile unsigned *until = word();
    CUdeviceptr freed = take(416 * MiB, first), again;
    take(480 * MiB, first);
    write_to(freed, first, 10);
    OK(cuMemFreeAsync(freed, first));
    OK(wait(first));
    hold(first, until);
    if (plain) OK(cuMemAlloc_v2(&again, 416 * MiB));
    else again = take(416 * MiB, second);
    write_to(again, second, 10);
    through(second, until);
}

/* But not what was freed since. */
static void freed_since(void) {
    CUstream first = stream(NON_BLOCKING), second = stream(NON_BLOCKING);
    CUdeviceptr freed = take(416 * MiB, first);
    take(480 * MiB, first);
    OK(cuStreamSynchronize(first));
    OK(cuCtxSynchronize());
    write_to(freed, first, 100000);
    OK(cuMemFreeAsync(freed, first));
    write_to(take(416 * MiB, second), second, 10);
}

/* Nor by a wait that failed: nobody knows whether anything is over. */
static void waited_for_in_vain(void) {
    CUstream first = stream(NON_BLOCKING), second = stream(NON_BLOCKING);
    CUdeviceptr freed = take(SIZE, first);
    write_to(freed, first, 100000);
    OK(cuMemFreeAsync(freed, first));
    IS(999, cuStreamSynchronize(first));
    write_to(take(SIZE, second), second, 10);
}

/* Nor does one on it, whoever has freed what there is. */
static void nothing_waited_for(void) {
    CUstream first = stream(BLOCKING), second = stream(BLOCKING), third = stream(NON_BLOCKING);
    volatile unsigned *until = word();
    CUdeviceptr kept = take(SIZE, second), freed = take(SIZE, third);
    OK(cuCtxSynchronize());
    hold(first, until);
    write_to(freed, third, 50000);
    OK(cuMemFreeAsync(freed, third));
    take(SIZE, legacy);
    write_to(kept, second, 10);
    through(second, until);
}

/* An allocation elsewhere puts nothing into the legacy default stream. */
static void nothing_added(void) {
    CUstream first = stream(BLOCKING), second = stream(BLOCKING);
    volatile unsigned *until = word();
    CUdeviceptr kept = take(SIZE, second), freed = take(SIZE, legacy);
    OK(cuMemFreeAsync(freed, legacy));
    OK(cuCtxSynchronize());
    hold(first, until);
    take(64 * MiB, stream(NON_BLOCKING));
    write_to(kept, second, 10);
    through(second, until);
}

int main(int count, char **words) {
    const char *which = count > 1 ? words[1] : "";
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    if (!strcmp(which, "barrier")) barrier();
    else if (!strcmp(which, "taken_again")) taken_again();
    else if (!strcmp(which, "of_a_capture")) of_a_capture();
    else if (!strcmp(which, "watched")) watched();
    else if (!strcmp(which, "taken_at_once")) taken_at_once();
    else if (!strcmp(which, "joined")) joined();
    else if (!strcmp(which, "joined_later")) joined_later();
    else if (!strcmp(which, "held_after")) held(SIZE);
    else if (!strcmp(which, "held_after_small")) held(4096);
    else if (!strcmp(which, "held_after_large")) held(300 * MiB);
    else if (!strcmp(which, "held_between")) held_between();
    else if (!strcmp(which, "forbidden")) forbidden();
    else if (!strcmp(which, "full")) full();
    else if (!strcmp(which, "waited_for_stream")) waited_for(wait_for_stream, 0);
    else if (!strcmp(which, "waited_for_stream_plain")) waited_for(wait_for_stream, 1);
    else if (!strcmp(which, "waited_for_context")) waited_for(wait_for_context, 0);
    else if (!strcmp(which, "waited_for_named")) waited_for(wait_for_named, 0);
    else if (!strcmp(which, "waited_for_current")) waited_for(wait_for_current, 0);
    else if (!strcmp(which, "freed_since")) freed_since();
    else if (!strcmp(which, "waited_for_in_vain")) waited_for_in_vain();
    else if (!strcmp(which, "nothing_added")) nothing_added();
    else if (!strcmp(which, "nothing_waited_for")) nothing_waited_for();
    else return 2;
    OK(cuCtxSynchronize());
    puts("whole");
}
