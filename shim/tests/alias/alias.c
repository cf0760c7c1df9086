/* Memory that one stream wrote, freed and got again at another address. A
 * kernel launched with programmatic dependent launch may become resident before
 * the one in front of it has written, and may then hold what it read through
 * the other address: an event recorded and waited for must stand between the
 * two. The simulated GPU ends the program where it does not ("stale alias").
 *
 *   alias join    two blocks come back as one
 *   alias split   one block comes back as two
 *   alias small   a window becomes one of small blocks, and a window again
 *   alias SEED    anything, at random
 *
 * Prints how often bytes came back through an address never seen before. */
#include "../support/cuda.h"

struct range {
    uint64_t base;
    size_t bytes;
    uint32_t write;
};
int cuSimLaunch(CUstream, const struct range *, unsigned, double);
int cuSimPhysical(int, uint64_t *);

enum { SEEN = 4096, BLOCKS = 24, STEPS = 3000 };

static CUdeviceptr seen[SEEN];
static int seen_count, moved;

static uint64_t physical(void) {
    uint64_t bytes;
    OK(cuSimPhysical(0, &bytes));
    return bytes;
}

/* The kernels are long, so that nothing is complete when its memory is freed. */
static void use(CUdeviceptr at, size_t bytes, CUstream stream, int write) {
    struct range range = {at, bytes, write};
    OK(cuSimLaunch(stream, &range, 1, 1000.0));
}

static CUdeviceptr get(size_t bytes, CUstream stream) {
    uint64_t before = physical();
    CUdeviceptr at;
    OK(cuMemAllocAsync(&at, bytes, stream));
    int known = 0;
    for (int i = 0; i < seen_count; i++) known |= seen[i] == at;
    if (!known && seen_count < SEEN) {
        seen[seen_count++] = at;
        moved += physical() == before;
    }
    return at;
}

/* A block that is written, then freed behind that. */
static CUdeviceptr written(size_t bytes, CUstream stream) {
    CUdeviceptr at = get(bytes, stream);
    use(at, bytes, stream, 1);
    return at;
}

static void join(size_t first, size_t second, CUstream stream) {
    CUdeviceptr a = written(first, stream), b = written(second, stream);
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemFreeAsync(b, stream));
    CUdeviceptr both = get(first + second, stream);
    use(both, first + second, stream, 0);
    OK(cuMemFreeAsync(both, stream));
}

static void split(size_t first, size_t second, CUstream stream) {
    CUdeviceptr both = written(first + second, stream);
    OK(cuMemFreeAsync(both, stream));
    CUdeviceptr a = get(first, stream), b = get(second, stream);
    use(b, second, stream, 0);
    use(a, first, stream, 0);
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemFreeAsync(b, stream));
}

static void small(CUstream stream) {
    CUdeviceptr blocks[64];
    for (size_t size = 512; size <= 256 << 10; size *= 8) {
        CUdeviceptr a = written(20 * MiB, stream);
        OK(cuMemFreeAsync(a, stream));
        for (int i = 0; i < 64; i++) use(blocks[i] = get(size, stream), size, stream, 1);
        for (int i = 0; i < 64; i++) OK(cuMemFreeAsync(blocks[i], stream));
        CUdeviceptr b = get(30 * MiB, stream);
        use(b, 30 * MiB, stream, 0);
        OK(cuMemFreeAsync(b, stream));
    }
}

static uint64_t state;
static uint64_t pick(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state * 0x2545F4914F6CDD1Du >> 11) % below;
}

/* Each block stays on the stream that it was made on: only edges order it. */
static void at_random(CUstream *streams, int count) {
    struct {
        CUdeviceptr at;
        size_t bytes;
        CUstream stream;
    } blocks[BLOCKS] = {{0}};
    for (int step = 0; step < STEPS; step++) {
        int i = pick(BLOCKS);
        if (blocks[i].at == 0) {
            size_t magnitude = (size_t)1 << (9 + pick(18));
            blocks[i].bytes = magnitude + pick(magnitude);
            blocks[i].stream = streams[pick(count)];
            blocks[i].at = get(blocks[i].bytes, blocks[i].stream);
        } else if (pick(3) == 0) {
            OK(cuMemFreeAsync(blocks[i].at, blocks[i].stream));
            blocks[i].at = 0;
            continue;
        }
        use(blocks[i].at, blocks[i].bytes, blocks[i].stream, pick(3) > 0);
    }
}

int main(int argc, char **argv) {
    CUstream streams[3];
    CHECK(argc == 2);
    start_cuda();
    for (int i = 0; i < 3; i++) OK(cuStreamCreate(&streams[i], 1));
    state = strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15u;
    if (state != 0) {
        at_random(streams, 1 + pick(3));
    } else if (!strcmp(argv[1], "small")) {
        small(streams[0]);
    } else {
        void (*how)(size_t, size_t, CUstream) = !strcmp(argv[1], "join") ? join : split;
        /* Within one handle, handles of one size, of different sizes, odd sizes. */
        how(3 * MiB, 5 * MiB, streams[0]);
        how(64 * MiB, 64 * MiB, streams[0]);
        how(40 * MiB, 100 * MiB, streams[0]);
        how(30 * MiB + 512, 90 * MiB - 1, streams[0]);
    }
    printf("%d\n", moved);
    return 0;
}
