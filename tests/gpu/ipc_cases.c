/* What CUDA IPC answers between two processes, a line a case, and what it costs:
 *
 *   gcc -O2 -o ipc_cases tests/gpu/ipc_cases.c -ldl && ./ipc_cases
 *
 * The same bare and with the library, but where tests/gpu/ipc.py says otherwise.
 * Needs no header and no runtime: the driver is looked up as libcudart does it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MiB ((size_t)1 << 20)
typedef unsigned long long ptr;
typedef struct { unsigned char bytes[64]; } ipc;

#define FUNCTIONS(X)                                                          \
    X(cuInit, (unsigned))                                                     \
    X(cuDevicePrimaryCtxRetain, (void **, int))                               \
    X(cuDevicePrimaryCtxReset_v2, (int))                                      \
    X(cuCtxSetCurrent, (void *))                                              \
    X(cuCtxSynchronize, (void))                                               \
    X(cuMemAlloc_v2, (ptr *, size_t))                                         \
    X(cuMemFree_v2, (ptr))                                                    \
    X(cuMemcpyHtoD_v2, (ptr, const void *, size_t))                           \
    X(cuMemcpyDtoH_v2, (void *, ptr, size_t))                                 \
    X(cuMemsetD32_v2, (ptr, unsigned, size_t))                                \
    X(cuMemGetAddressRange_v2, (ptr *, size_t *, ptr))                        \
    X(cuPointerGetAttribute, (void *, int, ptr))                              \
    X(cuStreamCreate, (void **, unsigned))                                    \
    X(cuStreamBeginCapture_v2, (void *, int))                                 \
    X(cuStreamEndCapture, (void *, void **))                                  \
    X(cuIpcGetMemHandle, (ipc *, ptr))                                        \
    X(cuIpcOpenMemHandle_v2, (ptr *, ipc, unsigned))                          \
    X(cuIpcCloseMemHandle, (ptr))
#define DECLARE(name, arguments) static int (*name) arguments;
FUNCTIONS(DECLARE)

static void *stream;
static int to_other, from_other;

static void start(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (driver == NULL) fprintf(stderr, "FAIL: %s\n", dlerror()), exit(1);
#define FIND(name, arguments) *(void **)&name = dlsym(driver, #name);
    FUNCTIONS(FIND)
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuStreamCreate(&stream, 1))
        fprintf(stderr, "FAIL: no device\n"), exit(1);
}

static void must(int code, const char *what) {
    if (code == 0) return;
    fprintf(stderr, "FAIL: %s: %d\n", what, code);
    exit(1);
}
#define MUST(call) must(call, #call)

static void say(const void *what, size_t bytes) {
    if (write(to_other, what, bytes) != (ssize_t)bytes) exit(2);
}
static void hear(void *what, size_t bytes) {
    for (char *at = what; bytes > 0;) {
        ssize_t got = read(from_other, at, bytes);
        if (got <= 0) exit(2);
        at += got, bytes -= (size_t)got;
    }
}
/* Both have come to this place. */
static void meet(void) {
    char c = 'x';
    say(&c, 1);
    hear(&c, 1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
static int rising(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *times, int count) {
    qsort(times, (size_t)count, sizeof *times, rising);
    return times[count / 2];
}

static unsigned first_word(ptr at) {
    unsigned word = 0;
    MUST(cuMemcpyDtoH_v2(&word, at, 4));
    return word;
}

enum { COSTS = 4, ROUNDS = 21 };
static const size_t cost_sizes[COSTS] = {2 * MiB, 64 * MiB, 256 * MiB, 1024 * MiB};

static void exporter(void) {
    ptr at, small, other;
    ipc handle;
    start();
    MUST(cuMemAlloc_v2(&at, 64 * MiB));
    MUST(cuMemAlloc_v2(&small, 1000));
    MUST(cuMemAlloc_v2(&other, 8 * MiB));
    MUST(cuMemsetD32_v2(at, 11, 16 * MiB));
    MUST(cuMemsetD32_v2(small, 12, 250));
    MUST(cuMemsetD32_v2(other, 13, 2 * MiB));
    MUST(cuCtxSynchronize());
    const ptr all[] = {at, small, other};
    for (int i = 0; i < 3; i++) {
        MUST(cuIpcGetMemHandle(&handle, all[i] + (i == 0 ? 33 * MiB : 0)));
        say(&handle, sizeof handle);
    }
    meet();
    printf("what the importer wrote is here: %u\n", first_word(at + 4 * MiB));
    /* Its handle stays valid while the exporter has closed nothing. */
    for (int mode = 0; mode < 3; mode++) {
        void *graph = NULL;
        MUST(cuStreamBeginCapture_v2(stream, mode));
        int code = cuIpcGetMemHandle(&handle, at);
        int end = cuStreamEndCapture(stream, &graph);
        printf("export in a capture of mode %d: %d, capture %d\n", mode, code, end);
    }
    meet();
    /* The importer has closed the third: its handle is dead once it is freed. */
    MUST(cuMemFree_v2(other));
    meet();
    /* Costs. */
    for (int i = 0; i < COSTS; i++) {
        double times[ROUNDS], first = 0;
        ptr big;
        MUST(cuMemAlloc_v2(&big, cost_sizes[i]));
        for (int round = 0; round < ROUNDS + 1; round++) {
            double began = now();
            MUST(cuIpcGetMemHandle(&handle, big));
            (round == 0 ? &first : times)[round == 0 ? 0 : round - 1] = now() - began;
        }
        say(&handle, sizeof handle);
        meet();
        MUST(cuMemFree_v2(big));
        printf("us to export %4zu MiB: first %.1f, again %.2f\n", cost_sizes[i] / MiB, first, median(times, ROUNDS));
    }
    fflush(stdout);
    meet();
    /* It ends, while the importer has the first one open. */
}

static void importer(void) {
    ptr at = 7, again = 7, small = 7, third = 7, base = 0;
    size_t bytes = 0;
    unsigned long long value = 0;
    ipc handles[3], handle;
    start();
    for (int i = 0; i < 3; i++) hear(&handles[i], sizeof handles[i]);
    printf("open with flags 0: %d\n", cuIpcOpenMemHandle_v2(&at, handles[0], 0));
    if (at != 7) cuIpcCloseMemHandle(at);
    printf("open with flags 2: %d\n", cuIpcOpenMemHandle_v2(&again, handles[0], 2));
    if (again != 7) cuIpcCloseMemHandle(again);
    printf("open: %d\n", cuIpcOpenMemHandle_v2(&at, handles[0], 1));
    printf("the bytes: %u and %u\n", first_word(at), first_word(at + 64 * MiB - 4));
    printf("open again: %d", cuIpcOpenMemHandle_v2(&again, handles[0], 1));
    printf(", the same address: %d\n", at == again);
    printf("range: %d", cuMemGetAddressRange_v2(&base, &bytes, at + MiB));
    printf(", base %s, %zu bytes\n", base == at ? "the same" : "another", bytes);
    static const int attributes[] = {1, 2, 6, 8, 9, 10, 13, 14, 15, 16};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        value = 0;
        int code = cuPointerGetAttribute(&value, attributes[i], at);
        printf("attribute %d: %d, %llu\n", attributes[i], code, attributes[i] == 1 ? value != 0 : value);
    }
    printf("export of what is open: %d\n", cuIpcGetMemHandle(&handle, at));
    printf("free of what is open: %d\n", cuMemFree_v2(at));
    printf("close inside: %d\n", cuIpcCloseMemHandle(at + MiB));
    MUST(cuMemsetD32_v2(at + 4 * MiB, 21, 1));
    MUST(cuCtxSynchronize());
    printf("open of 1000 bytes: %d", cuIpcOpenMemHandle_v2(&small, handles[1], 1));
    printf(", %u", first_word(small));
    printf("; close: %d\n", cuIpcCloseMemHandle(small));
    meet();
    for (int mode = 0; mode < 3; mode++) {
        void *graph = NULL;
        MUST(cuStreamBeginCapture_v2(stream, mode));
        int opened = cuIpcOpenMemHandle_v2(&third, handles[2], 1);
        int end = cuStreamEndCapture(stream, &graph);
        printf("open in a capture of mode %d: %d, capture %d\n", mode, opened, end);
        if (opened != 0 && cuIpcOpenMemHandle_v2(&third, handles[2], 1) != 0) continue;
        MUST(cuStreamBeginCapture_v2(stream, mode));
        int closed = cuIpcCloseMemHandle(third);
        end = cuStreamEndCapture(stream, &graph);
        printf("close in a capture of mode %d: %d, capture %d\n", mode, closed, end);
        if (closed != 0) cuIpcCloseMemHandle(third);
    }
    meet();
    meet();
    printf("open of what was freed: %d\n", cuIpcOpenMemHandle_v2(&third, handles[2], 1));
    for (int i = 0; i < COSTS; i++) {
        double opens[ROUNDS], agains[ROUNDS], closes[ROUNDS];
        hear(&handle, sizeof handle);
        for (int round = 0; round < ROUNDS; round++) {
            double began = now();
            MUST(cuIpcOpenMemHandle_v2(&third, handle, 1));
            opens[round] = now() - began;
            began = now();
            MUST(cuIpcOpenMemHandle_v2(&again, handle, 1));
            agains[round] = now() - began;
            MUST(cuIpcCloseMemHandle(again));
            began = now();
            MUST(cuIpcCloseMemHandle(third));
            closes[round] = now() - began;
        }
        printf("us to open   %4zu MiB: %.1f, again %.2f, close %.1f\n", cost_sizes[i] / MiB, median(opens, ROUNDS),
               median(agains, ROUNDS), median(closes, ROUNDS));
        meet();
    }
    meet();
    usleep(500000);
    printf("the bytes after the exporter's end: %u\n", first_word(at));
    again = 7;
    printf("open after the exporter's end: %d\n", cuIpcOpenMemHandle_v2(&again, handles[0], 1));
    int open = again == at ? 3 : 2;
    for (int i = 0; i < open; i++) printf("close: %d\n", cuIpcCloseMemHandle(at));
    printf("one close more: %d\n", cuIpcCloseMemHandle(at));
    /* Once nobody has it open any more. */
    printf("open when all are gone: %d\n", cuIpcOpenMemHandle_v2(&again, handles[1], 1));
}

int main(void) {
    int here[2], there[2], status = 0;
    if (pipe(here) || pipe(there)) return 1;
    signal(SIGPIPE, SIG_IGN);
    pid_t child = fork();
    to_other = child == 0 ? there[1] : here[1];
    from_other = child == 0 ? here[0] : there[0];
    /* Whoever ends is noticed by the other. */
    close(child == 0 ? here[1] : there[1]);
    close(child == 0 ? there[0] : here[0]);
    if (child == 0) {
        exporter();
        _exit(0);
    }
    importer();
    fflush(stdout);
    waitpid(child, &status, 0);
    return status != 0;
}
