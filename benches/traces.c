// Allocations and frees at a given rate; see traces.py.
//
// Build:  cc -O2 -o traces benches/traces.c -ldl -lpthread
// Run:    traces LIBRARY EVENTS_PER_SECOND SECONDS THREADS
// Prints how many events there were and in how many seconds.
// Exit status: 0 done, 1 a call failed that should not, 2 wrong arguments.

#define _GNU_SOURCE
#include "library.h"

#include <pthread.h>

enum { MOST_THREADS = 64, NON_BLOCKING = 1 };

static double rate, seconds;
static void *context;

static double seconds_now(void) { return now(CLOCK_MONOTONIC) / 1e9; }

// Pairs at this thread's part of the rate, a millisecond's worth at once.
static void *work(void *count) {
    int (*allocate)(void **, size_t, void *) = (int (*)(void **, size_t, void *))find("cuMemAllocAsync");
    int (*give)(void *, void *) = (int (*)(void *, void *))find("cuMemFreeAsync");
    void *stream;
    CALL("cuCtxSetCurrent", context);
    CALL("cuStreamCreate", &stream, NON_BLOCKING);
    double began = seconds_now();
    long done = 0;
    for (double passed = 0; passed < seconds; passed = seconds_now() - began) {
        for (long due = (long)(passed * rate / 2); done < due; done++) {
            void *at;
            check(allocate(&at, 4096, stream), "cuMemAllocAsync");
            check(give(at, stream), "cuMemFreeAsync");
        }
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    *(long *)count = done;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: traces LIBRARY EVENTS_PER_SECOND SECONDS THREADS\n");
        return 2;
    }
    library = dlopen(argv[1], RTLD_NOW);
    int threads = atoi(argv[4]);
    if (!library || threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "traces: %s\n", library ? "THREADS is from 1 to 64" : dlerror());
        return 2;
    }
    rate = atof(argv[2]) / threads;
    seconds = atof(argv[3]);
    CALL("cuInit", 0);
    CALL("cuDevicePrimaryCtxRetain", &context, 0);
    pthread_t running[MOST_THREADS];
    long counts[MOST_THREADS], all = 0;
    double began = seconds_now();
    for (int n = 0; n < threads; n++) pthread_create(&running[n], NULL, work, &counts[n]);
    for (int n = 0; n < threads; n++) pthread_join(running[n], NULL), all += 2 * counts[n];
    printf("%ld %.3f\n", all, seconds_now() - began);
    return 0;
}
