/* Copies of rows (2D) and of slices of rows (3D). */
#include "patterns.h"
#include "shapes.h"

enum { WIDTH = 700, HEIGHT = 60, DEPTH = 7 };

/* A block of host memory without gaps, one of device memory with a pitch, and
 * one of host memory to copy back to. */
struct block {
    unsigned char *source, *sink;
    CUdeviceptr at;
    size_t pitch, rows;
};

static struct block open_block(size_t rows) {
    struct block b = {pattern(WIDTH * rows, 1), filled(WIDTH * rows, 0), 0, 0, rows};
    NEED(cuMemAllocPitch_v2(&b.at, &b.pitch, WIDTH, rows, 4));
    NEED(cuMemsetD8_v2(b.at, 0x33, b.pitch * rows));
    NEED(cuCtxSynchronize());
    return b;
}

static void close_block(struct block b) {
    put_memory(b.at);
    free(b.source);
    free(b.sink);
}

/* Do the gaps between the rows hold what they held? */
static bool gaps_untouched(struct block b) {
    bool all = true;
    unsigned char *seen = filled(b.pitch * b.rows, 0);
    NEED(cuMemcpyDtoH_v2(seen, b.at, b.pitch * b.rows));
    for (size_t y = 0; y < b.rows; y++)
        for (size_t x = WIDTH; x < b.pitch; x++) all = all && seen[y * b.pitch + x] == 0x33;
    free(seen);
    return all;
}

static CUDA_MEMCPY2D up(struct block b, int type) {
    CUDA_MEMCPY2D copy = {.WidthInBytes = WIDTH, .Height = b.rows};
    copy.src.memoryType = type == MEMORY_UNIFIED ? MEMORY_UNIFIED : MEMORY_HOST;
    copy.src.host = b.source;
    copy.src.device = (CUdeviceptr)b.source;
    copy.src.pitch = WIDTH;
    copy.dst.memoryType = type;
    copy.dst.device = b.at;
    copy.dst.pitch = b.pitch;
    return copy;
}

static CUDA_MEMCPY2D down(struct block b, int type) {
    CUDA_MEMCPY2D copy = {.WidthInBytes = WIDTH, .Height = b.rows};
    copy.src.memoryType = type;
    copy.src.device = b.at;
    copy.src.pitch = b.pitch;
    copy.dst.memoryType = type == MEMORY_UNIFIED ? MEMORY_UNIFIED : MEMORY_HOST;
    copy.dst.host = b.sink;
    copy.dst.device = (CUdeviceptr)b.sink;
    copy.dst.pitch = WIDTH;
    return copy;
}

static void judge(struct block b) {
    NEED(cuCtxSynchronize());
    say("equal: %s", yes(memcmp(b.source, b.sink, WIDTH * b.rows) == 0));
    say("gaps untouched: %s", yes(gaps_untouched(b)));
}

CASE(rows_up_and_down, SIM | SHARED) {
    struct block b = open_block(HEIGHT);
    CUDA_MEMCPY2D to = up(b, MEMORY_DEVICE), back = down(b, MEMORY_DEVICE);
    say_code("cuMemcpy2D up", cuMemcpy2D_v2(&to));
    say_code("cuMemcpy2D down", cuMemcpy2D_v2(&back));
    judge(b);
    close_block(b);
}

CASE(rows_by_address_alone, SIM | SHARED) {
    struct block b = open_block(HEIGHT);
    CUDA_MEMCPY2D to = up(b, MEMORY_UNIFIED), back = down(b, MEMORY_UNIFIED);
    say_code("cuMemcpy2D up", cuMemcpy2D_v2(&to));
    say_code("cuMemcpy2D down", cuMemcpy2D_v2(&back));
    judge(b);
    close_block(b);
}

CASE(rows_queued, SIM | SHARED) {
    struct block b = open_block(HEIGHT);
    CUstream stream = new_stream();
    CUDA_MEMCPY2D to = up(b, MEMORY_DEVICE), back = down(b, MEMORY_DEVICE);
    say_code("cuMemcpy2DAsync up", cuMemcpy2DAsync_v2(&to, stream));
    say_code("cuMemcpy2DAsync down", cuMemcpy2DAsync_v2(&back, stream));
    judge(b);
    NEED(cuStreamDestroy_v2(stream));
    close_block(b);
}

CASE(rows_unaligned, SIM | SHARED) {
    struct block b = open_block(HEIGHT);
    /* Into plain memory whose rows lie at odd addresses. */
    CUdeviceptr odd = allocate((WIDTH + 3) * HEIGHT + 1);
    CUDA_MEMCPY2D to = up(b, MEMORY_DEVICE), across = down(b, MEMORY_DEVICE);
    CUDA_MEMCPY2D back = down(b, MEMORY_DEVICE);
    across.dst = (CUcopyEnd2D){.memoryType = MEMORY_DEVICE, .device = odd + 1, .pitch = WIDTH + 3};
    back.src = across.dst;
    say_code("up", cuMemcpy2DUnaligned_v2(&to));
    say_code("across", cuMemcpy2DUnaligned_v2(&across));
    say_code("down", cuMemcpy2DUnaligned_v2(&back));
    judge(b);
    put_memory(odd);
    close_block(b);
}

CASE(rows_of_a_part, SIM | SHARED) {
    struct block b = open_block(HEIGHT);
    CUDA_MEMCPY2D to = up(b, MEMORY_DEVICE), back = down(b, MEMORY_DEVICE);
    NEED(cuMemcpy2D_v2(&to));
    back.src.xInBytes = 101;
    back.src.y = 13;
    back.dst.xInBytes = 7;
    back.dst.y = 1;
    back.WidthInBytes = 400;
    back.Height = 20;
    say_code("cuMemcpy2D of a part", cuMemcpy2D_v2(&back));
    bool same = true, rest = true;
    for (size_t y = 0; y < HEIGHT; y++)
        for (size_t x = 0; x < WIDTH; x++) {
            bool inside = y >= 1 && y < 21 && x >= 7 && x < 407;
            unsigned char seen = b.sink[y * WIDTH + x];
            if (inside)
                same = same && seen == b.source[(y + 12) * WIDTH + x + 94];
            else
                rest = rest && seen == 0;
        }
    say("equal: %s", yes(same));
    say("rest untouched: %s", yes(rest));
    close_block(b);
}

/* The driver asks less of mapped memory, which no simulation needs. */
CASE(rows_with_a_short_pitch, GPU | SHARED) {
    struct block b = open_block(HEIGHT);
    CUDA_MEMCPY2D to = up(b, MEMORY_DEVICE);
    to.dst.pitch = WIDTH - 1;
    say_code("pitch of the device", cuMemcpy2D_v2(&to));
    to = up(b, MEMORY_DEVICE);
    to.src.pitch = WIDTH - 1;
    say_code("pitch of the host", cuMemcpy2D_v2(&to));
    to = up(b, MEMORY_DEVICE);
    to.dst.memoryType = 9;
    say_code("no such kind of memory", cuMemcpy2D_v2(&to));
    to = up(b, MEMORY_DEVICE);
    to.Height = 0;
    say_code("no rows", cuMemcpy2D_v2(&to));
    close_block(b);
}

/* A 3D copy of all, between host memory without gaps and the block. */
static CUDA_MEMCPY3D slices(struct block b, bool is_up) {
    CUcopyEnd3D host = {.memoryType = MEMORY_HOST, .host = is_up ? b.source : b.sink, .pitch = WIDTH,
                        .height = HEIGHT};
    CUcopyEnd3D device = {.memoryType = MEMORY_DEVICE, .device = b.at, .pitch = b.pitch, .height = HEIGHT};
    CUDA_MEMCPY3D copy = {.WidthInBytes = WIDTH, .Height = HEIGHT, .Depth = DEPTH};
    copy.src = is_up ? host : device;
    copy.dst = is_up ? device : host;
    return copy;
}

CASE(rows_in_slices, SIM | SHARED) {
    struct block b = open_block(HEIGHT * DEPTH);
    CUDA_MEMCPY3D to = slices(b, true), back = slices(b, false);
    say_code("cuMemcpy3D up", cuMemcpy3D_v2(&to));
    say_code("cuMemcpy3D down", cuMemcpy3D_v2(&back));
    judge(b);
    close_block(b);
}

CASE(rows_in_slices_queued, SIM | SHARED) {
    struct block b = open_block(HEIGHT * DEPTH);
    CUstream stream = new_stream();
    CUDA_MEMCPY3D to = slices(b, true), back = slices(b, false);
    say_code("cuMemcpy3DAsync up", cuMemcpy3DAsync_v2(&to, stream));
    say_code("cuMemcpy3DAsync down", cuMemcpy3DAsync_v2(&back, stream));
    judge(b);
    NEED(cuStreamDestroy_v2(stream));
    close_block(b);
}

CASE(rows_in_slices_of_a_part, SIM | SHARED) {
    struct block b = open_block(HEIGHT * DEPTH);
    CUDA_MEMCPY3D to = slices(b, true), back = slices(b, false);
    NEED(cuMemcpy3D_v2(&to));
    back.src.xInBytes = 5;
    back.src.y = 2;
    back.src.z = 3;
    back.WidthInBytes = 300;
    back.Height = 10;
    back.Depth = 2;
    say_code("cuMemcpy3D of a part", cuMemcpy3D_v2(&back));
    bool same = true;
    for (size_t z = 0; z < 2; z++)
        for (size_t y = 0; y < 10; y++)
            same = same && memcmp(b.sink + (z * HEIGHT + y) * WIDTH,
                                  b.source + ((z + 3) * HEIGHT + y + 2) * WIDTH + 5, 300) == 0;
    say("equal: %s", yes(same));
    close_block(b);
}

CASE(rows_on_the_device, SIM | SHARED) {
    struct block b = open_block(HEIGHT);
    CUdeviceptr other = allocate(b.pitch * HEIGHT);
    CUDA_MEMCPY2D to = up(b, MEMORY_DEVICE), across = down(b, MEMORY_DEVICE);
    CUDA_MEMCPY2D back = down(b, MEMORY_DEVICE);
    across.dst = (CUcopyEnd2D){.memoryType = MEMORY_DEVICE, .device = other, .pitch = b.pitch};
    back.src = across.dst;
    say_code("up", cuMemcpy2D_v2(&to));
    say_code("across", cuMemcpy2D_v2(&across));
    say_code("down", cuMemcpy2D_v2(&back));
    judge(b);
    put_memory(other);
    close_block(b);
}

CASE(rows_between_contexts_of_one_device, GPU | SHARED) {
    struct block b = open_block(HEIGHT * DEPTH);
    CUcopyEndPeer host = {.memoryType = MEMORY_HOST, .host = b.source, .pitch = WIDTH, .height = HEIGHT};
    CUcopyEndPeer device = {.memoryType = MEMORY_DEVICE, .device = b.at, .context = context(),
                            .pitch = b.pitch, .height = HEIGHT};
    CUDA_MEMCPY3D_PEER to = {host, device, WIDTH, HEIGHT, DEPTH};
    host.host = b.sink;
    CUDA_MEMCPY3D_PEER back = {device, host, WIDTH, HEIGHT, DEPTH};
    say_code("cuMemcpy3DPeer up", cuMemcpy3DPeer(&to));
    say_code("cuMemcpy3DPeer down", cuMemcpy3DPeer(&back));
    judge(b);
    close_block(b);
}
