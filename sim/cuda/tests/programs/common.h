/* The driver as these programs declare it, and what they have in common. */
#include "../../../include/memcuda_sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t P;   /* CUdeviceptr, handles */
typedef void *S;      /* CUstream */
typedef struct { int type, id; } Location;
typedef struct { int type, handle_types; Location location; void *win; unsigned char flags[8]; } Properties;
typedef struct { Location location; int flags; } Access;
typedef struct { char bytes[64]; } Ipc;

int cuInit(unsigned); int cuDriverGetVersion(int *); int cuDeviceGetCount(int *); int cuDeviceGetAttribute(int *, int, int); int cuDeviceGetName(char *, int, int);
int cuDevicePrimaryCtxRetain(P *, int); int cuDevicePrimaryCtxRelease_v2(int); int cuDevicePrimaryCtxReset_v2(int);
int cuCtxSetCurrent(P); int cuCtxGetCurrent(P *); int cuCtxSynchronize(void); int cuCtxRecordEvent(P, P); int cuCtxWaitEvent(P, P); int cuCtxCreate_v2(P *, unsigned, int); int cuCtxGetFlags(unsigned *); int cuCtxGetApiVersion(P, unsigned *);
typedef struct { int type; char padding[92]; unsigned count; char rest[52]; } Resource;
int cuDeviceGetDevResource(int, Resource *, int); int cuDevResourceGenerateDesc(P *, const Resource *, unsigned);
int cuGreenCtxCreate(P *, P, int, unsigned); int cuGreenCtxDestroy(P); int cuCtxFromGreenCtx(P *, P); int cuGreenCtxStreamCreate(S *, P, unsigned, int); int cuStreamGetCtx(S, P *); int cuStreamGetCtx_v2(S, P *, P *);
int cuCtxDestroy_v2(P); int cuCtxEnablePeerAccess(P, unsigned); int cuCtxDisablePeerAccess(P);
int cuMemAlloc_v2(P *, size_t); int cuMemFree_v2(P); int cuMemAllocPitch_v2(P *, size_t *, size_t, size_t, unsigned);
int cuMemGetInfo_v2(size_t *, size_t *); int cuMemGetAddressRange_v2(P *, size_t *, P);
int cuMemAllocManaged(P *, size_t, unsigned); int cuArrayCreate_v2(P *, const void *); int cuArrayDestroy(P);
int cuMemAllocAsync(P *, size_t, S); int cuMemFreeAsync(P, S); int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemAddressReserve(P *, size_t, size_t, P, uint64_t); int cuMemAddressFree(P, size_t);
int cuMemCreate(P *, size_t, const Properties *, uint64_t); int cuMemRelease(P);
int cuMemMap(P, size_t, size_t, P, uint64_t); int cuMemSetAccess(P, size_t, const Access *, size_t); int cuMemUnmap(P, size_t);
int cuMemExportToShareableHandle(void *, P, int, uint64_t); int cuMemImportFromShareableHandle(P *, void *, int);
int cuMemRetainAllocationHandle(P *, P); int cuMemGetAllocationGranularity(size_t *, const Properties *, int);
int cuPointerGetAttribute(void *, int, P); int cuPointerGetAttributes(unsigned, int *, void **, P); int cuPointerSetAttribute(const void *, int, P);
int cuIpcGetMemHandle(Ipc *, P); int cuIpcOpenMemHandle_v2(P *, Ipc, unsigned); int cuIpcCloseMemHandle(P);
int cuStreamCreate(S *, unsigned); int cuStreamDestroy_v2(S); int cuStreamSynchronize(S); int cuStreamQuery(S); int cuStreamWaitEvent(S, P, unsigned);
int cuStreamBeginCapture_v2(S, int); int cuStreamEndCapture(S, P *); int cuStreamIsCapturing(S, int *); int cuThreadExchangeStreamCaptureMode(int *);
int cuGraphGetNodes(P, P *, size_t *); int cuGraphInstantiateWithFlags(P *, P, uint64_t); int cuGraphLaunch(P, S); int cuGraphDestroy(P); int cuGraphExecDestroy(P);
int cuEventCreate(P *, unsigned); int cuEventRecord(P, S); int cuEventRecordWithFlags(P, S, unsigned); int cuEventQuery(P); int cuEventSynchronize(P); int cuEventDestroy_v2(P);
int cuEventElapsedTime(float *, P, P);
int cuMemcpyHtoD_v2(P, const void *, size_t); int cuMemcpyDtoH_v2(void *, P, size_t); int cuMemcpy(P, P, size_t); int cuMemcpyDtoD_v2(P, P, size_t); int cuMemcpyPeer(P, P, P, P, size_t); int cuMemcpyPeerAsync(P, P, P, P, size_t, S);
int cuMemcpyAsync(P, P, size_t, S); int cuMemcpyDtoDAsync_v2(P, P, size_t, S);
/* CUDA_MEMCPY2D and CUDA_MEMCPY3D; kinds: 1 host, 2 device, 3 array, 4 by its address. */
typedef struct { size_t x, y; int kind; const void *host; P device, array; size_t pitch; } End2D;
typedef struct { End2D from, to; size_t width, height; } Copy2D;
typedef struct { size_t x, y, z, level; int kind; const void *host; P device, array, none; size_t pitch, height; } End3D;
typedef struct { End3D from, to; size_t width, height, depth; } Copy3D;
int cuMemcpy2D_v2(const Copy2D *); int cuMemcpy2DAsync_v2(const Copy2D *, S); int cuMemcpy3D_v2(const Copy3D *);
int cuMemsetD2D16_v2(P, size_t, unsigned short, size_t, size_t);
int cuMemsetD8_v2(P, unsigned char, size_t); int cuMemsetD8Async(P, unsigned char, size_t, S); int cuMemsetD32Async(P, unsigned, size_t, S);
int cuStreamWriteValue64(S, P, uint64_t, unsigned); int cuStreamWaitValue64(S, P, uint64_t, unsigned); int cuStreamGetCaptureInfo(S, unsigned *, uint64_t *);
int cuStreamWriteValue32(S, P, uint32_t, unsigned); int cuStreamWaitValue32(S, P, uint32_t, unsigned);
int cuStreamWriteValue64_v2(S, P, uint64_t, unsigned); int cuStreamWaitValue64_v2(S, P, uint64_t, unsigned);
int cuStreamWriteValue32_v2(S, P, uint32_t, unsigned); int cuStreamWaitValue32_v2(S, P, uint32_t, unsigned);
int cuMemHostRegister_v2(void *, size_t, unsigned); int cuMemHostUnregister(void *);
int cuLaunchHostFunc(S, void (*)(void *), void *);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *); int cuGetErrorName(int, const char **);
int cuDeviceGetDefaultMemPool(P *, int); int cuMemPoolSetAttribute(P, int, void *); int cuMemPoolGetAttribute(P, int, void *); int cuMemPoolTrimTo(P, size_t);
int cuMemPoolSetAccess(P, const Access *, size_t);

#define MIB ((size_t)1 << 20)
#define PIECE (2 * MIB)
#define LEGACY ((S)1)
#define PER_THREAD ((S)2)
#define NON_BLOCKING 1
#define ASYNC_ALLOCATION_POOL_THRESHOLD 4

/* The answer must be this code. */
#define IS(code, call) do { int got_ = (call); if (got_ != (code)) { \
    fprintf(stderr, "%s:%d: %s answered %d, not %d\n", __FILE__, __LINE__, #call, got_, (int)(code)); exit(3); } } while (0)
#define OK(call) IS(0, call)
#define TRUE(what) do { if (!(what)) { fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); exit(3); } } while (0)

static P context;

static inline void start(void) {
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}
static inline S stream(void) { S s; OK(cuStreamCreate(&s, NON_BLOCKING)); return s; }
static inline P green(void) { Resource r; P d, g; OK(cuDeviceGetDevResource(0, &r, 1)); OK(cuDevResourceGenerateDesc(&d, &r, 1)); OK(cuGreenCtxCreate(&g, d, 0, 1)); return g; }
static inline S green_stream(P g) { S s; OK(cuGreenCtxStreamCreate(&s, g, NON_BLOCKING, 0)); return s; }
static inline P event(void) { P e; OK(cuEventCreate(&e, 2)); return e; }
static inline P alloc(size_t bytes) { P p; OK(cuMemAlloc_v2(&p, bytes)); return p; }
static inline Properties properties(void) { Properties p = {1, 1, {1, 0}, 0, {0}}; return p; }
static inline P handle(size_t bytes) { P h; Properties p = properties(); OK(cuMemCreate(&h, bytes, &p, 0)); return h; }
static inline P reserve(size_t bytes) { P p; OK(cuMemAddressReserve(&p, bytes, 0, 0, 0)); return p; }
static inline void grant(P at, size_t bytes, int flags) { Access a = {{1, 0}, flags}; OK(cuMemSetAccess(at, bytes, &a, 1)); }
static inline void map(P at, size_t bytes, P h) { OK(cuMemMap(at, bytes, 0, h, 0)); grant(at, bytes, 3); }
static inline P mapped(size_t bytes, P h) { P at = reserve(bytes); map(at, bytes, h); return at; }

/* Kernels of 100 microseconds. */
static inline int touch(S s, P at, size_t bytes, int write) { CUsimRange r = {at, bytes, write}; return cuSimLaunch(s, &r, 1, 100.0); }
static inline void reads(S s, P at, size_t bytes) { OK(touch(s, at, bytes, 0)); }
static inline void writes(S s, P at, size_t bytes) { OK(touch(s, at, bytes, 1)); }
/* What comes on `to` comes after what is on `from`. */
static inline void edge(S from, S to) { P e = event(); OK(cuEventRecord(e, from)); OK(cuStreamWaitEvent(to, e, 0)); OK(cuEventDestroy_v2(e)); }

typedef struct { const char *name; void (*run)(void); } Case;
#define CASE(name) {#name, name}
/* Runs the case that the command line names. */
static inline int run_case(const Case *cases, size_t count, int argc, char **argv) {
    for (size_t i = 0; i < count && argc > 1; i++)
        if (!strcmp(cases[i].name, argv[1])) { cases[i].run(); return 0; }
    fprintf(stderr, "no such case\n");
    return 4;
}
#define MAIN(cases) int main(int argc, char **argv) { return run_case(cases, sizeof cases / sizeof *cases, argc, argv); }
