/* Each line is what one call answered; the lines are the same with the library
 * and without it. */
#include "../support/cuda.h"
#include <pthread.h>
#include <unistd.h>

struct range { CUdeviceptr base; size_t bytes; uint32_t write; };
CUresult cuSimLaunch(CUstream, const struct range *, unsigned, double);
int cuSimCrash(CUstream);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxAttach(CUcontext *, unsigned);
CUresult cuCtxDetach(CUcontext);
CUresult cuCtxPushCurrent_v2(CUcontext);
CUresult cuCtxGetCurrent(CUcontext *);
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuCtxDisablePeerAccess(CUcontext);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuDeviceGetCount(int *);
CUresult cuMemsetD32_v2(CUdeviceptr, unsigned, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemcpyPeer(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);

/* CUdevResource; one of the streaming multiprocessors. */
struct resource { int type; char padding[92]; unsigned count; char rest[52]; };
CUresult cuDeviceGetDevResource(CUdevice, struct resource *, int);
CUresult cuDevResourceGenerateDesc(void **, const struct resource *, unsigned);

#define SAY(call) printf("%s: %d\n", #call, (call))

static inline void fill(CUdeviceptr at, size_t bytes, unsigned value) { OK(cuMemsetD32_v2(at, value, bytes / 4)); }

static inline int holds(CUdeviceptr at, size_t bytes, unsigned value) {
    unsigned *seen = (unsigned *)malloc(bytes);
    int same = 1;
    OK(cuMemcpyDtoH_v2(seen, at, bytes));
    for (size_t i = 0; i < bytes / 4; i++) same &= seen[i] == value;
    free(seen);
    return same;
}

/* More than half of the device. */
#define HUGE (9000 * MiB)

/* All that is free: nothing is left for the small allocation by which a free waits beside a
 * capture. */
static inline size_t all_memory(void) {
    size_t bytes, total;
    OK(cuMemGetInfo_v2(&bytes, &total));
    return bytes;
}

/* Lengths near this one, HUGE or more: each needs what the last one had. In the
 * end all is the driver's. */
static inline void comes_back(size_t bytes) {
    CUdeviceptr at = 0;
    CUmemoryPool pool;
    for (size_t part = 0; part < 3; part++) {
        SAY(cuMemAlloc_v2(&at, bytes - part * 2 * MiB));
        SAY(cuMemFree_v2(at));
    }
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    SAY(cuMemPoolTrimTo(pool, 0));
}
