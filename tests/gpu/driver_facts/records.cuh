// A section of driver_facts.cu.
#pragma once
#include "common.cuh"

// ---- records: does cuCtxRecordEvent cover the waits of streams that were destroyed? ----
//
// Stream A runs a kernel for RECORD_SPIN_MS and records event e behind it. Stream B waits for e,
// may have work behind the wait, and may be destroyed while it waits. Then cuCtxRecordEvent
// records `done` in B's context. With A in that context, `done` waits for A anyway; with A in
// another one, only B's wait can hold it up.

static const u64 RECORD_SPIN_MS = 300, RECORD_WORK_MS = 150;

__global__ void spin_and_set_kernel(u64 ns, volatile unsigned *flag) {
    u64 begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < ns);
    *flag = 1;
    __threadfence_system();
}

enum RecordWork { RECORD_NO_STREAM, RECORD_WAIT_ALONE, RECORD_FILL, RECORD_KERNEL };
static const char *const RECORD_WORK_NAMES[] = {"no B", "wait alone", "wait, fill", "wait, kernel"};

// The kernels, loaded into the current context before anything is measured.
static void record_warm(CUstream stream, unsigned *flag) {
    spin_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(1000);
    CK(cudaGetLastError());
    spin_and_set_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(1000, flag);
    CK(cudaGetLastError());
    CK(cuStreamSynchronize(stream));
}

static void record_row(const char *where, CUcontext of_a, RecordWork work, bool destroyed,
                       volatile unsigned *flag, CUdeviceptr flag_at) {
    CUstream a = NULL, b = NULL;
    CUevent e = NULL, done = NULL;
    CK(cuCtxSetCurrent(of_a));
    CK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    record_warm(a, (unsigned *)flag_at);
    CK(cuCtxSetCurrent(g_context));
    CK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    CK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    record_warm(b, (unsigned *)flag_at);
    CK(cuMemsetD32Async(flag_at, 0, 1, b)); // also loads what a fill needs
    CK(cuCtxSynchronize());
    *flag = 0;

    double begin = now_us();
    CK(cuCtxSetCurrent(of_a));
    spin_kernel<<<1, 1, 0, (cudaStream_t)a>>>(RECORD_SPIN_MS * 1000000);
    CK(cudaGetLastError());
    CK(cuEventRecord(e, a));
    CK(cuCtxSetCurrent(g_context));
    if (work != RECORD_NO_STREAM) CK(cuStreamWaitEvent(b, e, 0));
    if (work == RECORD_FILL) CK(cuMemsetD32Async(flag_at, 1, 1, b));
    if (work == RECORD_KERNEL) {
        spin_and_set_kernel<<<1, 1, 0, (cudaStream_t)b>>>(RECORD_WORK_MS * 1000000, (unsigned *)flag_at);
        CK(cudaGetLastError());
    }
    if (destroyed) CK(cuStreamDestroy(b));
    CUresult recorded = p_ctx_record(g_context, done);
    double queued_ms = (now_us() - begin) / 1000;

    // Whether `done` is complete is asked first: what is seen after that was so by then, or a little later.
    CUresult query = recorded;
    unsigned set = 0;
    CUresult e_query = CUDA_SUCCESS;
    double done_ms = 0;
    while (recorded == CUDA_SUCCESS) {
        query = cuEventQuery(done);
        set = *flag;
        e_query = cuEventQuery(e);
        done_ms = (now_us() - begin) / 1000;
        if (query != CUDA_ERROR_NOT_READY || done_ms > 5000) break;
    }
    double flag_ms = -1;
    while ((work == RECORD_FILL || work == RECORD_KERNEL) && flag_ms < 0 && now_us() - begin < 5e6)
        if (*flag) flag_ms = (now_us() - begin) / 1000;
    printf("  %-8s %-13s %-10s %9d %9.1f %8d %9.1f %10s %9s %11.1f\n", where, RECORD_WORK_NAMES[work],
           destroyed ? "destroyed" : "kept", (int)recorded, queued_ms, (int)query, done_ms,
           e_query == CUDA_SUCCESS ? "yes" : e_query == CUDA_ERROR_NOT_READY ? "no" : "error",
           work < RECORD_FILL ? "-" : set ? "yes" : "no", flag_ms);
    fflush(stdout);

    CK(cuCtxSynchronize());
    if (!destroyed) CK(cuStreamDestroy(b));
    CK(cuEventDestroy(done));
    CK(cuCtxSetCurrent(of_a));
    CK(cuCtxSynchronize());
    CK(cuEventDestroy(e));
    CK(cuStreamDestroy(a));
    CK(cuCtxSetCurrent(g_context));
}

static void section_records() {
    printf("\n[records] cuCtxRecordEvent(done) while stream B waits for event e of stream A, which is busy for %llu ms;\n"
           "B's kernel takes %llu ms and sets a flag, its fill sets it at once. times in ms since A began\n",
           RECORD_SPIN_MS, RECORD_WORK_MS);
    if (!p_ctx_record || !p_ctx_create) {
        printf("  the driver has no cuCtxRecordEvent, or no cuCtxCreate_v2: not measured\n");
        return;
    }
    HostWord flag;
    CUcontext another = another_context();
    printf("  %-8s %-13s %-10s %9s %9s %8s %9s %10s %9s %11s\n", "A is in", "B", "B is", "recorded", "queued at",
           "done", "done at", "e by then", "flag then", "flag set at");
    for (int in_another = 0; in_another < 2; in_another++) {
        const char *where = in_another ? "another" : "B's own";
        CUcontext of_a = in_another ? another : g_context;
        record_row(where, of_a, RECORD_NO_STREAM, false, flag.seen, flag.at);
        for (int work = RECORD_WAIT_ALONE; work <= RECORD_KERNEL; work++)
            for (int destroyed = 0; destroyed < 2; destroyed++)
                record_row(where, of_a, (RecordWork)work, destroyed, flag.seen, flag.at);
    }
    CK(cuCtxDestroy(another));
    CK(cuCtxSetCurrent(g_context));
}
