#define _POSIX_C_SOURCE 200809L
#include "work.h"

#include <stdint.h>
#include <time.h>

#include "memcuda_sim.h"

/* kernels.ptx, which the build turns into a string. */
static const char kernels[] =
#include "kernels.inc"
    ;

/* The simulator's own calls; all null on a real GPU. */
static struct {
    int (*launch)(void *, const CUsimRange *, unsigned, double);
    int (*crash)(void *);
    uint64_t (*clock)(void);
} sim;

/* The kernels in the context that they were loaded into last. */
static struct {
    CUcontext context;
    CUfunction spin, fill, copy, crash;
} loaded;

static CUfunction kernel(CUmodule module, const char *name) {
    CUfunction function = NULL;
    need(cuModuleGetFunction(&function, module, name), name);
    return function;
}

void work_prepare(void) {
    CUcontext current = context();
    if (simulated()) {
        *(void **)&sim.launch = driver_symbol("cuSimLaunch");
        *(void **)&sim.crash = driver_symbol("cuSimCrash");
        *(void **)&sim.clock = driver_symbol("cuSimClock");
    } else if (loaded.context != current) {
        CUmodule module = NULL;
        NEED(cuModuleLoadData(&module, kernels));
        loaded.context = current;
        loaded.spin = kernel(module, "spin");
        loaded.fill = kernel(module, "fill");
        loaded.copy = kernel(module, "copy");
        loaded.crash = kernel(module, "crash");
    }
}

static void launch(CUfunction function, size_t words, CUstream stream, void **arguments) {
    unsigned blocks = words > 256 * 1024 ? 1024 : (unsigned)(words + 255) / 256;
    NEED(cuLaunchKernel(function, blocks > 0 ? blocks : 1, 1, 1, words > 0 ? 256 : 1, 1, 1, 0,
                        stream, arguments, NULL));
}

void work_spin(CUstream stream, double microseconds) {
    uint64_t nanoseconds = (uint64_t)(microseconds * 1000);
    work_prepare();
    if (sim.launch != NULL)
        NEED(sim.launch(stream, NULL, 0, microseconds));
    else
        launch(loaded.spin, 0, stream, (void *[]){&nanoseconds});
}

void work_write(CUstream stream, CUdeviceptr at, size_t bytes, unsigned value) {
    work_prepare();
    if (sim.launch != NULL)
        NEED(cuMemsetD32Async(at, value, bytes / 4, stream));
    else
        work_write_late(stream, 0, at, bytes, value);
}

void work_write_late(CUstream stream, double microseconds, CUdeviceptr at, size_t bytes,
                     unsigned value) {
    uint64_t words = bytes / 4, nanoseconds = (uint64_t)(microseconds * 1000);
    work_prepare();
    if (sim.launch != NULL) {
        CUsimRange range = {at, bytes, 1};
        NEED(sim.launch(stream, &range, 1, microseconds));
        NEED(cuMemsetD32Async(at, value, words, stream));
    } else {
        launch(loaded.fill, words, stream, (void *[]){&at, &words, &value, &nanoseconds});
    }
}

void work_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    uint64_t words = bytes / 4;
    work_prepare();
    if (sim.launch != NULL)
        NEED(cuMemcpyDtoDAsync_v2(to, from, bytes, stream));
    else
        launch(loaded.copy, words, stream, (void *[]){&to, &from, &words});
}

void work_crash(CUstream stream) {
    work_prepare();
    if (sim.launch != NULL)
        NEED(sim.crash(stream));
    else
        launch(loaded.crash, 0, stream, NULL);
}

double work_clock(void) {
    struct timespec now;
    work_prepare();
    if (sim.clock != NULL) return (double)sim.clock() / 1000;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

unsigned word_at(CUdeviceptr at) {
    unsigned value = 0;
    NEED(cuMemcpyDtoH_v2(&value, at, sizeof value));
    return value;
}

bool all_words(CUdeviceptr at, size_t bytes, unsigned value) {
    unsigned *words = malloc(bytes);
    NEED(words == NULL);
    NEED(cuMemcpyDtoH_v2(words, at, bytes));
    bool all = true;
    for (size_t i = 0; i < bytes / 4; i++) all = all && words[i] == value;
    free(words);
    return all;
}
