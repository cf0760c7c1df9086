/* Copies between pageable memory of the host and the device that is not current,
 * queued on a busy stream: what is read is what was there at the call, and what
 * is written is there when the call returns. */
#include "busy.h"
#include "peers.h"
#include "shapes.h"

enum { WIDTH = 777, PITCH = 1024, SMALL = WIDTH, LARGE = 5 * 1024 * 1024 + 4 };

struct scene {
    struct pair pair;
    CUstream stream;
    CUdeviceptr there;
    unsigned char *some, *host;
};

static struct scene open_scene(void) {
    struct scene s = {.pair = open_pair(), .some = pattern(LARGE, 6), .host = filled(LARGE, 0)};
    s.stream = new_stream();
    s.there = allocate_on(s.pair.second, LARGE);
    return s;
}

/* `rows` rows of WIDTH bytes, or with none a line of `bytes`. */
static int copy(struct scene *s, bool up, size_t bytes, size_t rows) {
    CUcopyEnd2D there = {.memoryType = MEMORY_DEVICE, .device = s->there, .pitch = PITCH};
    CUcopyEnd2D host = {.memoryType = MEMORY_HOST, .host = s->host, .pitch = PITCH};
    CUDA_MEMCPY2D shape = {up ? host : there, up ? there : host, WIDTH, rows};
    if (rows != 0) return cuMemcpy2DAsync_v2(&shape, s->stream);
    return up ? cuMemcpyHtoDAsync_v2(s->there, s->host, bytes, s->stream)
              : cuMemcpyDtoHAsync_v2(s->host, s->there, bytes, s->stream);
}

/* Of what was copied: is it as in the pattern? */
static bool as_in_pattern(const struct scene *s, const unsigned char *at, size_t bytes, size_t rows) {
    if (rows == 0) return memcmp(at, s->some, bytes) == 0;
    for (size_t y = 0; y < rows; y++)
        if (memcmp(at + y * PITCH, s->some + y * PITCH, WIDTH) != 0) return false;
    return true;
}

static void read_at_the_call(struct scene *s, size_t bytes, size_t rows) {
    unsigned char *back = filled(LARGE, 0);
    memcpy(s->host, s->some, LARGE);
    fill_on(s->pair.second, s->there, LARGE, 0);
    busy(s->stream);
    int code = copy(s, true, bytes, rows);
    memset(s->host, 0x55, LARGE);
    int after = settle(s->pair);
    NEED(cuCtxPushCurrent_v2(s->pair.second));
    NEED(cuMemcpyDtoH_v2(back, s->there, LARGE));
    NEED(cuCtxPopCurrent_v2(&s->pair.second));
    say("%s of %zu", rows ? "rows" : "a line", rows ? rows : bytes);
    say_done("read at the call", bytes, code, after, as_in_pattern(s, back, bytes, rows));
    free(back);
}

static void there_on_return(struct scene *s, size_t bytes, size_t rows) {
    put_on(s->pair.second, s->there, s->some, LARGE);
    memset(s->host, 0, LARGE);
    busy(s->stream);
    int code = copy(s, false, bytes, rows);
    bool equal = as_in_pattern(s, s->host, bytes, rows);
    say("%s of %zu", rows ? "rows" : "a line", rows ? rows : bytes);
    say_done("there on return", bytes, code, settle(s->pair), equal);
}

CASE(peers_pageable_up, SIM | DEVICES2) {
    struct scene s = open_scene();
    read_at_the_call(&s, SMALL, 0);
    read_at_the_call(&s, 48 * KiB, 0);
    read_at_the_call(&s, LARGE, 0);
    read_at_the_call(&s, PITCH * 60, 60);
    read_at_the_call(&s, PITCH * 5000, 5000);
}

CASE(peers_pageable_down, SIM | DEVICES2) {
    struct scene s = open_scene();
    there_on_return(&s, SMALL, 0);
    there_on_return(&s, 48 * KiB, 0);
    there_on_return(&s, LARGE, 0);
    there_on_return(&s, PITCH * 60, 60);
    there_on_return(&s, PITCH * 5000, 5000);
}
