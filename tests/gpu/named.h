/* What the programs on names share: the driver, found at run time so that one
 * build runs over a real GPU and over the simulated one, and a few words.
 */
#ifndef NAMED_H
#define NAMED_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../include/memcuda.h"

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext;
typedef struct { char bytes[64]; } Legacy;
typedef unsigned long long Handle;
struct location { int kind, id; };
struct properties { int kind, handle_types; struct location where; void *windows; unsigned char flags[8]; };
struct access { struct location who; int flags; };

#define DRIVER(X)                                                                            \
    X(cuInit, (unsigned))                                                                    \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, int))                                          \
    X(cuCtxSetCurrent, (CUcontext))                                                          \
    X(cuCtxSynchronize, (void))                                                              \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                \
    X(cuMemFree_v2, (CUdeviceptr))                                                           \
    X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                  \
    X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                        \
    X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                 \
    X(cuMemGetAllocationGranularity, (size_t *, const struct properties *, int))             \
    X(cuMemCreate, (Handle *, size_t, const struct properties *, unsigned long long))        \
    X(cuMemMap, (CUdeviceptr, size_t, size_t, Handle, unsigned long long))                   \
    X(cuMemSetAccess, (CUdeviceptr, size_t, const struct access *, size_t))                  \
    X(cuMemExportToShareableHandle, (void *, Handle, int, unsigned long long))               \
    X(cuMemImportFromShareableHandle, (Handle *, void *, int))                               \
    X(cuIpcGetMemHandle, (Legacy *, CUdeviceptr))                                            \
    X(cuIpcOpenMemHandle_v2, (CUdeviceptr *, Legacy, unsigned))
#define DECLARE(name, arguments) static CUresult (*name) arguments __attribute__((unused));
DRIVER(DECLARE)

#define POSIX_DESCRIPTOR 1

/* Ends the program with a line where a call of the driver or of memcuda fails. */
#define MUST(call)                                                                    \
    do {                                                                              \
        int result = (call);                                                          \
        if (result) {                                                                 \
            fprintf(stderr, "%d: %s answers %d%s%s\n", getpid(), #call, result,       \
                    memcuda_present() ? ": " : "", memcuda_present() ? memcuda_message() : ""); \
            exit(2);                                                                  \
        }                                                                             \
    } while (0)

/* Finds the driver and makes the first device's primary context current. */
static void start(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    CUcontext context;
    if (!library) {
        fprintf(stderr, "no driver: %s\n", dlerror());
        exit(2);
    }
#define FIND(name, arguments) *(void **)&name = dlsym(library, #name);
    DRIVER(FIND)
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
}

/* Nanoseconds of the monotonic clock. */
static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
