/* Which cheap calls of the driver tell that a context is broken: before memory
 * is lent without any other call, one of them is asked (src/pool/health.rs).
 * Prints for each what it costs, what it answers after a kernel crashed and the
 * program was told, and whether it may be made while a stream captures.
 *
 *     gcc -O2 -o broken_context tests/gpu/broken_context.c -ldl && ./broken_context
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream, *CUevent, *CUgraph;

#define DRIVER(X)                                                          \
    X(cuInit, (unsigned))                                                  \
    X(cuDeviceGetName, (char *, int, int))                                 \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, int))                        \
    X(cuCtxSetCurrent, (CUcontext))                                        \
    X(cuCtxGetCurrent, (CUcontext *))                                      \
    X(cuCtxGetFlags, (unsigned *))                                         \
    X(cuCtxGetLimit, (size_t *, int))                                      \
    X(cuCtxGetStreamPriorityRange, (int *, int *))                         \
    X(cuCtxGetApiVersion, (CUcontext, unsigned *))                         \
    X(cuStreamCreate, (CUstream *, unsigned))                              \
    X(cuStreamSynchronize, (CUstream))                                     \
    X(cuStreamQuery, (CUstream))                                           \
    X(cuStreamIsCapturing, (CUstream, int *))                              \
    X(cuStreamGetFlags, (CUstream, unsigned *))                            \
    X(cuStreamGetCtx, (CUstream, CUcontext *))                             \
    X(cuStreamBeginCapture_v2, (CUstream, int))                            \
    X(cuStreamEndCapture, (CUstream, CUgraph *))                           \
    X(cuThreadExchangeStreamCaptureMode, (int *))                          \
    X(cuEventCreate, (CUevent *, unsigned))                                \
    X(cuEventRecord, (CUevent, CUstream))                                  \
    X(cuEventQuery, (CUevent))                                             \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                              \
    X(cuMemFree_v2, (CUdeviceptr))                                         \
    X(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                  \
    X(cuMemFreeAsync, (CUdeviceptr, CUstream))                             \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                               \
    X(cuPointerGetAttribute, (void *, int, CUdeviceptr))                   \
    X(cuModuleLoadData, (CUmodule *, const void *))                        \
    X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))         \
    X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                       unsigned, CUstream, void **, void **))
#define DECLARE(name, arguments) static int (*name) arguments;
DRIVER(DECLARE)
static int (*cuSimCrash)(CUstream);

static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry crash()\n{\n .reg .b64 %d;\n .reg .b32 %r;\n"
    " mov.u64 %d, 64;\n mov.u32 %r, 1;\n st.global.u32 [%d], %r;\n ret;\n}\n";

static int absent(void) { return 500; }

static CUstream stream, captures;
static CUevent never, complete;
static CUcontext context;
static CUdeviceptr memory, pooled;

#define NEED(call)                                                     \
    do {                                                               \
        int code_ = (call);                                            \
        if (code_ != 0) fprintf(stderr, #call ": %d\n", code_), exit(2); \
    } while (0)

static int ask(int which) {
    CUcontext c;
    unsigned u;
    size_t z, y;
    int i, j;
    switch (which) {
    case 0: return cuCtxGetCurrent(&c);
    case 1: return cuCtxGetFlags(&u);
    case 2: return cuCtxGetLimit(&z, 0);
    case 3: return cuCtxGetStreamPriorityRange(&i, &j);
    case 4: return cuCtxGetApiVersion(context, &u);
    case 5: return cuStreamIsCapturing(stream, &i);
    case 6: return cuStreamIsCapturing((CUstream)1, &i);
    case 7: return cuStreamIsCapturing((CUstream)2, &i);
    case 8: return cuStreamGetFlags(stream, &u);
    case 9: return cuStreamGetCtx(stream, &c);
    case 10: return cuPointerGetAttribute(&i, 2, memory);
    case 11: return cuEventQuery(never);
    case 12: return cuEventQuery(complete);
    case 13: return cuStreamQuery(stream);
    case 14: return cuEventRecord(complete, stream);
    case 15: return cuMemGetInfo_v2(&z, &y);
    }
    return -1;
}
static const char *const names[] = {
    "cuCtxGetCurrent", "cuCtxGetFlags", "cuCtxGetLimit", "cuCtxGetStreamPriorityRange",
    "cuCtxGetApiVersion", "cuStreamIsCapturing", "the same, legacy stream", "the same, per-thread stream",
    "cuStreamGetFlags", "cuStreamGetCtx", "cuPointerGetAttribute", "cuEventQuery, never recorded",
    "cuEventQuery, complete", "cuStreamQuery", "cuEventRecord", "cuMemGetInfo",
};
enum { CALLS = 16, ROUNDS = 20000, REPEATS = 11 };

static int by_value(const void *a, const void *b) { return *(double *)a < *(double *)b ? -1 : 1; }

static double cost(int which) {
    double all[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < ROUNDS; i++) ask(which);
        clock_gettime(CLOCK_MONOTONIC, &to);
        all[r] = ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / ROUNDS;
    }
    qsort(all, REPEATS, sizeof *all, by_value);
    return all[REPEATS / 2];
}

/* The answer while a stream captures globally, and whether the capture lives. */
static void captured(int which, int guarded, char *text) {
    int mode = 2, ended, answer;
    CUgraph graph;
    NEED(cuStreamBeginCapture_v2(captures, 0));
    if (guarded) NEED(cuThreadExchangeStreamCaptureMode(&mode));
    answer = ask(which);
    if (guarded) NEED(cuThreadExchangeStreamCaptureMode(&mode));
    ended = cuStreamEndCapture(captures, &graph);
    sprintf(text, "%d%s", answer, ended == 0 ? "" : ", lost");
}

static void crash(void) {
    CUmodule module;
    CUfunction function;
    if (cuSimCrash != NULL) { NEED(cuSimCrash(stream)); return; }
    NEED(cuModuleLoadData(&module, ptx));
    NEED(cuModuleGetFunction(&function, module, "crash"));
    NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
#define FIND(name, arguments) \
    if ((name = (int (*) arguments)dlsym(driver, #name)) == NULL) name = (int (*) arguments)(void *)absent;
    DRIVER(FIND)
    cuSimCrash = (int (*)(CUstream))dlsym(driver, "cuSimCrash");
    char name[100] = "", open[CALLS][32], guarded[CALLS][32];
    double ns[CALLS];
    NEED(cuInit(0));
    NEED(cuDeviceGetName(name, sizeof name, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    NEED(cuStreamCreate(&stream, 1));
    NEED(cuStreamCreate(&captures, 1));
    NEED(cuEventCreate(&never, 2));
    NEED(cuEventCreate(&complete, 2));
    NEED(cuMemAlloc_v2(&memory, 1 << 21));
    NEED(cuMemAllocAsync(&pooled, 1 << 21, stream));
    NEED(cuEventRecord(complete, stream));
    NEED(cuStreamSynchronize(stream));
    for (int i = 0; i < CALLS; i++) ns[i] = cost(i);
    for (int i = 0; i < CALLS; i++) captured(i, 0, open[i]), captured(i, 1, guarded[i]);
    crash();
    int told = cuStreamSynchronize(stream);
    printf("%s; a kernel crashed, cuStreamSynchronize answered %d\n\n", name, told);
    printf("| call | ns | after the crash | in a global capture | guarded |\n|---|---|---|---|---|\n");
    for (int i = 0; i < CALLS; i++)
        printf("| %s | %.0f | %d | %s | %s |\n", names[i], ns[i], ask(i), open[i], guarded[i]);
    CUdeviceptr at = 0;
    printf("| cuMemAlloc | | %d | | |\n", cuMemAlloc_v2(&at, 1 << 20));
    printf("| cuMemAllocAsync | | %d | | |\n", cuMemAllocAsync(&at, 1 << 20, stream));
    printf("| cuMemFreeAsync | | %d | | |\n", cuMemFreeAsync(pooled, stream));
    printf("| cuMemFree | | %d | | |\n", cuMemFree_v2(memory));
    return 0;
}
