/* Fills of every width. */
#include "patterns.h"

/* A fill of `width` bytes an element over memory of both kinds, and whether it
 * filled that and nothing else. */
static void check(const char *name, int code, CUdeviceptr at, size_t bytes, const void *element,
                  size_t width) {
    unsigned char *expected = filled(bytes + 512, 0x77);
    for (size_t i = 0; i < bytes; i++)
        expected[i] = ((const unsigned char *)element)[i % width];
    say("%s: %s, equal %s", name, code_name(code), yes(holds(at, expected, bytes + 512)));
    free(expected);
}

static CUdeviceptr fresh(int kind, size_t bytes) {
    CUdeviceptr at = get_memory(kind, bytes + 512);
    NEED(cuMemsetD8_v2(at, 0x77, bytes + 512));
    NEED(cuCtxSynchronize());
    return at;
}

CASE(fills_of_every_width, SIM | SHARED) {
    const size_t count = 3 * MiB / 4 + 1;
    uint8_t byte = 0x5A;
    uint16_t half = 0xBEEF;
    uint32_t word = 0x12345678;
    for (int kind = 0; kind < KINDS; kind++) {
        CUdeviceptr at = fresh(kind, 4 * count);
        say("%s", kind_names[kind]);
        check("cuMemsetD8", cuMemsetD8_v2(at, byte, count), at, count, &byte, 1);
        NEED(cuMemsetD8_v2(at, 0x77, 4 * count + 512));
        check("cuMemsetD16", cuMemsetD16_v2(at, half, count), at, 2 * count, &half, 2);
        NEED(cuMemsetD8_v2(at, 0x77, 4 * count + 512));
        check("cuMemsetD32", cuMemsetD32_v2(at, word, count), at, 4 * count, &word, 4);
        put_memory(at);
    }
}

CASE(fills_queued, SIM | SHARED) {
    CUstream stream = new_stream();
    uint8_t byte = 0xA5;
    uint16_t half = 0x1234;
    uint32_t word = 0xCAFEBABE;
    CUdeviceptr at = fresh(PLAIN, 70 * MiB);
    int code = cuMemsetD8Async(at, byte, 1000, stream);
    NEED(cuStreamSynchronize(stream));
    check("cuMemsetD8Async", code, at, 1000, &byte, 1);
    code = cuMemsetD16Async(at, half, 1000, stream);
    NEED(cuStreamSynchronize(stream));
    check("cuMemsetD16Async", code, at, 2000, &half, 2);
    code = cuMemsetD32Async(at, word, 70 * MiB / 4, stream);
    NEED(cuStreamSynchronize(stream));
    check("cuMemsetD32Async of 70 MiB", code, at, 70 * MiB, &word, 4);
    put_memory(at);
    NEED(cuStreamDestroy_v2(stream));
}

CASE(fills_inside_an_allocation, SIM | SHARED) {
    CUdeviceptr at = allocate(4 * MiB);
    NEED(cuMemsetD8_v2(at, 0, 4 * MiB));
    say_code("cuMemsetD8 of 3 at 2 MiB - 1", cuMemsetD8_v2(at + 2 * MiB - 1, 0xFF, 3));
    say_code("cuMemsetD32 of 1 at the end", cuMemsetD32_v2(at + 4 * MiB - 4, 0xFFFFFFFF, 1));
    say("filled: %s", yes(holds_only(at + 2 * MiB - 1, 3, 0xFF) && holds_only(at + 4 * MiB - 4, 4, 0xFF)));
    say("rest untouched: %s", yes(holds_only(at, 2 * MiB - 1, 0) &&
                                  holds_only(at + 2 * MiB + 2, 2 * MiB - 6, 0)));
    put_memory(at);
}

CASE(fills_misaligned, SIM | SHARED) {
    CUdeviceptr at = allocate(4096);
    say_code("cuMemsetD16 at 1", cuMemsetD16_v2(at + 1, 0, 8));
    say_code("cuMemsetD16 at 2", cuMemsetD16_v2(at + 2, 0, 8));
    say_code("cuMemsetD32 at 1", cuMemsetD32_v2(at + 1, 0, 8));
    say_code("cuMemsetD32 at 2", cuMemsetD32_v2(at + 2, 0, 8));
    say_code("cuMemsetD32 at 4", cuMemsetD32_v2(at + 4, 0, 8));
    put_memory(at);
}

/* Rows of 100 elements, `pitch` bytes apart; the gaps must stay. */
static void rows(const char *name, int code, CUdeviceptr at, size_t pitch, const void *element,
                 size_t width) {
    unsigned char *expected = filled(pitch * 40, 0x77);
    for (size_t y = 0; y < 40; y++)
        for (size_t x = 0; x < 100 * width; x++)
            expected[y * pitch + x] = ((const unsigned char *)element)[x % width];
    say("%s: %s, equal %s", name, code_name(code), yes(holds(at, expected, pitch * 40)));
    free(expected);
    NEED(cuMemsetD8_v2(at, 0x77, pitch * 40));
    NEED(cuCtxSynchronize());
}

CASE(fills_of_rows, SIM | SHARED) {
    CUdeviceptr at = 0;
    size_t pitch = 0;
    uint8_t byte = 0x11;
    uint16_t half = 0x2233;
    uint32_t word = 0x44556677;
    NEED(cuMemAllocPitch_v2(&at, &pitch, 1000, 40, 4));
    NEED(cuMemsetD8_v2(at, 0x77, pitch * 40));
    rows("cuMemsetD2D8", cuMemsetD2D8_v2(at, pitch, byte, 100, 40), at, pitch, &byte, 1);
    rows("cuMemsetD2D16", cuMemsetD2D16_v2(at, pitch, half, 100, 40), at, pitch, &half, 2);
    rows("cuMemsetD2D32", cuMemsetD2D32_v2(at, pitch, word, 100, 40), at, pitch, &word, 4);
    put_memory(at);
}

CASE(fills_of_rows_queued, SIM | SHARED) {
    CUdeviceptr at = 0;
    CUstream stream = new_stream();
    size_t pitch = 0;
    uint8_t byte = 0x99;
    uint32_t word = 0x01020304;
    NEED(cuMemAllocPitch_v2(&at, &pitch, 1000, 40, 4));
    NEED(cuMemsetD8_v2(at, 0x77, pitch * 40));
    NEED(cuCtxSynchronize());
    int code = cuMemsetD2D8Async(at, pitch, byte, 100, 40, stream);
    NEED(cuStreamSynchronize(stream));
    rows("cuMemsetD2D8Async", code, at, pitch, &byte, 1);
    code = cuMemsetD2D32Async(at, pitch, word, 100, 40, stream);
    NEED(cuStreamSynchronize(stream));
    rows("cuMemsetD2D32Async", code, at, pitch, &word, 4);
    put_memory(at);
    NEED(cuStreamDestroy_v2(stream));
}
