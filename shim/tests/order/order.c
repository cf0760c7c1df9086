/* What a program may rely on between its streams while memory goes from one to
 * another in the order of their work. Prints "whole" at the end; what is wrong
 * ends it in the simulated GPU, or leaves it waiting for itself. */
#include "../support/cuda.h"

#define BLOCKING 0
#define NON_BLOCKING 1
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

static const size_t SIZE = 4 * MiB;
static CUdevice device;
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

/* Two blocks as one: the event of the frees is order enough there. */
static void joined(void) {
    CUdeviceptr at[] = {take(SIZE, legacy), take(SIZE, legacy)};
    for (int i = 0; i < 2; i++) write_to(at[i], legacy, 1000);
    for (int i = 0; i < 2; i++) OK(cuMemFreeAsync(at[i], legacy));
    CUdeviceptr both = take(2 * SIZE, legacy);
    write_to(both, legacy, 10);
    write_to(both + SIZE, legacy, 10);
}

/* The host sets `until` only when the other stream is through. */
static void through(CUstream on, volatile unsigned *until) {
    OK(cuStreamSynchronize(on));
    *until = 1;
}

/* No allocation stands behind what another stream was given after its free, nor, where
 * the program forbids that, behind what it was given before. */
static void held(size_t bytes, int before) {
    CUstream first = stream(NON_BLOCKING), second = stream(NON_BLOCKING);
    volatile unsigned *until = word();
    for (int turn = 0; turn < 3; turn++, *until = 0) {
        CUdeviceptr freed = take(bytes, first);
        write_to(freed, first, 10);
        if (before) hold(first, until);
        OK(cuMemFreeAsync(freed, first));
        if (!before) hold(first, until);
        CUdeviceptr at = take(bytes, second);
        write_to(at, second, 10);
        through(second, until);
        OK(cuMemFreeAsync(at, second));
        OK(cuCtxSynchronize());
    }
}

static void forbidden(void) {
    CUmemoryPool pool;
    int allowed = 0;
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuMemPoolSetAttribute(pool, ALLOW_DEPENDENCIES, &allowed));
    held(SIZE, 1);
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
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    if (!strcmp(which, "barrier")) barrier();
    else if (!strcmp(which, "taken_again")) taken_again();
    else if (!strcmp(which, "joined")) joined();
    else if (!strcmp(which, "held_after")) held(SIZE, 0);
    else if (!strcmp(which, "held_after_small")) held(4096, 0);
    else if (!strcmp(which, "held_after_large")) held(300 * MiB, 0);
    else if (!strcmp(which, "forbidden")) forbidden();
    else if (!strcmp(which, "full")) full();
    else if (!strcmp(which, "nothing_added")) nothing_added();
    else return 2;
    OK(cuCtxSynchronize());
    puts("whole");
}
