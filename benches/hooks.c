// A pair of malloc and free through a CUDA library as a program calls it; see
// hooks.py.
//
// Build:  cc -O2 -o hooks benches/hooks.c -ldl -lpthread
// Run:    hooks LIBRARY CALLS BYTES THREADS PAIRS RUNS
//         LIBRARY  libcudart.so.*, or libcuda.so.1
//         CALLS    malloc or async: cudaMalloc or cudaMallocAsync, each thread on a
//                  stream of its own; of libcuda cuMemAlloc or cuMemAllocAsync
// Prints who served (empty, pool or driver), then nanoseconds of one pair, one line a run: processor time of one thread;
// with more the time on the wall from the first pair of any to the last of all,
// divided by the pairs of one.
// Exit status: 0 measured, 1 a call failed that should not, 2 wrong arguments.

#define _GNU_SOURCE
#include "library.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { MOST_THREADS = 64, NON_BLOCKING = 1 };

static int is_runtime, is_async;
static size_t bytes;
static long pairs, runs;
static int threads;
static void *context;

// The types of both libraries: a result, addresses and streams of 64 bits.
static int (*allocate)(void **, size_t);
static int (*give)(void *);
static int (*allocate_async)(void **, size_t, void *);
static int (*give_async)(void *, void *);

static void pair(void *stream) {
    void *at = NULL;
    if (is_async) {
        check(allocate_async(&at, bytes, stream), "malloc");
        check(give_async(at, stream), "free");
    } else {
        check(allocate(&at, bytes), "malloc");
        check(give(at), "free");
    }
}

static void set_up(void) {
    if (is_runtime) {
        CALL("cudaSetDevice", 0);
        CALL("cudaFree", NULL);
        allocate = find("cudaMalloc"), give = find("cudaFree");
        allocate_async = find("cudaMallocAsync"), give_async = find("cudaFreeAsync");
    } else {
        int device = 0;
        CALL("cuInit", 0);
        CALL("cuDeviceGet", &device, 0);
        CALL("cuDevicePrimaryCtxRetain", &context, device);
        allocate = find("cuMemAlloc_v2"), give = find("cuMemFree_v2");
        allocate_async = find("cuMemAllocAsync"), give_async = find("cuMemFreeAsync");
    }
}

static void *begin_thread(void) {
    void *stream = NULL;
    if (is_runtime) {
        CALL("cudaSetDevice", 0);
        CALL("cudaStreamCreateWithFlags", &stream, NON_BLOCKING);
    } else {
        CALL("cuCtxSetCurrent", context);
        CALL("cuStreamCreate", &stream, NON_BLOCKING);
    }
    return stream;
}

// Whose memory this is: empty_driver.c has one address only, and where the
// library serves it shows its page of counters.
static const char *served_by(void *at) {
    char link[64], file[256];
    if (at == (void *)0x7f0000000000) return "empty";
    for (int fd = 0; fd < 256; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, file, sizeof file - 1);
        file[length > 0 ? length : 0] = '\0';
        if (strstr(file, "memcuda-stats")) return "pool";
    }
    return "driver";
}

static pthread_barrier_t line;
static double began[MOST_THREADS], ended[MOST_THREADS];

static void *work(void *number) {
    long me = (long)number;
    void *stream = begin_thread();
    // A small block stays, so that the pool's slab stays one.
    void *kept = NULL;
    if (is_async) check(allocate_async(&kept, 512, stream), "malloc");
    else check(allocate(&kept, 512), "malloc");
    if (me == 0) puts(served_by(kept));
    for (int i = 0; i < 8; i++) pair(stream);
    for (long run = 0; run < runs; run++) {
        clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
        pthread_barrier_wait(&line);
        began[me] = now(clock);
        for (long i = 0; i < pairs; i++) pair(stream);
        ended[me] = now(clock);
        pthread_barrier_wait(&line);
        if (me == 0) {
            double first = began[0], last = ended[0];
            for (int i = 1; i < threads; i++) {
                if (began[i] < first) first = began[i];
                if (ended[i] > last) last = ended[i];
            }
            printf("%.1f\n", (last - first) / (pairs ? pairs : 1));
        }
        pthread_barrier_wait(&line);
    }
    if (is_async) check(give_async(kept, stream), "free");
    else check(give(kept), "free");
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t all[MOST_THREADS];
    if (argc == 7) {
        is_runtime = strstr(argv[1], "cudart") != NULL;
        is_async = strcmp(argv[2], "async") == 0;
        bytes = strtoull(argv[3], NULL, 10);
        threads = atoi(argv[4]);
        pairs = atol(argv[5]);
        runs = atol(argv[6]);
    }
    if (argc != 7 || (!is_async && strcmp(argv[2], "malloc") != 0) || bytes == 0 || threads < 1 ||
        threads > MOST_THREADS || pairs < 0 || runs < 1) {
        fprintf(stderr, "usage: hooks LIBRARY malloc|async BYTES THREADS(1-64) PAIRS RUNS\n");
        return 2;
    }
    library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "hooks: %s\n", dlerror());
        return 1;
    }
    set_up();
    pthread_barrier_init(&line, NULL, threads);
    for (long i = 0; i < threads; i++) check(pthread_create(&all[i], NULL, work, (void *)i), "pthread_create");
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    return 0;
}
