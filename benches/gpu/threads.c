/* How stream-ordered allocation scales with threads: pairs of an allocation and
 * its free, each thread on a stream of its own, through the driver's interface
 * and through the runtime's. Bare it is the driver's own memory pool, preloaded
 * it is libmemcuda.so. Prints a line of JSON for each case, or a table.
 *
 *   gcc -O2 -o threads benches/gpu/threads.c -ldl -lpthread
 *   ./threads [--json] [--runs N] [--seconds S]
 *   LD_PRELOAD=target/release/libmemcuda.so ./threads
 *
 * Needs no header and no library of CUDA to be built.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_THREADS 64
#define MOST_RUNS 99

typedef int (*function)();
typedef int (*allocate)(uint64_t *, size_t, void *);
typedef int (*release)(uint64_t, void *);

static void *driver, *runtime;

static void fail(const char *what, int code) {
    fprintf(stderr, "threads: %s: %d\n", what, code);
    exit(1);
}

static function find(void *library, const char *name) {
    function found = (function)dlsym(library, name);
    if (!found) {
        fprintf(stderr, "threads: no %s\n", name);
        exit(1);
    }
    return found;
}

static void ok(const char *what, int code) {
    if (code) fail(what, code);
}

struct interface {
    const char *name;
    allocate allocate;
    release release;
};

struct worker {
    pthread_t thread;
    const struct interface *through;
    size_t bytes;
    int core;
    uint64_t pairs;
    void *stream;
    char apart[128];
};

static pthread_barrier_t barrier;
static _Atomic int over;
static void *context;

static void *work(void *argument) {
    struct worker *self = argument;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(self->core, &cores);
    pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
    ok("cuCtxSetCurrent", ((int (*)(void *))find(driver, "cuCtxSetCurrent"))(context));
    const struct interface *through = self->through;
    uint64_t at = 0, pairs = 0;
    /* Its memory is there before anybody is timed. */
    for (int i = 0; i < 1000; i++) {
        ok("allocation", through->allocate(&at, self->bytes, self->stream));
        ok("free", through->release(at, self->stream));
    }
    pthread_barrier_wait(&barrier);
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        for (int i = 0; i < 32; i++) {
            int code = through->allocate(&at, self->bytes, self->stream);
            if (!code) code = through->release(at, self->stream);
            if (code) fail("a pair", code);
        }
        pairs += 32;
    }
    self->pairs = pairs;
    return NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Pairs a second of all threads together. */
static double rate(const struct interface *through, size_t bytes, int threads, double seconds) {
    static struct worker workers[MOST_THREADS];
    /* The cores that this process may use. */
    cpu_set_t cores;
    sched_getaffinity(0, sizeof cores, &cores);
    int core = -1;
    function create = find(driver, "cuStreamCreate"), destroy = find(driver, "cuStreamDestroy_v2");
    atomic_store(&over, 0);
    pthread_barrier_init(&barrier, NULL, threads + 1);
    for (int i = 0; i < threads; i++) {
        do core = (core + 1) % CPU_SETSIZE; while (!CPU_ISSET(core, &cores));
        workers[i] = (struct worker){.through = through, .bytes = bytes, .core = core};
        ok("cuStreamCreate", create(&workers[i].stream, 1));
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    pthread_barrier_wait(&barrier);
    double began = now();
    while (now() < began + seconds) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    double ended = now();
    atomic_store(&over, 1);
    uint64_t pairs = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        pairs += workers[i].pairs;
        ok("cuStreamDestroy", destroy(workers[i].stream));
    }
    pthread_barrier_destroy(&barrier);
    return pairs / (ended - began);
}

int main(int count, char **words) {
    int json = 0, runs = 5;
    double seconds = 0.2;
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "--json")) {
            json = 1;
        } else if (!strcmp(words[i], "--runs") && i + 1 < count) {
            runs = atoi(words[++i]);
        } else if (!strcmp(words[i], "--seconds") && i + 1 < count) {
            seconds = atof(words[++i]);
        } else {
            fprintf(stderr, "threads: unknown %s; accepted: --json, --runs N, --seconds S\n", words[i]);
            return 2;
        }
    }
    if (runs < 1 || runs > MOST_RUNS || seconds <= 0) {
        fprintf(stderr, "threads: 1 to %d runs, more than 0 seconds\n", MOST_RUNS);
        return 2;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "threads: %s\n", dlerror());
        return 1;
    }
    ok("cuInit", find(driver, "cuInit")(0));
    ok("cuDevicePrimaryCtxRetain", ((int (*)(void **, int))find(driver, "cuDevicePrimaryCtxRetain"))(&context, 0));
    ok("cuCtxSetCurrent", ((int (*)(void *))find(driver, "cuCtxSetCurrent"))(context));

    struct interface through[2] = {{"driver", (allocate)find(driver, "cuMemAllocAsync"),
                                    (release)find(driver, "cuMemFreeAsync")}};
    int interfaces = 1;
    const char *runtimes[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    for (int i = 0; i < 3 && !runtime; i++) runtime = dlopen(runtimes[i], RTLD_NOW);
    if (runtime) {
        ok("cudaSetDevice", find(runtime, "cudaSetDevice")(0));
        through[interfaces++] = (struct interface){"runtime", (allocate)find(runtime, "cudaMallocAsync"),
                                                   (release)find(runtime, "cudaFreeAsync")};
    } else {
        fprintf(stderr, "threads: no libcudart.so; through the driver's interface only\n");
    }

    cpu_set_t cores;
    sched_getaffinity(0, sizeof cores, &cores);
    int there = CPU_COUNT(&cores);
    if (!json) printf("%d cores, %d runs of %.2f s\nthrough      bytes threads   pair ns  [low, high]     x one thread's rate\n",
                      there, runs, seconds);
    size_t sizes[] = {512, 1 << 20, 64 << 20};
    for (int t = 0; t < interfaces; t++) {
        for (int s = 0; s < 3; s++) {
            double alone = 0;
            for (int threads = 1; threads <= 16; threads *= 2) {
                double all[MOST_RUNS];
                for (int run = 0; run < runs; run++)
                    all[run] = rate(&through[t], sizes[s], threads, seconds);
                qsort(all, runs, sizeof *all, by_size);
                double median = all[runs / 2], per = threads * 1e9;
                if (threads == 1) alone = median;
                if (json)
                    printf("{\"schema\":\"memcuda.bench/1\",\"kind\":\"threads\",\"what\":\"%s\",\"size\":%zu,"
                           "\"threads\":%d,\"cores\":%d,\"median_ns\":%.1f,\"low_ns\":%.1f,\"high_ns\":%.1f,"
                           "\"pairs_per_s\":%.0f,\"times_one\":%.2f}\n",
                           through[t].name, sizes[s], threads, there, per / median, per / all[runs - 1],
                           per / all[0], median, median / alone);
                else
                    printf("%-8s %9zu %7d %9.1f  [%.1f, %.1f]  %.2f\n", through[t].name, sizes[s], threads,
                           per / median, per / all[runs - 1], per / all[0], median / alone);
                fflush(stdout);
            }
        }
    }
    return 0;
}
