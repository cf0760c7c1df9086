/* A thread without a current context copies on a stream. The driver makes no such copy of
 * mapped memory that lies on several handles; of ours it is made all the same, of a program's own it is not. */
#include "../support/cuda.h"

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
CUresult cuMemcpy3DPeerAsync(const void *, CUstream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuCtxGetCurrent(CUcontext *);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemCreate(unsigned long long *, size_t, const void *, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, unsigned long long, unsigned long long);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const void *, size_t);

/* CUDA_MEMCPY3D_PEER. */
struct end { size_t x, y, z, level; int kind; void *host; CUdeviceptr device; void *array; CUcontext context; size_t pitch, height; };
struct planes { struct end from, to; size_t width, height, depth; };

static const size_t LONG = 20 * MiB, PAGE = 2 * MiB;
static CUstream stream;
static CUcontext context;

/* Three handles, one behind the other. */
static CUdeviceptr own_mappings(void) {
    const struct { int type, types, at, device; void *window; unsigned char flags[8]; } made = {1, 0, 1, 0, NULL, {0}};
    const struct { int at, device, access; } opened = {1, 0, 3};
    CUdeviceptr base;
    OK(cuMemAddressReserve(&base, 3 * PAGE, 0, 0, 0));
    for (int i = 0; i < 3; i++) {
        unsigned long long handle;
        OK(cuMemCreate(&handle, PAGE, &made, 0));
        OK(cuMemMap(base + i * PAGE, PAGE, 0, handle, 0));
    }
    OK(cuMemSetAccess(base, 3 * PAGE, &opened, 1));
    return base;
}

/* The first and the last byte of a copy of so many that was filled with a value before. */
static void is_copied(CUdeviceptr to, size_t bytes, unsigned char value) {
    unsigned char ends[2];
    OK(cuCtxSetCurrent(context));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(&ends[0], to, 1));
    OK(cuMemcpyDtoH_v2(&ends[1], to + bytes - 1, 1));
    CHECK(ends[0] == value && ends[1] == value);
    OK(cuCtxSetCurrent(NULL));
}

int main(void) {
    CUdeviceptr from, to, ordered, own, other;
    CUcontext current = (CUcontext)1;
    unsigned char *hosts = malloc(LONG);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&from, LONG));
    OK(cuMemAlloc_v2(&to, LONG));
    OK(cuMemAllocAsync(&ordered, LONG, stream));
    CHECK(is_pooled(from) && is_pooled(to) && is_pooled(ordered));
    own = own_mappings(), other = own_mappings();
    OK(cuCtxSetCurrent(NULL));

    OK(cuMemsetD8Async(from, 7, LONG, stream));
    OK(cuMemcpyDtoDAsync_v2(to, from, LONG, stream));
    is_copied(to, LONG, 7);
    OK(cuMemsetD8Async(to, 8, LONG, stream));
    OK(cuMemcpyAsync(ordered, to, LONG, stream));
    is_copied(ordered, LONG, 8);
    OK(cuMemcpyDtoDAsync_v2(own, to, 2 * PAGE, stream));
    is_copied(own, 2 * PAGE, 8);

    OK(cuMemsetD8Async(from, 9, LONG, stream));
    OK(cuMemcpyPeerAsync(to, context, from, context, LONG, stream));
    is_copied(to, LONG, 9);
    struct planes planes = {{.kind = 2, .device = to, .context = context, .pitch = MiB},
        {.kind = 2, .device = from, .context = context, .pitch = MiB}, MiB, LONG / MiB, 1};
    OK(cuMemcpy3DPeerAsync(&planes, stream));
    is_copied(from, LONG, 9);
    memset(hosts, 10, LONG);
    OK(cuMemcpyHtoDAsync_v2(from, hosts, LONG, stream));
    is_copied(from, LONG, 10);
    OK(cuMemcpyDtoHAsync_v2(hosts, to, LONG, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(hosts[0] == 9 && hosts[LONG - 1] == 9);

    /* Where both contexts are named that is no reason. */
    OK(cuMemcpyPeerAsync(other, context, own + PAGE / 2, context, PAGE, stream));
    OK(cuMemcpyPeerAsync(other, context, own, context, 3 * PAGE, stream));
    CHECK(cuMemcpyDtoDAsync_v2(own, own + PAGE / 2, PAGE, stream) == INVALID_VALUE);
    OK(cuCtxGetCurrent(&current));
    CHECK(current == NULL);
    return 0;
}
