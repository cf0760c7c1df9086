/* Fills that a program adds to a graph: which context they run in. */
#include "patterns.h"

static CUgraph new_graph(void) {
    CUgraph graph = NULL;
    NEED(cuGraphCreate(&graph, 0));
    return graph;
}

/* Adds a fill in each way; the last one stays in the graph. */
static CUgraph add(const char *what, CUdeviceptr at, size_t bytes, CUcontext named) {
    CUgraph graph = new_graph();
    CUgraphNode node = NULL;
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = at, .value = 0x42, .elementSize = 1, .width = bytes, .height = 1};
    CUgraphNodeParams any = {.type = NODE_MEMSET, .memset = {.fill = fill, .ctx = named}};
    CUgraphNodeParams copy = any;
    say("%s: %s, %s, %s", what, code_name(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, named)),
        code_name(cuGraphAddNode(&node, graph, NULL, 0, &any)),
        code_name(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &any)));
    say("parameters as before: %s", yes(memcmp(&any, &copy, sizeof any) == 0));
    return graph;
}

static void drop(const char *what, CUdeviceptr at, size_t bytes, CUcontext named) {
    NEED(cuGraphDestroy(add(what, at, bytes, named)));
}

CASE(nodes_fill_without_context, SIM | SHARED) {
    CUdeviceptr at = allocate(MiB);
    CUgraphExec ready = NULL;
    CUgraph graph = add("none", at, MiB, NULL);
    NEED(cuMemsetD8_v2(at, 0, MiB));
    NEED(cuGraphInstantiateWithFlags(&ready, graph, 0));
    say_code("launch", cuGraphLaunch(ready, NULL));
    NEED(cuCtxSynchronize());
    say("filled: %s", yes(holds_only(at, MiB, 0x42)));
    NEED(cuGraphExecDestroy(ready));
    NEED(cuGraphDestroy(graph));
    NEED(cuMemFree_v2(at));
}

CASE(nodes_fill_with_context, SIM | SHARED) {
    CUdeviceptr at = allocate(MiB), ordered = allocate_async(MiB, NULL);
    NEED(cuCtxSynchronize());
    drop("cudaMalloc's", at, MiB, context());
    drop("stream-ordered", ordered, MiB, context());
    NEED(cuMemFree_v2(at));
    NEED(cuMemFree_v2(ordered));
}

/* Of memory that belongs to no context, and of none at all. */
CASE(nodes_fill_of_no_context, SIM | SHARED) {
    struct mapping own = map_own(8 * MiB);
    CUdeviceptr ordered = allocate_async(MiB, NULL), freed = allocate(40 * MiB);
    NEED(cuCtxSynchronize());
    NEED(cuMemFree_v2(freed));
    drop("mapped", own.at, MiB, NULL);
    drop("stream-ordered", ordered, MiB, NULL);
    drop("freed", freed, MiB, NULL);
    drop("zero", 0, MiB, NULL);
    NEED(cuMemFree_v2(ordered));
    unmap_own(own);
}

CASE(nodes_fill_beyond_the_end, SIM | SHARED) {
    CUdeviceptr at = allocate(3 * MiB);
    drop("4 MiB + 1 of 3 MiB", at, 4 * MiB + 1, NULL);
    drop("no bytes", at, 0, NULL);
    NEED(cuMemFree_v2(at));
}

CASE(nodes_fill_of_another_context, SIM) {
    CUcontext own = context(), other = NULL;
    NEED(cuCtxCreate_v2(&other, 0, 0));
    CUdeviceptr at = allocate(MiB);
    NEED(cuCtxSetCurrent(own));
    drop("with one current", at, MiB, NULL);
    NEED(cuCtxSetCurrent(NULL));
    drop("with none current", at, MiB, NULL);
    NEED(cuCtxSetCurrent(own));
    NEED(cuCtxDestroy_v2(other));
}
