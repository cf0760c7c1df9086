/* What the parts of the differential program share: its objects, dead and alive; its random
 * numbers, a row of them for each call; and how answers are written down, so that two runs can
 * be compared.
 */
#ifndef CALLS_H
#define CALLS_H

#include "../conformance/cuda.h"
#include "../conformance/runtime.h"
#include "../conformance/shapes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MORE_FUNCTIONS(F) \
    F(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream)) \
    F(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream)) \
    F(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) \
    F(cuStreamGetCaptureInfo_v2, (CUstream, int *, unsigned long long *, CUgraph *, const CUgraphNode **, size_t *)) \
    F(cuMemExportToShareableHandle, (void *, CUmemHandle, int, unsigned long long)) \
    F(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp *, CUmemHandle)) \
    F(cuStreamWriteValue32_v2, (CUstream, CUdeviceptr, unsigned, unsigned)) \
    F(cuCtxGetDevice, (CUdevice *)) \
    F(cuCtxDetach, (CUcontext)) \
    F(cuCtxSynchronize_v2, (CUcontext)) \
    F(cuStreamGetCtx, (CUstream, CUcontext *))
#define MORE_OF_RUNTIME(F) \
    F(cudaStreamIsCapturing, (void *, int *)) \
    F(cudaGetDevice, (int *)) \
    F(cudaHostRegister, (void *, size_t, unsigned)) \
    F(cudaHostGetDevicePointer, (void **, void *, unsigned)) \
    F(cudaIpcGetMemHandle, (void *, void *))
#define DECLARE(name, arguments) extern int(*name) arguments;
MORE_FUNCTIONS(DECLARE)
MORE_OF_RUNTIME(DECLARE)
#undef DECLARE
/* The simulated GPU's alone: a kernel that faults. */
extern int (*crash)(void *);

/* What an address holds that no call has written. */
#define UNTOUCHED ((CUdeviceptr)0x5a5a)

/* How many there are of each; the first streams are the default ones by their handles. */
enum { MEMORIES = 20, STREAMS = 9, FIXED = 3, CONTEXTS = 6, EVENTS = 5, POOLS = 6, GRAPHS = 4, ARRAYS = 3, HOSTS = 5 };
enum { IPCS = 4, THREADS = 3 };
enum { LEGACY, BY_NAME, PER_THREAD };

/* Of memory: cuMemAlloc's, stream-ordered, made in a capture, managed, the program's own mapping. */
enum { PLAIN = 1, ORDERED, CAPTURED, MANAGED, MAPPED };

/* A stream of a context, as a thread names it: work on memory goes along one. */
typedef struct { int stream, context, thread; } Lane;
extern const Lane NO_LANE; /* nothing is pending */
extern const Lane THE_HOST; /* no work may be */

typedef struct {
    CUdeviceptr base;
    size_t bytes, reserved;
    int kind, device, context, alive, filled;
    unsigned char value; /* of each byte, where it is filled */
    unsigned long born, died;
    int lingers; /* a context's, and freed in the order of a stream: the driver may know it still */
    Lane lane;
    CUmemHandle handle;
    unsigned long long id;
} Memory;
typedef struct { CUstream stream; int context, alive; unsigned long died; } Stream;
typedef struct { CUcontext context; int device, alive, retained; unsigned long died; } Context;
typedef struct { CUevent event; int context, alive; } Event;
typedef struct { CUmemoryPool pool; int device, alive; unsigned long died; } Pool;
typedef struct { CUgraph graph; CUgraphExec exec; unsigned long uses[MEMORIES]; int context; } Graph;
typedef struct { CUarray array; int context, alive; } Array;
/* lost: a copy of it could not be waited for */
typedef struct { char *at; size_t bytes; int registered, context, lost; } Host;
typedef struct { CUipcMemHandle handle; int valid, memory; unsigned long born; } Ipc;

extern Memory memories[MEMORIES];
extern Stream streams[STREAMS];
extern Context contexts[CONTEXTS];
extern Event events[EVENTS];
extern Pool pools[POOLS];
extern Graph graphs[GRAPHS];
extern Array arrays[ARRAYS];
extern Host hosts[HOSTS];
extern Ipc ipcs[IPCS];

/* How the program was called. */
extern uint64_t seed;
/* Is "no stream" the thread's own default one, as for who is compiled so? Of every fifth program. */
extern int own_default;
extern int devices, with_ipc, legal, guarded, small, alone;
/* Which thread calls; whether a device was given access to another one's memory, or a kernel has crashed. */
extern int thread, opened, broken;
/* Whether stream-ordered memory was freed out of order. */
extern int uncounted;
/* Allocations so far: what died since the last one may still be asked for. */
extern unsigned long births;
/* What the captures at work use, by birth; in which context a thread's default stream captures, counted from 1. */
extern unsigned long captured[MEMORIES];
extern int own_capturing[THREADS];

/* A kind of call, and how often it comes; the last one of a table has no name. */
typedef struct { const char *name; int weight; void (*run)(void); } Op;
extern const Op memory_ops[], free_ops[], question_ops[], work_ops[], object_ops[], pool_ops[], capture_ops[], place_ops[];

/* main.c */
uint64_t pick(uint64_t below);
int chance(int of_hundred);
/* What is right, but in a few of a hundred cases where wrong calls are made, too. */
int mostly(int right, int wrong, int of_hundred);

/* answers.c */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_code(const char *call, int code);
void say_address(const char *name, CUdeviceptr at);
void say_memory_pool(CUmemoryPool pool);
const char *answer(void); /* all that was said since */
/* A mark behind what is dead. */
const char *mark(int alive);

/* objects.c */
int context_index(CUcontext context); /* -1: none, 99: not known */
int current_context(void);
int ended_is_current(void);
void look_at_primaries(void);
int any_device(void);

/* captures.c */
int stream_capturing(int stream);
int any_capturing(void);

/* order.c */
int any_stream(void);
Lane lane_of(int stream);
int settle(Memory *memory, Lane lane);
int settle_each(Lane lane);
void settle_all(void);

/* memory.c */
Memory *fresh(void);
Memory *live(void);
Memory *workable(void);
void dies(Memory *memory);
void context_dies(int context, int ordered_too);
CUdeviceptr pointer(Memory **of);
size_t any_size(void);

static inline int index_of(const Memory *memory) { return (int)(memory - memories); }

#endif
