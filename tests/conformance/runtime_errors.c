/* The same mistakes through the runtime, and what it remembers of them. */
#include "conformance.h"

static void say_last(void) {
    say_runtime("peek", cudaPeekAtLastError());
    say_runtime("last", cudaGetLastError());
    say_runtime("then", cudaGetLastError());
}

CASE(runtime_zero, SIM | SHARED | RUNTIME) {
    void *at = &at;
    say_runtime("cudaMalloc of 0 bytes", cudaMalloc(&at, 0));
    say("pointer: %s", at == NULL ? "NULL" : "another");
    say_runtime("cudaFree of it", cudaFree(at));
    at = &at;
    say_runtime("cudaMallocAsync of 0 bytes", cudaMallocAsync(&at, 0, NULL));
    say("pointer: %s", at == NULL ? "NULL" : "another");
    say_runtime("cudaFreeAsync of it", cudaFreeAsync(at, NULL));
    say_last();
}

CASE(runtime_to_nowhere, SIM | SHARED | RUNTIME) {
    say_runtime("cudaMalloc", cudaMalloc(NULL, MiB));
    say_last();
    say_runtime("cudaMallocAsync", cudaMallocAsync(NULL, MiB, NULL));
    say_last();
}

CASE(runtime_huge, SIM | SHARED | RUNTIME) {
    void *at = &at, *before = at;
    say_runtime("cudaMalloc of 400 GiB", cudaMalloc(&at, 400 * GiB));
    say("pointer: %s", at == before ? "untouched" : at == NULL ? "NULL" : "another");
    say_last();
    say_runtime("cudaMalloc of all", cudaMalloc(&at, SIZE_MAX));
    say_last();
    say_runtime("cudaMalloc of 1 MiB", cudaMalloc(&at, MiB));
    say_runtime("cudaFree", cudaFree(at));
}

CASE(runtime_huge_async, SIM | SHARED | RUNTIME) {
    void *at = NULL;
    say_runtime("cudaMallocAsync of 400 GiB", cudaMallocAsync(&at, 400 * GiB, NULL));
    say_last();
}

CASE(runtime_success_keeps_error, SIM | SHARED | RUNTIME) {
    void *at = NULL, *none = NULL;
    say_runtime("refused", cudaMalloc(&none, 400 * GiB));
    say_runtime("cudaMalloc", cudaMalloc(&at, MiB));
    say_runtime("cudaFree", cudaFree(at));
    say_last();
}

CASE(runtime_free_null, SIM | SHARED | RUNTIME) {
    say_runtime("cudaFree", cudaFree(NULL));
    say_runtime("cudaFreeAsync", cudaFreeAsync(NULL, NULL));
    say_last();
}

CASE(runtime_free_twice, SIM | RUNTIME) {
    void *at = NULL;
    NEED(cudaMalloc(&at, 4 * MiB));
    NEED(cudaFree(at));
    say_runtime("again", cudaFree(at));
    say_last();
    say_runtime("cudaFreeAsync", cudaFreeAsync(at, NULL));
    say_last();
}

CASE(runtime_free_inside, SIM | RUNTIME) {
    char *at = NULL;
    NEED(cudaMalloc((void **)&at, 4 * MiB));
    say_runtime("inside", cudaFree(at + MiB));
    say_last();
    say_runtime("the base", cudaFree(at));
}

CASE(runtime_free_nowhere, SIM | SHARED | RUNTIME) {
    static int on_host;
    say_runtime("a variable", cudaFree(&on_host));
    say_last();
}

CASE(runtime_free_mapped, SIM | SHARED | RUNTIME) {
    struct mapping own = map_own(64 * MiB);
    say_runtime("mapped memory", cudaFree((void *)own.at));
    say_last();
    unmap_own(own);
}

CASE(runtime_free_across, SIM | SHARED | RUNTIME) {
    void *plain = NULL, *ordered = NULL;
    NEED(cudaMalloc(&plain, 4 * MiB));
    NEED(cudaMallocAsync(&ordered, 4 * MiB, NULL));
    say_runtime("cudaFreeAsync of cudaMalloc", cudaFreeAsync(plain, NULL));
    say_runtime("cudaFree of cudaMallocAsync", cudaFree(ordered));
    say_runtime("cudaDeviceSynchronize", cudaDeviceSynchronize());
    say_last();
}

CASE(runtime_driver_frees, SIM | SHARED | RUNTIME) {
    void *at = NULL;
    CUdeviceptr mine = allocate(4 * MiB);
    NEED(cudaMalloc(&at, 4 * MiB));
    say_code("cuMemFree of cudaMalloc", cuMemFree_v2((CUdeviceptr)at));
    say_runtime("cudaFree of cuMemAlloc", cudaFree((void *)mine));
    say_last();
}

/* The first use of the runtime makes its context. */
CASE(runtime_first_call_allocates, SIM | RUNTIME | RAW) {
    void *at = NULL;
    say_runtime("cudaMalloc", cudaMalloc(&at, 4 * MiB));
    say("aligned: %s", yes((size_t)at % (2 * MiB) == 0));
    say_runtime("cudaFree", cudaFree(at));
}

CASE(runtime_first_call_frees, SIM | RUNTIME | RAW) {
    say_runtime("cudaFree of NULL", cudaFree(NULL));
    size_t free = 0, total = 0;
    say_runtime("cudaMemGetInfo", cudaMemGetInfo(&free, &total));
    say("free: %s", yes(free > 0 && free <= total));
}

CASE(runtime_reset, SIM | RUNTIME | RAW) {
    void *at = NULL, *again = NULL;
    NEED(cudaMalloc(&at, 4 * MiB));
    say_runtime("cudaDeviceReset", cudaDeviceReset());
    say_runtime("cudaFree of what was before", cudaFree(at));
    say_last();
    say_runtime("cudaMalloc", cudaMalloc(&again, 4 * MiB));
    say_runtime("cudaMemset", cudaMemset(again, 1, 4 * MiB));
    say_runtime("cudaFree", cudaFree(again));
}
