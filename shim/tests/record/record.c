/* What is recorded. Usage: record CASE [ARGUMENT...]; 0 is success, 2 that an
 * allocation failed for lack of memory. */
#include "../support/cancelled.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define DO(call) check((call), #call)

static void check(int code, const char *call) {
    if (code != 0) {
        fprintf(stderr, "%s: %d\n", call, code);
        exit(code == OUT_OF_MEMORY ? 2 : 1);
    }
}

static CUstream stream(void) {
    CUstream made;
    DO(cuStreamCreate(&made, 1));
    return made;
}

static void pairs(long count, CUstream on, size_t bytes) {
    for (long n = 0; n < count; n++) {
        CUdeviceptr at;
        DO(cuMemAllocAsync(&at, bytes, on));
        DO(cuMemFreeAsync(at, on));
    }
}

static long many;
static void many_pairs(void *on) { pairs(many, on, 4096); }

/* One of each: through the runtime, on two streams, on another thread. */
static void *on_a_thread(void *on) {
    void *at;
    DO(cudaMalloc(&at, 5 * MiB));
    pairs(1, on, 7 * MiB);
    return at;
}

static void each(void) {
    void *first, *third;
    CUdeviceptr second;
    CUstream on = stream();
    DO(cudaMalloc(&first, 3 * MiB));
    DO(cuMemAllocAsync(&second, 100, on));
    DO(cudaFree(first));
    pthread_t thread;
    pthread_create(&thread, NULL, on_a_thread, on);
    pthread_join(thread, &third);
    DO(cuMemFreeAsync(second, stream()));
    if (cudaMalloc(&first, (size_t)1 << 45) == 0) exit(1);
    DO(cuDevicePrimaryCtxReset_v2(0));
}

/* Rows, of which the driver says how long they are. */
static void rows(void) {
    CUdeviceptr at;
    size_t pitch;
    DO(cuMemAllocPitch_v2(&at, &pitch, 1000, 300, 4));
    DO(cuMemFree_v2(at));
}

/* On a stream of the first device, while the second one is current. */
static void elsewhere(void) {
    CUstream on = stream();
    CUcontext other;
    DO(cuDevicePrimaryCtxRetain(&other, 1));
    DO(cuCtxSetCurrent(other));
    pairs(1, on, 4096);
}

/* A pair in a graph, and one beside it. */
static void graph(void) {
    CUstream on = stream();
    CUgraph made;
    DO(cuStreamBeginCapture_v2(on, 0));
    pairs(1, on, 4096);
    DO(cuStreamEndCapture(on, &made));
    pairs(1, on, 4096);
}

/* Pairs until it is killed; how many there were is in a shared page. */
static void endless(const char *page) {
    FILE *file = fopen(page, "r+");
    volatile long *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    CUstream on = stream();
    for (;; ++*count) pairs(1, on, 4096);
}

/* A child asks for memory, too; what it does is not its parent's. */
static void forks(void) {
    pairs(10, stream(), MiB);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr at;
        for (int n = 0; n < 100; n++) cuMemAlloc_v2(&at, MiB);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    pairs(10, stream(), MiB);
}

/* No file may grow from now on; the simulated GPU has made its own by then. */
static void limited(long count) {
    CUstream on = stream();
    pairs(1, on, 4096);
    struct rlimit limit = {1, 1};
    setrlimit(RLIMIT_FSIZE, &limit);
    pairs(count, on, 4096);
}

/* No room for a while, in which a thread and a library ask for the first time; both
 * once more when there is some again. */
static void *asks_twice(void *file) {
    pthread_setname_np(pthread_self(), "late");
    void *library = dlopen(file, RTLD_NOW);
    int (*pair)(long, CUstream) = library ? dlsym(library, "pair") : NULL;
    if (!pair) exit(1);
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    DO(cudaFree(NULL));
    CUstream on = stream();
    DO(pair(0, on));
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    /* The file is made longer within a second. */
    for (int n = 0; n < 300; n++) {
        usleep(10000);
        DO(pair(0, on));
    }
    return NULL;
}

static void room_again(char *file) {
    CUstream on = stream();
    pairs(1, on, 4096);
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1;
    setrlimit(RLIMIT_FSIZE, &limit);
    pairs(200000, on, 4096);
    pthread_t thread;
    pthread_create(&thread, NULL, asks_twice, file);
    pthread_join(thread, NULL);
}

/* Becomes this program anew so many times, as the process that it is; pairs in each. */
static void anew(char **arguments) {
    long more = atol(arguments[2]);
    pairs(10 + more, stream(), 4096);
    if (!more) return;
    char rest[32];
    snprintf(rest, sizeof rest, "%ld", more - 1);
    arguments[2] = rest;
    execv("/proc/self/exe", arguments);
    exit(1);
}

/* A job whose allocations live for random times: SEED STEPS KIND. KIND: a
 * (stream-ordered), m (cudaMalloc), or b (both). */
static void job(unsigned seed, long steps, char kind) {
    enum { LIVE = 400 };
    static struct {
        CUdeviceptr at;
        int async;
        CUstream on;
    } live[LIVE];
    CUstream streams[3] = {stream(), stream(), stream()};
    for (long n = 0; n < steps; n++) {
        int place = rand_r(&seed) % LIVE;
        if (live[place].at) {
            DO(live[place].async ? cuMemFreeAsync(live[place].at, live[place].on)
                                    : cudaFree((void *)live[place].at));
            live[place].at = 0;
        }
        /* The job grows and shrinks in waves. */
        if (rand_r(&seed) % 100 < (n / 500 % 2 ? 35 : 80)) {
            size_t scale = (size_t)1 << (8 + rand_r(&seed) % 17);
            size_t bytes = scale + rand_r(&seed) % scale;
            int async = kind == 'a' || (kind == 'b' && rand_r(&seed) % 2);
            live[place].async = async;
            live[place].on = streams[rand_r(&seed) % 3];
            DO(async ? cuMemAllocAsync(&live[place].at, bytes, live[place].on)
                        : cudaMalloc((void **)&live[place].at, bytes));
        }
    }
}

/* Two libraries allocate in turns, from the same depth, or from ever new ones. */
static void askers(char **files, long turns, long deepest) {
    int (*pairs_of[2])(long, CUstream);
    for (int n = 0; n < 2; n++) {
        void *library = dlopen(files[n], RTLD_NOW);
        pairs_of[n] = library ? dlsym(library, "pair") : NULL;
        if (!pairs_of[n]) exit(1);
    }
    CUstream on = stream();
    for (long n = 0; n < turns; n++)
        for (int which = 0; which < 2; which++) DO(pairs_of[which](deepest ? n * 7 % deepest : 0, on));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    start_cuda();
    DO(cudaFree(NULL));
    if (!strcmp(what, "each")) each();
    else if (!strcmp(what, "rows")) rows();
    else if (!strcmp(what, "elsewhere")) elsewhere();
    else if (!strcmp(what, "graph")) graph();
    else if (!strcmp(what, "pairs")) pairs(atol(argv[2]), stream(), 4096);
    else if (!strcmp(what, "cancelled")) many = atol(argv[2]), run_cancelled(many_pairs, stream());
    else if (!strcmp(what, "askers")) askers(argv + 2, atol(argv[4]), atol(argv[5]));
    else if (!strcmp(what, "limited")) limited(atol(argv[2]));
    else if (!strcmp(what, "room_again")) room_again(argv[2]);
    else if (!strcmp(what, "endless")) endless(argv[2]);
    else if (!strcmp(what, "forks")) forks();
    else if (!strcmp(what, "anew")) anew(argv);
    else if (!strcmp(what, "job")) job(atoi(argv[2]), atol(argv[3]), argv[4][0]);
    else if (!strcmp(what, "wait")) {
        pairs(1, stream(), 4096);
        puts("ready");
        fflush(stdout);
        getchar();
    } else if (!strcmp(what, "exit")) return atoi(argv[2]);
    else if (!strcmp(what, "kill")) raise(atoi(argv[2]));
    else return 1;
    return 0;
}
