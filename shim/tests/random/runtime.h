/* The part of the CUDA runtime that the random program calls, as documented,
 * and what the simulated GPU has beside it. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include "../../../sim/include/memcuda_sim.h"

typedef uint64_t Address;
typedef void *Stream; /* 1: legacy default, 2: the thread's own default */
typedef void *Event;
typedef void *Graph;
typedef void *Pool;

int cudaSetDevice(int);
int cudaGetDeviceCount(int *);
int cudaDeviceSynchronize(void);
int cudaMalloc(Address *, size_t);
int cudaMallocPitch(Address *, size_t *, size_t, size_t);
int cudaFree(Address);
int cudaMallocAsync(Address *, size_t, Stream);
int cudaFreeAsync(Address, Stream);
int cudaMemGetInfo(size_t *, size_t *);
int cudaMemsetAsync(Address, int, size_t, Stream);
int cudaMemcpyAsync(Address, Address, size_t, int, Stream);
int cudaStreamCreateWithFlags(Stream *, unsigned);
int cudaStreamDestroy(Stream);
int cudaStreamSynchronize(Stream);
int cudaStreamWaitEvent(Stream, Event, unsigned);
int cudaStreamIsCapturing(Stream, int *);
int cudaThreadExchangeStreamCaptureMode(int *);
int cudaStreamBeginCapture(Stream, int);
int cudaStreamEndCapture(Stream, Graph *);
int cudaEventCreateWithFlags(Event *, unsigned);
int cudaEventDestroy(Event);
int cudaEventRecord(Event, Stream);
int cudaEventQuery(Event);
int cudaEventSynchronize(Event);
int cudaGraphInstantiate(Graph *, Graph, uint64_t);
int cudaGraphLaunch(Graph, Stream);
int cudaGraphDestroy(Graph);
int cudaGraphExecDestroy(Graph);
int cudaDeviceGetDefaultMemPool(Pool *, int);
int cudaMemPoolTrimTo(Pool, size_t);

enum {
    OUT_OF_MEMORY = 2, NOT_READY = 600, NO_TIMING = 2, NON_BLOCKING = 1,
    TO_HOST = 2, ON_DEVICE = 3, GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2,
};

#endif
