/* Rows: cuMemAllocPitch, cudaMallocPitch, cudaMalloc3D. */
#include "conformance.h"

static const size_t widths[] = {1, 4, 100, 511, 512, 513, 1000, 1024, 1025, 4096, 5000, 65536, 100000, 1 << 20, (1 << 20) + 1};
enum { WIDTHS = sizeof widths / sizeof *widths };

static void say_pitches(unsigned element) {
    for (int i = 0; i < WIDTHS; i++) {
        CUdeviceptr at = 0;
        size_t pitch = 0;
        int code = cuMemAllocPitch_v2(&at, &pitch, widths[i], 3, element);
        if (code == CU_OK)
            say("%zu: %zu", widths[i], pitch);
        else
            say("%zu: %s", widths[i], code_name(code));
        if (code == CU_OK) NEED(cuMemFree_v2(at));
    }
}

CASE(pitch_of_4, SIM | SHARED) { say_pitches(4); }
CASE(pitch_of_8, SIM | SHARED) { say_pitches(8); }
CASE(pitch_of_16, SIM | SHARED) { say_pitches(16); }

CASE(pitch_by_height, SIM | SHARED) {
    static const size_t heights[] = {1, 2, 31, 300, 5000};
    for (int i = 0; i < 5; i++) {
        CUdeviceptr at = 0;
        size_t pitch = 0, length = 0;
        NEED(cuMemAllocPitch_v2(&at, &pitch, 1000, heights[i], 4));
        NEED(cuMemGetAddressRange_v2(NULL, &length, at));
        say("%zu rows: pitch %zu, bytes %zu, of 512: %s", heights[i], pitch, length, yes(at % 512 == 0));
        NEED(cuMemFree_v2(at));
    }
}

static void say_refused(const char *what, size_t width, size_t height, unsigned element) {
    CUdeviceptr at = 7;
    size_t pitch = 7;
    int code = cuMemAllocPitch_v2(&at, &pitch, width, height, element);
    say_code(what, code);
    say("written: %s", yes(at != 7 || pitch != 7));
    if (code == CU_OK) NEED(cuMemFree_v2(at));
}

CASE(pitch_zero, SIM | SHARED) {
    say_refused("no width", 0, 10, 4);
    say_refused("no height", 10, 0, 4);
    say_refused("neither", 0, 0, 4);
}

CASE(pitch_elements, SIM | SHARED) {
    static const unsigned elements[] = {0, 1, 2, 3, 5, 12, 32, 64, ~0u};
    for (int i = 0; i < 9; i++) {
        char what[16];
        snprintf(what, sizeof what, "%u", elements[i]);
        say_refused(what, 1000, 10, elements[i]);
    }
}

CASE(pitch_to_nowhere, SIM | SHARED) {
    CUdeviceptr at = 7;
    size_t pitch = 7;
    say_code("no address", cuMemAllocPitch_v2(NULL, &pitch, 1000, 10, 4));
    say_code("no pitch", cuMemAllocPitch_v2(&at, NULL, 1000, 10, 4));
    say("written: %s", yes(at != 7 || pitch != 7));
}

CASE(pitch_huge, SIM | SHARED) {
    say_refused("400 GiB of rows", 1000, 400 * MiB, 4);
    say_refused("one long row", 400 * GiB, 1, 4);
    say_refused("more than an address can say", SIZE_MAX / 2, 4, 4);
    say_refused("a row that cannot be rounded", SIZE_MAX, 1, 4);
    say_refused("just under 2 GiB", ((size_t)1 << 31) - 1, 1, 4);
}

CASE(pitch_without_context, SIM | RAW) {
    NEED(cuInit(0));
    say_refused("without", 1000, 10, 4);
    say_refused("no width either", 0, 10, 4);
}

CASE(pitch_freed_inside, SIM) {
    CUdeviceptr at = 0;
    size_t pitch = 0;
    NEED(cuMemAllocPitch_v2(&at, &pitch, 1000, 10, 4));
    say_code("the second row", cuMemFree_v2(at + pitch));
    say_code("the first", cuMemFree_v2(at));
    say_code("again", cuMemFree_v2(at));
}

CASE(pitch_contents, SIM | SHARED) {
    CUdeviceptr at = 0;
    size_t pitch = 0;
    unsigned char first = 0, last = 0;
    NEED(cuMemAllocPitch_v2(&at, &pitch, 1000, 300, 4));
    say_code("cuMemsetD8 of all rows", cuMemsetD8_v2(at, 9, pitch * 300));
    NEED(cuMemcpyDtoH_v2(&first, at, 1));
    NEED(cuMemcpyDtoH_v2(&last, at + pitch * 300 - 1, 1));
    say("first: %d; last: %d", first, last);
    NEED(cuMemFree_v2(at));
}

CASE(pitch_runtime, SIM | SHARED | RUNTIME) {
    for (int i = 0; i < WIDTHS; i++) {
        void *at = NULL;
        size_t pitch = 0;
        NEED(cudaMallocPitch(&at, &pitch, widths[i], 3));
        say("%zu: %zu", widths[i], pitch);
        NEED(cudaFree(at));
    }
}

CASE(pitch_runtime_refused, SIM | SHARED | RUNTIME) {
    void *at = &at;
    size_t pitch = 7;
    say_runtime("no width", cudaMallocPitch(&at, &pitch, 0, 10));
    say("pointer: %s; pitch: %zu", at == NULL ? "NULL" : "untouched", pitch);
    at = &at;
    pitch = 7;
    say_runtime("no height", cudaMallocPitch(&at, &pitch, 1000, 0));
    say("pointer: %s; pitch: %zu", at == NULL ? "NULL" : "untouched", pitch);
    say_runtime("no address", cudaMallocPitch(NULL, &pitch, 1000, 10));
    say_runtime("no pitch", cudaMallocPitch(&at, NULL, 1000, 10));
    say_runtime("last", cudaGetLastError());
    say_runtime("400 GiB", cudaMallocPitch(&at, &pitch, 1000, 400 * MiB));
    say_runtime("last", cudaGetLastError());
}

static void say_3d(size_t width, size_t height, size_t depth) {
    cudaPitchedPtr is = {&is, 7, 7, 7};
    int code = cudaMalloc3D(&is, (cudaExtent){width, height, depth});
    say("%zu x %zu x %zu: %s", width, height, depth, runtime_name(code));
    if (code != 0) return;
    say("pointer %s, pitch %zu, row %zu, rows %zu", is.ptr == NULL ? "NULL" : "some", is.pitch,
        is.xsize, is.ysize);
    size_t length = 0;
    if (is.ptr != NULL) {
        NEED(cuMemGetAddressRange_v2(NULL, &length, (CUdeviceptr)is.ptr));
        say("bytes %zu", length);
    }
    NEED(cudaFree(is.ptr));
}

CASE(pitch_3d, SIM | SHARED | RUNTIME) {
    say_3d(1000, 30, 7);
    say_3d(1, 1, 1);
    say_3d(512, 1, 100);
    say_3d(513, 100, 1);
}

CASE(pitch_3d_refused, SIM | SHARED | RUNTIME) {
    say_3d(0, 10, 10);
    say_3d(10, 0, 10);
    say_3d(10, 10, 0);
    say_3d(1000, 1 << 20, 1 << 20);
    say_runtime("last", cudaGetLastError());
    say_runtime("no output", cudaMalloc3D(NULL, (cudaExtent){10, 10, 10}));
    say_runtime("last", cudaGetLastError());
}
