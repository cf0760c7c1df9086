// Sections of driver_facts.cu.
#pragma once
#include "common.cuh"

// ---- legacy: what on the legacy default stream is a barrier between other streams? ----
//
// Blocking stream A is busy for ORDER_SPIN_MS. Then one call is made that names the legacy default
// stream, and blocking stream B gets a fill of a word that the host sees. Set after 0 ms: no barrier.

static const u64 ORDER_SPIN_MS = 40;

// A word of the host's, and its address on the device.
static volatile unsigned *host_word(CUdeviceptr *at) {
    unsigned *word;
    CK(cudaHostAlloc(&word, 64, cudaHostAllocMapped));
    CK(cuMemHostGetDevicePointer(at, word, 0));
    return word;
}

enum LegacyCall {
    LEGACY_NOTHING, LEGACY_FREE, LEGACY_ALLOC, LEGACY_ALLOC_OTHERS, LEGACY_RECORD, LEGACY_WAIT, LEGACY_WAIT_PENDING,
    LEGACY_RECORD_CONTEXT, LEGACY_CALLS
};
static const char *const LEGACY_NAMES[] = {
    "nothing", "cuMemFreeAsync", "cuMemAllocAsync", "cuMemAllocAsync, beside what a busy non-blocking stream freed",
    "cuEventRecord", "cuStreamWaitEvent, complete", "cuStreamWaitEvent, of A", "cuCtxRecordEvent"};

static void legacy_row(LegacyCall call, volatile unsigned *word, CUdeviceptr word_at) {
    CUstream a, b, other, legacy = CU_STREAM_LEGACY;
    CUevent event;
    CUdeviceptr memory, others;
    const char *got = "";
    CK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
    CK(cuStreamCreate(&b, CU_STREAM_DEFAULT));
    CK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CK(cuMemAllocAsync(&memory, 4 << 20, legacy));
    CK(cuMemAllocAsync(&others, 64 << 20, other));
    CK(cuEventRecord(event, a));
    CK(cuMemsetD32Async(word_at, 0, 1, b));
    CK(cuCtxSynchronize());
    double begin = now_us();
    spin_kernel<<<1, 1, 0, (cudaStream_t)a>>>(ORDER_SPIN_MS * 1000000);
    CK(cudaGetLastError());
    if (call == LEGACY_FREE) CK(cuMemFreeAsync(memory, legacy));
    if (call == LEGACY_ALLOC) CK(cuMemAllocAsync(&memory, 4 << 20, legacy));
    if (call == LEGACY_ALLOC_OTHERS) {
        spin_kernel<<<1, 1, 0, (cudaStream_t)other>>>(ORDER_SPIN_MS / 2 * 1000000);
        CK(cuMemFreeAsync(others, other));
        CK(cuMemAllocAsync(&memory, 64 << 20, legacy));
        got = memory == others ? ", and gets it" : ", and gets other memory";
    }
    if (call == LEGACY_RECORD) CK(cuEventRecord(event, legacy));
    if (call == LEGACY_WAIT) CK(cuStreamWaitEvent(legacy, event, 0));
    if (call == LEGACY_WAIT_PENDING) {
        CK(cuEventRecord(event, a));
        CK(cuStreamWaitEvent(legacy, event, 0));
    }
    if (call == LEGACY_RECORD_CONTEXT && p_ctx_record) CK(p_ctx_record(g_context, event));
    CK(cuMemsetD32Async(word_at, 1, 1, b));
    while (!*word) {}
    printf("| %s%s | %.2f |\n", LEGACY_NAMES[call], got, (now_us() - begin) / 1000);
    CK(cuCtxSynchronize());
    CK(cuEventDestroy(event));
    CK(cuStreamDestroy(a));
    CK(cuStreamDestroy(b));
    CK(cuStreamDestroy(other));
}

// Is an idle stream busy once an event was recorded, while the legacy default stream is?
static void legacy_idle(const char *kind, unsigned flags, bool whole) {
    CUstream idle;
    CUevent event;
    CK(cuStreamCreate(&idle, flags));
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CK(cuCtxSynchronize());
    spin_kernel<<<1, 1>>>(ORDER_SPIN_MS * 1000000);
    CK(cudaGetLastError());
    CUresult before = cuStreamQuery(idle);
    if (!whole) CK(cuEventRecord(event, idle));
    if (whole && p_ctx_record) CK(p_ctx_record(g_context, event));
    printf("| %s | %s | %d | %d |\n", kind, whole ? "cuCtxRecordEvent" : "cuEventRecord", before, cuStreamQuery(idle));
    CK(cuCtxSynchronize());
    CK(cuEventDestroy(event));
    CK(cuStreamDestroy(idle));
}

static void section_legacy() {
    CUdeviceptr at;
    volatile unsigned *word = host_word(&at);
    spin_kernel<<<1, 1>>>(1000);
    CK(cudaGetLastError());
    printf("\n## legacy\n| A is busy, on the legacy default stream | B's fill is there after ms |\n|---|---|\n");
    for (int call = 0; call < LEGACY_CALLS; call++) legacy_row((LegacyCall)call, word, at);
    printf("\n| the legacy default stream is busy, idle stream | event | its query before | after |\n|---|---|---|---|\n");
    for (int whole = 0; whole < 2; whole++) {
        legacy_idle("blocking", CU_STREAM_DEFAULT, whole);
        legacy_idle("non-blocking", CU_STREAM_NON_BLOCKING, whole);
    }
    CK(cudaFreeHost((void *)word));
}

// ---- reuse: does an allocation wait for another stream that freed? ----
//
// Memory is freed on stream A, which waits for the host before or after that. Stream B asks for as
// much, and gets a fill. Does the fill end while A still waits?

__global__ void hold_kernel(volatile unsigned *until) {
    u64 begin = clock64();
    while (!*until && clock64() - begin < 4000000000ull) {}
}

static void reuse_row(bool held_first, int allowed, size_t bytes, volatile unsigned *until, CUdeviceptr until_at) {
    CUmemoryPool pool;
    CUstream a, b;
    CUdeviceptr freed, got;
    CK(cuDeviceGetDefaultMemPool(&pool, g_device));
    CK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &allowed));
    CK(cuMemPoolTrimTo(pool, 0));
    CK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    // Twice: what a stream's memory was once wanted for may count.
    for (int turn = 0; turn < 2; turn++) {
        *until = 0;
        CK(cuMemAllocAsync(&freed, bytes, a));
        CK(cuCtxSynchronize());
        if (held_first) hold_kernel<<<1, 1, 0, (cudaStream_t)a>>>((volatile unsigned *)until_at);
        CK(cuMemFreeAsync(freed, a));
        if (!held_first) hold_kernel<<<1, 1, 0, (cudaStream_t)a>>>((volatile unsigned *)until_at);
        CK(cudaGetLastError());
        CK(cuMemAllocAsync(&got, bytes, b));
        CK(cuMemsetD32Async(got, 1, 1, b));
        double begin = now_us();
        while (cuStreamQuery(b) == CUDA_ERROR_NOT_READY && now_us() - begin < 500000) {}
        bool ended = cuStreamQuery(b) == CUDA_SUCCESS;
        printf("| %s | %s | %zu MiB | %d | %s memory | %s |\n", held_first ? "before" : "after", allowed ? "yes" : "no",
               bytes >> 20, turn + 1, got == freed ? "the same" : "other", ended ? "yes" : "no");
        *until = 1;
        CK(cuMemFreeAsync(got, b));
        CK(cuCtxSynchronize());
    }
    CK(cuStreamDestroy(a));
    CK(cuStreamDestroy(b));
}

// Nearly all of the device is freed, waited for, and the stream waits for the host since.
static void reuse_full(volatile unsigned *until, CUdeviceptr until_at) {
    size_t free_bytes, total;
    CUstream a;
    CUdeviceptr most;
    CK(cuMemGetInfo(&free_bytes, &total));
    size_t bytes = free_bytes / 10 * 6;
    CK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CK(cuMemAllocAsync(&most, bytes, a));
    CK(cuMemsetD32Async(most, 1, 1, a));
    CK(cuMemFreeAsync(most, a));
    CK(cuStreamSynchronize(a));
    *until = 0;
    hold_kernel<<<1, 1, 0, (cudaStream_t)a>>>((volatile unsigned *)until_at);
    CK(cudaGetLastError());
    double begin = now_us();
    CUresult code = cuMemAlloc(&most, bytes);
    printf("\ncuMemAlloc of 0.6 of the device, beside as much that was freed and waited for: %d after %.1f ms\n", code,
           (now_us() - begin) / 1000);
    *until = 1;
    CK(cuCtxSynchronize());
    if (code == CUDA_SUCCESS) CK(cuMemFree(most));
    CK(cuStreamDestroy(a));
}

static void section_reuse() {
    CUdeviceptr at;
    volatile unsigned *until = host_word(&at);
    *until = 1;
    hold_kernel<<<1, 1>>>((volatile unsigned *)at);
    CK(cudaGetLastError());
    printf("\n## reuse\n| A waits for the host, its free being | dependencies allowed | bytes | turn | B gets | B's work ends meanwhile |\n"
           "|---|---|---|---|---|---|\n");
    for (int held_first = 0; held_first < 2; held_first++)
        for (int allowed = 1; allowed >= 0; allowed--)
            for (size_t bytes : {4ul << 20, 64ul << 20, 2048ul << 20}) reuse_row(held_first, allowed, bytes, until, at);
    reuse_full(until, at);
    CK(cudaFreeHost((void *)until));
}
