/* Work between two devices without access while a stream captures: what the
 * call answers, what becomes of the capture, and what the graph does. */
#include "peers.h"
#include "shapes.h"

enum { BYTES = 1024 * 1024 };

/* Contexts, a stream of the first device that captures and one that does not,
 * memory of both devices, and pinned host memory. */
struct scene {
    struct pair pair;
    CUstream stream, other;
    CUdeviceptr here, there;
    unsigned char *some, *host;
};

static struct scene open_scene(void) {
    struct scene s = {.pair = open_pair(), .some = pattern(BYTES, 4)};
    s.stream = new_stream();
    s.other = new_stream();
    s.here = allocate_on(s.pair.first, BYTES);
    s.there = allocate_on(s.pair.second, BYTES);
    void *host = NULL;
    NEED(cuMemHostAlloc(&host, BYTES, 0));
    s.host = host;
    return s;
}

/* Where the bytes go. */
enum { TO_HERE, TO_THERE, TO_HOST };

/* The pattern everywhere but in the target, which is empty. */
static void prepare(struct scene *s, int target) {
    put_on(s->pair.first, s->here, s->some, BYTES);
    put_on(s->pair.second, s->there, s->some, BYTES);
    memcpy(s->host, s->some, BYTES);
    if (target == TO_HERE) fill_on(s->pair.first, s->here, BYTES, 0);
    if (target == TO_THERE) fill_on(s->pair.second, s->there, BYTES, 0);
    if (target == TO_HOST) memset(s->host, 0, BYTES);
}

static const char *arrived(struct scene *s, int target) {
    int after = settle(s->pair);
    if (after != CU_OK) return code_name(after);
    if (target == TO_HOST) return yes(memcmp(s->host, s->some, BYTES) == 0);
    if (target == TO_HERE) return yes(holds_on(s->pair.first, s->here, s->some, BYTES));
    return yes(holds_on(s->pair.second, s->there, s->some, BYTES));
}

/* Launches what was captured, twice, each time into an empty target. */
static void use_graph(struct scene *s, CUgraph graph, int target) {
    CUgraphExec ready = NULL;
    size_t nodes = 0;
    NEED(cuGraphGetNodes(graph, NULL, &nodes));
    int code = cuGraphInstantiateWithFlags(&ready, graph, 0);
    say("nodes %zu, instantiate %s", nodes, code_name(code));
    for (int i = 0; code == CU_OK && i < 2; i++) {
        prepare(s, target);
        int launched = cuGraphLaunch(ready, s->stream);
        say("launch %s, then %s, equal %s", code_name(launched),
            code_name(cuStreamSynchronize(s->stream)), arrived(s, target));
    }
    if (code == CU_OK) NEED(cuGraphExecDestroy(ready));
    NEED(cuGraphDestroy(graph));
}

typedef int (*captured)(struct scene *);

static void in_mode(struct scene *s, int mode, captured call, int target) {
    static const char *const modes[] = {"global", "thread", "relaxed"};
    int status = -1;
    CUgraph graph = NULL;
    prepare(s, target);
    NEED(cuStreamBeginCapture_v2(s->stream, mode));
    int code = call(s);
    int asked = cuStreamIsCapturing(s->stream, &status);
    int ended = cuStreamEndCapture(s->stream, &graph);
    say("%s: %s, capturing %s %d, end %s, graph %s, done at once %s", modes[mode], code_name(code),
        code_name(asked), status, code_name(ended), yes(graph != NULL), arrived(s, target));
    if (ended == CU_OK && graph != NULL) use_graph(s, graph, target);
}

static void in_every_mode(captured call, int target) {
    struct scene s = open_scene();
    for (int mode = CAPTURE_GLOBAL; mode <= CAPTURE_RELAXED; mode++) in_mode(&s, mode, call, target);
}

#define CAPTURED(name, target, call)                             \
    static int name##_call(struct scene *s) { return call; }     \
    CASE(name, SIM | DEVICES2) { in_every_mode(name##_call, target); }

CAPTURED(peers_captures_copy_there, TO_THERE, cuMemcpyAsync(s->there, s->here, BYTES, s->stream))
CAPTURED(peers_captures_copy_back, TO_HERE, cuMemcpyAsync(s->here, s->there, BYTES, s->stream))
CAPTURED(peers_captures_dtod_there, TO_THERE, cuMemcpyDtoDAsync_v2(s->there, s->here, BYTES, s->stream))
CAPTURED(peers_captures_dtod_back, TO_HERE, cuMemcpyDtoDAsync_v2(s->here, s->there, BYTES, s->stream))
CAPTURED(peers_captures_peer_there, TO_THERE,
         cuMemcpyPeerAsync(s->there, s->pair.second, s->here, s->pair.first, BYTES, s->stream))
CAPTURED(peers_captures_peer_back, TO_HERE,
         cuMemcpyPeerAsync(s->here, s->pair.first, s->there, s->pair.second, BYTES, s->stream))
CAPTURED(peers_captures_up, TO_THERE, cuMemcpyHtoDAsync_v2(s->there, s->host, BYTES, s->stream))
CAPTURED(peers_captures_down, TO_HOST, cuMemcpyDtoHAsync_v2(s->host, s->there, BYTES, s->stream))

/* The same on a stream, or with none, beside the one that captures. */
CAPTURED(peers_captures_beside_dtod, TO_THERE, cuMemcpyDtoDAsync_v2(s->there, s->here, BYTES, s->other))
CAPTURED(peers_captures_beside_peer, TO_THERE,
         cuMemcpyPeerAsync(s->there, s->pair.second, s->here, s->pair.first, BYTES, s->other))
CAPTURED(peers_captures_beside_no_stream, TO_THERE, cuMemcpyDtoD_v2(s->there, s->here, BYTES))
CAPTURED(peers_captures_beside_peer_no_stream, TO_THERE,
         cuMemcpyPeer(s->there, s->pair.second, s->here, s->pair.first, BYTES))
CAPTURED(peers_captures_beside_up, TO_THERE, cuMemcpyHtoDAsync_v2(s->there, s->host, BYTES, s->other))
CAPTURED(peers_captures_beside_down, TO_HOST, cuMemcpyDtoHAsync_v2(s->host, s->there, BYTES, s->other))
CAPTURED(peers_captures_beside_up_no_stream, TO_THERE, cuMemcpyHtoD_v2(s->there, s->host, BYTES))
CAPTURED(peers_captures_beside_down_no_stream, TO_HOST, cuMemcpyDtoH_v2(s->host, s->there, BYTES))

static int rows_call(struct scene *s) {
    CUDA_MEMCPY2D rows = {.WidthInBytes = 1024, .Height = BYTES / 1024};
    rows.src = (CUcopyEnd2D){.memoryType = MEMORY_DEVICE, .device = s->here, .pitch = 1024};
    rows.dst = (CUcopyEnd2D){.memoryType = MEMORY_DEVICE, .device = s->there, .pitch = 1024};
    return cuMemcpy2DAsync_v2(&rows, s->stream);
}

CASE(peers_captures_rows, SIM | DEVICES2) { in_every_mode(rows_call, TO_THERE); }

static int slices_call(struct scene *s) {
    CUDA_MEMCPY3D slices = {.WidthInBytes = 1024, .Height = 256, .Depth = BYTES / 1024 / 256};
    slices.src = (CUcopyEnd3D){.memoryType = MEMORY_DEVICE, .device = s->here, .pitch = 1024, .height = 256};
    slices.dst = (CUcopyEnd3D){.memoryType = MEMORY_DEVICE, .device = s->there, .pitch = 1024, .height = 256};
    return cuMemcpy3DAsync_v2(&slices, s->stream);
}

CASE(peers_captures_slices, SIM | DEVICES2) { in_every_mode(slices_call, TO_THERE); }

/* A fill of the other device's memory: done where it is all of the byte. */
static int fill_call(struct scene *s) {
    memset(s->some, 0x5A, BYTES);
    return cuMemsetD8Async(s->there, 0x5A, BYTES, s->stream);
}

CASE(peers_captures_fill, SIM | DEVICES2) { in_every_mode(fill_call, TO_THERE); }
