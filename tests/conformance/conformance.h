/* Conformance cases: what a program can ask of the CUDA driver about memory,
 * and the canonical line that it gets for an answer. A line never holds an
 * address, a time or a number that varies: relations instead.
 *
 *     CASE(ranges_freed, SIM | SHARED) {
 *         CUdeviceptr at = allocate(MiB);
 *         NEED(cuMemFree_v2(at));
 *         say_code("range", cuMemGetAddressRange_v2(NULL, NULL, at));
 *     }
 *
 * The name begins with the name of the file. The table is in order of files and
 * lines; nothing else needs to be written down anywhere.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "runtime.h"

#define KiB ((size_t)1 << 10)
#define MiB ((size_t)1 << 20)
#define GiB ((size_t)1 << 30)

enum {
    SIM = 1,       /* the simulated GPU must answer the same */
    GPU = 2,       /* it does not model this: on a real driver only */
    SHARED = 4,    /* leaves nothing behind, so it may share a process with others */
    CRASHES = 8,   /* leaves a broken context, or ends the process */
    DEVICES2 = 16, /* needs two devices */
    RUNTIME = 32,  /* uses the CUDA runtime */
    RAW = 64,      /* begins before cuInit, with no context; else device 0's
                      primary context is current */
};

struct test {
    const char *name, *file;
    int line, flags;
    void (*body)(void);
};

#define CASE(name, flags)                                                            \
    static void name(void);                                                          \
    static const struct test name##_test = {#name, __FILE__, __LINE__, flags, name}; \
    __attribute__((section("cases"), used)) static const struct test *name##_entry = \
        &name##_test;                                                                \
    static void name(void)

/* Adds an item to the case's line; items are separated by "; ". */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
/* Adds "what: 1 INVALID_VALUE". */
void say_code(const char *what, int code);
/* As say_code for codes of the runtime. */
void say_runtime(const char *what, int code);
/* Number and name of a code; valid until eight more were asked for. */
const char *code_name(int code);
const char *runtime_name(int code);

/* Ends the case, saying which step it could not take. */
#define NEED(call) need((call), #call)
void need(int code, const char *step);

/* What most cases begin with; each ends the case where it fails. */
CUcontext context(void);             /* the current context */
CUdeviceptr allocate(size_t bytes);  /* cuMemAlloc */
CUdeviceptr allocate_async(size_t bytes, CUstream stream);
CUstream new_stream(void);           /* non-blocking */
void start(void);                    /* what happens before cases that are not RAW */

/* Memory that the case maps itself: two handles of half the bytes each. */
struct mapping { CUdeviceptr at; size_t bytes; CUmemHandle handles[2]; };
struct mapping map_own(size_t bytes);
void unmap_own(struct mapping own);

/* "yes" or "no". */
static inline const char *yes(bool holds) { return holds ? "yes" : "no"; }

#endif
