/*
 * memcuda.h: named GPU memory. The same name is the same memory in every
 * process of the host; libmemcuda.so, preloaded or linked, has the functions.
 *
 * Every declaration is weak: a program that was built with this header starts
 * without the library, too, and finds the functions null. Ask memcuda_present()
 * once, or call through MEMCUDA_TRY, which then answers MEMCUDA_ABSENT. Weak
 * references need a program that is not linked with -static; compilers other
 * than gcc, and -mcmodel=large, need position-independent code for them, too
 * (-fPIE or -fPIC), and warn where it is not. In other code a function's address in
 * static data is null, whatever compiles it: take it where the program runs. Define
 * MEMCUDA_STRONG before the include to have plain references instead. Who links the
 * library defines it: for weak references alone linkers leave a library out where they
 * are given --as-needed, as many gcc do by themselves.
 *
 * Units: sizes are bytes, times are microseconds unless a name says otherwise.
 * Threads: every function may be called from any thread. A handle may be used
 * by several at once; closing it while another thread uses it is an error of
 * that call, never a crash. pthread_cancel ends no call: it comes behind the wait.
 * CUDA: every function that returns a result starts it (cuInit) where the
 * process has not, also memcuda_list, _show, _persist and _delete. As after any
 * use of CUDA, a child of fork then has none, and CUDA_VISIBLE_DEVICES was read;
 * who only starts others asks the command (memcuda ls --json).
 * Contexts: memory belongs to the context that is current on the calling
 * thread, or where there is none, or one of another device, to the primary
 * context of its own device, and its mapping ends with that context. Where it
 * was opened with another device current, that one reaches it, too, if the two
 * have access to each other.
 *
 * Licence: MIT OR Apache-2.0.
 */
#ifndef MEMCUDA_H
#define MEMCUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What this header describes; memcuda_version() tells what the library has.
 * A library of a higher number has everything of a lower one. */
#define MEMCUDA_VERSION 1

/* In position-dependent code linkers settle a weak function that they do not find
 * as null, for good, unless it is reached by its entry of the GOT, which the loader
 * fills: noplt is that. clang does not know it, nvcc may not pass it on, and code of
 * the large model is without it. */
#if defined(MEMCUDA_STRONG)
#define MEMCUDA_API extern
#elif defined(__GNUC__) && __GNUC__ >= 6 && !defined(__clang__) && !defined(__CUDACC__) && \
    !defined(__code_model_large__)
#define MEMCUDA_API extern __attribute__((weak, noplt))
#else
#define MEMCUDA_API extern __attribute__((weak))
#ifndef __PIC__
#warning "memcuda.h: without -fPIE (or -fPIC) the library is never found; or define MEMCUDA_STRONG"
#endif
#endif

/* Results. The numbers are stable. memcuda_message() says more. */
enum {
    MEMCUDA_OK = 0,
    MEMCUDA_INVALID = 1,     /* an argument is not accepted */
    MEMCUDA_NOT_FOUND = 2,   /* no such name, or no right to know of it */
    MEMCUDA_EXISTS = 3,      /* create: there is one already */
    MEMCUDA_MISMATCH = 4,    /* of another size, dtype, shape or device */
    MEMCUDA_IN_PROGRESS = 5, /* another process was still making it */
    MEMCUDA_DENIED = 6,      /* this user may not do this */
    MEMCUDA_QUOTA = 7,       /* more than this user may have */
    MEMCUDA_SEALED = 8,      /* for reading only */
    MEMCUDA_PROTOCOL = 9,    /* library and keeper are too far apart in age */
    MEMCUDA_UNAVAILABLE = 10, /* no keeper: absent, off, or it does not answer */
    MEMCUDA_TIMEOUT = 11,    /* waited as long as was said */
    MEMCUDA_CUDA = 12,       /* a driver call failed: memcuda_cuda_result() */
    MEMCUDA_INTERNAL = 13,   /* a fault of the library; it said so in its log */
    MEMCUDA_ABSENT = 14      /* the library is not there (MEMCUDA_TRY) */
};

/* Flags of memcuda_options and memcuda_info. */
enum {
    /* Opened for reading. A write through the address faults and ends the
     * context, as any access that a mapping does not allow. Memory with
     * MEMCUDA_CUDA_IPC is open for writing all the same: the driver opens it. */
    MEMCUDA_READ_ONLY = 1 << 0,
    /* A new one is filled with zeros before anybody sees it. */
    MEMCUDA_ZEROED = 1 << 1,
    /* A new one is not found by other openings, of its maker's process either,
     * before memcuda_seal, and ends with its maker until then. */
    MEMCUDA_HIDDEN = 1 << 2,
    /* A new one outlives its holders, as by memcuda_persist with
     * MEMCUDA_FOREVER. */
    MEMCUDA_PERSIST = 1 << 3,
    /* A new one is the driver's own allocation, with a handle that programs
     * without the library open by cudaIpcOpenMemHandle. It ends with its maker. */
    MEMCUDA_CUDA_IPC = 1 << 4,
    /* Of memcuda_name_next: where the name cannot be had so (MISMATCH, EXISTS,
     * SEALED, NOT_FOUND) the allocation has no name, instead of failing. */
    MEMCUDA_UNNAMED_ON_MISMATCH = 1 << 5,
    /* wait_us is for a name that is not there yet, too, and for a keeper. */
    MEMCUDA_AWAIT = 1 << 6,
    /* Of memcuda_describe: this very opening made the memory, so whoever has it is
     * to fill it. Of a handle by memcuda_find: the program's allocation did. */
    MEMCUDA_MADE = 1 << 7
};

/* How memcuda_name_next uses a name. */
enum {
    MEMCUDA_CREATE = 1,          /* a new one; fails where there is one */
    MEMCUDA_ATTACH = 2,          /* the one that is there; fails where there is none */
    MEMCUDA_CREATE_OR_ATTACH = 3 /* whichever it is */
};

/* Where a name is in its life. */
enum {
    MEMCUDA_CREATING = 0, /* its maker is not done */
    MEMCUDA_READY = 1,
    MEMCUDA_IS_SEALED = 2, /* its bytes are final */
    MEMCUDA_DYING = 3      /* deleted; gone with its last holder */
};

#define MEMCUDA_MOST_NAME 200 /* bytes of a name: letters, digits and ._-/:+@=, but not "cmd" */
#define MEMCUDA_MOST_RANK 32  /* extents of a shape */
#define MEMCUDA_CURRENT (-1)  /* the device of the current context, else device 0 */
#define MEMCUDA_FOREVER UINT64_MAX

/* One opening of a name in this process; 0 is none. Not a pointer, and never
 * used again: a closed one is MEMCUDA_INVALID. */
typedef uint64_t memcuda_handle;

/* What is wanted. Start from MEMCUDA_OPTIONS and set what matters; a null
 * pointer stands for MEMCUDA_OPTIONS itself. */
typedef struct memcuda_options {
    uint32_t size;         /* sizeof(memcuda_options) */
    uint32_t flags;        /* MEMCUDA_READ_ONLY and the rest */
    uint64_t bytes;        /* create: 0 takes them from dtype and shape; open: 0 takes any */
    int32_t device;        /* ordinal, or MEMCUDA_CURRENT */
    uint32_t rank;         /* extents in shape */
    const uint64_t *shape; /* outermost first; rank of them */
    const char *dtype;     /* f64 f32 f16 bf16 f8e4m3 f8e5m2 i64 i32 i16 i8 u64 u32 u16 u8
                              bool c64 c128; null: not said */
    uint64_t wait_us;      /* how long to wait while another process makes it; MEMCUDA_AWAIT */
} memcuda_options;

#define MEMCUDA_OPTIONS \
    {sizeof(memcuda_options), 0, 0, MEMCUDA_CURRENT, 0, 0, 0, 5000000}

/* What is known of a name. */
typedef struct memcuda_info {
    uint32_t size;  /* in: sizeof(memcuda_info); what lies behind it is not written */
    uint32_t flags; /* MEMCUDA_READ_ONLY and _MADE of this opening; MEMCUDA_PERSIST, _CUDA_IPC */
    char name[MEMCUDA_MOST_NAME + 8]; /* ends in a zero byte */
    uint8_t generation[16];           /* another one each time the name is made */
    uint8_t device_uuid[16];
    int32_t device;   /* ordinal in this process, -1 where it is not visible */
    uint32_t state;   /* MEMCUDA_CREATING and the rest */
    uint64_t address; /* CUdeviceptr in this process; 0 in memcuda_list and memcuda_show */
    uint64_t bytes;   /* as asked for by its maker */
    uint64_t mapped;  /* of device memory that it takes */
    uint64_t version; /* the newest one published; 0 for none. Of describe the newest that this
                         process knows: memcuda_wait(handle, 0, 0, &seen) asks for it */
    uint64_t persist_until_s; /* second of the Unix epoch; 0: not at all; MEMCUDA_FOREVER */
    uint64_t created_us;      /* microsecond of the Unix epoch */
    uint64_t references;      /* how often it is held, in all processes (list, show) */
    uint32_t maker_pid;       /* who made it */
    uint32_t maker_uid;
    char dtype[8];  /* empty where nobody said */
    uint32_t rank;  /* extents; shape has the first MEMCUDA_MOST_RANK */
    uint32_t holders; /* processes that hold it, counted up to 16 (list, show) */
    uint64_t shape[MEMCUDA_MOST_RANK];
} memcuda_info;

/* The version that the library has (MEMCUDA_VERSION of its header). */
MEMCUDA_API int memcuda_version(void);
/* A result in a word, as "not-found"; never null. */
MEMCUDA_API const char *memcuda_result_name(int result);
/* One line on the last failure on this thread; empty where there was none. It
 * stays until the next failure on this thread. */
MEMCUDA_API const char *memcuda_message(void);
/* The driver's code (CUresult) of the last MEMCUDA_CUDA on this thread. */
MEMCUDA_API int memcuda_cuda_result(void);

/* The next allocation of this thread (cudaMalloc, cudaMallocAsync and their
 * kin, of any size) has this name; a null name takes that back. Not in torch's
 * native profile, where what torch asks for is a segment that it lends on:
 * create or open there. Where the name is there and of another kind, or sealed
 * (MISMATCH, EXISTS, SEALED), or is not there (NOT_FOUND), the allocation fails
 * with the driver's INVALID_VALUE, unless MEMCUDA_UNNAMED_ON_MISMATCH is set; where
 * there is no memory, or the context is broken, it fails with the driver's own code,
 * and the name is for the next one; for any other reason, as a keeper that is not
 * there, it is one without a name. But for a broken context each has its line in the
 * log, and memcuda_find tells. */
MEMCUDA_API int memcuda_name_next(const char *name, int mode, const memcuda_options *options);
/* The name of what this process has open at this address, by a named allocation,
 * memcuda_create or memcuda_open, inside of it or at its beginning: a handle of its
 * own, to be closed. */
MEMCUDA_API int memcuda_find(const void *address, memcuda_handle *out);

/* Memory of a new name; EXISTS where there is one. INVALID with MEMCUDA_READ_ONLY,
 * as nobody could write it; so is MEMCUDA_CUDA_IPC, wherever, with
 * MEMCUDA_READ_ONLY, _HIDDEN or _PERSIST. */
MEMCUDA_API int memcuda_create(const char *name, const memcuda_options *options, memcuda_handle *out);
/* Memory of a name that is there; NOT_FOUND where there is none, with
 * MEMCUDA_AWAIT where none comes in time. Bytes, dtype and shape, where said, must
 * be the same. Opened again in a process, in the same context and for the same use
 * (MEMCUDA_READ_ONLY or not), it has the same address. */
MEMCUDA_API int memcuda_open(const char *name, const memcuda_options *options, memcuda_handle *out);
/* Whichever of the two: MEMCUDA_MADE of memcuda_describe says which. */
MEMCUDA_API int memcuda_create_or_open(const char *name, const memcuda_options *options,
                                       memcuda_handle *out);
/* Ends an opening. With the last one of a process its address ends, once the
 * work of the context is done, as with cudaFree. Where that cannot be waited for now
 * (beside a capture, on a full device) it fails, and nothing has ended. */
MEMCUDA_API int memcuda_close(memcuda_handle handle);

/* The address (CUdeviceptr); null where the handle is none. */
MEMCUDA_API void *memcuda_address(memcuda_handle handle);
/* What was known of it when it was opened, and sealed where this process has sealed it;
 * the version is the newest one once this process has published or waited for one.
 * Asks nobody; memcuda_show asks the keeper. */
MEMCUDA_API int memcuda_describe(memcuda_handle handle, memcuda_info *info);

/* Its bytes are final: shows it to others where it was hidden, and refuses
 * openings for writing from now on; what is open for writing stays so. The
 * caller has waited for its own work. DENIED of an opening that is MEMCUDA_READ_ONLY. */
MEMCUDA_API int memcuda_seal(memcuda_handle handle);

/* Publishes a version: a number above those published before, 2^63 - 1 at most,
 * or 0 for the next one. *published, where not null, is the number. The plain
 * one takes effect at once: the caller has waited for the work that it
 * announces. The one on a stream takes effect behind the work before it there
 * (stream: CUstream or cudaStream_t, null is the default one of the memory's
 * device); those of a name
 * that publish on several streams order them. Until it has come the plain one is
 * INVALID: the stream's would take it back. (Where the process that queued it has
 * ended, it never comes: publish on a stream once more.) In a capture it is
 * INVALID: each replay would write the same number. Publish behind the launch. Both
 * are DENIED of an opening that is MEMCUDA_READ_ONLY. */
MEMCUDA_API int memcuda_publish(memcuda_handle handle, uint64_t version, uint64_t *published);
MEMCUDA_API int memcuda_publish_on(memcuda_handle handle, uint64_t version, void *stream,
                                   uint64_t *published);
/* Waits until this version or a later one is published. On the host for at most
 * so long (0: only looks; MEMCUDA_FOREVER), then TIMEOUT; NOT_FOUND once the
 * name is deleted. *seen, where not null, is the newest version. The work of a
 * stream waits without an end: a version that never comes holds it for good. */
MEMCUDA_API int memcuda_wait(memcuda_handle handle, uint64_t version, uint64_t timeout_us,
                             uint64_t *seen);
MEMCUDA_API int memcuda_wait_on(memcuda_handle handle, uint64_t version, void *stream);

/* Whether a name outlives its holders: for so many seconds from now,
 * MEMCUDA_FOREVER (until it is deleted), 0 (not). DENIED of what another user made,
 * unless the keeper's rules let this one create there; for less long, delete. */
MEMCUDA_API int memcuda_persist(const char *name, uint64_t seconds);
/* Hides a name at once; its memory goes with the last holder. */
MEMCUDA_API int memcuda_delete(const char *name);
/* What is known of a name, without opening it. Set info->size. */
MEMCUDA_API int memcuda_show(const char *name, memcuda_info *info);
/* Calls back for each name that can be opened, in their order, until the
 * callback returns other than 0. The info is valid during the callback, which
 * may call the library. */
MEMCUDA_API int memcuda_list(int (*each)(const memcuda_info *info, void *context), void *context);

/* Deleters for tensors that are given to other libraries by DLPack: of a
 * DLManagedTensor, and of a DLManagedTensorVersioned, at the beginning of a block
 * of malloc, with a memcuda_handle of its own as its manager_ctx. They close the
 * handle and free the block; null is no error. A handle that cannot be closed now
 * is closed with the next one that can. */
MEMCUDA_API void memcuda_dlpack_deleter(void *managed);
MEMCUDA_API void memcuda_dlpack_deleter_versioned(void *managed);

/* Is the library there? */
static inline int memcuda_present(void)
{
#ifdef MEMCUDA_STRONG
    return 1;
#else
    return memcuda_version != NULL;
#endif
}

/* MEMCUDA_TRY(memcuda_open, name, NULL, &handle): MEMCUDA_ABSENT without the
 * library. For the functions that return a result. */
#define MEMCUDA_TRY(function, ...) (memcuda_present() ? function(__VA_ARGS__) : MEMCUDA_ABSENT)

#ifdef __cplusplus
}
#endif

#endif
