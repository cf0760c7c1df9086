/* What a free waits for, and what waits for nothing. */
#include "busy.h"
#include "patterns.h"
#include "work.h"

/* A stream that is busy; `kind` is one of those below. */
enum { NON_BLOCKING, BLOCKING, LEGACY, PER_THREAD, STREAM_KINDS };
static const char *const stream_names[] = {"a non-blocking stream", "a blocking stream",
                                           "the legacy stream", "the thread's own stream"};

static CUstream busy_stream(int kind) {
    CUstream stream = kind == LEGACY ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
    if (kind <= BLOCKING)
        NEED(cuStreamCreate(&stream, kind == NON_BLOCKING ? CU_STREAM_NON_BLOCKING : 0));
    busy(stream);
    return stream;
}

static void end_stream(int kind, CUstream stream) {
    NEED(cuCtxSynchronize());
    if (kind <= BLOCKING) NEED(cuStreamDestroy_v2(stream));
}

CASE(waits_free, SIM | SHARED) {
    for (int kind = 0; kind < STREAM_KINDS; kind++) {
        CUdeviceptr at = allocate(MiB);
        CUstream stream = busy_stream(kind);
        say_code("cuMemFree", cuMemFree_v2(at));
        say("%s is over: %s", stream_names[kind], is_over(stream));
        end_stream(kind, stream);
    }
}

CASE(waits_free_of_every_size, SIM | SHARED) {
    static const size_t sizes[] = {1, 4 * KiB, 300 * KiB, 5 * MiB, 100 * MiB};
    for (int i = 0; i < 5; i++) {
        CUdeviceptr at = allocate(sizes[i]);
        CUstream stream = busy_stream(NON_BLOCKING);
        say_code("cuMemFree", cuMemFree_v2(at));
        say("of %zu bytes, over: %s", sizes[i], is_over(stream));
        end_stream(NON_BLOCKING, stream);
    }
}

CASE(waits_free_of_pitch_memory, SIM | SHARED) {
    CUdeviceptr at = 0;
    size_t pitch = 0;
    NEED(cuMemAllocPitch_v2(&at, &pitch, 3000, 300, 4));
    CUstream stream = busy_stream(NON_BLOCKING);
    say_code("cuMemFree", cuMemFree_v2(at));
    say("over: %s", is_over(stream));
    end_stream(NON_BLOCKING, stream);
}

CASE(waits_free_of_managed_memory, SIM | SHARED) {
    CUdeviceptr at = 0;
    NEED(cuMemAllocManaged(&at, MiB, 1));
    CUstream stream = busy_stream(NON_BLOCKING);
    say_code("cuMemFree", cuMemFree_v2(at));
    say("over: %s", is_over(stream));
    end_stream(NON_BLOCKING, stream);
}

CASE(waits_free_of_host_memory, SIM | SHARED) {
    void *at = NULL;
    NEED(cuMemHostAlloc(&at, MiB, 0));
    CUstream stream = busy_stream(NON_BLOCKING);
    say_code("cuMemFreeHost", cuMemFreeHost(at));
    say("over: %s", is_over(stream));
    end_stream(NON_BLOCKING, stream);
}

CASE(waits_free_of_ordered_memory, SIM | SHARED) {
    CUdeviceptr at = get_memory(ORDERED, MiB), large = get_memory(ORDERED, 50 * MiB);
    CUstream stream = busy_stream(NON_BLOCKING);
    say_code("cuMemFree of cuMemAllocAsync's", cuMemFree_v2(at));
    say("over: %s", is_over(stream));
    say_code("cuMemFree of 50 MiB", cuMemFree_v2(large));
    say("over: %s", is_over(stream));
    end_stream(NON_BLOCKING, stream);
}

CASE(waits_free_async, SIM | SHARED) {
    CUdeviceptr ordered = get_memory(ORDERED, MiB), large = get_memory(ORDERED, 50 * MiB);
    CUstream stream = busy_stream(NON_BLOCKING), other = new_stream();
    say_code("cuMemFreeAsync on that stream", cuMemFreeAsync(ordered, stream));
    say("over: %s", is_over(stream));
    say_code("cuMemFreeAsync on another", cuMemFreeAsync(large, other));
    say("over: %s", is_over(stream));
    say("the other: %s", is_over(other));
    end_stream(NON_BLOCKING, stream);
    NEED(cuStreamDestroy_v2(other));
}

CASE(waits_free_async_of_plain_memory, SIM | SHARED) {
    CUdeviceptr at = allocate(MiB);
    CUstream stream = busy_stream(NON_BLOCKING);
    say_code("cuMemFreeAsync of cuMemAlloc's", cuMemFreeAsync(at, stream));
    say("over: %s", is_over(stream));
    end_stream(NON_BLOCKING, stream);
}

CASE(waits_free_of_nothing, SIM | SHARED) {
    CUdeviceptr at = allocate(MiB);
    CUstream stream = busy_stream(NON_BLOCKING);
    say_code("cuMemFree of NULL", cuMemFree_v2(0));
    say("over: %s", is_over(stream));
    say_code("cuMemFree of an interior address", cuMemFree_v2(at + 512));
    say("over: %s", is_over(stream));
    end_stream(NON_BLOCKING, stream);
    put_memory(at);
}

CASE(waits_allocation, SIM | SHARED) {
    CUdeviceptr freed = get_memory(ORDERED, 20 * MiB), plain = 0, large = 0, ordered = 0, rows = 0;
    CUstream stream = busy_stream(NON_BLOCKING);
    size_t pitch = 0;
    NEED(cuMemFreeAsync(freed, stream)); /* not to be had without a wait */
    say_code("cuMemAlloc of 20 MiB", cuMemAlloc_v2(&plain, 20 * MiB));
    say_code("of 1 GiB", cuMemAlloc_v2(&large, GiB));
    say_code("cuMemAllocPitch", cuMemAllocPitch_v2(&rows, &pitch, 5000, 500, 4));
    say_code("cuMemAllocAsync on that stream", cuMemAllocAsync(&ordered, 20 * MiB, stream));
    say("over: %s", is_over(stream));
    end_stream(NON_BLOCKING, stream);
    put_memory(plain);
    put_memory(large);
    put_memory(rows);
    put_memory(ordered);
}

CASE(waits_questions, SIM | SHARED) {
    CUdeviceptr at = allocate(MiB), base = 0;
    CUstream stream = busy_stream(NON_BLOCKING);
    size_t one = 0, two = 0;
    int type = 0;
    say_code("cuMemGetInfo", cuMemGetInfo_v2(&one, &two));
    say_code("cuMemGetAddressRange", cuMemGetAddressRange_v2(&base, &one, at));
    say_code("cuPointerGetAttribute", cuPointerGetAttribute(&type, POINTER_MEMORY_TYPE, at));
    say("over: %s", is_over(stream));
    end_stream(NON_BLOCKING, stream);
    put_memory(at);
}

CASE(waits_copies, SIM | SHARED) {
    unsigned word = 0;
    CUdeviceptr at = allocate(MiB), other = allocate(MiB);
    CUstream blocking = busy_stream(BLOCKING);
    say_code("cuMemcpyDtoD", cuMemcpyDtoD_v2(at, other, MiB));
    say("a blocking stream is over: %s", is_over(blocking));
    say_code("cuMemsetD8", cuMemsetD8_v2(at, 1, MiB));
    say("over: %s", is_over(blocking));
    say_code("cuMemcpyDtoH", cuMemcpyDtoH_v2(&word, at, sizeof word));
    say("over: %s", is_over(blocking));
    end_stream(BLOCKING, blocking);
    CUstream apart = busy_stream(NON_BLOCKING);
    say_code("cuMemcpyDtoH", cuMemcpyDtoH_v2(&word, at, sizeof word));
    say("a non-blocking stream is over: %s", is_over(apart));
    end_stream(NON_BLOCKING, apart);
    put_memory(at);
    put_memory(other);
}

/* The copies that name no direction. */
CASE(waits_copies_of_any_kind, SIM | SHARED) {
    unsigned word = 0;
    CUdeviceptr at = allocate(MiB), other = allocate(MiB);
    CUstream blocking = busy_stream(BLOCKING);
    say_code("cuMemcpy between two places of the device", cuMemcpy(at, other, MiB));
    say("a blocking stream is over: %s", is_over(blocking));
    say_code("cuMemcpy to the host", cuMemcpy((CUdeviceptr)&word, at, sizeof word));
    say("over: %s", is_over(blocking));
    end_stream(BLOCKING, blocking);
    put_memory(at);
    put_memory(other);
}

CASE(waits_pinned_memory_read_after_a_free, SIM | SHARED) {
    CUdeviceptr at = allocate(MiB), other = allocate(64 * KiB);
    unsigned *pinned = NULL;
    NEED(cuMemHostAlloc((void **)&pinned, MiB, 0));
    memset(pinned, 0, MiB);
    CUstream stream = busy_stream(NON_BLOCKING);
    work_write(stream, at, MiB, 0xABCDABCD);
    NEED(cuMemcpyDtoHAsync_v2(pinned, at, MiB, stream));
    say_code("cuMemFree of other memory", cuMemFree_v2(other));
    bool all = true;
    for (size_t i = 0; i < MiB / 4; i++) all = all && pinned[i] == 0xABCDABCD;
    say("arrived: %s", yes(all));
    end_stream(NON_BLOCKING, stream);
    put_memory(at);
    NEED(cuMemFreeHost(pinned));
}

static void set_flag(void *flag) { __atomic_store_n((int *)flag, 1, __ATOMIC_SEQ_CST); }

CASE(waits_host_functions, SIM | SHARED) {
    int ran = 0;
    CUdeviceptr at = allocate(MiB);
    CUstream stream = busy_stream(NON_BLOCKING);
    NEED(cuLaunchHostFunc(stream, set_flag, &ran));
    say_code("cuMemFree", cuMemFree_v2(at));
    say("the host function ran: %s", yes(__atomic_load_n(&ran, __ATOMIC_SEQ_CST)));
    end_stream(NON_BLOCKING, stream);
}

CASE(waits_events, SIM | SHARED) {
    CUevent event = NULL;
    CUdeviceptr at = allocate(MiB);
    NEED(cuEventCreate(&event, 2));
    CUstream stream = busy_stream(NON_BLOCKING);
    NEED(cuEventRecord(event, stream));
    say_code("cuEventQuery before", cuEventQuery(event));
    say_code("cuMemFree", cuMemFree_v2(at));
    say_code("cuEventQuery after", cuEventQuery(event));
    end_stream(NON_BLOCKING, stream);
    NEED(cuEventDestroy_v2(event));
}

struct thread_free {
    CUdeviceptr at;
    CUstream stream;
    int code, query;
};

static void free_there(void *argument) {
    struct thread_free *free_of = argument;
    free_of->code = cuMemFree_v2(free_of->at);
    free_of->query = cuStreamQuery(free_of->stream);
}

CASE(waits_free_on_another_thread, SIM | SHARED) {
    struct thread_free call = {.at = allocate(MiB)};
    call.stream = busy_stream(NON_BLOCKING);
    on_thread(free_there, &call);
    say_code("cuMemFree", call.code);
    say_code("cuStreamQuery", call.query);
    end_stream(NON_BLOCKING, call.stream);
}

struct own_stream { int launch; int code; };

static void spin_there(void *argument) {
    struct own_stream *own = argument;
    CUdeviceptr at = 0;
    own->launch = cuMemAlloc_v2(&at, 4096);
    work_spin(CU_STREAM_PER_THREAD, BUSY);
    own->code = cuMemFree_v2(at);
}

CASE(waits_free_beside_the_threads_own_stream, SIM | SHARED) {
    struct own_stream own = {-2, -2};
    work_spin(CU_STREAM_LEGACY, 1);
    NEED(cuCtxSynchronize());
    double began = work_clock();
    on_thread(spin_there, &own);
    say_code("cuMemFree", own.code);
    say("it waited: %s", yes(work_clock() - began >= BUSY * 0.9));
    NEED(cuCtxSynchronize());
}

CASE(waits_free_in_another_context, SIM) {
    CUcontext first = context(), second = NULL;
    CUdeviceptr at = allocate(MiB);
    NEED(cuCtxCreate_v2(&second, 0, 0));
    CUstream stream = busy_stream(NON_BLOCKING);
    NEED(cuCtxSetCurrent(first));
    say_code("cuMemFree", cuMemFree_v2(at));
    say("the other context's stream is over: %s", is_over(stream));
    NEED(cuCtxSetCurrent(second));
    say("asked there: %s", is_over(stream));
}

/* The other context has memory, and its work is on that. */
CASE(waits_free_beside_memory_of_another_context, SIM) {
    size_t bytes = 30 * MiB;
    CUcontext first = context(), second = NULL;
    CUdeviceptr at = allocate(bytes);
    NEED(cuCtxCreate_v2(&second, 0, 0));
    CUdeviceptr there = allocate(bytes);
    CUstream stream = busy_stream(NON_BLOCKING);
    work_write(stream, there, bytes, 0x11111111);
    NEED(cuCtxSetCurrent(first));
    say_code("cuMemFree", cuMemFree_v2(at));
    say("the other context's stream is over: %s", is_over(stream));
    CUdeviceptr again = allocate(bytes);
    say("over after an allocation: %s", is_over(stream));
    put_memory(again);
    NEED(cuCtxSetCurrent(second));
    say_code("cuMemFree there", cuMemFree_v2(there));
    say("over then: %s", is_over(stream));
}

CASE(waits_memory_freed_under_a_kernel, SIM | SHARED) {
    size_t bytes = 30 * MiB;
    CUdeviceptr at = allocate(bytes);
    CUstream stream = busy_stream(NON_BLOCKING);
    work_write(stream, at, bytes, 0x11111111);
    say_code("cuMemFree", cuMemFree_v2(at));
    CUdeviceptr again = allocate(bytes);
    NEED(cuMemsetD32_v2(again, 0x22222222, bytes / 4));
    NEED(cuCtxSynchronize());
    say("the next owner's bytes stay: %s", yes(all_words(again, bytes, 0x22222222)));
    put_memory(again);
    end_stream(NON_BLOCKING, stream);
}

CASE(waits_memory_freed_in_order, SIM | SHARED) {
    size_t bytes = 30 * MiB;
    CUstream stream = busy_stream(NON_BLOCKING), other = new_stream();
    CUdeviceptr at = allocate_async(bytes, stream);
    work_write(stream, at, bytes, 0x11111111);
    say_code("cuMemFreeAsync", cuMemFreeAsync(at, stream));
    CUdeviceptr same = allocate_async(bytes, stream), next = allocate_async(bytes, other);
    work_write(stream, same, bytes, 0x33333333);
    work_write(other, next, bytes, 0x22222222);
    NEED(cuCtxSynchronize());
    say("on the same stream: %s", yes(all_words(same, bytes, 0x33333333)));
    say("on another stream: %s", yes(all_words(next, bytes, 0x22222222)));
    put_memory(same);
    put_memory(next);
    end_stream(NON_BLOCKING, stream);
    NEED(cuStreamDestroy_v2(other));
}

CASE(waits_runtime, SIM | RUNTIME | SHARED) {
    void *plain = NULL, *ordered = NULL;
    NEED(cudaMalloc(&plain, MiB));
    NEED(cudaMallocAsync(&ordered, MiB, NULL));
    NEED(cudaDeviceSynchronize());
    CUstream stream = busy_stream(NON_BLOCKING);
    say_runtime("cudaFree of NULL", cudaFree(NULL));
    say("over: %s", is_over(stream));
    say_runtime("cudaFreeAsync", cudaFreeAsync(ordered, stream));
    say("over: %s", is_over(stream));
    say_runtime("cudaFree", cudaFree(plain));
    say("over: %s", is_over(stream));
    end_stream(NON_BLOCKING, stream);
}
