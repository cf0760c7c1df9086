/* Blocks of device memory: made, used on one stream and then on another,
 * checked, freed. Every live one is declared to the simulated GPU. */
#include "random.h"
#include <string.h>

void enter_forbidden(Thread *t) { if (!t->exclusive) pthread_rwlock_rdlock(&forbidden); }
void leave_forbidden(Thread *t) { if (!t->exclusive) pthread_rwlock_unlock(&forbidden); }

Block *some_block(Thread *t, int device) {
    int from = pick(t, BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        Block *b = &t->blocks[(from + i) % BLOCKS];
        if (b->base != 0 && b->device == device) return b;
    }
    return 0;
}

/* The last two may be capturing. */
int some_lane(Thread *t) {
    if (t->favourite != DONE && pick(t, 10)) return t->favourite;
    return pick(t, t->capturing ? CAPTURE_LANES : LANES);
}

/* The memory is used on this stream from now on. */
int follow(Thread *t, Block *b, int lane) {
    if (b->lane != lane && b->lane != DONE) {
        Event event = t->events[b->device][pick(t, EVENTS)];
        TRY(cudaEventRecord(event, t->lanes[b->device][b->lane]));
        TRY(cudaStreamWaitEvent(t->lanes[b->device][lane], event, 0));
    }
    b->lane = lane;
    return 0;
}

static int kernel(Thread *t, const Block *b, Stream stream, int write) {
    /* The whole block, or a part of it. */
    size_t first = pick(t, 2) ? 0 : pick(t, b->bytes);
    CUsimRange range = {b->base + first, first == 0 ? b->bytes : 1 + pick(t, b->bytes - first), write};
    TRY(cuSimLaunch(stream, &range, 1, 1.0 + pick(t, 1 << pick(t, 13))));
    return 0;
}

int use(Thread *t, Block *b, int lane, int write) {
    return follow(t, b, lane) || kernel(t, b, t->lanes[b->device][lane], write);
}

int read_side_by_side(Thread *t, Block *b) {
    int one = some_lane(t), two = some_lane(t);
    Event event = t->events[b->device][0];
    Stream first = t->lanes[b->device][one], second = t->lanes[b->device][two];
    if (follow(t, b, one)) return 1;
    TRY(cudaEventRecord(event, first));
    TRY(cudaStreamWaitEvent(second, event, 0));
    if (kernel(t, b, first, 0)) return 1;
    int refused = kernel(t, b, second, 0);
    for (int tries = 0; tries < TRIES; tries++) { /* must be joined again, whatever fails */
        int code = answer(t, cudaEventRecord(event, second), "cudaEventRecord", 0);
        code = code || answer(t, cudaStreamWaitEvent(first, event, 0), "cudaStreamWaitEvent", 0);
        if (!code) return refused;
    }
    fail("a stream cannot be joined again", one);
}

/* From 1 byte to 64 MiB, each magnitude as likely as the next; large: from 4 to 128. */
size_t any_size(Thread *t) {
    size_t magnitude = (size_t)1 << (is_on("RANDOM_LARGE") ? 22 + pick(t, 5) : pick(t, 26));
    return magnitude + pick(t, magnitude);
}

/* Asks for memory by one of the calls that there are. */
static int ask(Thread *t, Block *made) {
    int kind = pick(t, 10);
    if (kind < t->plain) {
        ASK(cudaMalloc(&made->base, made->bytes));
    } else if (kind == 8 && t->plain > 0 && pick(t, 2)) {
        size_t pitch, width = 1 + pick(t, 5000), height = 1 + pick(t, 300);
        ASK(cudaMallocPitch(&made->base, &pitch, width, height));
        if (pitch < width || pitch % 512 != 0) fail("a pitch", pitch);
        made->bytes = pitch * height;
    } else {
        made->ordered = 1;
        made->lane = some_lane(t);
        ASK(cudaMallocAsync(&made->base, made->bytes, t->lanes[made->device][made->lane]));
    }
    return 0;
}

int allocate(Thread *t, int device) {
    Block *b = t->blocks;
    while (b < t->blocks + BLOCKS && b->base != 0) b++;
    if (b == t->blocks + BLOCKS) return 0;
    Block made = {.bytes = pick(t, 4) ? t->sizes[pick(t, 8)] : any_size(t), .device = device, .lane = DONE};
    if (t->held + made.bytes > (size_t)512 << 20) return 0;
    /* What a capture forbids its own thread, the thread's relaxed mode allows. */
    int mode = RELAXED, relaxed = t->capturing && t->capturing - 1 != RELAXED;
    if (relaxed) TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    enter_forbidden(t);
    int code = ask(t, &made);
    leave_forbidden(t);
    if (relaxed) answer(t, cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode", 0);
    if (code) return 1;
    if (made.base == 0 || made.base % 256 != 0) fail("an address", made.base);
    *b = made;
    t->held += b->bytes;
    t->allocations++;
    Stream stream = made.ordered ? t->lanes[device][made.lane] : CU_SIM_ANY_STREAM;
    if (cuSimClaim(b->base, b->bytes, stream) != 0) fail("cuSimClaim", 0);
    return 0;
}

/* Is everything about this block known complete on the host? Makes it so. */
static int finish(Thread *t, Block *b) {
    if (b->lane == DONE) return 0;
    enter_forbidden(t);
    int code = answer(t, cudaStreamSynchronize(t->lanes[b->device][b->lane]), "cudaStreamSynchronize", 0);
    leave_forbidden(t);
    if (code) return 1;
    lane_done(t, b->device, b->lane);
    return 0;
}

/* The memory is no longer this program's, whatever the free answers. */
static Block given_up(Thread *t, Block *b) {
    Block old = *b;
    if (cuSimRelease(b->base) != 0) fail("cuSimRelease", 0);
    t->held -= b->bytes;
    memset(b, 0, sizeof *b);
    return old;
}

static int free_now(Thread *t, Block *b) {
    /* The driver does not wait for stream-ordered memory. */
    if (b->ordered && finish(t, b)) return 1;
    int other = t->devices > 1 && pick(t, 4) == 0;
    if (other) TRY(cudaSetDevice(!b->device));
    Block old = given_up(t, b);
    enter_forbidden(t);
    int code = answer(t, cudaFree(old.base), "cudaFree", -1);
    leave_forbidden(t);
    if (other) TRY(cudaSetDevice(old.device));
    return code != 0;
}

/* What a capture forbids its own thread, the thread's relaxed mode allows. */
static int free_in_order(Thread *t, Address base, Stream stream) {
    int mode = RELAXED, relaxed = t->capturing && t->capturing - 1 != RELAXED;
    if (relaxed) TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    enter_forbidden(t);
    int code = answer(t, cudaFreeAsync(base, stream), "cudaFreeAsync", -1);
    leave_forbidden(t);
    if (relaxed) answer(t, cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode", 0);
    return code;
}

/* The last use of device 0's memory may be ordered before a stream of device 1. */
static int free_elsewhere(Thread *t, Block *b) {
    if (b->lane == DONE) return 0;
    int lane = LANES - 1 - pick(t, OWN_LANES);
    Event event = t->events[b->device][0];
    TRY(cudaEventRecord(event, t->lanes[b->device][b->lane]));
    TRY(cudaStreamWaitEvent(t->lanes[!b->device][lane], event, 0));
    Stream stream = t->lanes[!b->device][lane];
    Block old = given_up(t, b);
    return free_in_order(t, old.base, stream);
}

int release(Thread *t, Block *b) {
    if (b->pinned) return 0;
    if (b->filled && (int)pick(t, 10) < t->waiting + 1 && !t->capturing && verify(t, b)) return 1;
    if (b->filled && pick(t, 8) == 0) b->filled = 0;
    int now = (int)pick(t, 10) < t->waiting;
    if (now && (t->capturing == 0 || (t->capturing - 1 == RELAXED && !b->ordered))) return free_now(t, b);
    if (t->capturing && b->lane >= CAPTURE_LANES) return 0;
    if (t->devices > 1 && !t->capturing && pick(t, 8) == 0) return free_elsewhere(t, b);
    if (b->lane == DONE || (pick(t, 3) == 0 && !t->capturing)) {
        if (follow(t, b, some_lane(t))) return 1;
    }
    Stream stream = t->lanes[b->device][b->lane];
    Block old = given_up(t, b);
    return free_in_order(t, old.base, stream);
}

static size_t end_bytes(const Block *b) { return b->bytes < 256 ? b->bytes : 256; }

int fill(Thread *t, Block *b) {
    if (follow(t, b, some_lane(t))) return 1;
    Stream stream = t->lanes[b->device][b->lane];
    size_t bytes = end_bytes(b);
    b->filled = 0;
    unsigned char value = pick(t, 256);
    TRY(cudaMemsetAsync(b->base, value, bytes, stream));
    TRY(cudaMemsetAsync(b->base + b->bytes - bytes, value, bytes, stream));
    b->value = value;
    b->filled = !b->pinned; /* a graph may write to what it uses at any time */
    return 0;
}

int verify(Thread *t, Block *b) {
    if (!b->filled) return 0;
    if (follow(t, b, b->lane == DONE ? some_lane(t) : b->lane)) return 1;
    Stream stream = t->lanes[b->device][b->lane];
    size_t bytes = end_bytes(b);
    TRY(cudaMemcpyAsync((Address)t->seen[0], b->base, bytes, TO_HOST, stream));
    TRY(cudaMemcpyAsync((Address)t->seen[1], b->base + b->bytes - bytes, bytes, TO_HOST, stream));
    if (finish(t, b)) return 1;
    for (size_t i = 0; i < bytes; i++)
        if (t->seen[0][i] != b->value || t->seen[1][i] != b->value) fail("foreign bytes in a block", t->seen[0][i]);
    return 0;
}

int copy(Thread *t, Block *from, Block *to) {
    if (from == to || from->bytes != to->bytes || from->bytes < 512 || !from->filled || to->pinned) return 0;
    if (follow(t, to, some_lane(t)) || follow(t, from, to->lane)) return 1;
    Stream stream = t->lanes[to->device][to->lane];
    to->filled = 0;
    TRY(cudaMemcpyAsync(to->base, from->base, 256, ON_DEVICE, stream));
    TRY(cudaMemcpyAsync(to->base + to->bytes - 256, from->base + from->bytes - 256, 256, ON_DEVICE, stream));
    to->value = from->value;
    to->filled = 1;
    return 0;
}

/* The host has waited for a stream. */
void lane_done(Thread *t, int device, int lane) {
    for (Block *b = t->blocks; b < t->blocks + BLOCKS; b++)
        if (b->base != 0 && b->device == device && b->lane == lane) b->lane = DONE;
}
