/* What cuPointerGetAttribute says of memory of each kind: its base, a byte
 * inside, its last byte, and the byte behind that. */
#include <pthread.h>

#include "attributes.h"

enum { INSIDE = 33 << 20 };

static struct known plain(size_t bytes) {
    return (struct known){allocate(bytes), bytes, context(), NULL};
}

static CUmemoryPool default_pool(void) {
    CUmemoryPool pool = NULL;
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static struct known ordered(size_t bytes) {
    return (struct known){allocate_async(bytes, NULL), bytes, context(), default_pool()};
}

static void give_ordered(struct known memory) {
    NEED(cuMemFreeAsync(memory.base, NULL));
    NEED(cuStreamSynchronize(NULL));
}

static void of_plain(size_t bytes, size_t offset) {
    struct known memory = plain(bytes);
    say_attributes(memory, memory.base + offset);
    NEED(cuMemFree_v2(memory.base));
}

CASE(attributes_plain_base, SIM | SHARED) { of_plain(64 * MiB, 0); }
CASE(attributes_plain_inside, SIM | SHARED) { of_plain(64 * MiB, INSIDE + 5); }
CASE(attributes_plain_last, SIM | SHARED) { of_plain(64 * MiB, 64 * MiB - 1); }
CASE(attributes_plain_behind, SIM) { of_plain(64 * MiB, 64 * MiB); }
CASE(attributes_small_base, SIM) { of_plain(1000, 0); }
CASE(attributes_small_last, SIM) { of_plain(1000, 999); }
CASE(attributes_small_behind, SIM) { of_plain(1000, 1000); }
CASE(attributes_small_next_step, SIM) { of_plain(1000, 1024); }
CASE(attributes_odd_base, SIM | SHARED) { of_plain(3 * MiB + 1, 0); }
CASE(attributes_odd_last, SIM | SHARED) { of_plain(3 * MiB + 1, 3 * MiB); }

static void of_ordered(size_t bytes, size_t offset) {
    struct known memory = ordered(bytes);
    say_attributes(memory, memory.base + offset);
    give_ordered(memory);
}

CASE(attributes_async_base, SIM | SHARED) { of_ordered(64 * MiB, 0); }
CASE(attributes_async_inside, SIM | SHARED) { of_ordered(64 * MiB, INSIDE + 5); }
CASE(attributes_async_last, SIM | SHARED) { of_ordered(64 * MiB, 64 * MiB - 1); }
CASE(attributes_async_behind, SIM) { of_ordered(64 * MiB, 64 * MiB); }
CASE(attributes_async_small, SIM) { of_ordered(1000, 10); }

static void of_pitched(size_t offset) {
    CUdeviceptr base = 0;
    size_t pitch = 0;
    NEED(cuMemAllocPitch_v2(&base, &pitch, 1000, 300, 4));
    say_attributes((struct known){base, pitch * 300, context(), NULL}, base + offset);
    NEED(cuMemFree_v2(base));
}

CASE(attributes_pitch_base, SIM) { of_pitched(0); }
CASE(attributes_pitch_second_row, SIM) { of_pitched(1024); }
CASE(attributes_pitch_last, SIM) { of_pitched(1024 * 300 - 1); }

CASE(attributes_mapped_base, SIM | SHARED) {
    struct mapping own = map_own(64 * MiB);
    say_attributes((struct known){own.at, own.bytes, context(), NULL}, own.at);
    unmap_own(own);
}

CASE(attributes_mapped_second_handle, SIM | SHARED) {
    struct mapping own = map_own(64 * MiB);
    say_attributes((struct known){own.at, own.bytes, context(), NULL}, own.at + INSIDE);
    unmap_own(own);
}

CASE(attributes_freed, SIM | SHARED) {
    CUdeviceptr at = allocate(64 * MiB), start = 7;
    NEED(cuMemFree_v2(at));
    say_code("start of freed memory", cuPointerGetAttribute(&start, POINTER_RANGE_START, at));
    say("written: %s", yes(start != 7));
}

CASE(attributes_async_freed, SIM | SHARED) {
    CUdeviceptr at = allocate_async(64 * MiB, NULL), start = 7;
    give_ordered((struct known){.base = at});
    say_code("start of freed memory", cuPointerGetAttribute(&start, POINTER_RANGE_START, at));
    say("written: %s", yes(start != 7));
}

CASE(attributes_unknown_numbers, SIM | SHARED) {
    static const int numbers[] = {0, 22, 100, -1};
    CUdeviceptr at = allocate(MiB);
    for (int i = 0; i < 4; i++) {
        uint64_t value[2] = {7, 7};
        say("%d: %s", numbers[i], code_name(cuPointerGetAttribute(value, numbers[i], at)));
        say("written: %s", yes(value[0] != 7));
    }
    NEED(cuMemFree_v2(at));
}

CASE(attributes_nowhere, SIM | SHARED) {
    static int on_host;
    uint64_t value[2] = {7, 7};
    say_code("of address 0", cuPointerGetAttribute(value, POINTER_MEMORY_TYPE, 0));
    say_code("of a variable", cuPointerGetAttribute(value, POINTER_MEMORY_TYPE, (CUdeviceptr)&on_host));
    say("written: %s", yes(value[0] != 7));
    CUdeviceptr at = allocate(MiB);
    say_code("to nowhere", cuPointerGetAttribute(NULL, POINTER_MEMORY_TYPE, at));
    NEED(cuMemFree_v2(at));
}

/* How many bytes an attribute's value is: written whatever was there before. */
static void say_widths(CUdeviceptr at) {
    for (int attribute = 1; attribute <= 21; attribute++) {
        unsigned char ones[16], zeros[16];
        int width = 0;
        memset(ones, 0xA5, sizeof ones);
        memset(zeros, 0x5A, sizeof zeros);
        if (cuPointerGetAttribute(ones, attribute, at) != CU_OK) continue;
        if (cuPointerGetAttribute(zeros, attribute, at) != CU_OK) continue;
        for (int i = 0; i < 16; i++)
            if (ones[i] == zeros[i]) width = i + 1;
        say("%d: %d", attribute, width);
    }
}

CASE(attributes_widths, SIM | SHARED) {
    CUdeviceptr at = allocate(MiB);
    say_widths(at);
    NEED(cuMemFree_v2(at));
}

CASE(attributes_async_widths, SIM | SHARED) {
    struct known memory = ordered(MiB);
    say_widths(memory.base);
    give_ordered(memory);
}

static uint64_t id_of(int attribute, CUdeviceptr at) {
    uint64_t id = 0;
    NEED(cuPointerGetAttribute(&id, attribute, at));
    return id;
}

static void say_ids(int attribute) {
    CUdeviceptr a = allocate(4 * MiB), b = allocate(4 * MiB);
    uint64_t first = id_of(attribute, a), second = id_of(attribute, b);
    say("the same inside: %s", yes(id_of(attribute, a + MiB) == first));
    say("two allocations differ: %s", yes(first != second));
    NEED(cuMemFree_v2(a));
    a = allocate(4 * MiB);
    say("another one after a free: %s", yes(id_of(attribute, a) != first));
    NEED(cuMemFree_v2(a));
    NEED(cuMemFree_v2(b));
}

CASE(attributes_buffer_ids, SIM | SHARED) { say_ids(POINTER_BUFFER_ID); }
CASE(attributes_block_ids, SIM | SHARED) { say_ids(POINTER_MEMORY_BLOCK_ID); }

CASE(attributes_ids_of_one_page, SIM) {
    CUdeviceptr a = allocate(1000), b = allocate(1000);
    say("buffer ids differ: %s", yes(id_of(POINTER_BUFFER_ID, a) != id_of(POINTER_BUFFER_ID, b)));
    say("block ids differ: %s",
        yes(id_of(POINTER_MEMORY_BLOCK_ID, a) != id_of(POINTER_MEMORY_BLOCK_ID, b)));
    NEED(cuMemFree_v2(a));
    NEED(cuMemFree_v2(b));
}

CASE(attributes_async_ids, SIM | SHARED) {
    CUdeviceptr a = allocate_async(4 * MiB, NULL), b = allocate_async(4 * MiB, NULL);
    uint64_t first = id_of(POINTER_BUFFER_ID, a);
    say("two allocations differ: %s", yes(id_of(POINTER_BUFFER_ID, b) != first));
    NEED(cuMemFreeAsync(a, NULL));
    a = allocate_async(4 * MiB, NULL);
    say("another one after a free: %s", yes(id_of(POINTER_BUFFER_ID, a) != first));
    NEED(cuMemFreeAsync(a, NULL));
    give_ordered((struct known){.base = b});
}

CASE(attributes_from_another_context, SIM) {
    struct known memory = plain(4 * MiB);
    CUcontext other = NULL, popped = NULL;
    NEED(cuCtxCreate_v2(&other, 0, 0));
    say_attributes(memory, memory.base);
    NEED(cuCtxPopCurrent_v2(&popped));
    NEED(cuCtxDestroy_v2(other));
    NEED(cuMemFree_v2(memory.base));
}

CASE(attributes_without_context, SIM) {
    struct known memory = plain(4 * MiB);
    NEED(cuCtxSetCurrent(NULL));
    say_attributes(memory, memory.base);
}

CASE(attributes_async_without_context, SIM) {
    struct known memory = ordered(4 * MiB);
    NEED(cuStreamSynchronize(NULL));
    NEED(cuCtxSetCurrent(NULL));
    say_attributes(memory, memory.base);
}

CASE(attributes_before_init, SIM | RAW) {
    uint64_t value[2] = {0, 0};
    say_code("one", cuPointerGetAttribute(value, POINTER_MEMORY_TYPE, 4096));
    int asked = POINTER_MEMORY_TYPE;
    void *values[] = {value};
    say_code("a list", cuPointerGetAttributes(1, &asked, values, 4096));
}

static void *ask_elsewhere(void *argument) {
    const struct known *memory = argument;
    uint64_t start = 0;
    say_code("asked by a thread without context",
             cuPointerGetAttribute(&start, POINTER_RANGE_START, memory->base + 100));
    say("start: %s", start == memory->base ? "the base" : "another");
    return NULL;
}

CASE(attributes_from_another_thread, SIM | SHARED) {
    struct known memory = plain(4 * MiB);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, ask_elsewhere, &memory));
    pthread_join(thread, NULL);
    NEED(cuMemFree_v2(memory.base));
}

static void say_runtime_attributes(const void *at, const void *base) {
    cudaPointerAttributes is;
    memset(&is, 0xA5, sizeof is);
    say_runtime("cudaPointerGetAttributes", cudaPointerGetAttributes(&is, at));
    say("type: %d; device: %d", is.type, is.device);
    say("device pointer: %s", is.devicePointer == at ? "itself"
                              : is.devicePointer == base ? "the base"
                              : is.devicePointer == NULL ? "NULL" : "another");
    say("host pointer: %s", is.hostPointer == NULL ? "NULL" : is.hostPointer == at ? "itself" : "another");
}

CASE(attributes_runtime, SIM | SHARED | RUNTIME) {
    char *at = NULL;
    NEED(cudaMalloc((void **)&at, 4 * MiB));
    say_runtime_attributes(at + MiB, at);
    NEED(cudaFree(at));
}

CASE(attributes_runtime_async, SIM | SHARED | RUNTIME) {
    char *at = NULL;
    NEED(cudaMallocAsync((void **)&at, 4 * MiB, NULL));
    say_runtime_attributes(at + MiB, at);
    NEED(cudaFree(at));
}

CASE(attributes_runtime_freed, SIM | SHARED | RUNTIME) {
    char *at = NULL;
    NEED(cudaMalloc((void **)&at, 4 * MiB));
    NEED(cudaFree(at));
    say_runtime_attributes(at, at);
    say_runtime("cudaGetLastError", cudaGetLastError());
}
