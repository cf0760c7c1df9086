/* What contains an address, and how memory is handed on: cuMemGetAddressRange,
 * cuMemRetainAllocationHandle, dma-buf descriptors, legacy IPC handles. */
#include <sys/mman.h>
#include <unistd.h>

#include "conformance.h"

static void say_range(const char *what, CUdeviceptr at, CUdeviceptr base, size_t bytes) {
    CUdeviceptr start = 7;
    size_t length = 7;
    int code = cuMemGetAddressRange_v2(&start, &length, at);
    if (code != CU_OK)
        say("%s: %s; written: %s", what, code_name(code), yes(start != 7 || length != 7));
    else if (start == base && length == bytes)
        say("%s: the allocation", what);
    else
        say("%s: start %s, %zu of %zu bytes", what, start == base ? "at the base" : "elsewhere",
            length, bytes);
}

CASE(ranges_plain, SIM) {
    CUdeviceptr at = allocate(64 * MiB);
    say_range("base", at, at, 64 * MiB);
    say_range("inside", at + 33 * MiB + 5, at, 64 * MiB);
    say_range("last", at + 64 * MiB - 1, at, 64 * MiB);
    say_range("behind", at + 64 * MiB, at, 64 * MiB);
}

CASE(ranges_small, SIM) {
    CUdeviceptr at = allocate(1000);
    say_range("base", at, at, 1000);
    say_range("last", at + 999, at, 1000);
    say_range("behind", at + 1000, at, 1000);
    say_range("next step", at + 1024, at, 1000);
}

CASE(ranges_odd, SIM) {
    CUdeviceptr at = allocate(3 * MiB + 1);
    say_range("base", at, at, 3 * MiB + 1);
    say_range("last", at + 3 * MiB, at, 3 * MiB + 1);
    say_range("behind", at + 3 * MiB + 1, at, 3 * MiB + 1);
}

CASE(ranges_neighbours, SIM) {
    CUdeviceptr a = allocate(1000), b = allocate(1000);
    say_range("one", a + 10, a, 1000);
    say_range("the other", b + 10, b, 1000);
    NEED(cuMemFree_v2(a));
    say_range("one, freed", a + 10, a, 1000);
    say_range("the other", b + 10, b, 1000);
}

CASE(ranges_null_outputs, SIM | SHARED) {
    CUdeviceptr at = allocate(4 * MiB), start = 0;
    size_t length = 0;
    say_code("no outputs", cuMemGetAddressRange_v2(NULL, NULL, at));
    say_code("no size", cuMemGetAddressRange_v2(&start, NULL, at + 1));
    say("start: %s", start == at ? "the base" : "another");
    say_code("no start", cuMemGetAddressRange_v2(NULL, &length, at + 1));
    say("size: %s", length == 4 * MiB ? "the size" : "another");
    NEED(cuMemFree_v2(at));
}

CASE(ranges_freed, SIM) {
    CUdeviceptr at = allocate(64 * MiB);
    NEED(cuMemFree_v2(at));
    say_range("base", at, at, 64 * MiB);
    say_range("inside", at + 33 * MiB, at, 64 * MiB);
    say_code("no outputs", cuMemGetAddressRange_v2(NULL, NULL, at));
}

CASE(ranges_nowhere, SIM | SHARED) {
    static int on_host;
    say_range("address 0", 0, 0, 0);
    say_range("address 4096", 4096, 0, 0);
    say_range("a variable", (CUdeviceptr)&on_host, 0, 0);
    say_range("the last address", ~(CUdeviceptr)0, 0, 0);
}

CASE(ranges_async, SIM) {
    CUdeviceptr at = allocate_async(64 * MiB, NULL);
    say_range("base", at, at, 64 * MiB);
    say_range("inside", at + 33 * MiB + 5, at, 64 * MiB);
    say_range("behind", at + 64 * MiB, at, 64 * MiB);
    NEED(cuMemFreeAsync(at, NULL));
    NEED(cuStreamSynchronize(NULL));
    say_range("freed", at, at, 64 * MiB);
}

CASE(ranges_async_small, SIM) {
    CUdeviceptr at = allocate_async(1000, NULL);
    say_range("base", at, at, 1000);
    say_range("last", at + 999, at, 1000);
    say_range("behind", at + 1000, at, 1000);
    say_range("next step", at + 1024, at, 1000);
}

CASE(ranges_pitch, SIM) {
    CUdeviceptr at = 0;
    size_t pitch = 0;
    NEED(cuMemAllocPitch_v2(&at, &pitch, 1000, 300, 4));
    say_range("base", at, at, pitch * 300);
    say_range("second row", at + pitch, at, pitch * 300);
    say_range("last", at + pitch * 300 - 1, at, pitch * 300);
    say_range("behind", at + pitch * 300, at, pitch * 300);
}

CASE(ranges_mapped, SIM | SHARED) {
    struct mapping own = map_own(64 * MiB);
    say_range("first handle", own.at + 100, own.at, 32 * MiB);
    say_range("second handle", own.at + 33 * MiB, own.at + 32 * MiB, 32 * MiB);
    unmap_own(own);
    say_range("unmapped", own.at, own.at, 32 * MiB);
}

CASE(ranges_from_another_context, SIM) {
    CUdeviceptr at = allocate(4 * MiB);
    CUcontext other = NULL;
    NEED(cuCtxCreate_v2(&other, 0, 0));
    say_range("there", at + 10, at, 4 * MiB);
}

CASE(ranges_without_context, SIM) {
    CUdeviceptr at = allocate(4 * MiB);
    NEED(cuCtxSetCurrent(NULL));
    say_range("without", at + 10, at, 4 * MiB);
    say_range("address 0", 0, 0, 0);
}

CASE(ranges_before_init, SIM | RAW) {
    say_range("address 4096", 4096, 0, 0);
    CUmemHandle handle = 0;
    say_code("handle", cuMemRetainAllocationHandle(&handle, (void *)4096));
    CUipcMemHandle ipc;
    say_code("ipc", cuIpcGetMemHandle(&ipc, 4096));
}

CASE(ranges_runtime, SIM | SHARED | RUNTIME) {
    void *at = NULL;
    NEED(cudaMalloc(&at, 5 * MiB));
    say_range("cudaMalloc", (CUdeviceptr)at + MiB, (CUdeviceptr)at, 5 * MiB);
    NEED(cudaFree(at));
    say_range("freed", (CUdeviceptr)at, (CUdeviceptr)at, 5 * MiB);
}

static void say_retained(const char *what, CUdeviceptr at) {
    CUmemHandle handle = 7;
    int code = cuMemRetainAllocationHandle(&handle, (void *)at);
    say("%s: %s; written: %s", what, code_name(code), yes(handle != 7));
    if (code == CU_OK) NEED(cuMemRelease(handle));
}

CASE(ranges_retain, SIM) {
    CUdeviceptr at = allocate(64 * MiB);
    say_retained("base", at);
    say_retained("inside", at + 33 * MiB);
    NEED(cuMemFree_v2(at));
    say_retained("freed", at);
    at = allocate(1000);
    say_retained("small", at);
    say_code("no output", cuMemRetainAllocationHandle(NULL, (void *)at));
}

CASE(ranges_retain_async, SIM) {
    CUdeviceptr at = allocate_async(64 * MiB, NULL);
    say_retained("base", at);
    say_retained("inside", at + 33 * MiB);
}

CASE(ranges_retain_mapped, SIM | SHARED) {
    struct mapping own = map_own(64 * MiB);
    CUmemHandle first = 0, second = 0;
    say_code("first", cuMemRetainAllocationHandle(&first, (void *)(own.at + 100)));
    say_code("second", cuMemRetainAllocationHandle(&second, (void *)(own.at + 33 * MiB)));
    say("the same as created: %s", yes(first == own.handles[0] && second == own.handles[1]));
    NEED(cuMemRelease(first));
    NEED(cuMemRelease(second));
    unmap_own(own);
    say_retained("unmapped", own.at);
}

CASE(ranges_retain_nowhere, SIM | SHARED) {
    static int on_host;
    say_retained("address 0", 0);
    say_retained("a variable", (CUdeviceptr)&on_host);
}

/* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */
enum { DMA_BUF = 1 };

static void say_dma_buf(const char *what, CUdeviceptr at, size_t bytes) {
    int fd = -1;
    int code = cuMemGetHandleForAddressRange(&fd, at, bytes, DMA_BUF, 0);
    if (code != CU_OK) {
        say("%s: %s", what, code_name(code));
        return;
    }
    off_t length = lseek(fd, 0, SEEK_END);
    say("%s: a descriptor of %s", what, length == (off_t)bytes ? "the size" : "another size");
    close(fd);
}

CASE(ranges_dma_buf, SIM) {
    CUdeviceptr at = allocate(64 * MiB);
    say_dma_buf("all", at, 64 * MiB);
    say_dma_buf("2 MiB inside", at + 32 * MiB, 2 * MiB);
    say_dma_buf("4 KiB inside", at + 32 * MiB + 4096, 4096);
    say_dma_buf("an odd start", at + 100, 4096);
    say_dma_buf("an odd size", at, 1000);
    say_dma_buf("no bytes", at, 0);
    say_dma_buf("over the end", at + 32 * MiB, 64 * MiB);
    NEED(cuMemFree_v2(at));
    say_dma_buf("freed", at, 2 * MiB);
}

CASE(ranges_dma_buf_whole_page, SIM) {
    /* Less than a page of the device, on pages of the host. */
    CUdeviceptr at = allocate(64 * KiB);
    say("base on a page of the host: %s", yes(at % 4096 == 0));
    say_dma_buf("all", at & ~(CUdeviceptr)4095, 64 * KiB);
}

/* Pages of the host, and of the device, around an allocation: "taken" or a code. */
static void say_rounded(const char *what, size_t bytes) {
    enum { HOST = 4096, DEVICE = 2 << 20 };
    CUdeviceptr at = allocate(bytes), from = at / HOST * HOST, to = (at + bytes + HOST - 1) / HOST * HOST;
    CUdeviceptr first = at / DEVICE * DEVICE, last = (at + bytes + DEVICE - 1) / DEVICE * DEVICE;
    CUdeviceptr ranges[][2] = {{from, to}, {from, last}, {first, to}, {first, last}, {from, last + DEVICE}};
    const char *names[] = {"the host's pages", "to the last page", "from the first page", "both", "a page beyond"};
    for (int i = 0; i < 5; i++) {
        int fd = -1;
        int code = cuMemGetHandleForAddressRange(&fd, ranges[i][0], ranges[i][1] - ranges[i][0], DMA_BUF, 0);
        say("%s, %s: %s", what, names[i], code == CU_OK ? "taken" : code_name(code));
        if (code == CU_OK) close(fd);
    }
    NEED(cuMemFree_v2(at));
}

CASE(ranges_dma_buf_rounded, SIM) {
    /* What is small is not first on its page. */
    allocate(512);
    say_rounded("512 B", 512);
    say_rounded("1000 B", 1000);
    say_rounded("70000 B", 70000);
    say_rounded("1 MiB - 512", MiB - 512);
    say_rounded("1 MiB + 512", MiB + 512);
    say_rounded("3 MiB + 1000", 3 * MiB + 1000);
    say_rounded("34 MiB + 100", 34 * MiB + 100);
    say_rounded("4 MiB", 4 * MiB);
}

CASE(ranges_dma_buf_async, SIM) {
    CUdeviceptr at = allocate_async(64 * MiB, NULL);
    NEED(cuStreamSynchronize(NULL));
    say_dma_buf("all", at, 64 * MiB);
    say_dma_buf("2 MiB inside", at + 32 * MiB, 2 * MiB);
}

CASE(ranges_dma_buf_mapped, SIM) {
    struct mapping own = map_own(64 * MiB);
    say_dma_buf("both handles", own.at, 64 * MiB);
    say_dma_buf("over the seam", own.at + 30 * MiB, 4 * MiB);
    unmap_own(own);
}

CASE(ranges_dma_buf_bad_type, SIM) {
    CUdeviceptr at = allocate(4 * MiB);
    int fd = -1;
    say_code("type 0", cuMemGetHandleForAddressRange(&fd, at, 4 * MiB, 0, 0));
    say_code("type 99", cuMemGetHandleForAddressRange(&fd, at, 4 * MiB, 99, 0));
    say_code("flags 99", cuMemGetHandleForAddressRange(&fd, at, 4 * MiB, DMA_BUF, 99));
    say_code("no output", cuMemGetHandleForAddressRange(NULL, at, 4 * MiB, DMA_BUF, 0));
}
