/* Copies between two devices of which neither reaches the other's memory: the
 * lines are those of the bare driver. With `refused`, which is for the library
 * alone, copies that must not be made. */
#include "answers.h"

struct properties { int kind, handle_types, location, device; void *windows; unsigned char flags[8]; };
struct access { int kind, device, flags; };
typedef unsigned long long Handle;
typedef CUresult Copy(CUdeviceptr, CUdeviceptr, size_t);
typedef CUresult CopyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemCreate(Handle *, size_t, const struct properties *, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, Handle, unsigned long long);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const struct access *, size_t);
CUresult cuGraphInstantiateWithFlags(Handle *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(Handle, CUstream);

int cudaSetDevice(int);
int cudaDeviceSynchronize(void);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);

enum { WAYS = 8 };
static const char *const ways[WAYS] = {
    "cuMemcpy", "cuMemcpyDtoD_v2", "cuMemcpy_ptds", "cuMemcpyDtoD_v2_ptds",
    "cuMemcpyAsync", "cuMemcpyDtoDAsync_v2", "cuMemcpyAsync_ptsz", "cuMemcpyDtoDAsync_v2_ptsz",
};
static CUcontext contexts[2];

static CUdeviceptr allocate(int on, size_t bytes) {
    CUdeviceptr at = 0;
    OK(cuCtxSetCurrent(contexts[on]));
    OK(cuMemAlloc_v2(&at, bytes));
    return at;
}

static int copy(int way, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    void *found = dlsym(RTLD_DEFAULT, ways[way]);
    return way < 4 ? ((Copy *)found)(to, from, bytes) : ((CopyAsync *)found)(to, from, bytes, stream);
}

static void fill_on(int device, CUdeviceptr at, size_t bytes, unsigned value) {
    OK(cuCtxSetCurrent(contexts[device]));
    fill(at, bytes, value);
    OK(cuCtxSynchronize());
}

static int holds_on(int device, CUdeviceptr at, size_t bytes, unsigned value) {
    OK(cuCtxSetCurrent(contexts[device]));
    return holds(at, bytes, value);
}

/* Every way to copy a size, in both directions, from both devices' contexts,
 * inside of larger allocations. */
static void copies(const char *when, size_t bytes) {
    static unsigned value = 1;
    CUdeviceptr whole[2] = {allocate(0, bytes + 1000), allocate(1, bytes + 1000)};
    CUdeviceptr at[2] = {whole[0] + 512, whole[1] + 512};
    for (int way = 0; way < WAYS; way++)
        for (int round = 0; round < 4; round++, value++) {
            int into = round & 1, here = round >> 1;
            CUstream stream = NULL;
            fill_on(!into, at[!into], bytes, value);
            fill_on(into, whole[into], bytes + 1000, 0);
            OK(cuCtxSetCurrent(contexts[here]));
            OK(cuStreamCreate(&stream, 1));
            int code = copy(way, at[into], at[!into], bytes, stream);
            OK(cuCtxSynchronize());
            printf("%s, %s of %zu to device %d, device %d current: %d, right %d, no more %d\n", when, ways[way], bytes, into,
                   here, code, holds_on(into, at[into], bytes, value),
                   holds_on(into, whole[into], 512, 0) && holds_on(into, at[into] + bytes, 488, 0));
            OK(cuCtxSetCurrent(contexts[here]));
            OK(cuStreamDestroy_v2(stream));
        }
    for (int i = 0; i < 2; i++) OK(cuMemFree_v2(whole[i]));
}

/* A copy becomes part of a capture, and the graph makes it each time. */
static void captured(void) {
    CUdeviceptr from = allocate(0, 5 * MiB), to = allocate(1, 5 * MiB);
    OK(cuCtxSetCurrent(contexts[0]));
    for (int way = 4; way < WAYS; way++) {
        CUstream stream = NULL;
        CUgraph graph = NULL;
        Handle executable = 0;
        int status = 0;
        OK(cuStreamCreate(&stream, 1));
        OK(cuStreamBeginCapture_v2(stream, 0));
        printf("captured %s: %d\n", ways[way], copy(way, to, from, 5 * MiB, stream));
        SAY(cuStreamIsCapturing(stream, &status));
        printf("still captures: %d\n", status);
        SAY(cuStreamEndCapture(stream, &graph));
        OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
        for (int round = 0; round < 2; round++) {
            fill_on(0, from, 5 * MiB, 100 * way + round);
            SAY(cuGraphLaunch(executable, stream));
            OK(cuStreamSynchronize(stream));
            printf("replayed: %d\n", holds_on(1, to, 5 * MiB, 100 * way + round));
            OK(cuCtxSetCurrent(contexts[0]));
        }
    }
    OK(cuMemFree_v2(from));
    OK(cuMemFree_v2(to));
}

/* Queued behind a kernel that writes the source, and before one that reads. */
static void in_order(void) {
    CUdeviceptr from = allocate(0, 3 * MiB), to = allocate(1, 3 * MiB);
    struct range wrote = {from, 3 * MiB, 1};
    CUstream stream = NULL;
    OK(cuCtxSetCurrent(contexts[0]));
    OK(cuStreamCreate(&stream, 1));
    OK(cuSimLaunch(stream, &wrote, 1, 500.0));
    SAY(cuMemcpyAsync(to, from, 3 * MiB, stream));
    OK(cuSimLaunch(stream, &wrote, 1, 500.0));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree_v2(from));
    OK(cuMemFree_v2(to));
}

/* The other end is none of cudaMalloc's. */
static void with_others(void) {
    CUdeviceptr from = allocate(0, 4 * MiB), to = allocate(1, 4 * MiB), managed = 0, mapped = 0, ordered = 0;
    struct properties wanted = {.kind = 1, .location = 1, .device = 1};
    struct access own = {1, 1, 3};
    Handle handle = 0;
    OK(cuMemAllocManaged(&managed, 4 * MiB, 1));
    OK(cuMemAllocAsync(&ordered, 4 * MiB, NULL));
    OK(cuMemCreate(&handle, 4 * MiB, &wanted, 0));
    OK(cuMemAddressReserve(&mapped, 4 * MiB, 0, 0, 0));
    OK(cuMemMap(mapped, 4 * MiB, 0, handle, 0));
    OK(cuMemSetAccess(mapped, 4 * MiB, &own, 1));
    OK(cuCtxSynchronize());
    CUdeviceptr ends[] = {managed, mapped, ordered};
    for (int i = 0; i < 3; i++)
        for (int here = 0; here < 2; here++)
            for (int back = 0; back < 2; back++) {
                unsigned value = 1000 + 100 * i + 10 * here + back;
                fill_on(back ? 1 : 0, back ? ends[i] : from, 4 * MiB, value);
                OK(cuCtxSetCurrent(contexts[here]));
                int code = back ? cuMemcpy(from, ends[i], 4 * MiB) : cuMemcpy(ends[i], from, 4 * MiB);
                OK(cuCtxSynchronize());
                printf("other end %d, back %d, device %d current: %d", i, back, here, code);
                printf(", right %d\n", back ? holds_on(0, from, 4 * MiB, value) : holds_on(1, ends[i], 4 * MiB, value));
            }
    OK(cuMemFree_v2(managed));
    OK(cuMemFree_v2(ordered));
    OK(cuMemFree_v2(from));
    OK(cuMemFree_v2(to));
}

/* Lookups by name give what linking gives, in both spellings. */
static void looked_up(void) {
    static const char *const names[4] = {"cuMemcpy", "cuMemcpyDtoD", "cuMemcpyAsync", "cuMemcpyDtoDAsync"};
    for (int i = 0; i < 8; i++) {
        int own_stream = i & 1, status = 0;
        const char *exported = ways[i / 4 * 4 + own_stream * 2 + i / 2 % 2];
        void *found = NULL;
        int code = cuGetProcAddress_v2(names[i / 2], &found, 12000, own_stream ? 2 : 0, &status);
        printf("%s: %d, %s %d\n", names[i / 2], code, exported, found == dlsym(RTLD_DEFAULT, exported));
    }
}

/* As most programs come to it. */
static void by_the_runtime(void) {
    enum { DEVICE_TO_DEVICE = 3, DEFAULT = 4 };
    void *from = NULL, *to = NULL;
    OK(cudaSetDevice(0));
    OK(cudaMalloc(&from, 9 * MiB));
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&to, 9 * MiB));
    for (int way = 0; way < 4; way++) {
        int kind = way & 1 ? DEFAULT : DEVICE_TO_DEVICE;
        fill_on(0, (CUdeviceptr)from, 9 * MiB, 70 + way);
        OK(cudaSetDevice(1));
        int code = way < 2 ? cudaMemcpy(to, from, 9 * MiB, kind) : cudaMemcpyAsync(to, from, 9 * MiB, kind, NULL);
        OK(cudaDeviceSynchronize());
        printf("runtime, way %d: %d, right %d\n", way, code, holds_on(1, (CUdeviceptr)to, 9 * MiB, 70 + way));
    }
    OK(cudaFree(from));
    OK(cudaFree(to));
}

/* Of memory that is not there, nothing is copied. */
static void refused(void) {
    CUdeviceptr from = allocate(0, 3 * MiB), to = allocate(1, 3 * MiB), gone = allocate(0, 7 * MiB), lost = allocate(1, 7 * MiB);
    CUdeviceptr behind = allocate(0, 3 * MiB);
    OK(cuMemFree_v2(gone));
    OK(cuMemFree_v2(lost));
    fill_on(1, to, 3 * MiB, 5);
    for (int way = 0; way < WAYS; way++) {
        IS(INVALID_VALUE, copy(way, to, gone, MiB, NULL));
        IS(INVALID_VALUE, copy(way, lost, from, MiB, NULL));
        IS(INVALID_VALUE, copy(way, to, from, 3 * MiB + 1, NULL));
        IS(INVALID_VALUE, copy(way, to, from + MiB, 2 * MiB + 1, NULL));
        IS(INVALID_VALUE, copy(way, to + 3 * MiB, from, 1, NULL));
        IS(INVALID_VALUE, copy(way, 0, from, MiB, NULL));
        IS(INVALID_VALUE, copy(way, to, 0, MiB, NULL));
        IS(INVALID_VALUE, copy(way, 0, 0, MiB, NULL));
        OK(copy(way, to, from, 0, NULL));
    }
    OK(cuCtxSynchronize());
    CHECK(holds_on(1, to, 3 * MiB, 5));
    OK(cuMemFree_v2(behind));
}

int main(int argc, char **argv) {
    OK(cuInit(0));
    for (int i = 0; i < 2; i++) OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
    if (argc > 1 && !strcmp(argv[1], "refused")) return refused(), 0;
    static const size_t sizes[] = {776, 3 * MiB + 4, 20 * MiB + 4};
    for (int i = 0; i < 3; i++) copies("at first", sizes[i]);
    in_order();
    with_others();
    looked_up();
    by_the_runtime();
    for (int enable = 1; enable >= 0; enable--) {
        for (int i = 0; i < 2; i++) {
            OK(cuCtxSetCurrent(contexts[i]));
            SAY(enable ? cuCtxEnablePeerAccess(contexts[!i], 0) : cuCtxDisablePeerAccess(contexts[!i]));
        }
        for (int i = 0; i < 3; i++) copies(enable ? "enabled" : "disabled again", sizes[i]);
    }
    captured(); /* what the other device reaches from then on is more than without the library */
    return 0;
}
