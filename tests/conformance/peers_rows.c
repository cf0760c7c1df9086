/* Copies of rows (2D) and slices (3D) between two devices without access, and
 * between the host and the device that is not current. */
#include "peers.h"
#include "shapes.h"

enum { WIDTH = 700, PITCH = 1024, HEIGHT = 60, DEPTH = 3, ROWS = HEIGHT * DEPTH, BYTES = PITCH * ROWS };

/* Where the ends of a copy lie. */
enum place { HERE, THERE, HOST };

struct block {
    struct pair pair;
    CUdeviceptr at[2]; /* of HERE and THERE */
    unsigned char *some, *host;
    CUstream stream;
};

static struct block open_block(struct pair p) {
    struct block b = {.pair = p, .some = pattern(BYTES, 3), .host = filled(BYTES, 0)};
    b.at[HERE] = allocate_on(p.first, BYTES);
    b.at[THERE] = allocate_on(p.second, BYTES);
    b.stream = new_stream();
    return b;
}

static CUcontext owner(const struct block *b, enum place place) {
    return place == HERE ? b->pair.first : place == THERE ? b->pair.second : NULL;
}

static CUdeviceptr address(const struct block *b, enum place place) {
    return place == HOST ? (CUdeviceptr)b->host : b->at[place];
}

/* `by_address`: the type of memory is left to the driver to find out. */
static int type(enum place place, bool by_address) {
    return by_address ? MEMORY_UNIFIED : place == HOST ? MEMORY_HOST : MEMORY_DEVICE;
}

static CUcopyEnd2D end_of_rows(const struct block *b, enum place place, bool by_address) {
    return (CUcopyEnd2D){.memoryType = type(place, by_address), .host = b->host,
                         .device = address(b, place), .pitch = PITCH};
}

static CUcopyEnd3D end_of_slices(const struct block *b, enum place place, bool by_address) {
    return (CUcopyEnd3D){.memoryType = type(place, by_address), .host = b->host,
                         .device = address(b, place), .pitch = PITCH, .height = HEIGHT};
}

static CUcopyEndPeer end_of_peers(const struct block *b, enum place place, bool by_address) {
    return (CUcopyEndPeer){.memoryType = type(place, by_address), .host = b->host,
                           .device = address(b, place), .context = owner(b, place),
                           .pitch = PITCH, .height = HEIGHT};
}

static const char *const calls[] = {"cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy2DAsync",
                                    "cuMemcpy3D", "cuMemcpy3DAsync", "cuMemcpy3DPeer",
                                    "cuMemcpy3DPeerAsync"};

static int copy(const struct block *b, int call, enum place from, enum place to, bool by_address) {
    CUDA_MEMCPY2D rows = {end_of_rows(b, from, by_address), end_of_rows(b, to, by_address), WIDTH, ROWS};
    CUDA_MEMCPY3D slices = {end_of_slices(b, from, by_address), end_of_slices(b, to, by_address),
                            WIDTH, HEIGHT, DEPTH};
    CUDA_MEMCPY3D_PEER peers = {end_of_peers(b, from, by_address), end_of_peers(b, to, by_address),
                                WIDTH, HEIGHT, DEPTH};
    switch (call) {
    case 0: return cuMemcpy2D_v2(&rows);
    case 1: return cuMemcpy2DUnaligned_v2(&rows);
    case 2: return cuMemcpy2DAsync_v2(&rows, b->stream);
    case 3: return cuMemcpy3D_v2(&slices);
    case 4: return cuMemcpy3DAsync_v2(&slices, b->stream);
    case 5: return cuMemcpy3DPeer(&peers);
    default: return cuMemcpy3DPeerAsync(&peers, b->stream);
    }
}

static void write_to(struct block *b, enum place place, bool clear) {
    if (place == HOST && clear) memset(b->host, 0, BYTES);
    if (place == HOST && !clear) memcpy(b->host, b->some, BYTES);
    if (place != HOST && clear) fill_on(owner(b, place), b->at[place], BYTES, 0);
    if (place != HOST && !clear) put_on(owner(b, place), b->at[place], b->some, BYTES);
}

/* Rows as in the pattern, and nothing written between them. */
static bool arrived(const struct block *b, enum place place) {
    unsigned char *expected = filled(BYTES, 0);
    for (int y = 0; y < ROWS; y++) memcpy(expected + y * PITCH, b->some + y * PITCH, WIDTH);
    bool same = place == HOST ? memcmp(b->host, expected, BYTES) == 0
                              : holds_on(owner(b, place), b->at[place], expected, BYTES);
    free(expected);
    return same;
}

/* Calls `first` to `last`, from and to the device that is not current. */
static void copies(struct pair p, int first, int last, bool by_address) {
    static const struct { enum place from, to; const char *text; } ways[] = {
        {HERE, THERE, "to the other"}, {THERE, HERE, "from the other"},
        {HOST, THERE, "up"}, {THERE, HOST, "down"}};
    struct block b = open_block(p);
    for (int call = first; call <= last; call++)
        for (int way = 0; way < 4; way++) {
            write_to(&b, ways[way].from, false);
            write_to(&b, ways[way].to, true);
            int code = copy(&b, call, ways[way].from, ways[way].to, by_address);
            int after = settle(p);
            say("%s %s: %s, then %s, equal %s", calls[call], ways[way].text, code_name(code), code_name(after),
                yes(code == CU_OK && after == CU_OK && arrived(&b, ways[way].to)));
        }
}

CASE(peers_rows, SIM | DEVICES2) { copies(open_pair(), 0, 2, false); }
CASE(peers_rows_turned, SIM | DEVICES2) { copies(open_pair_turned(), 0, 2, false); }
CASE(peers_rows_by_address_alone, SIM | DEVICES2) { copies(open_pair(), 0, 2, true); }
CASE(peers_rows_of_slices, SIM | DEVICES2) { copies(open_pair(), 3, 4, false); }
CASE(peers_rows_of_slices_turned, SIM | DEVICES2) { copies(open_pair_turned(), 3, 4, false); }
CASE(peers_rows_of_slices_by_address_alone, SIM | DEVICES2) { copies(open_pair(), 3, 4, true); }
CASE(peers_rows_with_contexts, SIM | DEVICES2) { copies(open_pair(), 5, 6, false); }
CASE(peers_rows_with_contexts_by_address_alone, SIM | DEVICES2) { copies(open_pair(), 5, 6, true); }
