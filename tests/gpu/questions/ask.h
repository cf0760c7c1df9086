/* Helpers of the questions: calls by name, streams, contexts, mappings, work of a known length, and how an answer is
 * printed. Over the simulated GPU work is cuSimLaunch, else kernels. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <stdarg.h>

typedef uint64_t P;
typedef long L;
static void *lib;
static void *sym(const char *n) { return dlsym(lib, n); }
static int callit(const char *n, L a, L b, L c, L d, L e, L f, L g) {
    int (*p)(L, L, L, L, L, L, L) = sym(n);
    return p ? p(a, b, c, d, e, f, g) : -1;
}
#define C_(n, a, b, c, d, e, f, g, ...) callit(n, (L)(a), (L)(b), (L)(c), (L)(d), (L)(e), (L)(f), (L)(g))
#define C(...) C_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0, 0)
typedef struct { char b[64]; } Ipc;
typedef struct { int type, id; } Loc;
typedef struct { Loc l; int flags; } Acc;
typedef struct { int type, types; Loc l; void *win; unsigned char fl[8]; } Prop;
typedef struct { P base; size_t bytes; uint32_t write; } Range;

static const char *group;
static int from, at;
static char text[4096];
static int begin(const char *q) {
    if (at++ < from) return 0;
    alarm(3);
    printf("%s | %s: ", group, q);
    fflush(stdout);
    return 1;
}
static void say(const char *f, ...) {
    va_list v;
    __builtin_va_start(v, f);
    vprintf(f, v);
    __builtin_va_end(v);
    printf("\n");
    fflush(stdout);
    alarm(20);
}
/* A question of one call; its code. */
#define Q(q, ...) do { if (begin(q)) { int r_ = (__VA_ARGS__); say("%d", r_); } } while (0)
/* The same of what may crash the context: what a wait says behind it; the next question has a new process then. */
#define X(q, ...) do { if (begin(q)) { C("cuCtxSynchronize"); int r_ = (__VA_ARGS__), w_ = C("cuCtxSynchronize"); say("%d, then %d", r_, w_); if (w_) _exit(8); } } while (0)

static int here[2] = {1, 0};
static double ms(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec / 1e6; }
static P ctx, module_, spin_, crash_, loadedin;
static int (*simlaunch)(P, const Range *, unsigned, double);
static const char ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 ns)\n{\n.reg .pred %p;\n.reg .u64 %a,%b,%c;\nld.param.u64 %a,[ns];\nmov.u64 %b,%globaltimer;\n"
    "again:\nmov.u64 %c,%globaltimer;\nsub.u64 %c,%c,%b;\nsetp.lt.u64 %p,%c,%a;\n@%p bra again;\nret;\n}\n"
    ".visible .entry crash(.param .u64 to)\n{\n.reg .u64 %a;\n.reg .u32 %v;\nld.param.u64 %a,[to];\nmov.u32 %v,1;\nst.global.u32 [%a],%v;\nret;\n}\n";
static void load(void) {
    P c = 0;
    C("cuCtxGetCurrent", &c);
    if (simlaunch || loadedin == c) return;
    if (C("cuModuleLoadData", &module_, ptx)) { printf("no kernels\n"); exit(9); }
    C("cuModuleGetFunction", &spin_, module_, "spin");
    C("cuModuleGetFunction", &crash_, module_, "crash");
    loadedin = c;
}
static int launch(P f, P s, uint64_t *argument) {
    int (*p)(P, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, P, void **, void **) = sym("cuLaunchKernel");
    void *a[] = {argument};
    return p ? p(f, 1, 1, 1, 1, 1, 1, 0, s, a, 0) : -1;
}
static int busy(P s, int milliseconds) {
    uint64_t ns = milliseconds * 1000000ull;
    load();
    return simlaunch ? simlaunch(s, 0, 0, milliseconds * 1e3) : launch(spin_, s, &ns);
}
static int crash(P s) {
    uint64_t to = 64;
    load();
    return simlaunch ? C("cuSimCrash", s) : launch(crash_, s, &to);
}
static void start(void) {
    if (C("cuInit", 0) || C("cuDevicePrimaryCtxRetain", &ctx, 0) || C("cuCtxSetCurrent", ctx)) { printf("no GPU\n"); exit(9); }
    simlaunch = sym("cuSimLaunch");
    load();
    C("cuCtxSynchronize");
}
static P stream(void) { P s = 0; C("cuStreamCreate", &s, 1); return s; }
static P blocking(void) { P s = 0; C("cuStreamCreate", &s, 0); return s; }
static P event(void) { P e = 0; C("cuEventCreate", &e, 2); return e; }
static P alloc(size_t n) { P p = 0; C("cuMemAlloc_v2", &p, n); return p; }
/* Another context; ours stays the only one of the stack. */
static P other(void) { P c = 0, was = 0; C("cuCtxCreate_v2", &c, 0, 0); C("cuCtxPopCurrent_v2", &was); return c; }
static P handle(size_t n) { P h = 0; Prop p = {1, 1, {1, 0}, 0, {0}}; C("cuMemCreate", &h, n, &p, 0); return h; }
static P reserve(size_t n) { P p = 0; C("cuMemAddressReserve", &p, n, 0, 0, 0); return p; }
static int grant(P p, size_t n, int f) { Acc a = {{1, 0}, f}; return C("cuMemSetAccess", p, n, &a, 1); }
#define M2 ((size_t)2 << 20)
static P mapped(P h) { P p = reserve(M2); C("cuMemMap", p, M2, 0, h, 0); grant(p, M2, 3); return p; }
static int relaxed(int mode) { int m = mode; C("cuThreadExchangeStreamCaptureMode", &m); return m; }

