/* Allocations and frees: bases, and the errors of both. */
#include "conformance.h"
#include "work.h"

CASE(allocation_zero, SIM | SHARED) {
    CUdeviceptr at = 7;
    say_code("cuMemAlloc of 0 bytes", cuMemAlloc_v2(&at, 0));
    say("written: %s", yes(at != 7));
}

CASE(allocation_after_a_crash, SIM | CRASHES) {
    CUdeviceptr at = allocate(MiB), more = 0;
    CUstream stream = new_stream();
    work_crash(stream);
    say_code("cuCtxSynchronize", cuCtxSynchronize());
    say_code("cuMemAlloc", cuMemAlloc_v2(&more, MiB));
    say_code("cuMemFree", cuMemFree_v2(at));
}

CASE(allocation_runtime_error_state, SIM | RUNTIME) {
    void *at = NULL;
    say_runtime("cudaMalloc of 400 GiB", cudaMalloc(&at, 400 * GiB));
    say_runtime("cudaPeekAtLastError", cudaPeekAtLastError());
    say_runtime("cudaGetLastError", cudaGetLastError());
    say_runtime("cudaGetLastError again", cudaGetLastError());
    say_runtime("cudaMalloc of 1 MiB", cudaMalloc(&at, MiB));
    say_runtime("cudaFree", cudaFree(at));
}
