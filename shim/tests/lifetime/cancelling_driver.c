/* A driver in whose calls a thread that is cancelled ends: those that the library makes for its
 * pool, or passes on. */
#include "../support/cuda.h"
#include <pthread.h>

static void *behind(const char *name) {
    pthread_testcancel();
    return dlsym(RTLD_NEXT, name);
}

#define ENDS_IN(name, arguments, ...) \
    CUresult name arguments { return ((CUresult(*) arguments)behind(#name))(__VA_ARGS__); }

typedef unsigned long long u64;

ENDS_IN(cuMemAddressReserve, (CUdeviceptr *at, size_t bytes, size_t align, CUdeviceptr hint, u64 flags), at, bytes, align, hint, flags)
ENDS_IN(cuMemAddressFree, (CUdeviceptr at, size_t bytes), at, bytes)
ENDS_IN(cuMemCreate, (u64 *handle, size_t bytes, const void *properties, u64 flags), handle, bytes, properties, flags)
ENDS_IN(cuMemMap, (CUdeviceptr at, size_t bytes, size_t offset, u64 handle, u64 flags), at, bytes, offset, handle, flags)
ENDS_IN(cuMemUnmap, (CUdeviceptr at, size_t bytes), at, bytes)
ENDS_IN(cuMemRelease, (u64 handle), handle)
ENDS_IN(cuEventSynchronize, (void *event), event)
ENDS_IN(cuStreamQuery, (CUstream stream), stream)
ENDS_IN(cuMemAlloc_v2, (CUdeviceptr *at, size_t bytes), at, bytes)
ENDS_IN(cuMemFree_v2, (CUdeviceptr at), at)
ENDS_IN(cuMemAllocAsync, (CUdeviceptr *at, size_t bytes, CUstream stream), at, bytes, stream)
ENDS_IN(cuMemFreeAsync, (CUdeviceptr at, CUstream stream), at, stream)
ENDS_IN(cuMemAllocManaged, (CUdeviceptr *at, size_t bytes, unsigned flags), at, bytes, flags)
ENDS_IN(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from, bytes)
ENDS_IN(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes), to, from, bytes)
ENDS_IN(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device), context, flags, device)
ENDS_IN(cuCtxDestroy_v2, (CUcontext context), context)
