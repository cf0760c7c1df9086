/* The part of the CUDA runtime's interface that the cases use: pointers that
 * runtime_load() fills in from libcudart, which is looked for by name.
 */
#ifndef CONFORMANCE_RUNTIME_H
#define CONFORMANCE_RUNTIME_H

#include <stddef.h>

typedef int cudaError_t;
typedef void *cudaStream_t;
typedef void *cudaMemPool_t;
typedef struct { size_t width, height, depth; } cudaExtent;
typedef struct { void *ptr; size_t pitch, xsize, ysize; } cudaPitchedPtr;
typedef struct {
    int type, device; /* type: 0 unregistered, 1 host, 2 device, 3 managed */
    void *devicePointer, *hostPointer;
    long reserved[8];
} cudaPointerAttributes;

enum { COPY_HOST_TO_DEVICE = 1, COPY_DEVICE_TO_HOST = 2, COPY_DEVICE_TO_DEVICE = 3, COPY_DEFAULT = 4 };

#define RUNTIME_FUNCTIONS(F) \
    F(cudaRuntimeGetVersion, (int *)) \
    F(cudaGetLastError, (void)) \
    F(cudaPeekAtLastError, (void)) \
    F(cudaSetDevice, (int)) \
    F(cudaDeviceSynchronize, (void)) \
    F(cudaDeviceReset, (void)) \
    F(cudaMalloc, (void **, size_t)) \
    F(cudaMallocPitch, (void **, size_t *, size_t, size_t)) \
    F(cudaMalloc3D, (cudaPitchedPtr *, cudaExtent)) \
    F(cudaFree, (void *)) \
    F(cudaMallocAsync, (void **, size_t, cudaStream_t)) \
    F(cudaMallocFromPoolAsync, (void **, size_t, cudaMemPool_t, cudaStream_t)) \
    F(cudaFreeAsync, (void *, cudaStream_t)) \
    F(cudaMemGetInfo, (size_t *, size_t *)) \
    F(cudaMemcpy, (void *, const void *, size_t, int)) \
    F(cudaMemset, (void *, int, size_t)) \
    F(cudaPointerGetAttributes, (cudaPointerAttributes *, const void *)) \
    F(cudaDeviceGetDefaultMemPool, (cudaMemPool_t *, int)) \
    F(cudaDeviceGetMemPool, (cudaMemPool_t *, int)) \
    F(cudaDeviceSetMemPool, (int, cudaMemPool_t)) \
    F(cudaMemPoolCreate, (cudaMemPool_t *, const void *)) \
    F(cudaMemPoolDestroy, (cudaMemPool_t)) \
    F(cudaMemPoolTrimTo, (cudaMemPool_t, size_t)) \
    F(cudaMemPoolGetAttribute, (cudaMemPool_t, int, void *)) \
    F(cudaMemPoolSetAttribute, (cudaMemPool_t, int, void *)) \
    F(cudaDeviceEnablePeerAccess, (int, unsigned)) \
    F(cudaDeviceDisablePeerAccess, (int)) \
    F(cudaMallocManaged, (void **, size_t, unsigned)) \
    F(cudaHostAlloc, (void **, size_t, unsigned)) \
    F(cudaFreeHost, (void *)) \
    F(cudaMemcpyAsync, (void *, const void *, size_t, int, cudaStream_t)) \
    F(cudaMemcpy2D, (void *, size_t, const void *, size_t, size_t, size_t, int)) \
    F(cudaMemcpyPeer, (void *, int, const void *, int, size_t)) \
    F(cudaMemset2D, (void *, size_t, int, size_t, size_t)) \
    F(cudaMemsetAsync, (void *, int, size_t, cudaStream_t))

#define DECLARE(name, arguments) extern cudaError_t(*name) arguments;
RUNTIME_FUNCTIONS(DECLARE)
#undef DECLARE

/* Loads a runtime; 0 where none is found. */
int runtime_load(void);

#endif
