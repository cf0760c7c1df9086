/* Calls everything that the library hooks, and prints what each call answers,
 * by its name. With the library, with a panic planted in any hook, and with an
 * injected failure in any driver call the lines are those of the bare driver:
 *
 *   every [CODE]      where a call answers CODE, it is made once more
 *   every cancelled   by a thread that is cancelled, and makes no call by which it would end
 */
#include "../support/cancelled.h"
#include <sys/syscall.h>
#include <unistd.h>

struct access { int kind, device, flags; };
struct ipc { char bytes[64]; };
struct pool_properties { int kind, handle_types; struct { int kind, device; } location; char rest[72]; };
struct properties { int kind, handle_types, location, device; void *windows; unsigned char flags[8]; };
struct array { size_t width, height, depth; int format, channels, flags; };
struct rows_end { size_t x, y; int kind; void *host; CUdeviceptr device; void *array; size_t pitch; };
struct rows { struct rows_end from, to; size_t width, height; };
struct slices_end { size_t x, y, z, level; int kind; void *host; CUdeviceptr device; void *array, *none; size_t pitch, height; };
struct slices { struct slices_end from, to; size_t width, height, depth; };
struct plain_array { size_t width, height; int format, channels; };

static void *driver;
static int again = -1, repeated;

static void *find(const char *name) { return dlsym(driver, name); }

/* One call of a driver function by its exported name. */
#define CALL(name, type, ...)                                         \
    ({                                                                \
        __typeof__(type) *found_ = (__typeof__(type) *)find(#name);   \
        int code_ = -1;                                               \
        if (found_ != NULL) {                                         \
            code_ = found_(__VA_ARGS__);                              \
            if (code_ == again) repeated++, code_ = found_(__VA_ARGS__); \
            printf("%s: %d\n", #name, code_);                         \
        } else printf("%s: absent\n", #name);                         \
        code_;                                                        \
    })
#define RUNTIME(call)                                                 \
    ({                                                                \
        int code_ = (call);                                           \
        if (code_ != 0 && again != -1) repeated++, code_ = (call);    \
        printf("%s: %d\n", #call, code_);                             \
        code_;                                                        \
    })

typedef unsigned long long u64;
typedef CUresult allocates(CUdeviceptr *, size_t);
typedef CUresult allocates_async(CUdeviceptr *, size_t, CUstream);
typedef CUresult frees_async(CUdeviceptr, CUstream);
typedef CUresult from_pool(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
typedef CUresult takes_address(CUdeviceptr), takes_context(CUcontext), takes_device(CUdevice), takes_stream(CUstream);
typedef CUresult begins(CUstream, int), ends(CUstream, CUgraph *);
typedef CUresult makes_context(CUcontext *, unsigned, CUdevice), makes(u64 *, const void *);
typedef CUresult copies(CUdeviceptr, CUdeviceptr, size_t);
typedef CUresult copies_async(CUdeviceptr, CUdeviceptr, size_t, CUstream);
typedef CUresult raises(CUdeviceptr, const void *, size_t);
typedef CUresult raises_async(CUdeviceptr, const void *, size_t, CUstream);
typedef CUresult lowers(void *, CUdeviceptr, size_t);
typedef CUresult lowers_async(void *, CUdeviceptr, size_t, CUstream);
typedef CUresult shapes(const void *);
typedef CUresult shapes_async(const void *, CUstream);

static void memory(void) {
    CUdeviceptr a = 0, b = 0, base = 0;
    size_t pitch = 0, bytes = 0, room = 0, total = 0;
    u64 value = 0, handle = 0;
    void *values[] = {&value};
    int names[] = {12}, fd = -1;
    unsigned on = 1;
    struct ipc ipc = {{0}};
    CALL(cuMemAlloc_v2, allocates, &a, 6 * MiB);
    CALL(cuMemAlloc_v2, allocates, &b, 100);
    CALL(cuMemAllocPitch_v2, CUresult(CUdeviceptr *, size_t *, size_t, size_t, unsigned), &base, &pitch, 1000, 300, 4);
    printf("pitch %zu\n", pitch);
    CALL(cuMemFree_v2, takes_address, base);
    CALL(cuMemGetInfo_v2, CUresult(size_t *, size_t *), &room, &total);
    printf("some is free: %d\n", room > 0 && room < total);
    CALL(cuPointerGetAttribute, CUresult(void *, int, CUdeviceptr), &value, 2, a + 5);
    printf("memory type %d\n", (int)value);
    CALL(cuPointerGetAttributes, CUresult(unsigned, int *, void **, CUdeviceptr), 1, names, values, b);
    CALL(cuPointerSetAttribute, CUresult(const void *, int, CUdeviceptr), &on, 6, 0);
    CALL(cuMemRetainAllocationHandle, CUresult(u64 *, void *), &handle, (void *)a);
    CALL(cuMulticastBindAddr, CUresult(u64, size_t, CUdeviceptr, size_t, u64), 1, 0, a, 2 * MiB, 0);
    CALL(cuMulticastBindAddr_v2, CUresult(u64, CUdevice, size_t, CUdeviceptr, size_t, u64), 1, 0, 0, a, 2 * MiB, 0);
    CALL(cuMemHostGetFlags, CUresult(unsigned *, void *), &on, (void *)a);
    CALL(cuMemHostGetDevicePointer_v2, CUresult(u64 *, void *, unsigned), &handle, (void *)a, 0);
    CALL(cuMemGetAddressRange_v2, CUresult(CUdeviceptr *, size_t *, CUdeviceptr), &base, &bytes, a + 3);
    if (CALL(cuMemGetHandleForAddressRange, CUresult(void *, CUdeviceptr, size_t, int, u64), &fd, a, 2 * MiB, 1, 0) == 0) syscall(SYS_close, fd);
    CALL(cuIpcGetMemHandle, CUresult(void *, CUdeviceptr), &ipc, 0);
    CALL(cuIpcOpenMemHandle, CUresult(CUdeviceptr *, struct ipc, unsigned), &base, ipc, 1);
    CALL(cuIpcOpenMemHandle_v2, CUresult(CUdeviceptr *, struct ipc, unsigned), &base, ipc, 1);
    CALL(cuIpcCloseMemHandle, takes_address, b);
    CALL(cuMemFree_v2, takes_address, a);
    CALL(cuMemFree_v2, takes_address, b);
    CALL(cuMemFree_v2, takes_address, b);
}

static void ordered(CUstream stream) {
    CUdeviceptr a = 0;
    CUmemoryPool pool = NULL, own = NULL;
    u64 value = 0;
    struct pool_properties properties = {.kind = 1, .location = {1, 0}};
    CALL(cuMemAllocAsync, allocates_async, &a, 5 * MiB, stream);
    CALL(cuMemFreeAsync, frees_async, a, stream);
    CALL(cuMemAllocAsync_ptsz, allocates_async, &a, 5000, NULL);
    CALL(cuMemFreeAsync_ptsz, frees_async, a, NULL);
    CALL(cuDeviceGetDefaultMemPool, CUresult(CUmemoryPool *, CUdevice), &pool, 0);
    CALL(cuMemAllocFromPoolAsync, from_pool, &a, 3 * MiB, pool, stream);
    CALL(cuMemFreeAsync, frees_async, a, stream);
    CALL(cuMemAllocFromPoolAsync_ptsz, from_pool, &a, 3 * MiB, pool, NULL);
    CALL(cuMemFreeAsync_ptsz, frees_async, a, NULL);
    CALL(cuStreamSynchronize, takes_stream, stream);
    CALL(cuMemPoolGetAttribute, CUresult(CUmemoryPool, int, void *), pool, 4, &value);
    CALL(cuMemPoolSetAttribute, CUresult(CUmemoryPool, int, void *), pool, 4, &value);
    CALL(cuMemPoolTrimTo, CUresult(CUmemoryPool, size_t), pool, 0);
    CALL(cuDeviceSetMemPool, CUresult(CUdevice, CUmemoryPool), 0, pool);
    CALL(cuMemSetMemPool, CUresult(const void *, int, CUmemoryPool), &properties.location, 1, pool);
    CALL(cuMemPoolCreate, CUresult(CUmemoryPool *, const void *), &own, &properties);
    CALL(cuMemPoolDestroy, CUresult(CUmemoryPool), own);
    for (int flags = 3; flags >= 0; flags -= 3)
        CALL(cuMemPoolSetAccess, CUresult(CUmemoryPool, const void *, size_t), pool, &(struct access){1, 1, flags}, 1);
}

static void capture(CUstream stream) {
    CUdeviceptr at = 0;
    CUgraph graph = NULL, other = NULL;
    u64 executable = 0;
    CALL(cuStreamBeginCapture, takes_stream, stream);
    CALL(cuStreamEndCapture, ends, stream, &graph);
    CALL(cuStreamBeginCapture_ptsz, takes_stream, stream);
    CALL(cuStreamEndCapture_ptsz, ends, stream, &graph);
    CALL(cuStreamBeginCapture_v2_ptsz, begins, stream, 0);
    CALL(cuStreamEndCapture_ptsz, ends, stream, &graph);
    CALL(cuStreamBeginCapture_v2, begins, stream, 2);
    CALL(cuStreamEndCapture, ends, stream, &graph);
    typedef CUresult to_graph(CUstream, CUgraph, const void *, const void *, size_t, int), recaptures(CUstream, int, CUgraph, void *, void *);
    CALL(cuGraphCreate, CUresult(CUgraph *, unsigned), &other, 0);
    CALL(cuMemAlloc_v2, allocates, &at, MiB);
    struct node { int kind, reserved[3]; struct fill { CUdeviceptr at; size_t pitch; unsigned value, element; size_t width, rows; } fill; u64 context, rest[24]; };
    /* One in the memory, one that begins there and ends behind it, one of no memory. */
    struct node fills[] = {{.kind = 2, .fill = {at, 8192, 0, 1, 4096, 2}}, {.kind = 2, .fill = {at, MiB, 0, 1, 4096, 2}}, {.kind = 2}};
    typedef CUresult adds(u64 *, CUgraph, const void *, size_t, struct node *), adds_behind(u64 *, CUgraph, const void *, const void *, size_t, struct node *);
    for (struct node *node = fills; node < fills + 3; node++) {
        CALL(cuGraphAddMemsetNode, CUresult(u64 *, CUgraph, const void *, size_t, const struct fill *, CUcontext), &executable, other, NULL, 0, &node->fill, NULL);
        CALL(cuGraphAddNode, adds, &executable, other, NULL, 0, node);
        CALL(cuGraphAddNode_v2, adds_behind, &executable, other, NULL, NULL, 0, node);
        CALL(cuGraphAddNode_v3, adds_behind, &executable, other, NULL, NULL, 0, node);
    }
    CALL(cuGraphAddMemcpyNode, CUresult(u64 *, CUgraph, const void *, size_t, const u64 *, CUcontext), &executable, other, NULL, 0,
         (u64[25]){[4] = 2, [6] = at, [15] = 2, [17] = at + 8192, [22] = 4096, 1, 1}, NULL);
    CALL(cuMemFree_v2, takes_address, at);
    if (CALL(cuStreamBeginCaptureToGraph, to_graph, stream, other, NULL, NULL, 0, 0) == 0)
        CALL(cuStreamEndCapture, ends, stream, &other);
    if (CALL(cuStreamBeginCaptureToGraph_ptsz, to_graph, stream, other, NULL, NULL, 0, 0) == 0)
        CALL(cuStreamEndCapture_ptsz, ends, stream, &other);
    if (CALL(cuStreamBeginRecaptureToGraph, recaptures, stream, 0, graph, NULL, NULL) == 0)
        CALL(cuStreamEndCapture, ends, stream, &graph);
    if (CALL(cuStreamBeginRecaptureToGraph_ptsz, recaptures, stream, 0, graph, NULL, NULL) == 0)
        CALL(cuStreamEndCapture_ptsz, ends, stream, &graph);
    typedef CUresult instantiates(u64 *, CUgraph, u64);
    typedef CUresult instantiates_old(u64 *, CUgraph, void *, char *, size_t);
    u64 parameters[4] = {0};
    CALL(cuGraphInstantiateWithFlags, instantiates, &executable, graph, 0);
    CALL(cuGraphInstantiate, instantiates_old, &executable, graph, NULL, NULL, 0);
    CALL(cuGraphInstantiate_v2, instantiates_old, &executable, graph, NULL, NULL, 0);
    CALL(cuGraphInstantiateWithParams, CUresult(u64 *, CUgraph, void *), &executable, graph, parameters);
    CALL(cuGraphInstantiateWithParams_ptsz, CUresult(u64 *, CUgraph, void *), &executable, graph, parameters);
    typedef CUresult launches(u64, CUstream);
    CALL(cuGraphUpload, launches, executable, stream);
    CALL(cuGraphUpload_ptsz, launches, executable, stream);
    CALL(cuGraphLaunch, launches, executable, stream);
    CALL(cuGraphLaunch_ptsz, launches, executable, stream);
    CALL(cuStreamSynchronize, takes_stream, stream);
}

/* Between an address and the host's memory, and in rows and slices. */
static void copied_otherwise(CUdeviceptr at, CUstream stream) {
    static char host[64 * 1024];
    struct rows_end out = {.kind = 1, .host = host, .pitch = 1024}, in = {.kind = 2, .device = at, .pitch = 1024};
    struct rows rows = {out, in, 1000, 64};
    struct slices_end from = {.kind = 1, .host = host, .pitch = 1024, .height = 32}, to = {.kind = 2, .device = at, .pitch = 1024, .height = 32};
    struct slices slices = {from, to, 1000, 32, 2};
    CALL(cuMemcpyHtoD_v2, raises, at, host, sizeof host);
    CALL(cuMemcpyHtoD_v2_ptds, raises, at, host, sizeof host);
    CALL(cuMemcpyDtoH_v2, lowers, host, at, sizeof host);
    CALL(cuMemcpyDtoH_v2_ptds, lowers, host, at, sizeof host);
    CALL(cuMemcpy2D_v2, shapes, &rows);
    CALL(cuMemcpy2D_v2_ptds, shapes, &rows);
    CALL(cuMemcpy2DUnaligned_v2, shapes, &rows);
    CALL(cuMemcpy2DUnaligned_v2_ptds, shapes, &rows);
    CALL(cuMemcpy3D_v2, shapes, &slices);
    CALL(cuMemcpy3D_v2_ptds, shapes, &slices);
    CALL(cuMemcpyHtoDAsync_v2, raises_async, at, host, sizeof host, stream);
    CALL(cuMemcpyHtoDAsync_v2_ptsz, raises_async, at, host, sizeof host, stream);
    CALL(cuMemcpyDtoHAsync_v2, lowers_async, host, at, sizeof host, stream);
    CALL(cuMemcpyDtoHAsync_v2_ptsz, lowers_async, host, at, sizeof host, stream);
    CALL(cuMemcpy2DAsync_v2, shapes_async, &rows, stream);
    CALL(cuMemcpy2DAsync_v2_ptsz, shapes_async, &rows, stream);
    CALL(cuMemcpy3DAsync_v2, shapes_async, &slices, stream);
    CALL(cuMemcpy3DAsync_v2_ptsz, shapes_async, &slices, stream);
}

/* To nowhere, which is refused, and to a device that cannot reach the memory. */
static void copied(CUcontext primary, CUcontext second, CUstream stream) {
    CUdeviceptr from = 0, there = 0;
    CALL(cuMemAlloc_v2, allocates, &from, 3 * MiB);
    CALL(cuCtxSetCurrent, takes_context, second);
    CALL(cuMemAlloc_v2, allocates, &there, 3 * MiB);
    CALL(cuCtxSetCurrent, takes_context, primary);
    for (int way = 0; way < 2; way++) {
        CUdeviceptr to = way == 0 ? 0 : there;
        CALL(cuMemcpy, copies, to, from, 3 * MiB);
        CALL(cuMemcpy_ptds, copies, to, from, 3 * MiB);
        CALL(cuMemcpyDtoD_v2, copies, to, from, 3 * MiB);
        CALL(cuMemcpyDtoD_v2_ptds, copies, to, from, 3 * MiB);
        way == 0 ? CALL(cuCtxSynchronize, CUresult(void)) : CALL(cuCtxSynchronize_v2, takes_context, primary);
        CALL(cuMemcpyAsync, copies_async, to, from, 3 * MiB, stream);
        CALL(cuMemcpyAsync_ptsz, copies_async, to, from, 3 * MiB, stream);
        CALL(cuMemcpyDtoDAsync_v2, copies_async, to, from, 3 * MiB, stream);
        CALL(cuMemcpyDtoDAsync_v2_ptsz, copies_async, to, from, 3 * MiB, stream);
        CALL(cuStreamSynchronize, takes_stream, stream);
        copied_otherwise(to, stream);
        CALL(cuStreamSynchronize_ptsz, takes_stream, stream);
    }
    CALL(cuMemFree_v2, takes_address, there);
    CALL(cuMemFree_v2, takes_address, from);
}

static void foreign(void) {
    u64 handle = 0, array = 0, module = 0, library = 0, function = 0;
    CUdeviceptr at = 0, managed = 0;
    size_t bytes = 0;
    struct properties wanted = {.kind = 1, .location = 1};
    struct access own = {1, 0, 3};
    struct plain_array flat = {64, 64, 0x20, 1};
    struct array deep = {64, 64, 4, 0x20, 1, 0};
    CALL(cuMemCreate, CUresult(u64 *, size_t, const void *, u64), &handle, 4 * MiB, &wanted, 0);
    int descriptor = -1;
    CALL(cuMemExportToShareableHandle, CUresult(void *, u64, int, u64), &descriptor, handle, 1, 0);
    CALL(cuMemGetAllocationPropertiesFromHandle, CUresult(void *, u64), &wanted, handle);
    CALL(cuMemAddressReserve, CUresult(CUdeviceptr *, size_t, size_t, CUdeviceptr, u64), &at, 4 * MiB, 0, 0, 0);
    CALL(cuMemMap, CUresult(CUdeviceptr, size_t, size_t, u64, u64), at, 4 * MiB, 0, handle, 0);
    CALL(cuMemSetAccess, CUresult(CUdeviceptr, size_t, const void *, size_t), at, 4 * MiB, &own, 1);
    CALL(cuMemUnmap, CUresult(CUdeviceptr, size_t), at, 4 * MiB);
    CALL(cuMemRelease, CUresult(u64), handle);
    CALL(cuMemAddressFree, CUresult(CUdeviceptr, size_t), at, 4 * MiB);
    CALL(cuMemAllocManaged, CUresult(CUdeviceptr *, size_t, unsigned), &managed, 4 * MiB, 1);
    CALL(cuMemFree_v2, takes_address, managed);
    CALL(cuArrayCreate_v2, makes, &array, &flat);
    CALL(cuArrayDestroy, CUresult(u64), array);
    CALL(cuArray3DCreate_v2, makes, &array, &deep);
    CALL(cuArrayDestroy, CUresult(u64), array);
    CALL(cuMipmappedArrayCreate, CUresult(u64 *, const void *, unsigned), &array, &deep, 2);
    CALL(cuModuleLoadData, makes, &module, ".version 7.0");
    CALL(cuModuleGetFunction, CUresult(u64 *, u64, const char *), &function, module, "f");
    CALL(cuFuncLoad, CUresult(u64), function);
    CALL(cuModuleGetGlobal_v2, CUresult(CUdeviceptr *, size_t *, u64, const char *), &at, &bytes, module, "g");
    CALL(cuModuleLoadDataEx, CUresult(u64 *, const void *, unsigned, void *, void *), &module, ".version 7.0", 0, NULL, NULL);
    CALL(cuModuleLoad, makes, &module, "/proc/self/exe");
    CALL(cuModuleLoadFatBinary, makes, &module, ".version 7.0");
    CALL(cuLibraryLoadData, CUresult(u64 *, const void *, void *, void *, unsigned, void *, void *, unsigned), &library, ".version 7.0", NULL, NULL, 0, NULL, NULL, 0);
    CALL(cuLibraryLoadFromFile, CUresult(u64 *, const void *, void *, void *, unsigned, void *, void *, unsigned), &library, "/proc/self/exe", NULL, NULL, 0, NULL, NULL, 0);
    CALL(cuLibraryGetModule, CUresult(u64 *, u64), &module, library);
    if (CALL(cuLibraryGetKernel, CUresult(u64 *, u64, const char *), &function, library, "f") == 0)
        CALL(cuKernelGetFunction, CUresult(u64 *, u64), &function, function);
    CALL(cuLibraryGetGlobal, CUresult(CUdeviceptr *, size_t *, u64, const char *), &at, &bytes, library, "g");
    CALL(cuLibraryGetManaged, CUresult(CUdeviceptr *, size_t *, u64, const char *), &at, &bytes, library, "g");
}

static void contexts(CUcontext primary, CUcontext second) {
    CUcontext other = NULL, green = NULL;
    struct { int type; char padding[92]; unsigned count; char rest[52]; } resource;
    void *description = NULL;
    CUdeviceptr kept = 0;
    CUstream stream = NULL;
    size_t bytes = 0;
    CALL(cuCtxSetCurrent, takes_context, second);
    for (int twice = 0; twice < 2; twice++) CALL(cuCtxEnablePeerAccess, CUresult(CUcontext, unsigned), primary, 0);
    for (int twice = 0; twice < 2; twice++) CALL(cuCtxDisablePeerAccess, takes_context, primary);
    CALL(cuCtxSetCurrent, takes_context, primary);
    CALL(cuMemAlloc_v2, allocates, &kept, 3 * MiB);
    for (int way = 0; way < 4; way++) {
        CUdeviceptr gone = 0;
        if (way == 0) CALL(cuCtxCreate_v2, makes_context, &other, 0, 0);
        if (way == 1) CALL(cuCtxCreate_v3, CUresult(CUcontext *, void *, int, unsigned, CUdevice), &other, NULL, 0, 0, 0);
        if (way == 2) CALL(cuCtxCreate_v4, CUresult(CUcontext *, void *, unsigned, CUdevice), &other, NULL, 0, 0);
        if (way == 3) CALL(cuCtxCreate, makes_context, &other, 0, 0);
        CALL(cuCtxSetLimit, CUresult(int, size_t), 0, 4096);
        CALL(cuCtxSetFlags, CUresult(unsigned), 0);
        CALL(cuMemAlloc_v2, allocates, &gone, 3 * MiB);
        CALL(cuStreamCreate, CUresult(CUstream *, unsigned), &stream, 1);
        CALL(cuStreamSynchronize, takes_stream, stream);
        CALL(cuStreamDestroy, takes_stream, stream);
        CALL(cuStreamCreateWithPriority, CUresult(CUstream *, unsigned, int), &stream, 1, 0);
        CALL(cuStreamDestroy_v2, takes_stream, stream);
        if (way == 0) CALL(cuCtxDestroy_v2, takes_context, other);
        if (way == 1) CALL(cuCtxDestroy, takes_context, other);
        if (way >= 2) {
            /* The first of two uses. */
            CALL(cuCtxAttach, CUresult(CUcontext *, unsigned), &other, 0);
            CALL(cuCtxDetach, takes_context, other);
            CALL(cuMemGetAddressRange_v2, CUresult(CUdeviceptr *, size_t *, CUdeviceptr), NULL, &bytes, gone);
            CALL(cuCtxDetach, takes_context, other);
        }
        CALL(cuCtxSetCurrent, takes_context, primary);
        CALL(cuMemFree_v2, takes_address, gone);
    }
    CALL(cuDevicePrimaryCtxSetFlags_v2, CUresult(CUdevice, unsigned), 0, 0);
    CALL(cuDeviceGetDevResource, CUresult(CUdevice, void *, int), 0, &resource, 1);
    CALL(cuDevResourceGenerateDesc, CUresult(void **, const void *, unsigned), &description, &resource, 1);
    CALL(cuGreenCtxCreate, CUresult(CUcontext *, void *, CUdevice, unsigned), &green, description, 0, 1);
    CALL(cuGreenCtxStreamCreate, CUresult(CUstream *, CUcontext, unsigned, int), &stream, green, 1, 0);
    CALL(cuStreamSynchronize, takes_stream, stream);
    CALL(cuGreenCtxDestroy, takes_context, green);
    CALL(cuStreamDestroy_v2, takes_stream, stream);
    CALL(cuGreenCtxDestroy, takes_context, green);
    CALL(cuMemFree_v2, takes_address, kept);
    CALL(cuMemAlloc_v2, allocates, &kept, 3 * MiB);
    CALL(cuDevicePrimaryCtxReset_v2, takes_device, 0);
    CALL(cuDevicePrimaryCtxRetain, CUresult(CUcontext *, CUdevice), &primary, 0);
    CALL(cuCtxSetCurrent, takes_context, primary);
    CALL(cuMemFree_v2, takes_address, kept);
    CALL(cuMemAlloc_v2, allocates, &kept, 3 * MiB);
    CALL(cuDevicePrimaryCtxReset, takes_device, 0);
    CALL(cuDevicePrimaryCtxRetain, CUresult(CUcontext *, CUdevice), &primary, 0);
    CALL(cuCtxSetCurrent, takes_context, primary);
    CALL(cuMemFree_v2, takes_address, kept);
    CALL(cuMemAlloc_v2, allocates, &kept, 3 * MiB);
    CALL(cuDevicePrimaryCtxRetain, CUresult(CUcontext *, CUdevice), &primary, 0);
    CALL(cuDevicePrimaryCtxRelease, takes_device, 0);
    CALL(cuMemFree_v2, takes_address, kept);
    CALL(cuMemAlloc_v2, allocates, &kept, 3 * MiB);
    CALL(cuDevicePrimaryCtxRelease_v2, takes_device, 0);
    CALL(cuDevicePrimaryCtxRetain, CUresult(CUcontext *, CUdevice), &primary, 0);
    CALL(cuCtxSetCurrent, takes_context, primary);
    CALL(cuMemFree_v2, takes_address, kept);
}

static void runtime(void) {
    void *at = NULL, *found = NULL;
    int count = 0, status = 0, result = 0;
    RUNTIME(cudaGetDeviceCount(&count));
    RUNTIME(cudaMalloc(&at, 2 * MiB));
    RUNTIME(cudaStreamIsCapturing(NULL, &status));
    RUNTIME(cudaStreamSynchronize(NULL));
    RUNTIME(cudaFree(at));
    RUNTIME(cudaGetDriverEntryPoint("cuMemAlloc", &found, 0, &result));
    RUNTIME(cudaGetDriverEntryPoint_ptsz("cuMemAlloc", &found, 0, &result));
    RUNTIME(cudaGetDriverEntryPointByVersion("cuMemAlloc", &found, 12000, 0, &result));
    int (*by_version)(const char *, void **, unsigned, u64, int *) = dlsym(RTLD_DEFAULT, "cudaGetDriverEntryPointByVersion_ptsz");
    printf("cudaGetDriverEntryPointByVersion_ptsz: ");
    if (by_version == NULL) printf("absent\n");
    else RUNTIME(by_version("cuMemAlloc", &found, 12000, 0, &result));
    printf("getenv: %s\n", getenv("PYTORCH_CUDA_ALLOC_CONF") ? "set" : "not set");
}

static void everything(void *unused) {
    (void)unused;
    CUcontext primary = NULL, second = NULL;
    CUstream stream = NULL;
    void *found = NULL;
    int status = 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    CALL(cuInit, CUresult(unsigned), 0);
    CALL(cuGetProcAddress, CUresult(const char *, void **, int, u64), "cuMemAlloc", &found, 3020, 0);
    CALL(cuGetProcAddress_v2, CUresult(const char *, void **, int, u64, int *), "cuMemAlloc", &found, 3020, 0, &status);
    CALL(cuGetProcAddress_v2_ptsz, CUresult(const char *, void **, int, u64, int *), "cuMemAlloc", &found, 3020, 0, &status);
    CALL(cuDevicePrimaryCtxRetain, CUresult(CUcontext *, CUdevice), &second, 1);
    CALL(cuDevicePrimaryCtxRetain, CUresult(CUcontext *, CUdevice), &primary, 0);
    CALL(cuCtxSetCurrent, takes_context, primary);
    CALL(cuStreamCreate, CUresult(CUstream *, unsigned), &stream, 1);
    memory();
    ordered(stream);
    capture(stream);
    foreign();
    copied(primary, second, stream);
    runtime();
    CALL(cuStreamDestroy_v2, takes_stream, stream);
    contexts(primary, second);
    memory();
}

int main(int argc, char **argv) {
    static char buffer[1 << 16];
    if (argc > 1 && strcmp(argv[1], "cancelled") == 0) {
        setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
        run_cancelled(everything, NULL);
        return 0;
    }
    if (argc > 1) again = atoi(argv[1]);
    setvbuf(stdout, NULL, _IONBF, 0);
    everything(NULL);
    if (again != -1) fprintf(stderr, "repeated %d\n", repeated);
    return 0;
}
