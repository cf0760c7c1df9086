/* Captures of every mode, begun and ended by any thread; graphs of them. */
#include "calls.h"

/* A thread has a default stream in each context. */
static int is_own_capturing(int of, int context) { return context >= 0 && own_capturing[of] == 1 + context; }

/* Its status; nobody asks that of the legacy stream. */
int stream_capturing(int stream) {
    int status = 0;
    if (stream == PER_THREAD || (own_default && stream == LEGACY)) return is_own_capturing(thread, current_context());
    if (stream < FIXED || !streams[stream].alive) return 0;
    return cuStreamIsCapturing(streams[stream].stream, &status) == 0 ? status : 0;
}

int any_capturing(void) {
    for (int t = 0; t < THREADS; t++)
        if (own_capturing[t]) return 1;
    for (int s = FIXED; s < STREAMS; s++)
        if (stream_capturing(s)) return 1;
    return 0;
}

static int is_capturing(Lane lane) {
    if (lane.stream == PER_THREAD) return is_own_capturing(lane.thread, lane.context);
    return stream_capturing(lane.stream);
}

static void begin(void) {
    int s = any_stream(), mode = mostly((int)pick(3), 9, 5), seldom = chance(70);
    /* What is free of a broken context is not known there. */
    if (broken) return;
    if ((legal && s < FIXED) || (s == PER_THREAD && (seldom || own_capturing[thread]))) return;
    int code = cuStreamBeginCapture_v2(streams[s].stream, mode);
    say(" s%d%s mode %d=%d", s, mark(streams[s].alive), mode, code);
    if (s == PER_THREAD && !code) own_capturing[thread] = 1 + current_context();
}

static void end(void) {
    const int invalidated = 901;
    int s = any_stream(), own = stream_capturing(PER_THREAD) && chance(60), any = chance(15);
    for (int i = FIXED; i < STREAMS && !any; i++)
        if (stream_capturing(i)) s = i;
    if (own) s = PER_THREAD;
    Graph *g = &graphs[pick(GRAPHS)];
    CUgraph graph = NULL;
    unsigned long used[MEMORIES];
    size_t nodes = 0;
    memcpy(used, captured, sizeof used);
    int code = cuStreamEndCapture(streams[s].stream, &graph);
    if (s == PER_THREAD && stream_capturing(s) && (!code || code == invalidated)) own_capturing[thread] = 0;
    /* What was made there is the graph's from now on. */
    for (int i = 0; i < MEMORIES; i++)
        if (memories[i].kind == CAPTURED && !is_capturing(memories[i].lane)) memories[i].alive = 0, memories[i].died = 0;
    say(" s%d=%d %s", s, code, graph ? "graph" : "none");
    if (code || !graph) return;
    say_code("nodes", cuGraphGetNodes(graph, NULL, &nodes));
    say(" %zu g%d", nodes, (int)(g - graphs));
    if (g->exec) cuGraphExecDestroy(g->exec);
    if (g->graph) cuGraphDestroy(g->graph);
    *g = (Graph){.graph = graph, .context = s < FIXED ? current_context() : streams[s].context};
    memcpy(g->uses, used, sizeof used);
}

/* Is all that a graph uses there, and may it be used along a lane? */
static int is_ready(const Graph *g, Lane lane) {
    for (int i = 0; i < MEMORIES; i++) {
        Memory *m = &memories[i];
        if (!g->uses[i]) continue;
        if (!m->alive || m->born != g->uses[i]) return 0;
        if (lane.stream != NO_LANE.stream && !settle(m, lane)) return 0;
    }
    return 1;
}

static void graph(void) {
    Graph *g = &graphs[pick(GRAPHS)];
    int s = any_stream(), way = (int)pick(6);
    if (!g->graph) return;
    say(" g%d", (int)(g - graphs));
    if (!g->exec) {
        /* What opens a pool to a device opens all of it. */
        if (any_capturing() || opened || !is_ready(g, NO_LANE)) return;
        say_code("instantiate", cuGraphInstantiateWithFlags(&g->exec, g->graph, 0));
    } else if (way == 0) {
        say_code("destroy", cuGraphExecDestroy(g->exec));
        g->exec = NULL;
    } else if (any_capturing()) {
        return;
    } else if (way == 1) {
        say(" s%d upload=%d", s, cuGraphUpload(g->exec, streams[s].stream));
    } else if (is_ready(g, lane_of(s))) {
        say(" s%d launch=%d", s, cuGraphLaunch(g->exec, streams[s].stream));
        for (int i = 0; i < MEMORIES; i++)
            if (g->uses[i]) memories[i].filled = 0, memories[i].lane = lane_of(s);
    }
}

static void mode(void) {
    int mode = mostly((int)pick(3), 7, 5), code = cuThreadExchangeStreamCaptureMode(&mode);
    say(" exchange=%d %d", code, mode);
}

static void ask(void) {
    int s = any_stream(), status = 77;
    unsigned long long id = 0;
    say(" s%d info=%d", s, cuStreamGetCaptureInfo_v2(streams[s].stream, &status, &id, NULL, NULL, NULL));
    say(" %d", status);
}

/* A graph that no capture made. */
static void fill_node(void) {
    Memory *m = workable();
    Graph *g = &graphs[pick(GRAPHS)];
    int c = current_context(), with_context = chance(50);
    unsigned element = (unsigned)mostly(1 << pick(3), 3, 15);
    CUgraphNode node = NULL;
    CUgraph made = NULL;
    if (!m || any_capturing() || g->graph || m->bytes < 16 || m->device != 0 || opened) return;
    if (c < 0 || ended_is_current() || cuGraphCreate(&made, 0)) return;
    CUDA_MEMSET_NODE_PARAMS wanted = {.dst = m->base, .pitch = 16, .value = 4, .elementSize = element, .width = 4,
        .height = 1};
    /* The library opens its memory for it, all of it and for good (docs/differences.md). */
    opened |= with_context && !alone && contexts[c].device != m->device;
    int code = cuGraphAddMemsetNode(&node, made, NULL, 0, &wanted, with_context ? contexts[c].context : NULL);
    say(" m%d of %u with context %d=%d", index_of(m), element, with_context, code);
    *g = (Graph){.graph = made, .context = c};
    if (!code) g->uses[index_of(m)] = m->born;
}

const Op capture_ops[] = {{"begin_capture", 14, begin}, {"end_capture", 30, end}, {"graph", 25, graph},
    {"capture_mode", 5, mode}, {"capture_info", 6, ask}, {"fill_node", 6, fill_node}, {0}};
