/* Stream captures: in every mode, with a second stream that forks off and joins
 * again, with memory of the graph's own, and with allocations and frees beside
 * the capture while it is under way. */
#include "random.h"
#include <string.h>

enum { MAIN_LANE = CAPTURE_LANES, FORK_LANE };

/* A kernel that becomes a node: on the block, though the launch decides where. */
static int node(Thread *t, const Block *b, Stream stream, int write) {
    CUsimRange range = {b->base, b->bytes, write};
    TRY(cuSimLaunch(stream, &range, 1, 1.0 + pick(t, 50)));
    return 0;
}

static int fork_and_join(Thread *t, Replay *r, Stream stream) {
    Event event = t->events[r->device][0];
    Stream fork = t->lanes[r->device][FORK_LANE];
    TRY(cudaEventRecord(event, stream));
    TRY(cudaStreamWaitEvent(fork, event, 0));
    if (r->count > 0 && node(t, r->uses[0], fork, 0)) return 1;
    TRY(cudaEventRecord(event, fork));
    TRY(cudaStreamWaitEvent(stream, event, 0));
    return 0;
}

/* Memory that the driver allocates and frees at each launch of the graph. */
static int memory_of_the_graph(Thread *t, Stream stream) {
    Address base;
    ASK(cudaMallocAsync(&base, 1 + pick(t, 1 << 20), stream));
    CUsimRange range = {base, 1, 1};
    TRY(cuSimLaunch(stream, &range, 1, 5.0));
    TRY(cudaFreeAsync(base, stream));
    return 0;
}

static int record(Thread *t, Replay *r, Stream stream) {
    for (int i = 0; i < r->count; i++)
        if (node(t, r->uses[i], stream, pick(t, 2))) return 1;
    if (pick(t, 2) && fork_and_join(t, r, stream)) return 1;
    if (pick(t, 4) == 0 && memory_of_the_graph(t, stream)) return 1;
    /* Meanwhile this thread goes on with other memory. */
    for (uint64_t left = pick(t, 6); left > 0; left--) {
        Block *b = some_block(t, r->device);
        if (b == 0 || pick(t, 2)) {
            if (allocate(t, r->device)) return 1;
        } else if (release(t, b)) return 1;
    }
    /* In relaxed mode also memory that was made during the capture. */
    Block *late = some_block(t, r->device);
    if (late != 0 && r->count < IN_GRAPH && !late->pinned) {
        late->pinned = 1;
        late->filled = 0;
        r->uses[r->count++] = late;
        if (node(t, late, stream, 1)) return 1;
    }
    return 0;
}

/* A capture that goes on unnoticed would forbid this thread whatever it does
 * next, so it is over in the end, whatever fails meanwhile; 0: without a graph. */
static Graph end_capture(Thread *t, Stream stream) {
    Graph graph = 0;
    for (int tries = 0; tries < TRIES; tries++) {
        if (!answer(t, cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture", 0)) return graph;
        /* An injected failure of the end leaves it going. */
        int status = 1;
        if (cudaStreamIsCapturing(stream, &status) == 0 && status == 0) return 0;
    }
    fail("a capture cannot be ended", 0);
}

static void let_go(Replay *r) {
    for (int i = 0; i < r->count; i++) r->uses[i]->pinned = 0;
    memset(r, 0, sizeof *r);
}

void drop_replay(Thread *t, Replay *r) {
    if (r->graph == 0) return;
    /* The graph's own memory goes with it: nothing may run any more. */
    int refused = 1;
    enter_forbidden(t);
    for (int tries = 0; refused && tries < TRIES; tries++)
        refused = answer(t, cudaStreamSynchronize(t->lanes[r->device][MAIN_LANE]), "cudaStreamSynchronize", 0);
    if (!refused && r->ready != 0) answer(t, cudaGraphExecDestroy(r->ready), "cudaGraphExecDestroy", 0);
    leave_forbidden(t);
    if (refused) fail("a stream cannot be waited for", 0);
    lane_done(t, r->device, MAIN_LANE);
    answer(t, cudaGraphDestroy(r->graph), "cudaGraphDestroy", 0);
    let_go(r);
}

/* Launches always go to one stream of the graph's device. */
int replay(Thread *t, Replay *r) {
    if (r->ready == 0) return 0;
    for (int i = 0; i < r->count; i++)
        if (follow(t, r->uses[i], MAIN_LANE)) return 1;
    TRY(cudaGraphLaunch(r->ready, t->lanes[r->device][MAIN_LANE]));
    return 0;
}

int capture(Thread *t, int device) {
    Replay *r = &t->replays[pick(t, GRAPHS)];
    int current = r->device;
    if (r->graph != 0) {
        if (current != device && answer(t, cudaSetDevice(current), "cudaSetDevice", 0)) return 1;
        drop_replay(t, r);
        if (current != device) TRY(cudaSetDevice(device));
    }
    Stream stream = t->lanes[device][MAIN_LANE];
    int mode = pick(t, 3);
    for (uint64_t left = pick(t, IN_GRAPH); left > 0; left--) {
        Block *b = some_block(t, device);
        if (b != 0 && !b->pinned) {
            b->pinned = 1;
            b->filled = 0;
            r->uses[r->count++] = b;
        }
    }
    r->device = device;
    pthread_rwlock_rdlock(&whole_device);
    if (mode == GLOBAL) pthread_rwlock_wrlock(&forbidden);
    t->exclusive = mode == GLOBAL;
    int began = !answer(t, cudaStreamBeginCapture(stream, mode), "cudaStreamBeginCapture", 0);
    int refused = !began;
    if (began) {
        t->capturing = 1 + mode;
        refused = record(t, r, stream);
        t->refused_in_capture = refused;
        r->graph = end_capture(t, stream);
        t->refused_in_capture = 0;
        t->capturing = 0;
        refused |= r->graph == 0;
        t->captures++;
    }
    t->exclusive = 0;
    if (mode == GLOBAL) pthread_rwlock_unlock(&forbidden);
    pthread_rwlock_unlock(&whole_device);
    if (r->graph == 0) {
        let_go(r);
        return 1;
    }
    Graph ready = 0;
    enter_forbidden(t);
    int code = answer(t, cudaGraphInstantiate(&ready, r->graph, 0), "cudaGraphInstantiate", 0);
    leave_forbidden(t);
    if (code) return 1;
    r->ready = ready;
    return refused || replay(t, r);
}
