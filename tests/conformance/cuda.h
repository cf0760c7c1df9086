/* The part of the CUDA driver's interface that the cases use, declared as the
 * documentation gives it. Every function is a pointer that driver_load() fills
 * in, by dlsym on libcuda.so.1 and the exact exported name; what the driver
 * lacks answers ABSENT.
 */
#ifndef CONFORMANCE_CUDA_H
#define CONFORMANCE_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef uint64_t CUtexObject;
typedef uint64_t CUmemHandle; /* CUmemGenericAllocationHandle */
typedef void (*CUhostFn)(void *);

enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_READY = 600,
    /* What a function answers that the driver does not have. */
    ABSENT = -1,
};

/* The default streams by their handles, and the flag of a stream that does not
 * wait for the legacy one. */
#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)
#define CU_STREAM_NON_BLOCKING 1u

/* Modes of a stream capture. */
enum { CAPTURE_GLOBAL = 0, CAPTURE_THREAD = 1, CAPTURE_RELAXED = 2 };

/* CUmemLocation, CUmemAllocationProp, CUmemAccessDesc, CUmemPoolProps. */
typedef struct { int type, id; } CUmemLocation;
typedef struct {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef struct {
    int allocType, handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;
typedef struct { unsigned char bytes[64]; } CUipcMemHandle;
typedef struct {
    CUdeviceptr dst;
    size_t pitch;
    unsigned value, elementSize;
    size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;
typedef struct {
    int type, reserved0[3];
    union {
        long long reserved1[29];
        struct { CUDA_MEMSET_NODE_PARAMS fill; CUcontext ctx; } memset;
    };
    long long reserved2;
} CUgraphNodeParams;
enum { NODE_MEMSET = 2 };

_Static_assert(sizeof(CUmemAllocationProp) == 32, "as the driver's");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "as the driver's");
_Static_assert(sizeof(CUmemPoolProps) == 88, "as the driver's");
_Static_assert(sizeof(CUgraphNodeParams) == 256, "as the driver's");

/* CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED,
 * CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_ACCESS_FLAGS_PROT_READWRITE. */
enum { LOCATION_DEVICE = 1, ALLOCATION_PINNED = 1, HANDLE_POSIX_FD = 1, ACCESS_READWRITE = 3 };

/* CUpointer_attribute. */
enum {
    POINTER_CONTEXT = 1, POINTER_MEMORY_TYPE, POINTER_DEVICE_POINTER, POINTER_HOST_POINTER,
    POINTER_P2P_TOKENS, POINTER_SYNC_MEMOPS, POINTER_BUFFER_ID, POINTER_IS_MANAGED,
    POINTER_DEVICE_ORDINAL, POINTER_IS_LEGACY_IPC_CAPABLE, POINTER_RANGE_START,
    POINTER_RANGE_SIZE, POINTER_MAPPED, POINTER_ALLOWED_HANDLE_TYPES, POINTER_IS_RDMA_CAPABLE,
    POINTER_ACCESS_FLAGS, POINTER_MEMPOOL, POINTER_MAPPING_SIZE, POINTER_MAPPING_BASE,
    POINTER_MEMORY_BLOCK_ID, POINTER_IS_HW_DECOMPRESS_CAPABLE,
};

/* CUmemPool_attribute. */
enum {
    POOL_REUSE_EVENTS = 1, POOL_REUSE_OPPORTUNISTIC, POOL_REUSE_INTERNAL, POOL_RELEASE_THRESHOLD,
    POOL_RESERVED, POOL_RESERVED_HIGH, POOL_USED, POOL_USED_HIGH,
};

/* Name and arguments of every function; all return a CUresult. */
#define DRIVER_FUNCTIONS(F) \
    F(cuInit, (unsigned)) \
    F(cuDriverGetVersion, (int *)) \
    F(cuDeviceGet, (CUdevice *, int)) \
    F(cuDeviceGetCount, (int *)) \
    F(cuDeviceGetName, (char *, int, CUdevice)) \
    F(cuDeviceGetAttribute, (int *, int, CUdevice)) \
    F(cuDeviceTotalMem_v2, (size_t *, CUdevice)) \
    F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
    F(cuDevicePrimaryCtxRelease_v2, (CUdevice)) \
    F(cuDevicePrimaryCtxReset_v2, (CUdevice)) \
    F(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice)) \
    F(cuCtxDestroy_v2, (CUcontext)) \
    F(cuDeviceGetDevResource, (CUdevice, void *, int)) \
    F(cuDevResourceGenerateDesc, (void **, const void *, unsigned)) \
    F(cuGreenCtxCreate, (void **, void *, CUdevice, unsigned)) \
    F(cuGreenCtxDestroy, (void *)) \
    F(cuCtxFromGreenCtx, (CUcontext *, void *)) \
    F(cuCtxSetCurrent, (CUcontext)) \
    F(cuCtxGetCurrent, (CUcontext *)) \
    F(cuCtxPushCurrent_v2, (CUcontext)) \
    F(cuCtxPopCurrent_v2, (CUcontext *)) \
    F(cuCtxSynchronize, (void)) \
    F(cuCtxGetFlags, (unsigned *)) \
    F(cuCtxSetFlags, (unsigned)) \
    F(cuStreamCreate, (CUstream *, unsigned)) \
    F(cuStreamDestroy_v2, (CUstream)) \
    F(cuStreamSynchronize, (CUstream)) \
    F(cuStreamQuery, (CUstream)) \
    F(cuModuleLoadData, (CUmodule *, const void *)) \
    F(cuModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
    F(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)) \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
    F(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
    F(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned)) \
    F(cuMemFree_v2, (CUdeviceptr)) \
    F(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream)) \
    F(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream)) \
    F(cuMemFreeAsync, (CUdeviceptr, CUstream)) \
    F(cuMemGetInfo_v2, (size_t *, size_t *)) \
    F(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr)) \
    F(cuMemRetainAllocationHandle, (CUmemHandle *, void *)) \
    F(cuMemGetHandleForAddressRange, (void *, CUdeviceptr, size_t, int, unsigned long long)) \
    F(cuPointerGetAttribute, (void *, int, CUdeviceptr)) \
    F(cuPointerGetAttributes, (unsigned, int *, void **, CUdeviceptr)) \
    F(cuPointerSetAttribute, (const void *, int, CUdeviceptr)) \
    F(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr)) \
    F(cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned)) \
    F(cuIpcCloseMemHandle, (CUdeviceptr)) \
    F(cuMemHostAlloc, (void **, size_t, unsigned)) \
    F(cuMemFreeHost, (void *)) \
    F(cuMemGetAllocationGranularity, (size_t *, const CUmemAllocationProp *, int)) \
    F(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
    F(cuMemAddressFree, (CUdeviceptr, size_t)) \
    F(cuMemCreate, (CUmemHandle *, size_t, const CUmemAllocationProp *, unsigned long long)) \
    F(cuMemRelease, (CUmemHandle)) \
    F(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long)) \
    F(cuMemUnmap, (CUdeviceptr, size_t)) \
    F(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)) \
    F(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t)) \
    F(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t)) \
    F(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t)) \
    F(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    F(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t)) \
    F(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream)) \
    F(cuMemPoolCreate, (CUmemoryPool *, const CUmemPoolProps *)) \
    F(cuMemPoolDestroy, (CUmemoryPool)) \
    F(cuMemPoolTrimTo, (CUmemoryPool, size_t)) \
    F(cuMemPoolSetAttribute, (CUmemoryPool, int, void *)) \
    F(cuMemPoolGetAttribute, (CUmemoryPool, int, void *)) \
    F(cuMemPoolSetAccess, (CUmemoryPool, const CUmemAccessDesc *, size_t)) \
    F(cuMemPoolGetAccess, (int *, CUmemoryPool, CUmemLocation *)) \
    F(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice)) \
    F(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice)) \
    F(cuDeviceSetMemPool, (CUdevice, CUmemoryPool)) \
    F(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice)) \
    F(cuCtxEnablePeerAccess, (CUcontext, unsigned)) \
    F(cuCtxDisablePeerAccess, (CUcontext)) \
    F(cuStreamWaitEvent, (CUstream, CUevent, unsigned)) \
    F(cuLaunchHostFunc, (CUstream, CUhostFn, void *)) \
    F(cuStreamAttachMemAsync, (CUstream, CUdeviceptr, size_t, unsigned)) \
    F(cuEventCreate, (CUevent *, unsigned)) \
    F(cuEventDestroy_v2, (CUevent)) \
    F(cuEventRecord, (CUevent, CUstream)) \
    F(cuEventQuery, (CUevent)) \
    F(cuEventSynchronize, (CUevent)) \
    F(cuThreadExchangeStreamCaptureMode, (int *)) \
    F(cuStreamBeginCapture_v2, (CUstream, int)) \
    F(cuStreamBeginCaptureToGraph, (CUstream, CUgraph, const CUgraphNode *, const void *, size_t, int)) \
    F(cuStreamIsCapturing, (CUstream, int *)) \
    F(cuStreamEndCapture, (CUstream, CUgraph *)) \
    F(cuGraphCreate, (CUgraph *, unsigned)) \
    F(cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *)) \
    F(cuGraphAddMemsetNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_MEMSET_NODE_PARAMS *, CUcontext)) \
    F(cuGraphAddNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraphNodeParams *)) \
    F(cuGraphAddNode_v2, (CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, CUgraphNodeParams *)) \
    F(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
    F(cuGraphLaunch, (CUgraphExec, CUstream)) \
    F(cuGraphUpload, (CUgraphExec, CUstream)) \
    F(cuGraphExecDestroy, (CUgraphExec)) \
    F(cuGraphDestroy, (CUgraph)) \
    F(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
    F(cuMemHostUnregister, (void *)) \
    F(cuMemHostGetFlags, (unsigned *, void *)) \
    F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned)) \
    F(cuMemPrefetchAsync_v2, (CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream)) \
    F(cuMemAdvise, (CUdeviceptr, size_t, int, CUdevice)) \
    F(cuMemRangeGetAttribute, (void *, size_t, int, CUdeviceptr, size_t)) \
    F(cuMemGetAccess, (unsigned long long *, const CUmemLocation *, CUdeviceptr)) \
    F(cuMemcpy, (CUdeviceptr, CUdeviceptr, size_t)) \
    F(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream)) \
    F(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream)) \
    F(cuMemcpyPeer, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t)) \
    F(cuMemcpyPeerAsync, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)) \
    F(cuMemcpy2D_v2, (const void *)) \
    F(cuMemcpy2DUnaligned_v2, (const void *)) \
    F(cuMemcpy2DAsync_v2, (const void *, CUstream)) \
    F(cuMemcpy3D_v2, (const void *)) \
    F(cuMemcpy3DAsync_v2, (const void *, CUstream)) \
    F(cuMemcpy3DPeer, (const void *)) \
    F(cuMemcpy3DPeerAsync, (const void *, CUstream)) \
    F(cuMemsetD16_v2, (CUdeviceptr, unsigned short, size_t)) \
    F(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t)) \
    F(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream)) \
    F(cuMemsetD16Async, (CUdeviceptr, unsigned short, size_t, CUstream)) \
    F(cuMemsetD2D8_v2, (CUdeviceptr, size_t, unsigned char, size_t, size_t)) \
    F(cuMemsetD2D16_v2, (CUdeviceptr, size_t, unsigned short, size_t, size_t)) \
    F(cuMemsetD2D32_v2, (CUdeviceptr, size_t, unsigned, size_t, size_t)) \
    F(cuMemsetD2D8Async, (CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream)) \
    F(cuMemsetD2D32Async, (CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream)) \
    F(cuArrayCreate_v2, (CUarray *, const void *)) \
    F(cuArray3DCreate_v2, (CUarray *, const void *)) \
    F(cuArrayDestroy, (CUarray)) \
    F(cuTexObjectCreate, (CUtexObject *, const void *, const void *, const void *)) \
    F(cuTexObjectDestroy, (CUtexObject)) \
    F(cuTexObjectGetResourceDesc, (void *, CUtexObject))

#define DECLARE(name, arguments) extern CUresult(*name) arguments;
DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE

/* Loads the driver; ends the process with a line where there is none. */
void driver_load(void);

/* Is the loaded driver the simulated GPU's? */
int simulated(void);

/* An entry point that only the loaded driver's own library has, or NULL. */
void *driver_symbol(const char *name);

#endif
