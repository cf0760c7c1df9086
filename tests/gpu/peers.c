/* What copies and kernels between two GPUs need: which of the driver's calls
 * move the right bytes, from and to which kind of memory, with and without
 * cuCtxEnablePeerAccess; and whether the same holds on pooled memory.
 *
 *     gcc -O2 -o peers tests/gpu/peers.c -ldl
 *     ./peers [--shim target/release/libmemcuda.so]
 *
 * What may break a context runs in a process of its own, every byte is compared,
 * and the table comes last: "ok", the code of the call that failed, or how many
 * bytes were wrong. Ends with 0 where the columns under the library are equal
 * to those without it. Needs two GPUs that can reach each other.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream;
typedef unsigned long long Handle;
struct location { int kind, id; };
struct properties { int kind, handle_types; struct location where; void *windows; unsigned char flags[8]; };
struct access { struct location who; int flags; };

#define BYTES ((size_t)8 << 20)
#define DRIVER(X)                                                                        \
    X(cuInit, (unsigned))                                                                \
    X(cuDeviceGetCount, (int *))                                                         \
    X(cuDeviceGetName, (char *, int, int))                                               \
    X(cuDriverGetVersion, (int *))                                                       \
    X(cuDeviceCanAccessPeer, (int *, int, int))                                          \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, int))                                      \
    X(cuCtxSetCurrent, (CUcontext))                                                      \
    X(cuCtxSynchronize, (void))                                                          \
    X(cuCtxEnablePeerAccess, (CUcontext, unsigned))                                      \
    X(cuCtxDisablePeerAccess, (CUcontext))                                               \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                            \
    X(cuMemFree_v2, (CUdeviceptr))                                                       \
    X(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                \
    X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
    X(cuMemCreate, (Handle *, size_t, const struct properties *, unsigned long long))    \
    X(cuMemMap, (CUdeviceptr, size_t, size_t, Handle, unsigned long long))               \
    X(cuMemSetAccess, (CUdeviceptr, size_t, const struct access *, size_t))              \
    X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                              \
    X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                    \
    X(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t))                               \
    X(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                \
    X(cuMemcpy, (CUdeviceptr, CUdeviceptr, size_t))                                      \
    X(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                       \
    X(cuMemcpyPeer, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t))            \
    X(cuMemcpyPeerAsync, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)) \
    X(cuModuleLoadData, (CUmodule *, const void *))                                      \
    X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                       \
    X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                       unsigned, unsigned, CUstream, void **, void **))
#define DECLARE(name, arguments) static CUresult (*name) arguments;
DRIVER(DECLARE)

static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 words)\n{\n"
    " .reg .pred %p;\n .reg .b32 %r<6>;\n .reg .b64 %d<6>;\n"
    " ld.param.u64 %d0, [to];\n ld.param.u64 %d1, [from];\n ld.param.u32 %r0, [words];\n"
    " mov.u32 %r1, %ctaid.x;\n mov.u32 %r2, %ntid.x;\n mov.u32 %r3, %tid.x;\n"
    " mad.lo.u32 %r4, %r1, %r2, %r3;\n setp.ge.u32 %p, %r4, %r0;\n @%p ret;\n"
    " mul.wide.u32 %d2, %r4, 4;\n add.u64 %d3, %d0, %d2;\n add.u64 %d4, %d1, %d2;\n"
    " ld.global.u32 %r5, [%d4];\n st.global.u32 [%d3], %r5;\n ret;\n}\n";

static CUcontext contexts[2];
static const char *const kinds[] = {"cuMemAlloc", "cuMemAllocAsync", "cuMemCreate, 1 handle", "cuMemCreate, 2 handles"};
static const char *const ways[] = {
    "cuMemcpyPeer", "cuMemcpyPeerAsync", "cuMemcpyDtoD", "cuMemcpyDtoDAsync", "cuMemcpy", "cuMemcpyAsync",
    "kernel reads the other's", "kernel writes the other's",
};
enum { KINDS = 4, COPIES = 6, WAYS = 8 };
enum { NONE, ENABLED, DISABLED_AGAIN, MAPPED_FOR_BOTH, MODES };
static const char *const modes[] = {"no access", "enabled", "disabled again", "mapped for both"};

static _Noreturn void fail(const char *what, int code) {
    fprintf(stderr, "peers: %s: %d\n", what, code);
    exit(2);
}
#define NEED(call) do { int code_ = (call); if (code_ != 0) fail(#call, code_); } while (0)

static void load(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) fail(dlerror(), 0);
#define FIND(name, arguments) \
    if ((name = (CUresult(*) arguments)dlsym(driver, #name)) == NULL && strncmp(#name, "cuModule", 8) && strcmp(#name, "cuLaunchKernel")) fail("no " #name, 0);
    DRIVER(FIND)
}

static CUdeviceptr allocate(int kind, int device, int mode) {
    CUdeviceptr at = 0;
    NEED(cuCtxSetCurrent(contexts[device]));
    if (kind == 0) NEED(cuMemAlloc_v2(&at, BYTES));
    if (kind == 1) NEED(cuMemAllocAsync(&at, BYTES, NULL));
    if (kind >= 2) {
        int handles = kind - 1;
        size_t each = BYTES / handles;
        struct properties wanted = {.kind = 1, .where = {1, device}};
        struct access access[2] = {{{1, device}, 3}, {{1, !device}, 3}};
        NEED(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
        for (int i = 0; i < handles; i++) {
            Handle handle;
            NEED(cuMemCreate(&handle, each, &wanted, 0));
            NEED(cuMemMap(at + i * each, each, 0, handle, 0));
        }
        NEED(cuMemSetAccess(at, BYTES, access, mode == MAPPED_FOR_BOTH ? 2 : 1));
    }
    NEED(cuCtxSynchronize());
    return at;
}

/* The bytes of a transfer, different for each. */
static void pattern(uint32_t *words, uint32_t seed) {
    for (size_t i = 0; i < BYTES / 4; i++) words[i] = (uint32_t)i * 2654435761u + seed;
}

static CUfunction kernel_of(void) {
    CUmodule module;
    CUfunction function = NULL;
    if (cuModuleLoadData == NULL || cuLaunchKernel == NULL) return NULL;
    NEED(cuModuleLoadData(&module, ptx));
    NEED(cuModuleGetFunction(&function, module, "copy"));
    return function;
}

static int transfer(int way, CUdeviceptr to, int into, CUdeviceptr from, int out_of, int runs_on) {
    NEED(cuCtxSetCurrent(contexts[runs_on]));
    int code = 0;
    switch (way) {
    case 0: code = cuMemcpyPeer(to, contexts[into], from, contexts[out_of], BYTES); break;
    case 1: code = cuMemcpyPeerAsync(to, contexts[into], from, contexts[out_of], BYTES, NULL); break;
    case 2: code = cuMemcpyDtoD_v2(to, from, BYTES); break;
    case 3: code = cuMemcpyDtoDAsync_v2(to, from, BYTES, NULL); break;
    case 4: code = cuMemcpy(to, from, BYTES); break;
    case 5: code = cuMemcpyAsync(to, from, BYTES, NULL); break;
    default: {
        CUfunction copy = kernel_of();
        uint32_t words = BYTES / 4;
        void *arguments[] = {&to, &from, &words};
        if (copy == NULL) return -1;
        code = cuLaunchKernel(copy, words / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL);
    }
    }
    return code != 0 ? code : cuCtxSynchronize();
}

/* One way of a transfer, in both directions, from both devices' contexts. */
static void answer(int kind, int way, int mode) {
    static uint32_t sent[BYTES / 4], seen[BYTES / 4];
    CUdeviceptr memory[2] = {allocate(kind, 0, mode), allocate(kind, 1, mode)};
    size_t wrong = 0;
    int code = 0;
    for (int into = 0; into < 2 && code == 0; into++)
        for (int runs_on = 0; runs_on < 2 && code == 0; runs_on++) {
            /* A kernel that reads runs where it writes to, and the other way round. */
            if ((way == 6 && runs_on != into) || (way == 7 && runs_on == into)) continue;
            pattern(sent, 977 * (way + 10 * kind + 100 * into + 1000 * runs_on) + 1);
            NEED(cuCtxSetCurrent(contexts[!into]));
            NEED(cuMemcpyHtoD_v2(memory[!into], sent, BYTES));
            NEED(cuCtxSetCurrent(contexts[into]));
            memset(seen, 0xEE, BYTES);
            NEED(cuMemcpyHtoD_v2(memory[into], seen, BYTES));
            code = transfer(way, memory[into], into, memory[!into], !into, runs_on);
            if (code != 0) break;
            NEED(cuCtxSetCurrent(contexts[into]));
            NEED(cuMemcpyDtoH_v2(seen, memory[into], BYTES));
            for (size_t i = 0; i < BYTES; i++) wrong += ((char *)sent)[i] != ((char *)seen)[i];
        }
    if (code == -1) printf("no kernels here\n");
    else if (code != 0) printf("code %d\n", code);
    else if (wrong != 0) printf("%zu bytes wrong\n", wrong);
    else printf("ok\n");
    fflush(stdout);
}

static void start(int mode) {
    load();
    NEED(cuInit(0));
    for (int device = 0; device < 2; device++) NEED(cuDevicePrimaryCtxRetain(&contexts[device], device));
    for (int step = ENABLED; step <= DISABLED_AGAIN && mode <= DISABLED_AGAIN; step++)
        for (int device = 0; device < 2 && mode >= step; device++) {
            NEED(cuCtxSetCurrent(contexts[device]));
            NEED(step == ENABLED ? cuCtxEnablePeerAccess(contexts[!device], 0) : cuCtxDisablePeerAccess(contexts[!device]));
        }
}

typedef char Answer[64];

/* Runs some ways in a process of their own: an error may stay with its context. */
static void run(const char *self, const char *shim, int mode, int kind, int first, int behind, Answer *answers) {
    char words[4][8];
    int pipes[2], numbers[4] = {mode, kind, first, behind};
    for (int i = 0; i < 4; i++) snprintf(words[i], sizeof words[i], "%d", numbers[i]);
    if (pipe(pipes) != 0) fail("pipe", 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 1), close(pipes[0]), close(pipes[1]);
        if (shim != NULL) setenv("LD_PRELOAD", shim, 1);
        execl(self, self, "--ways", words[0], words[1], words[2], words[3], (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    FILE *from = fdopen(pipes[0], "r");
    int way = first, status = 0;
    while (way < behind && fgets(answers[way], sizeof *answers, from) != NULL) {
        answers[way][strcspn(answers[way], "\n")] = 0;
        way++;
    }
    fclose(from);
    waitpid(child, &status, 0);
    for (int i = way; i < behind; i++)
        if (WIFSIGNALED(status)) snprintf(answers[i], sizeof *answers, "died, signal %d", WTERMSIG(status));
        else snprintf(answers[i], sizeof *answers, "failed (see above)");
}

static void say_machine(void) {
    char name[100] = "";
    int count = 0, version = 0, there = 0, back = 0;
    load();
    NEED(cuInit(0));
    NEED(cuDeviceGetCount(&count));
    if (count < 2) fail("two devices are needed, and there is", count);
    NEED(cuDeviceGetName(name, sizeof name, 0));
    NEED(cuDriverGetVersion(&version));
    NEED(cuDeviceCanAccessPeer(&there, 0, 1));
    NEED(cuDeviceCanAccessPeer(&back, 1, 0));
    printf("%d x %s, driver API %d.%d, can access each other: %d %d, %zu MiB a transfer\n",
           count, name, version / 1000, version % 1000 / 10, there, back, BYTES >> 20);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv) {
    const char *shim = NULL;
    char self[4096] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) fail("/proc/self/exe", 0);
    if (argc == 6 && strcmp(argv[1], "--ways") == 0) {
        start(atoi(argv[2]));
        for (int way = atoi(argv[4]); way < atoi(argv[5]); way++) answer(atoi(argv[3]), way, atoi(argv[2]));
        _exit(0);
    }
    if (argc == 3 && strcmp(argv[1], "--shim") == 0) shim = realpath(argv[2], NULL);
    if (argc != 1 && shim == NULL) return fprintf(stderr, "usage: peers [--shim LIBRARY]\n"), 2;
    int status = 0;
    if (fork() == 0) say_machine();
    wait(&status);
    if (status != 0) return 2;
    static Answer bare[KINDS][MODES][WAYS], pooled[KINDS][MODES][WAYS];
    for (int kind = 0; kind < KINDS; kind++)
        for (int mode = 0; mode < MODES; mode++) {
            if (mode == MAPPED_FOR_BOTH && kind < 2) continue;
            /* The copies together; each kind of kernel by itself. */
            for (int first = 0; first < WAYS; first += first == 0 ? COPIES : 1) {
                int behind = first == 0 ? COPIES : first + 1;
                run(self, NULL, mode, kind, first, behind, bare[kind][mode]);
                /* What the program maps itself is not the library's. */
                if (shim != NULL && kind < 2) run(self, shim, mode, kind, first, behind, pooled[kind][mode]);
            }
        }
    int different = 0, asked = 0;
    printf("| memory | access | transfer | bare |%s\n|---|---|---|---|%s\n", shim ? " on the pool |" : "", shim ? "---|" : "");
    for (int kind = 0; kind < KINDS; kind++)
        for (int mode = 0; mode < MODES; mode++) {
            if (mode == MAPPED_FOR_BOTH && kind < 2) continue;
            Answer *b = bare[kind][mode], *p = pooled[kind][mode];
            for (int way = 0, behind; way < WAYS; way = behind) {
                /* Neighbours with equal answers share a line. */
                int last = way < COPIES ? COPIES : WAYS;
                for (behind = way + 1; behind < last && !strcmp(b[way], b[behind]) && !strcmp(p[way], p[behind]);) behind++;
                int differs = p[way][0] != 0 && strcmp(b[way], p[way]) != 0;
                different += differs * (behind - way), asked += behind - way;
                printf("| %s | %s | %s%s%s | %s |", kinds[kind], modes[mode], ways[way],
                       behind > way + 1 ? " to " : "", behind > way + 1 ? ways[behind - 1] : "", b[way]);
                if (shim != NULL) printf(" %s%s |", p[way], differs ? " DIFFERS" : "");
                printf("\n");
            }
        }
    printf("%d transfers asked for, %d differ\n", asked, different);
    return different != 0;
}
