/* Memory of one device reached from another. */
#include "peers.h"
#include "work.h"

struct pair open_pair(void) {
    struct pair p = {context(), NULL};
    NEED(cuDevicePrimaryCtxRetain(&p.second, 1));
    return p;
}

struct pair open_pair_turned(void) {
    struct pair p = open_pair();
    NEED(cuCtxSetCurrent(p.second));
    return (struct pair){p.second, p.first};
}

static void enter(CUcontext device) { NEED(cuCtxPushCurrent_v2(device)); }

static void leave(void) {
    CUcontext popped = NULL;
    NEED(cuCtxPopCurrent_v2(&popped));
}

CUdeviceptr get_memory_on(CUcontext device, int kind, size_t bytes) {
    enter(device);
    CUdeviceptr at = get_memory(kind, bytes);
    leave();
    return at;
}

CUdeviceptr allocate_on(CUcontext device, size_t bytes) {
    return get_memory_on(device, PLAIN, bytes);
}

CUstream new_stream_on(CUcontext device) {
    enter(device);
    CUstream stream = new_stream();
    leave();
    return stream;
}

void fill_on(CUcontext device, CUdeviceptr at, size_t bytes, int value) {
    enter(device);
    NEED(cuMemsetD8_v2(at, (unsigned char)value, bytes));
    NEED(cuCtxSynchronize());
    leave();
}

void put_on(CUcontext device, CUdeviceptr at, const void *bytes, size_t count) {
    enter(device);
    NEED(cuMemcpyHtoD_v2(at, bytes, count));
    NEED(cuCtxSynchronize());
    leave();
}

bool holds_on(CUcontext device, CUdeviceptr at, const void *expected, size_t bytes) {
    enter(device);
    bool same = holds(at, expected, bytes);
    leave();
    return same;
}

int settle(struct pair p) {
    enter(p.first);
    int here = cuCtxSynchronize();
    leave();
    enter(p.second);
    int there = cuCtxSynchronize();
    leave();
    return here != CU_OK ? here : there;
}

void say_done(const char *what, size_t bytes, int code, int after, bool equal) {
    say("%s of %zu: %s, then %s, equal %s", what, bytes, code_name(code), code_name(after),
        yes(code == CU_OK && after == CU_OK && equal));
}

/* The second device's kernel writes; what the first device then reads. */
static bool written_by(CUcontext writer, CUcontext owner, CUdeviceptr at, size_t bytes, unsigned value) {
    CUcontext popped = NULL;
    NEED(cuCtxPushCurrent_v2(writer));
    work_write(CU_STREAM_LEGACY, at, bytes, value);
    NEED(cuCtxSynchronize());
    NEED(cuCtxPopCurrent_v2(&popped));
    NEED(cuCtxPushCurrent_v2(owner));
    bool same = all_words(at, bytes, value);
    NEED(cuCtxPopCurrent_v2(&popped));
    return same;
}

CASE(peers_can_be_asked, SIM | DEVICES2) {
    int there = -1, back = -1, self = -1;
    say_code("cuDeviceCanAccessPeer", cuDeviceCanAccessPeer(&there, 1, 0));
    NEED(cuDeviceCanAccessPeer(&back, 0, 1));
    NEED(cuDeviceCanAccessPeer(&self, 0, 0));
    say("there %d, back %d, self %d", there, back, self);
}

CASE(peers_enable_and_disable, SIM | DEVICES2) {
    struct pair p = open_pair();
    say_code("disable before", cuCtxDisablePeerAccess(p.second));
    say_code("enable with flags", cuCtxEnablePeerAccess(p.second, 1));
    say_code("enable", cuCtxEnablePeerAccess(p.second, 0));
    say_code("enable again", cuCtxEnablePeerAccess(p.second, 0));
    say_code("disable", cuCtxDisablePeerAccess(p.second));
    say_code("disable again", cuCtxDisablePeerAccess(p.second));
    say_code("enable once more", cuCtxEnablePeerAccess(p.second, 0));
}

CASE(peers_of_itself, SIM | DEVICES2) {
    struct pair p = open_pair();
    say_code("enable", cuCtxEnablePeerAccess(p.first, 0));
    say_code("disable", cuCtxDisablePeerAccess(p.first));
    say_code("enable NULL", cuCtxEnablePeerAccess(NULL, 0));
}

CASE(peers_memory_from_before, SIM | DEVICES2) {
    struct pair p = open_pair();
    CUdeviceptr at = allocate_on(p.first, 3 * MiB), large = allocate_on(p.first, 100 * MiB);
    NEED(cuCtxPushCurrent_v2(p.second));
    say_code("enable", cuCtxEnablePeerAccess(p.first, 0));
    say("written: %s", yes(written_by(p.second, p.first, at, 3 * MiB, 0x11)));
    say("100 MiB: %s", yes(written_by(p.second, p.first, large, 100 * MiB, 0x22)));
}

CASE(peers_memory_from_after, SIM | DEVICES2) {
    struct pair p = open_pair();
    NEED(cuCtxPushCurrent_v2(p.second));
    say_code("enable", cuCtxEnablePeerAccess(p.first, 0));
    CUdeviceptr small = allocate_on(p.first, 4096), large = allocate_on(p.first, 200 * MiB);
    say("4 KiB: %s", yes(written_by(p.second, p.first, small, 4096, 0x33)));
    say("200 MiB: %s", yes(written_by(p.second, p.first, large, 200 * MiB, 0x44)));
}

/* Memory that was freed and is had again, some of it in another shape. */
CASE(peers_memory_used_again, SIM | DEVICES2) {
    struct pair p = open_pair();
    CUdeviceptr first = allocate_on(p.first, 40 * MiB), second = allocate_on(p.first, 60 * MiB);
    NEED(cuCtxPushCurrent_v2(p.second));
    NEED(cuCtxEnablePeerAccess(p.first, 0));
    NEED(cuCtxPushCurrent_v2(p.first));
    NEED(cuMemFree_v2(first));
    NEED(cuMemFree_v2(second));
    CUdeviceptr joined = allocate_on(p.first, 100 * MiB);
    say("100 MiB: %s", yes(written_by(p.second, p.first, joined, 100 * MiB, 0x55)));
}

CASE(peers_both_ways, SIM | DEVICES2) {
    struct pair p = open_pair();
    CUdeviceptr here = allocate_on(p.first, MiB), there = allocate_on(p.second, MiB);
    say_code("enable", cuCtxEnablePeerAccess(p.second, 0));
    NEED(cuCtxPushCurrent_v2(p.second));
    say_code("enable back", cuCtxEnablePeerAccess(p.first, 0));
    say("the first's: %s", yes(written_by(p.second, p.first, here, MiB, 0x66)));
    say("the second's: %s", yes(written_by(p.first, p.second, there, MiB, 0x77)));
}

CASE(peers_kernel_without_access, GPU | DEVICES2 | CRASHES) {
    struct pair p = open_pair();
    CUdeviceptr at = allocate_on(p.first, MiB);
    NEED(cuCtxPushCurrent_v2(p.second));
    work_write(CU_STREAM_LEGACY, at, MiB, 1);
    say_code("cuCtxSynchronize", cuCtxSynchronize());
}

CASE(peers_kernel_after_disabling, GPU | DEVICES2 | CRASHES) {
    struct pair p = open_pair();
    CUdeviceptr at = allocate_on(p.first, MiB);
    NEED(cuCtxPushCurrent_v2(p.second));
    NEED(cuCtxEnablePeerAccess(p.first, 0));
    work_write(CU_STREAM_LEGACY, at, MiB, 1);
    say_code("enabled: cuCtxSynchronize", cuCtxSynchronize());
    say_code("disable", cuCtxDisablePeerAccess(p.first));
    work_write(CU_STREAM_LEGACY, at, MiB, 1);
    say_code("disabled: cuCtxSynchronize", cuCtxSynchronize());
}

/* Every way to copy `bytes` of device 0's memory to device 1's. */
static void copies(struct pair p, size_t bytes) {
    CUdeviceptr from = allocate_on(p.first, bytes), to = allocate_on(p.second, bytes);
    unsigned char *some = pattern(bytes, 1);
    CUstream stream = new_stream();
    NEED(cuMemcpyHtoD_v2(from, some, bytes));
    NEED(cuCtxSynchronize());
    for (int way = 0; way < 5; way++) {
        static const char *const ways[] = {"cuMemcpyPeer", "cuMemcpyPeerAsync", "cuMemcpyDtoD",
                                           "cuMemcpy", "cuMemcpyDtoDAsync"};
        int code = -2;
        CUcontext popped = NULL;
        NEED(cuCtxPushCurrent_v2(p.second));
        NEED(cuMemsetD8_v2(to, 0, bytes));
        NEED(cuCtxSynchronize());
        NEED(cuCtxPopCurrent_v2(&popped));
        if (way == 0) code = cuMemcpyPeer(to, p.second, from, p.first, bytes);
        if (way == 1) code = cuMemcpyPeerAsync(to, p.second, from, p.first, bytes, stream);
        if (way == 2) code = cuMemcpyDtoD_v2(to, from, bytes);
        if (way == 3) code = cuMemcpy(to, from, bytes);
        if (way == 4) code = cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
        int after = cuCtxSynchronize();
        NEED(cuCtxPushCurrent_v2(p.second));
        say("%s of %zu: %s, then %s, equal %s", ways[way], bytes, code_name(code), code_name(after),
            yes(code == CU_OK && after == CU_OK && holds(to, some, bytes)));
        NEED(cuCtxPopCurrent_v2(&popped));
    }
    free(some);
}

CASE(peers_copies_with_access, SIM | DEVICES2) {
    struct pair p = open_pair();
    NEED(cuCtxEnablePeerAccess(p.second, 0));
    NEED(cuCtxPushCurrent_v2(p.second));
    NEED(cuCtxEnablePeerAccess(p.first, 0));
    NEED(cuCtxPushCurrent_v2(p.first));
    copies(p, 777);
    copies(p, 50 * MiB + 4);
}

CASE(peers_copies_without_access, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies(p, 777);
    copies(p, 50 * MiB + 4);
}

CASE(peers_copies_after_disabling, SIM | DEVICES2) {
    struct pair p = open_pair();
    NEED(cuCtxEnablePeerAccess(p.second, 0));
    CUdeviceptr warm = allocate_on(p.second, 50 * MiB);
    NEED(cuMemsetD8_v2(warm, 1, 50 * MiB));
    NEED(cuCtxSynchronize());
    NEED(cuCtxDisablePeerAccess(p.second));
    copies(p, 777);
}

/* Memory of cuMemAllocAsync follows its pool's access, not the contexts'. */
CASE(peers_ordered_memory, SIM | DEVICES2) {
    struct pair p = open_pair();
    CUmemoryPool pool = NULL;
    CUmemAccessDesc access = {{LOCATION_DEVICE, 1}, ACCESS_READWRITE};
    int flags = -1;
    CUmemLocation there = {LOCATION_DEVICE, 1};
    CUdeviceptr before = get_memory(ORDERED, MiB);
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    say_code("cuMemPoolSetAccess", cuMemPoolSetAccess(pool, &access, 1));
    say_code("cuMemPoolGetAccess", cuMemPoolGetAccess(&flags, pool, &there));
    say("flags %d", flags);
    CUdeviceptr after = get_memory(ORDERED, 30 * MiB);
    say("from before: %s", yes(written_by(p.second, p.first, before, MiB, 0x88)));
    say("from after: %s", yes(written_by(p.second, p.first, after, 30 * MiB, 0x99)));
}

CASE(peers_attributes, SIM | DEVICES2) {
    struct pair p = open_pair();
    CUdeviceptr at = allocate_on(p.second, MiB);
    CUcontext owner = NULL;
    int ordinal = -1;
    say_code("cuPointerGetAttribute", cuPointerGetAttribute(&ordinal, POINTER_DEVICE_ORDINAL, at));
    say("device %d", ordinal);
    NEED(cuPointerGetAttribute(&owner, POINTER_CONTEXT, at));
    say("its own context: %s", yes(owner == p.second));
}

CASE(peers_freed_from_the_other_side, SIM | DEVICES2) {
    struct pair p = open_pair();
    CUdeviceptr at = allocate_on(p.second, MiB), more = 0;
    say_code("cuMemFree with the first device current", cuMemFree_v2(at));
    say_code("again", cuMemFree_v2(at));
    NEED(cuCtxPushCurrent_v2(p.second));
    say_code("cuMemAlloc there", cuMemAlloc_v2(&more, MiB));
}

CASE(peers_by_the_runtime, SIM | RUNTIME | DEVICES2) {
    void *here = NULL, *there = NULL;
    char *some = (char *)pattern(MiB, 5), *back = (char *)filled(MiB, 0);
    NEED(cudaSetDevice(0));
    NEED(cudaMalloc(&here, MiB));
    NEED(cudaMemcpy(here, some, MiB, COPY_HOST_TO_DEVICE));
    say_runtime("disable before", cudaDeviceDisablePeerAccess(1));
    say_runtime("enable", cudaDeviceEnablePeerAccess(1, 0));
    say_runtime("enable again", cudaDeviceEnablePeerAccess(1, 0));
    say_runtime("of itself", cudaDeviceEnablePeerAccess(0, 0));
    say_runtime("cudaGetLastError", cudaGetLastError());
    NEED(cudaSetDevice(1));
    NEED(cudaDeviceEnablePeerAccess(0, 0));
    NEED(cudaMalloc(&there, MiB));
    say_runtime("cudaMemcpyPeer", cudaMemcpyPeer(there, 1, here, 0, MiB));
    NEED(cudaDeviceSynchronize());
    NEED(cudaMemcpy(back, there, MiB, COPY_DEVICE_TO_HOST));
    say("equal: %s", yes(memcmp(some, back, MiB) == 0));
    say_runtime("cudaMemset of it", cudaMemset(there, 0, MiB));
    say_runtime("cudaMemcpy", cudaMemcpy(there, here, MiB, COPY_DEFAULT));
    NEED(cudaDeviceSynchronize());
    NEED(cudaMemcpy(back, there, MiB, COPY_DEVICE_TO_HOST));
    say("equal: %s", yes(memcmp(some, back, MiB) == 0));
    say_runtime("disable", cudaDeviceDisablePeerAccess(0));
    say_runtime("disable again", cudaDeviceDisablePeerAccess(0));
}
