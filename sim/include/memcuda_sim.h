/* What the simulated GPU has beyond CUDA. The functions are exported by the
 * simulated libcuda.so.1; look them up with dlsym. Results are CUresult values.
 */
#ifndef MEMCUDA_SIM_H
#define MEMCUDA_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A range of device memory that a simulated kernel reads or writes. */
typedef struct CUsimRange {
    uint64_t base;  /* CUdeviceptr */
    size_t bytes;
    uint32_t write; /* 0: reads, 1: writes */
} CUsimRange;

/* For cuSimClaim: it is not yet known on which stream the memory is used. */
#define CU_SIM_ANY_STREAM ((void *)(intptr_t)-1)

/* Queues a kernel that touches these ranges for this long. `stream` is a CUstream. */
int cuSimLaunch(void *stream, const CUsimRange *ranges, unsigned count, double microseconds);
/* Queues a kernel that faults: error 700 stays with the context from then on. */
int cuSimCrash(void *stream);

/* Nanoseconds of the virtual clock, and how a program lets time pass. */
uint64_t cuSimClock(void);
int cuSimAdvance(uint64_t nanoseconds);

/* Declares a live allocation, about to be used on `stream`: its bytes may not
 * overlap another live allocation's through any alias, earlier users must be
 * ordered before that stream (before the host, for CU_SIM_ANY_STREAM), and
 * work may reach it through this address only. Misuse ends the program. */
int cuSimClaim(uint64_t base, size_t bytes, void *stream);
/* The program gives the allocation up; call it before the free. */
int cuSimRelease(uint64_t base);

/* Ends the program if an allocation, mapping, reservation or handle is left. */
int cuSimCheckLeaks(void);
/* Physical bytes of a device that this process holds. */
int cuSimPhysical(int device, uint64_t *bytes);
/* How many calls MEMCUDA_SIM_FAIL has made fail. */
int cuSimFailures(uint64_t *calls);
/* The processes with a context on the device of this CUuuid: room for `*count`
 * ids, of which so many are then there. */
int cuSimProcesses(const void *uuid, uint32_t *ids, uint32_t *count);

#ifdef __cplusplus
}
#endif
#endif
