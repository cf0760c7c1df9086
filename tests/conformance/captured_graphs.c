/* Which calls about graphs a capture allows, and which of them end it: the ones
 * that a program makes of graphs that it captured before. */
#include "begin_capture.h"

enum { RUNS = 16 };

/* Ready before the captures: one for each run. */
static CUgraph graphs[RUNS];
static CUgraphExec ready[RUNS];
static int next;

static CUgraph one_fill(CUdeviceptr at) {
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = at, .value = 7, .elementSize = 1, .width = 64, .height = 1};
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context()));
    return graph;
}

static void beside_graphs(int (*call)(struct scene *)) {
    CUdeviceptr at = allocate(MiB);
    next = 0;
    for (int i = 0; i < RUNS; i++) {
        graphs[i] = one_fill(at);
        NEED(cuGraphInstantiateWithFlags(&ready[i], graphs[i], 0));
    }
    in_every_mode(CU_STREAM_NON_BLOCKING, call);
    for (int i = 0; i < RUNS; i++) {
        if (ready[i] != NULL) NEED(cuGraphExecDestroy(ready[i]));
        if (graphs[i] != NULL) NEED(cuGraphDestroy(graphs[i]));
    }
    NEED(cuMemFree_v2(at));
}

static int call_instantiate(struct scene *s) {
    CUgraphExec made = NULL;
    (void)s;
    int code = cuGraphInstantiateWithFlags(&made, graphs[next++], 0);
    return code == CU_OK ? cuGraphExecDestroy(made) : code;
}

CASE(captured_graphs_instantiate, SIM | SHARED) { beside_graphs(call_instantiate); }

static int call_launch_elsewhere(struct scene *s) { return cuGraphLaunch(ready[next++], s->other); }

CASE(captured_graphs_launch_elsewhere, SIM | SHARED) { beside_graphs(call_launch_elsewhere); }

static int call_upload_elsewhere(struct scene *s) { return cuGraphUpload(ready[next++], s->other); }

CASE(captured_graphs_upload_elsewhere, SIM | SHARED) { beside_graphs(call_upload_elsewhere); }

static int call_exec_destroy(struct scene *s) {
    int at = next++, code = cuGraphExecDestroy(ready[at]);
    (void)s;
    if (code == CU_OK) ready[at] = NULL;
    return code;
}

CASE(captured_graphs_exec_destroy, SIM | SHARED) { beside_graphs(call_exec_destroy); }

static int call_destroy(struct scene *s) {
    int at = next++, code = cuGraphDestroy(graphs[at]);
    (void)s;
    if (code == CU_OK) graphs[at] = NULL;
    return code;
}

CASE(captured_graphs_destroy, SIM | SHARED) { beside_graphs(call_destroy); }
