/* Copies of every kind, on and across memory of every kind. */
#include "patterns.h"
#include "work.h"

/* A byte, an odd number, parts of a page, a page and a bit, several handles. */
static const size_t sizes[] = {1, 513, 64 * KiB + 1, 3 * MiB + 5, 130 * MiB + 3};
enum { SIZES = sizeof sizes / sizeof *sizes };

CASE(copies_to_host_and_back, SIM | SHARED) {
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < SIZES; i++) {
            unsigned char *bytes = pattern(sizes[i], (unsigned)i);
            CUdeviceptr at = get_memory(kind, sizes[i]);
            int code = cuMemcpyHtoD_v2(at, bytes, sizes[i]);
            say("%s of %zu: %s, equal %s", kind_names[kind], sizes[i], code_name(code),
                yes(holds(at, bytes, sizes[i])));
            put_memory(at);
            free(bytes);
        }
}

CASE(copies_on_the_device, SIM | SHARED) {
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < SIZES; i++) {
            unsigned char *bytes = pattern(sizes[i], (unsigned)i + 7);
            CUdeviceptr from = get_memory(PLAIN, sizes[i]), to = get_memory(kind, sizes[i]);
            NEED(cuMemcpyHtoD_v2(from, bytes, sizes[i]));
            int code = cuMemcpyDtoD_v2(to, from, sizes[i]);
            say("to %s of %zu: %s, equal %s", kind_names[kind], sizes[i], code_name(code),
                yes(holds(to, bytes, sizes[i])));
            put_memory(from);
            put_memory(to);
            free(bytes);
        }
}

/* What the four calls below have in common: pinned memory, a stream. */
struct queue {
    CUstream stream;
    unsigned char *source, *sink;
    CUdeviceptr first, second;
    size_t bytes;
};

static struct queue open_queue(int kind, size_t bytes) {
    struct queue q = {new_stream(), NULL, NULL, get_memory(kind, bytes), get_memory(kind, bytes), bytes};
    NEED(cuMemHostAlloc((void **)&q.source, bytes, 0));
    NEED(cuMemHostAlloc((void **)&q.sink, bytes, 0));
    unsigned char *bytes_of = pattern(bytes, 3);
    memcpy(q.source, bytes_of, bytes);
    memset(q.sink, 0, bytes);
    free(bytes_of);
    return q;
}

static void close_queue(struct queue q) {
    NEED(cuStreamSynchronize(q.stream));
    put_memory(q.first);
    put_memory(q.second);
    NEED(cuMemFreeHost(q.source));
    NEED(cuMemFreeHost(q.sink));
    NEED(cuStreamDestroy_v2(q.stream));
}

CASE(copies_queued, SIM | SHARED) {
    for (int kind = 0; kind < KINDS; kind++) {
        struct queue q = open_queue(kind, 5 * MiB + 4);
        say("%s", kind_names[kind]);
        say_code("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2(q.first, q.source, q.bytes, q.stream));
        say_code("cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2(q.second, q.first, q.bytes, q.stream));
        say_code("cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2(q.sink, q.second, q.bytes, q.stream));
        NEED(cuStreamSynchronize(q.stream));
        say("equal: %s", yes(memcmp(q.source, q.sink, q.bytes) == 0));
        close_queue(q);
    }
}

CASE(copies_queued_from_pageable, SIM | SHARED) {
    CUstream stream = new_stream();
    CUdeviceptr at = allocate(48 * KiB);
    unsigned char *bytes = pattern(48 * KiB, 1), *kept = pattern(48 * KiB, 1);
    unsigned char *back = filled(48 * KiB, 0);
    say_code("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2(at, bytes, 48 * KiB, stream));
    memset(bytes, 0x55, 48 * KiB); /* it was staged */
    say_code("cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2(back, at, 48 * KiB, stream));
    NEED(cuStreamSynchronize(stream));
    say("equal: %s", yes(memcmp(back, kept, 48 * KiB) == 0));
    free(bytes);
    free(kept);
    free(back);
    put_memory(at);
    NEED(cuStreamDestroy_v2(stream));
}

CASE(copies_by_address_alone, SIM | SHARED) {
    for (int kind = 0; kind < KINDS; kind++) {
        size_t bytes = 2 * MiB + 6;
        unsigned char *source = pattern(bytes, 11), *sink = filled(bytes, 0);
        CUdeviceptr first = get_memory(kind, bytes), second = get_memory(kind, bytes);
        say("%s", kind_names[kind]);
        say_code("to the device", cuMemcpy(first, (CUdeviceptr)source, bytes));
        say_code("on the device", cuMemcpy(second, first, bytes));
        say_code("to the host", cuMemcpy((CUdeviceptr)sink, second, bytes));
        say("equal: %s", yes(memcmp(source, sink, bytes) == 0));
        put_memory(first);
        put_memory(second);
        free(source);
        free(sink);
    }
}

CASE(copies_by_address_alone_queued, SIM | SHARED) {
    struct queue q = open_queue(PLAIN, MiB + 512);
    say_code("to the device",
             cuMemcpyAsync(q.first, (CUdeviceptr)q.source, q.bytes, q.stream));
    say_code("on the device", cuMemcpyAsync(q.second, q.first, q.bytes, q.stream));
    say_code("to the host", cuMemcpyAsync((CUdeviceptr)q.sink, q.second, q.bytes, q.stream));
    NEED(cuStreamSynchronize(q.stream));
    say("equal: %s", yes(memcmp(q.source, q.sink, q.bytes) == 0));
    close_queue(q);
}

CASE(copies_inside_an_allocation, SIM | SHARED) {
    static const size_t places[][2] = {{1, 1}, {511, 2}, {777, 100000}, {2 * MiB - 3, 9}, {4 * MiB - 1, 1}};
    CUdeviceptr at = allocate(4 * MiB);
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        size_t offset = places[i][0], bytes = places[i][1];
        unsigned char *some = pattern(bytes, i);
        NEED(cuMemsetD8_v2(at, 0xAA, 4 * MiB));
        int code = cuMemcpyHtoD_v2(at + offset, some, bytes);
        bool before = holds_only(at, offset, 0xAA);
        bool behind = offset + bytes == 4 * MiB ||
                      holds_only(at + offset + bytes, 4 * MiB - offset - bytes, 0xAA);
        say("%zu at %zu: %s, equal %s, rest untouched %s", bytes, offset, code_name(code),
            yes(holds(at + offset, some, bytes)), yes(before && behind));
        free(some);
    }
    put_memory(at);
}

/* Blocks of many sizes come and go, so that a large one may be made of parts. */
CASE(copies_across_what_was_many_blocks, SIM | SHARED) {
    CUdeviceptr parts[6];
    for (size_t i = 0; i < 6; i++) parts[i] = allocate((30 + 10 * i) * MiB);
    for (size_t i = 0; i < 6; i++) NEED(cuMemFree_v2(parts[(i * 5) % 6]));
    size_t bytes = 200 * MiB;
    unsigned char *all = pattern(bytes, 5);
    CUdeviceptr at = allocate(bytes), other = allocate(bytes);
    say_code("cuMemcpyHtoD", cuMemcpyHtoD_v2(at, all, bytes));
    say("equal: %s", yes(holds(at, all, bytes)));
    say_code("cuMemcpyDtoD", cuMemcpyDtoD_v2(other, at, bytes));
    say("equal: %s", yes(holds(other, all, bytes)));
    bool inside = true;
    for (size_t middle = 10 * MiB; middle < bytes; middle += 10 * MiB)
        inside = inside && holds(other + middle - 333, all + middle - 333, 777);
    say("parts equal: %s", yes(inside));
    free(all);
    put_memory(at);
    put_memory(other);
}

CASE(copies_by_a_kernel, SIM | SHARED) {
    size_t bytes = 100 * MiB;
    CUdeviceptr from = allocate(bytes), to = allocate(bytes);
    CUstream stream = new_stream();
    unsigned char *all = pattern(bytes, 9);
    NEED(cuMemcpyHtoD_v2(from, all, bytes));
    NEED(cuCtxSynchronize());
    work_copy(stream, to, from, bytes);
    NEED(cuStreamSynchronize(stream));
    say("equal: %s", yes(holds(to, all, bytes)));
    work_write(stream, to, bytes, 0x01020304);
    NEED(cuStreamSynchronize(stream));
    say("written: %s", yes(all_words(to, bytes, 0x01020304)));
    free(all);
    put_memory(from);
    put_memory(to);
    NEED(cuStreamDestroy_v2(stream));
}

CASE(copies_of_nothing, SIM | SHARED) {
    CUdeviceptr at = allocate(512);
    char host[8] = {0};
    say_code("cuMemcpyHtoD of 0", cuMemcpyHtoD_v2(at, host, 0));
    say_code("cuMemcpyDtoH of 0", cuMemcpyDtoH_v2(host, at, 0));
    say_code("cuMemcpyDtoD of 0", cuMemcpyDtoD_v2(at, at + 256, 0));
    say_code("cuMemsetD8 of 0", cuMemsetD8_v2(at, 1, 0));
    say_code("cuMemcpyHtoD of 0 to NULL", cuMemcpyHtoD_v2(0, host, 0));
    put_memory(at);
}

CASE(copies_to_and_from_null, SIM | SHARED) {
    CUdeviceptr at = allocate(512);
    char host[8] = {0};
    say_code("cuMemcpyHtoD to NULL", cuMemcpyHtoD_v2(0, host, 8));
    say_code("cuMemcpyDtoH from NULL", cuMemcpyDtoH_v2(host, 0, 8));
    say_code("cuMemcpyDtoD to NULL", cuMemcpyDtoD_v2(0, at, 8));
    say_code("cuMemcpyDtoD from NULL", cuMemcpyDtoD_v2(at, 0, 8));
    say_code("cuMemsetD8 of NULL", cuMemsetD8_v2(0, 1, 8));
    put_memory(at);
}

/* The simulated GPU ends programs that do this. */
CASE(copies_beyond_the_end, GPU) {
    CUdeviceptr small = allocate(1000), large = allocate(3 * MiB);
    unsigned char *host = filled(8 * MiB, 1);
    say_code("the byte behind 1000", cuMemcpyHtoD_v2(small + 1000, host, 1));
    say_code("1001 bytes of 1000", cuMemcpyHtoD_v2(small, host, 1001));
    say_code("4 MiB + 1 of 3 MiB", cuMemcpyHtoD_v2(large, host, 4 * MiB + 1));
    say_code("cuMemsetD8 of 1001 bytes of 1000", cuMemsetD8_v2(small, 1, 1001));
    say_code("cuMemcpyDtoH of 1001 bytes of 1000", cuMemcpyDtoH_v2(host, small, 1001));
}

CASE(copies_across_two_allocations, GPU) {
    /* Neighbours, if any: small allocations are packed. */
    CUdeviceptr at[64];
    unsigned char host[1024] = {0};
    for (int i = 0; i < 64; i++) at[i] = allocate(512);
    int found = -1;
    for (int i = 0; i < 64 && found < 0; i++)
        for (int j = 0; j < 64; j++)
            if (at[j] == at[i] + 512) found = i;
    say("neighbours: %s", yes(found >= 0));
    if (found < 0) return;
    say_code("cuMemcpyHtoD over both", cuMemcpyHtoD_v2(at[found], host, 1024));
    say_code("cuMemsetD8 over both", cuMemsetD8_v2(at[found], 1, 1024));
    say_code("cuMemcpyDtoH over both", cuMemcpyDtoH_v2(host, at[found], 1024));
}

CASE(copies_to_freed_memory, GPU) {
    CUdeviceptr at = allocate(40 * MiB);
    char host[8] = {0};
    NEED(cuMemFree_v2(at));
    say_code("cuMemcpyHtoD", cuMemcpyHtoD_v2(at, host, 8));
    say_code("cuMemcpyDtoH", cuMemcpyDtoH_v2(host, at, 8));
    say_code("cuMemsetD8", cuMemsetD8_v2(at, 1, 8));
}
