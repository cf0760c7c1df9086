/* A kernel that crashed: which calls tell of it, and what works after it. */
#include "busy.h"
#include "patterns.h"
#include "work.h"

/* Crashes, and waits until the program has been told. */
static void crash_and_see(void) {
    CUstream stream = new_stream();
    work_crash(stream);
    say_code("cuStreamSynchronize", cuStreamSynchronize(stream));
}

CASE(crashes_seen_by_a_free, SIM | CRASHES) {
    CUdeviceptr at = allocate(MiB), more = 0;
    work_crash(new_stream());
    say_code("cuMemFree", cuMemFree_v2(at));
    say_code("cuMemAlloc", cuMemAlloc_v2(&more, MiB));
    say_code("cuMemAllocAsync", cuMemAllocAsync(&more, MiB, CU_STREAM_LEGACY));
}

CASE(crashes_seen_by_a_free_of_a_large_block, SIM | CRASHES) {
    CUdeviceptr at = allocate(100 * MiB), more = 0;
    work_crash(CU_STREAM_LEGACY);
    say_code("cuMemFree", cuMemFree_v2(at));
    say_code("cuMemAlloc", cuMemAlloc_v2(&more, 100 * MiB));
}

CASE(crashes_seen_by_a_copy, SIM | CRASHES) {
    CUdeviceptr at = allocate(MiB), more = 0;
    char byte;
    work_crash(CU_STREAM_LEGACY);
    say_code("cuMemcpyDtoH", cuMemcpyDtoH_v2(&byte, at, 1));
    say_code("cuMemAlloc", cuMemAlloc_v2(&more, MiB));
    say_code("cuMemFree", cuMemFree_v2(at));
}

CASE(crashes_seen_by_an_event, SIM | CRASHES) {
    CUdeviceptr at = allocate(MiB), more = 0;
    CUevent event = NULL;
    CUstream stream = new_stream();
    NEED(cuEventCreate(&event, 2));
    work_crash(stream);
    NEED(cuEventRecord(event, stream));
    say_code("cuEventSynchronize", cuEventSynchronize(event));
    say_code("cuMemAlloc", cuMemAlloc_v2(&more, MiB));
    say_code("cuMemFree", cuMemFree_v2(at));
}

CASE(crashes_then_allocations, SIM | CRASHES) {
    CUdeviceptr at = 0;
    size_t pitch = 0;
    void *host = NULL;
    crash_and_see();
    say_code("cuMemAlloc", cuMemAlloc_v2(&at, MiB));
    say_code("cuMemAlloc of 400 GiB", cuMemAlloc_v2(&at, 400 * GiB));
    say_code("cuMemAllocPitch", cuMemAllocPitch_v2(&at, &pitch, 1000, 10, 4));
    say_code("cuMemAllocAsync", cuMemAllocAsync(&at, MiB, CU_STREAM_LEGACY));
    say_code("cuMemAllocManaged", cuMemAllocManaged(&at, MiB, 1));
    say_code("cuMemHostAlloc", cuMemHostAlloc(&host, MiB, 0));
}

/* What was freed before the crash would be at hand at once. */
CASE(crashes_then_allocations_of_freed_memory, SIM | CRASHES) {
    CUstream stream = new_stream();
    CUdeviceptr plain = allocate(20 * MiB), ordered = allocate_async(20 * MiB, stream), at = 0;
    CUdeviceptr small = allocate(4 * KiB);
    NEED(cuMemFree_v2(plain));
    NEED(cuMemFree_v2(small));
    NEED(cuMemFreeAsync(ordered, stream));
    work_crash(stream);
    say_code("cuStreamSynchronize", cuStreamSynchronize(stream));
    say_code("cuMemAlloc", cuMemAlloc_v2(&at, 20 * MiB));
    say_code("cuMemAlloc of 4 KiB", cuMemAlloc_v2(&at, 4 * KiB));
    say_code("cuMemAllocAsync", cuMemAllocAsync(&at, 20 * MiB, stream));
}

CASE(crashes_then_frees, SIM | CRASHES) {
    CUstream stream = new_stream();
    CUdeviceptr plain = allocate(20 * MiB), small = allocate(512), large = allocate(200 * MiB);
    CUdeviceptr ordered = allocate_async(20 * MiB, stream);
    NEED(cuStreamSynchronize(stream));
    crash_and_see();
    say_code("cuMemFree", cuMemFree_v2(plain));
    say_code("cuMemFree of 512 bytes", cuMemFree_v2(small));
    say_code("cuMemFree of 200 MiB", cuMemFree_v2(large));
    say_code("cuMemFreeAsync", cuMemFreeAsync(ordered, stream));
}

CASE(crashes_then_copies, SIM | CRASHES) {
    CUdeviceptr at = allocate(MiB);
    char byte = 0;
    crash_and_see();
    say_code("cuMemcpyHtoD", cuMemcpyHtoD_v2(at, &byte, 1));
    say_code("cuMemcpyDtoH", cuMemcpyDtoH_v2(&byte, at, 1));
    say_code("cuMemsetD8", cuMemsetD8_v2(at, 0, MiB));
    say_code("cuCtxSynchronize", cuCtxSynchronize());
    say_code("cuCtxSynchronize again", cuCtxSynchronize());
}

CASE(crashes_then_questions, SIM | CRASHES) {
    CUdeviceptr at = allocate(MiB), base = 0;
    size_t one = 0, two = 0;
    int type = 0;
    CUmemHandle handle = 0;
    crash_and_see();
    say_code("cuMemGetInfo", cuMemGetInfo_v2(&one, &two));
    say_code("cuMemGetAddressRange", cuMemGetAddressRange_v2(&base, &one, at));
    say_code("cuPointerGetAttribute", cuPointerGetAttribute(&type, POINTER_MEMORY_TYPE, at));
    say_code("cuMemRetainAllocationHandle", cuMemRetainAllocationHandle(&handle, (void *)at));
}

CASE(crashes_then_frees_of_nothing, SIM | CRASHES) {
    CUdeviceptr at = allocate(MiB);
    crash_and_see();
    say_code("cuMemFree of NULL", cuMemFree_v2(0));
    say_code("cuMemFree of an interior address", cuMemFree_v2(at + 512));
    say_code("cuMemFree of no address", cuMemFree_v2(12345));
}

static void allocate_there(void *code) {
    CUdeviceptr at = 0;
    *(int *)code = cuMemAlloc_v2(&at, MiB);
}

CASE(crashes_seen_on_another_thread, SIM | CRASHES) {
    int code = -2;
    crash_and_see();
    on_thread(allocate_there, &code);
    say_code("cuMemAlloc", code);
}

CASE(crashes_in_the_runtime, SIM | RUNTIME | CRASHES) {
    void *at = NULL, *more = NULL;
    NEED(cudaMalloc(&at, MiB));
    work_crash(CU_STREAM_LEGACY);
    say_runtime("cudaDeviceSynchronize", cudaDeviceSynchronize());
    say_runtime("cudaMalloc", cudaMalloc(&more, MiB));
    say_runtime("cudaMallocAsync", cudaMallocAsync(&more, MiB, NULL));
    say_runtime("cudaFree", cudaFree(at));
    say_runtime("cudaPeekAtLastError", cudaPeekAtLastError());
}

CASE(crashes_seen_by_cudafree, SIM | RUNTIME | CRASHES) {
    void *at = NULL, *more = NULL;
    NEED(cudaMalloc(&at, MiB));
    work_crash(CU_STREAM_LEGACY);
    say_runtime("cudaFree", cudaFree(at));
    say_runtime("cudaMalloc", cudaMalloc(&more, MiB));
    say_runtime("cudaGetLastError", cudaGetLastError());
}

CASE(crashes_then_a_reset, GPU | RUNTIME | CRASHES) {
    void *at = NULL;
    NEED(cudaMalloc(&at, MiB));
    work_crash(CU_STREAM_LEGACY);
    say_runtime("cudaDeviceSynchronize", cudaDeviceSynchronize());
    say_runtime("cudaDeviceReset", cudaDeviceReset());
    say_runtime("cudaMalloc", cudaMalloc(&at, MiB));
    say_runtime("cudaMemset", cudaMemset(at, 0, MiB));
    say_runtime("cudaFree", cudaFree(at));
}
