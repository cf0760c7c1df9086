/* Page-locked host memory, and arrays: never of a pool. */
#include "patterns.h"
#include "shapes.h"

CASE(hosts_allocated, SIM | SHARED) {
    void *at = NULL;
    CUdeviceptr device = 0;
    unsigned type = 0;
    say_code("cuMemHostAlloc", cuMemHostAlloc(&at, 3 * MiB, 0));
    say_code("cuMemHostGetDevicePointer", cuMemHostGetDevicePointer_v2(&device, at, 0));
    say("the same address: %s", yes(device == (CUdeviceptr)at));
    say_code("memory type", cuPointerGetAttribute(&type, POINTER_MEMORY_TYPE, (CUdeviceptr)at));
    say("%u", type);
    say_code("cuMemFreeHost", cuMemFreeHost(at));
}

CASE(hosts_errors, SIM | SHARED) {
    char *at = NULL;
    int local = 0;
    say_code("0 bytes", cuMemHostAlloc((void **)&at, 0, 0));
    NEED(cuMemHostAlloc((void **)&at, MiB, 0));
    say_code("free interior", cuMemFreeHost(at + 4096));
    say_code("cuMemFree of host memory", cuMemFree_v2((CUdeviceptr)at));
    say_code("free", cuMemFreeHost(at));
    say_code("free again", cuMemFreeHost(at));
    say_code("free of a local variable", cuMemFreeHost(&local));
}

CASE(hosts_free_of_device_memory, SIM | SHARED) {
    for (int kind = 0; kind < KINDS; kind++) {
        CUdeviceptr at = get_memory(kind, MiB);
        say("%s: %s", kind_names[kind], code_name(cuMemFreeHost((void *)at)));
        put_memory(at);
    }
}

static char *pages(size_t bytes) {
    void *at = NULL;
    NEED(posix_memalign(&at, 64 * KiB, bytes));
    return memset(at, 0, bytes);
}

CASE(hosts_registered, SIM | SHARED) {
    char *at = pages(MiB);
    CUdeviceptr device = allocate(MiB);
    CUstream stream = new_stream();
    say_code("cuMemHostRegister", cuMemHostRegister_v2(at, MiB, 0));
    say_code("again", cuMemHostRegister_v2(at, MiB, 0));
    NEED(cuMemsetD8Async(device, 0x6B, MiB, stream));
    say_code("cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2(at, device, MiB, stream));
    NEED(cuStreamSynchronize(stream));
    say("arrived: %s", yes(at[0] == 0x6B && at[MiB - 1] == 0x6B));
    say_code("cuMemHostUnregister", cuMemHostUnregister(at));
    say_code("again", cuMemHostUnregister(at));
    put_memory(device);
    free(at);
    NEED(cuStreamDestroy_v2(stream));
}

CASE(hosts_register_of_device_memory, SIM) {
    CUdeviceptr at = allocate(2 * MiB);
    say_code("cuMemHostRegister", cuMemHostRegister_v2((void *)at, 2 * MiB, 0));
    say_code("cuMemHostUnregister", cuMemHostUnregister((void *)at));
    unsigned flags = 0;
    say_code("cuMemHostGetFlags", cuMemHostGetFlags(&flags, (void *)at));
    CUdeviceptr device = 0;
    say_code("cuMemHostGetDevicePointer", cuMemHostGetDevicePointer_v2(&device, (void *)at, 0));
}

CASE(hosts_by_the_runtime, SIM | RUNTIME | SHARED) {
    void *at = NULL;
    cudaPointerAttributes attributes;
    say_runtime("cudaHostAlloc", cudaHostAlloc(&at, MiB, 0));
    say_runtime("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, at));
    say("type %d", attributes.type);
    say_runtime("cudaFree of it", cudaFree(at));
    say_runtime("cudaGetLastError", cudaGetLastError());
    say_runtime("cudaFreeHost", cudaFreeHost(at));
}

CASE(hosts_arrays, SIM | SHARED) {
    CUarray array = NULL;
    CUDA_ARRAY_DESCRIPTOR shape = {256, 64, FORMAT_UINT32, 1};
    say_code("cuArrayCreate", cuArrayCreate_v2(&array, &shape));
    say_code("cuArrayDestroy", cuArrayDestroy(array));
    shape.Width = 0;
    say_code("no width", cuArrayCreate_v2(&array, &shape));
    shape.Width = 256;
    shape.NumChannels = 3;
    say_code("three channels", cuArrayCreate_v2(&array, &shape));
    CUDA_ARRAY3D_DESCRIPTOR block = {64, 32, 16, FORMAT_UINT32, 4, 0};
    say_code("cuArray3DCreate", cuArray3DCreate_v2(&array, &block));
    say_code("cuArrayDestroy", cuArrayDestroy(array));
}

/* Through an array and back, from and to device memory. */
CASE(hosts_arrays_and_device_memory, GPU | SHARED) {
    for (int kind = 0; kind < KINDS; kind++) {
        CUarray array = NULL;
        CUDA_ARRAY_DESCRIPTOR shape = {256, 64, FORMAT_UINT32, 1};
        size_t bytes = 256 * 64 * 4;
        CUdeviceptr from = get_memory(kind, bytes), to = get_memory(kind, bytes);
        unsigned char *some = pattern(bytes, 8);
        NEED(cuArrayCreate_v2(&array, &shape));
        NEED(cuMemcpyHtoD_v2(from, some, bytes));
        CUDA_MEMCPY2D in = {.WidthInBytes = 1024, .Height = 64}, out = in;
        in.src = (CUcopyEnd2D){.memoryType = MEMORY_DEVICE, .device = from, .pitch = 1024};
        in.dst = (CUcopyEnd2D){.memoryType = MEMORY_ARRAY, .array = array};
        out.src = in.dst;
        out.dst = (CUcopyEnd2D){.memoryType = MEMORY_DEVICE, .device = to, .pitch = 1024};
        say("%s", kind_names[kind]);
        say_code("into the array", cuMemcpy2D_v2(&in));
        say_code("out of it", cuMemcpy2D_v2(&out));
        say("equal: %s", yes(holds(to, some, bytes)));
        NEED(cuArrayDestroy(array));
        free(some);
        put_memory(from);
        put_memory(to);
    }
}
