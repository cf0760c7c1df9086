/* Copies as the runtime spells them. */
#include "patterns.h"

CASE(runtime_copies_plain, SIM | RUNTIME | SHARED) {
    void *first = NULL, *second = NULL;
    size_t bytes = 5 * MiB + 7;
    unsigned char *some = pattern(bytes, 1), *back = filled(bytes, 0);
    say_runtime("cudaMalloc", cudaMalloc(&first, bytes));
    NEED(cudaMalloc(&second, bytes));
    say_runtime("up", cudaMemcpy(first, some, bytes, COPY_HOST_TO_DEVICE));
    say_runtime("across", cudaMemcpy(second, first, bytes, COPY_DEVICE_TO_DEVICE));
    say_runtime("down", cudaMemcpy(back, second, bytes, COPY_DEVICE_TO_HOST));
    say("equal: %s", yes(memcmp(some, back, bytes) == 0));
    NEED(cudaMemset(second, 0, bytes));
    memset(back, 0, bytes);
    say_runtime("up by address", cudaMemcpy(second, some, bytes, COPY_DEFAULT));
    say_runtime("down by address", cudaMemcpy(back, second, bytes, COPY_DEFAULT));
    say("equal: %s", yes(memcmp(some, back, bytes) == 0));
    NEED(cudaFree(first));
    NEED(cudaFree(second));
    free(some);
    free(back);
}

CASE(runtime_copies_refused, SIM | RUNTIME | SHARED) {
    void *at = NULL;
    char host[4] = {0};
    NEED(cudaMalloc(&at, 4096));
    say_runtime("no such direction", cudaMemcpy(at, host, 4, 9));
    say_runtime("cudaGetLastError", cudaGetLastError());
    say_runtime("to NULL", cudaMemcpy(NULL, host, 4, COPY_HOST_TO_DEVICE));
    say_runtime("cudaGetLastError", cudaGetLastError());
    say_runtime("of 0 bytes", cudaMemcpy(at, host, 0, COPY_HOST_TO_DEVICE));
    NEED(cudaFree(at));
}

CASE(runtime_copies_of_rows, SIM | RUNTIME | SHARED) {
    void *at = NULL;
    size_t pitch = 0, width = 1000, height = 50;
    unsigned char *some = pattern(width * height, 2), *back = filled(width * height, 0);
    NEED(cudaMallocPitch(&at, &pitch, width, height));
    say_runtime("up", cudaMemcpy2D(at, pitch, some, width, width, height, COPY_HOST_TO_DEVICE));
    say_runtime("down", cudaMemcpy2D(back, width, at, pitch, width, height, COPY_DEVICE_TO_HOST));
    say("equal: %s", yes(memcmp(some, back, width * height) == 0));
    say_runtime("cudaMemset2D", cudaMemset2D(at, pitch, 0x5C, width, height));
    NEED(cudaMemcpy2D(back, width, at, pitch, width, height, COPY_DEVICE_TO_HOST));
    bool all = true;
    for (size_t i = 0; i < width * height; i++) all = all && back[i] == 0x5C;
    say("filled: %s", yes(all));
    say_runtime("a short pitch", cudaMemcpy2D(at, width - 1, some, width, width, height, COPY_HOST_TO_DEVICE));
    say_runtime("cudaGetLastError", cudaGetLastError());
    NEED(cudaFree(at));
    free(some);
    free(back);
}

CASE(runtime_copies_queued, SIM | RUNTIME | SHARED) {
    void *at = NULL, *pinned = NULL;
    CUstream stream = new_stream();
    NEED(cudaMallocAsync(&at, 3 * MiB, stream));
    NEED(cudaHostAlloc(&pinned, 3 * MiB, 0));
    memset(pinned, 0x21, 3 * MiB);
    say_runtime("up", cudaMemcpyAsync(at, pinned, 3 * MiB, COPY_HOST_TO_DEVICE, stream));
    say_runtime("cudaMemsetAsync", cudaMemsetAsync(at, 0x43, MiB, stream));
    say_runtime("down", cudaMemcpyAsync(pinned, at, 3 * MiB, COPY_DEVICE_TO_HOST, stream));
    say_runtime("cudaFreeAsync", cudaFreeAsync(at, stream));
    NEED(cuStreamSynchronize(stream));
    char *seen = pinned;
    say("as ordered: %s", yes(seen[0] == 0x43 && seen[MiB - 1] == 0x43 && seen[MiB] == 0x21));
    NEED(cudaFreeHost(pinned));
    NEED(cuStreamDestroy_v2(stream));
}
