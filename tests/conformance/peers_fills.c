/* Fills of memory of a device that is not the current one. */
#include "peers.h"

enum { WIDTH = 256, ROWS = 1024, BYTES = WIDTH * ROWS };

static int fill(int way, CUdeviceptr at, CUstream stream) {
    switch (way) {
    case 0: return cuMemsetD8_v2(at, 0x5A, BYTES);
    case 1: return cuMemsetD16_v2(at, 0x5A5A, BYTES / 2);
    case 2: return cuMemsetD32_v2(at, 0x5A5A5A5A, BYTES / 4);
    case 3: return cuMemsetD2D8_v2(at, WIDTH, 0x5A, WIDTH, ROWS);
    case 4: return cuMemsetD2D32_v2(at, WIDTH, 0x5A5A5A5A, WIDTH / 4, ROWS);
    case 5: return cuMemsetD8Async(at, 0x5A, BYTES, stream);
    case 6: return cuMemsetD32Async(at, 0x5A5A5A5A, BYTES / 4, stream);
    default: return cuMemsetD2D8Async(at, WIDTH, 0x5A, WIDTH, ROWS, stream);
    }
}

static const char *const ways[] = {
    "cuMemsetD8",    "cuMemsetD16",     "cuMemsetD32",      "cuMemsetD2D8",
    "cuMemsetD2D32", "cuMemsetD8Async", "cuMemsetD32Async", "cuMemsetD2D8Async"};
enum { QUEUED = 5, WAYS = 8 };

static void fills(struct pair p, int kind, CUstream stream, int from, int to) {
    CUdeviceptr at = get_memory_on(p.second, kind, BYTES);
    unsigned char *expected = filled(BYTES, 0x5A);
    for (int way = from; way < to; way++) {
        fill_on(p.second, at, BYTES, 0);
        int code = fill(way, at, stream);
        int after = settle(p);
        say_done(ways[way], BYTES, code, after,
                 after == CU_OK && holds_on(p.second, at, expected, BYTES));
    }
    free(expected);
}

/* Each in a process of its own: one that breaks the context would spoil the next. */
#define FILL(name, way)                                    \
    CASE(name, SIM | DEVICES2) {                           \
        struct pair p = open_pair();                       \
        fills(p, PLAIN, new_stream(), way, way + 1);       \
    }

FILL(peers_fills_d8, 0)
FILL(peers_fills_d16, 1)
FILL(peers_fills_d32, 2)
FILL(peers_fills_rows_d8, 3)
FILL(peers_fills_rows_d32, 4)
FILL(peers_fills_d8_queued, 5)
FILL(peers_fills_d32_queued, 6)
FILL(peers_fills_rows_d8_queued, 7)

CASE(peers_fills_turned, SIM | DEVICES2) {
    struct pair p = open_pair_turned();
    fills(p, PLAIN, NULL, 0, QUEUED);
}

CASE(peers_fills_queued_turned, SIM | DEVICES2) {
    struct pair p = open_pair_turned();
    fills(p, PLAIN, new_stream(), QUEUED, WAYS);
}

CASE(peers_fills_queued_on_its_own_stream, SIM | DEVICES2) {
    struct pair p = open_pair();
    fills(p, PLAIN, new_stream_on(p.second), QUEUED, WAYS);
}

CASE(peers_fills_of_ordered, SIM | DEVICES2) {
    struct pair p = open_pair();
    fills(p, ORDERED, NULL, 0, QUEUED);
}

CASE(peers_fills_of_ordered_queued, SIM | DEVICES2) {
    struct pair p = open_pair();
    fills(p, ORDERED, new_stream(), QUEUED, WAYS);
}
