// Sections of driver_facts.cu: what calls cost and how the driver places memory.
#pragma once
#include "common.cuh"

// ---- align: to what are the bases of allocations aligned, by size? ----

static u64 least_alignment(const std::vector<CUdeviceptr> &bases) {
    u64 all = 0;
    for (size_t i = 0; i < bases.size(); i++) all |= (u64)bases[i];
    return all & (~all + 1);
}

static void section_align() {
    const u64 sizes[] = {1, 511, 513, 4096, 65536, 65537, 512 * 1024, MIB - 1, MIB, MIB + 1, 3 * MIB / 2,
                         2 * MIB - 512, 2 * MIB, 2 * MIB + 1, 3 * MIB, 4 * MIB, 5 * MIB, 8 * MIB + 512, 10 * MIB,
                         16 * MIB, 20 * MIB, 32 * MIB, 33 * MIB, 64 * MIB, 100 * MIB, 128 * MIB, 300 * MIB, GIB};
    printf("\n[align] least alignment of the bases, distance of neighbours, 9 allocations of each size, 3 sizes in turn\n");
    printf("%14s %14s %14s %14s %14s\n", "size", "cuMemAlloc", "least gap", "MallocAsync", "least gap");
    CUstream stream;
    CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr odd[4];
    for (int i = 0; i < 4; i++) CK(cuMemAlloc(&odd[i], 700 + 3000 * i));
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        u64 size = sizes[s];
        std::vector<CUdeviceptr> plain, ordered;
        for (int i = 0; i < 9; i++) {
            CUdeviceptr p = 0, q = 0;
            CK(cuMemAlloc(&p, size));
            CK(cuMemAllocAsync(&q, size, stream));
            plain.push_back(p);
            ordered.push_back(q);
        }
        CK(cuStreamSynchronize(stream));
        u64 gap[2] = {~0ull, ~0ull};
        std::vector<CUdeviceptr> *both[2] = {&plain, &ordered};
        for (int k = 0; k < 2; k++) {
            std::vector<CUdeviceptr> sorted = *both[k];
            std::sort(sorted.begin(), sorted.end());
            for (size_t i = 1; i < sorted.size(); i++) gap[k] = std::min(gap[k], (u64)(sorted[i] - sorted[i - 1]));
        }
        printf("%14s %14s %14llu %14s %14llu\n", bytes_text(size).c_str(), bytes_text(least_alignment(plain)).c_str(),
               gap[0], bytes_text(least_alignment(ordered)).c_str(), gap[1]);
        for (int i = 0; i < 9; i++) {
            CK(cuMemFree(plain[i]));
            CK(cuMemFreeAsync(ordered[i], stream));
        }
        CK(cuStreamSynchronize(stream));
    }
    for (int i = 0; i < 4; i++) CK(cuMemFree(odd[i]));
    CK(cuStreamDestroy(stream));
}

// ---- costs: what one small call costs the host ----

static void section_costs() {
    printf("\n[costs] us a call, median of 21 rounds of 2,000\n");
    CUstream a, b;
    CUevent event, event2;
    CK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&event2, CU_EVENT_DISABLE_TIMING));
    const int R = 21, N = 2000;
    CUstreamCaptureStatus status;
    cuuint64_t id;
    printf("  cuCtxGetCurrent                       %8.3f\n", cost_us(R, N, [&] { CUcontext c; CK(cuCtxGetCurrent(&c)); }));
    printf("  cuStreamIsCapturing                   %8.3f\n", cost_us(R, N, [&] { CK(cuStreamIsCapturing(a, &status)); }));
    printf("  cuStreamIsCapturing(legacy)           %8.3f\n", cost_us(R, N, [&] { CK(cuStreamIsCapturing(CU_STREAM_LEGACY, &status)); }));
    if (p_capture_info)
        printf("  cuStreamGetCaptureInfo_v2             %8.3f\n",
               cost_us(R, N, [&] { CK(p_capture_info(a, &status, &id, NULL, NULL, NULL)); }));
    printf("  cuThreadExchangeStreamCaptureMode     %8.3f\n", cost_us(R, N, [&] {
               CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
               CK(cuThreadExchangeStreamCaptureMode(&mode));
               CK(cuThreadExchangeStreamCaptureMode(&mode));
           }) / 2);
    printf("  cuEventRecord, idle stream            %8.3f\n", cost_us(R, N, [&] { CK(cuEventRecord(event, a)); }));
    CK(cuStreamSynchronize(a));
    printf("  cuEventRecord, legacy stream          %8.3f\n", cost_us(R, N, [&] { CK(cuEventRecord(event2, CU_STREAM_LEGACY)); }));
    CK(cuCtxSynchronize());
    printf("  cuEventQuery, complete                %8.3f\n", cost_us(R, N, [&] { CK(cuEventQuery(event)); }));
    printf("  cuStreamQuery, idle                   %8.3f\n", cost_us(R, N, [&] { CK(cuStreamQuery(a)); }));
    printf("  cuStreamWaitEvent, complete           %8.3f\n", cost_us(R, N, [&] { CK(cuStreamWaitEvent(b, event, 0)); }));
    CK(cuCtxSynchronize());
    printf("  cuEventCreate+Destroy                 %8.3f\n", cost_us(R, N, [&] {
               CUevent e;
               CK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
               CK(cuEventDestroy(e));
           }));
    // A busy stream: 40 ms of work, the calls must not wait for it.
    spin_kernel<<<1, 1, 0, (cudaStream_t)a>>>(40000000ull);
    CK(cudaGetLastError());
    CK(cuEventRecord(event, a));
    printf("  cuEventQuery, not ready               %8.3f\n", cost_us(5, 500, [&] {
               CUresult r = cuEventQuery(event);
               if (r != CUDA_ERROR_NOT_READY && r != CUDA_SUCCESS) fail("cuEventQuery", r, __LINE__);
           }));
    printf("  cuEventRecord, busy stream (100)      %8.3f\n", cost_us(1, 100, [&] { CK(cuEventRecord(event2, a)); }));
    printf("  cuStreamWaitEvent, pending (100)      %8.3f\n", cost_us(1, 100, [&] { CK(cuStreamWaitEvent(b, event, 0)); }));
    CK(cuCtxSynchronize());
    CUdeviceptr p;
    CK(cuMemAlloc(&p, 64 * MIB));
    printf("  cuPointerGetAttribute(MEMORY_TYPE)    %8.3f\n", cost_us(R, N, [&] {
               unsigned type;
               CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
           }));
    CK(cuMemFree(p));
    if (!p_ctx_record) {
        printf("  cuCtxRecordEvent                      absent from this driver\n");
    } else {
        const int counts[] = {0, 8, 32, 128};
        for (int k = 0; k < 4; k++) {
            std::vector<CUstream> more(counts[k]);
            for (size_t i = 0; i < more.size(); i++) {
                CK(cuStreamCreate(&more[i], CU_STREAM_NON_BLOCKING));
                spin_kernel<<<1, 1, 0, (cudaStream_t)more[i]>>>(1000);
            }
            CK(cuCtxSynchronize());
            double idle = cost_us(11, 200, [&] { CK(p_ctx_record(g_context, event)); });
            CK(cuCtxSynchronize());
            spin_kernel<<<1, 1, 0, (cudaStream_t)a>>>(40000000ull);
            double t0 = now_us();
            CK(p_ctx_record(g_context, event));
            double busy = now_us() - t0;
            CUresult first = cuEventQuery(event);
            t0 = now_us();
            CK(cuEventSynchronize(event));
            double waited = now_us() - t0;
            printf("  cuCtxRecordEvent, %3d more streams    %8.3f   with a busy stream %.1f, then query = %d, waited %.0f us\n",
                   counts[k], idle, busy, (int)first, waited);
            for (size_t i = 0; i < more.size(); i++) CK(cuStreamDestroy(more[i]));
        }
    }
    CK(cuEventDestroy(event));
    CK(cuEventDestroy(event2));
    CK(cuStreamDestroy(a));
    CK(cuStreamDestroy(b));
}

// ---- reserve: what does a large reservation of address space cost? ----

static u64 status_kib(const char *field) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    u64 value = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field))) value = strtoull(line + strlen(field) + 1, NULL, 10);
    fclose(f);
    return value;
}

static void section_reserve() {
    printf("\n[reserve] address space: us to reserve, to map + set access + unmap 2 MiB at its start, middle and end, to free\n");
    const u64 sizes[] = {GIB, 64 * GIB, TIB, 8 * TIB, 32 * TIB, 64 * TIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CUdeviceptr base = 0;
        u64 pte0 = status_kib("VmPTE:"), rss0 = status_kib("VmRSS:");
        double t0 = now_us();
        CUresult r = cuMemAddressReserve(&base, sizes[i], 0, 0, 0);
        double reserve = now_us() - t0;
        if (r != CUDA_SUCCESS) {
            printf("  %8s refused: %d\n", bytes_text(sizes[i]).c_str(), (int)r);
            continue;
        }
        CUmemAllocationProp prop = allocation_prop();
        CUmemGenericAllocationHandle handle;
        CK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
        double touch[3];
        const u64 at[3] = {0, (sizes[i] / 2) & ~(2 * MIB - 1), sizes[i] - 2 * MIB};
        for (int k = 0; k < 3; k++) {
            t0 = now_us();
            CK(cuMemMap(base + at[k], 2 * MIB, 0, handle, 0));
            set_access(base + at[k], 2 * MIB);
            CK(cuMemUnmap(base + at[k], 2 * MIB));
            touch[k] = now_us() - t0;
        }
        u64 pte1 = status_kib("VmPTE:"), rss1 = status_kib("VmRSS:");
        CK(cuMemRelease(handle));
        t0 = now_us();
        CK(cuMemAddressFree(base, sizes[i]));
        double freed = now_us() - t0;
        printf("  %8s reserve %9.1f  touch %8.1f %8.1f %8.1f  free %9.1f  page tables +%lld KiB, resident +%lld KiB, alignment %s\n",
               bytes_text(sizes[i]).c_str(), reserve, touch[0], touch[1], touch[2], freed, (long long)(pte1 - pte0),
               (long long)(rss1 - rss0), bytes_text((u64)base & (~(u64)base + 1)).c_str());
    }
}

// ---- pairs: an allocation and its free ----

static void section_pairs() {
    printf("\n[pairs] us for an allocation and its free, warm\n");
    CUmemoryPool pool;
    CK(cuDeviceGetDefaultMemPool(&pool, g_device));
    cuuint64_t before = 0, keep = ~0ull;
    CK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &before));
    CK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    CUstream stream;
    CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const u64 sizes[] = {512, 64 * 1024, MIB, 20 * MIB, 64 * MIB, GIB};
    printf("  %10s %22s %22s %18s\n", "size", "cuMemAllocAsync+Free", "cudaMallocAsync+Free", "cudaMalloc+Free");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        u64 size = sizes[i];
        double driver = cost_us(21, 500, [&] {
            CUdeviceptr p;
            CK(cuMemAllocAsync(&p, size, stream));
            CK(cuMemFreeAsync(p, stream));
        });
        double runtime = cost_us(21, 500, [&] {
            void *p;
            CK(cudaMallocAsync(&p, size, (cudaStream_t)stream));
            CK(cudaFreeAsync(p, (cudaStream_t)stream));
        });
        CK(cuStreamSynchronize(stream));
        double plain = cost_us(7, size >= GIB ? 5 : 50, [&] {
            void *p;
            CK(cudaMalloc(&p, size));
            CK(cudaFree(p));
        });
        printf("  %10s %22.3f %22.3f %18.1f\n", bytes_text(size).c_str(), driver, runtime, plain);
    }
    CK(cuStreamSynchronize(stream));
    CK(cuMemPoolTrimTo(pool, 0));
    CK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &before));
    CK(cuStreamDestroy(stream));
}
