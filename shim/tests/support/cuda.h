/* The few declarations of the CUDA driver and runtime that the test programs
 * use, as the documentation gives them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct pool *CUmemoryPool;
typedef struct graph *CUgraph;
typedef unsigned long long CUdeviceptr;

#define SUCCESS 0
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define MiB ((size_t)1 << 20)

CUresult cuInit(unsigned);
CUresult cuDeviceGet(CUdevice *, int);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *, size_t *, CUdeviceptr);
CUresult cuMemRetainAllocationHandle(unsigned long long *, void *);
CUresult cuMulticastBindAddr(unsigned long long, size_t, CUdeviceptr, size_t, unsigned long long);
CUresult cuMulticastBindAddr_v2(unsigned long long, CUdevice, size_t, CUdeviceptr, size_t, unsigned long long);
CUresult cuPointerGetAttribute(void *, int, CUdeviceptr);
CUresult cuPointerGetAttributes(unsigned, int *, void **, CUdeviceptr);
CUresult cuPointerSetAttribute(const void *, int, CUdeviceptr);
CUresult cuIpcGetMemHandle(void *, CUdeviceptr);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *, CUdevice);
CUresult cuDeviceSetMemPool(CUdevice, CUmemoryPool);
CUresult cuMemPoolCreate(CUmemoryPool *, const void *);
CUresult cuMemPoolGetAttribute(CUmemoryPool, int, void *);
CUresult cuMemPoolSetAttribute(CUmemoryPool, int, void *);
CUresult cuMemPoolTrimTo(CUmemoryPool, size_t);
CUresult cuStreamCreate(CUstream *, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuStreamIsCapturing(CUstream, int *);
CUresult cuStreamSynchronize(CUstream);
CUresult cuGetProcAddress(const char *, void **, int, uint64_t);
CUresult cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
CUresult cuGetProcAddress_v2_ptsz(const char *, void **, int, uint64_t, int *);

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaGetLastError(void);
int cudaGetDeviceCount(int *);
int cudaStreamIsCapturing(void *, int *);
int cudaStreamSynchronize(void *);
int cudaGetDriverEntryPoint(const char *, void **, unsigned long long, int *);
int cudaGetDriverEntryPoint_ptsz(const char *, void **, unsigned long long, int *);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);

/* Ends the program where something does not hold. */
#define CHECK(holds)                                                          \
    do {                                                                      \
        if (!(holds)) {                                                       \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, \
                    #holds);                                                  \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

#define IS(code, call)                                                          \
    do {                                                                        \
        int answer = (call);                                                    \
        if (answer != (code)) {                                                 \
            fprintf(stderr, "%s:%d: %s answered %d, not %d\n", __FILE__,        \
                    __LINE__, #call, answer, (code));                           \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

#define OK(call) IS(SUCCESS, call)

/* Does this address lie in a library of that name? */
static inline int lies_in(void *address, const char *library) {
    Dl_info info;
    return dladdr(address, &info) != 0 && strstr(info.dli_fname, library) != NULL;
}

static inline void start_cuda(void) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

/* Is this address served by the pool? Its memory answers as the driver's own,
 * so the one difference is asked for: ids of buffers. */
static inline int is_pooled(CUdeviceptr address) {
    unsigned long long id = 0;
    OK(cuPointerGetAttribute(&id, 7, address));
    return (id >> 62) == 1;
}
