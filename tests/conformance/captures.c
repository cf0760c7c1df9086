/* Allocation and free before, inside and after a capture; graphs replayed after
 * frees. Nothing but the captured work may become part of a graph. */
#include "begin_capture.h"
#include "patterns.h"
#include "work.h"

static void relaxed(void (*body)(void *), void *argument) {
    int mode = CAPTURE_RELAXED;
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
    body(argument);
    NEED(cuThreadExchangeStreamCaptureMode(&mode));
}

static CUgraphExec make_ready(CUgraph graph) {
    CUgraphExec ready = NULL;
    NEED(graph == NULL);
    NEED(cuGraphInstantiateWithFlags(&ready, graph, 0));
    return ready;
}

static void replay(CUgraphExec ready, CUstream stream) {
    say_code("launch", cuGraphLaunch(ready, stream));
    NEED(cuStreamSynchronize(stream));
}

static void drop(CUgraph graph, CUgraphExec ready) {
    NEED(cuGraphExecDestroy(ready));
    NEED(cuGraphDestroy(graph));
}

CASE(captures_memory_from_before, SIM | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    begin_capture(&s, CAPTURE_GLOBAL);
    CUgraph graph = end_capture(&s);
    CUgraphExec ready = make_ready(graph);
    replay(ready, s.stream);
    say("filled: %s", yes(all_words(s.memory, MiB, 0x5EED)));
    drop(graph, ready);
    close_scene(&s);
}

CASE(captures_freed_just_before, SIM | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = allocate_async(8 * MiB, s.stream), again = 0;
    work_write(s.stream, at, 8 * MiB, 1);
    NEED(cuMemFreeAsync(at, s.stream));
    begin_capture(&s, CAPTURE_RELAXED);
    say_code("cuMemAlloc of as much", cuMemAlloc_v2(&again, 8 * MiB));
    say_code("cuMemAllocAsync elsewhere", cuMemAllocAsync(&at, 8 * MiB, s.other));
    CUgraph graph = end_capture(&s);
    NEED(cuGraphDestroy(graph));
    put_memory(again);
    put_memory(at);
    close_scene(&s);
}

CASE(captures_freed_after, SIM | SHARED) {
    struct scene s = open_scene(0);
    CUdeviceptr more = 0;
    begin_capture(&s, CAPTURE_GLOBAL);
    CUgraph graph = end_capture(&s);
    say_code("cuMemFree", cuMemFree_v2(s.spare));
    s.spare = 0;
    say_code("cuMemAlloc", cuMemAlloc_v2(&more, MiB));
    say_code("cuMemFree", cuMemFree_v2(more));
    NEED(cuGraphDestroy(graph));
    close_scene(&s);
}

CASE(captures_replayed_after_frees, SIM | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    begin_capture(&s, CAPTURE_GLOBAL);
    CUgraph graph = end_capture(&s);
    CUgraphExec ready = make_ready(graph);
    NEED(cuMemFree_v2(s.spare));
    NEED(cuMemFreeAsync(s.ordered, s.other));
    s.spare = s.ordered = 0;
    CUdeviceptr plain = allocate(MiB), ordered = allocate_async(MiB, s.other), large = allocate(60 * MiB);
    NEED(cuStreamSynchronize(s.other));
    NEED(cuMemsetD8_v2(plain, 1, MiB));
    NEED(cuMemsetD8_v2(ordered, 2, MiB));
    NEED(cuMemsetD8_v2(large, 3, 60 * MiB));
    NEED(cuMemsetD8_v2(s.memory, 4, MiB));
    NEED(cuCtxSynchronize());
    for (int i = 0; i < 3; i++) replay(ready, s.stream);
    say("filled: %s", yes(all_words(s.memory, MiB, 0x5EED)));
    say("others untouched: %s", yes(holds_only(plain, MiB, 1) && holds_only(ordered, MiB, 2) &&
                                    holds_only(large, 60 * MiB, 3)));
    drop(graph, ready);
    put_memory(plain);
    put_memory(ordered);
    put_memory(large);
    close_scene(&s);
}

static void allocate_inside(void *argument) {
    struct scene *s = argument;
    for (size_t i = 0; i < 6 && s->made == 0; i++) cuMemAlloc_v2(&s->made, 20 * MiB);
}

/* As a framework does whose graphs have memory of their own. */
CASE(captures_memory_from_inside, SIM | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    begin_capture(&s, CAPTURE_GLOBAL);
    relaxed(allocate_inside, &s);
    NEED(cuMemsetD32Async(s.made, 0xF00D, 20 * MiB / 4, s.stream));
    CUgraph graph = end_capture(&s);
    CUgraphExec ready = make_ready(graph);
    CUdeviceptr other = allocate(20 * MiB);
    NEED(cuMemsetD8_v2(other, 7, 20 * MiB));
    NEED(cuCtxSynchronize());
    for (int i = 0; i < 2; i++) replay(ready, s.stream);
    say("filled: %s", yes(all_words(s.made, 20 * MiB, 0xF00D)));
    say("other memory untouched: %s", yes(holds_only(other, 20 * MiB, 7)));
    drop(graph, ready);
    put_memory(other);
    close_scene(&s);
}

static void churn(void *argument) {
    struct scene *s = argument;
    CUdeviceptr blocks[12] = {0};
    int mode = CAPTURE_RELAXED;
    cuThreadExchangeStreamCaptureMode(&mode);
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < 12; i++) {
            if (blocks[i] != 0) cuMemFreeAsync(blocks[i], s->other);
            size_t bytes = (size_t)(1 + (i * 7 + round * 5) % 40) * MiB / 2;
            if (cuMemAllocAsync(&blocks[i], bytes, s->other) != CU_OK) blocks[i] = 0;
            if (blocks[i] != 0) cuMemsetD32Async(blocks[i], 1, bytes / 4, s->other);
            CUdeviceptr plain = 0;
            if (cuMemAlloc_v2(&plain, bytes) == CU_OK) cuMemFree_v2(plain);
        }
    for (int i = 0; i < 12; i++)
        if (blocks[i] != 0) cuMemFreeAsync(blocks[i], s->other);
    cuThreadExchangeStreamCaptureMode(&mode);
}

CASE(captures_beside_a_thread_that_allocates, SIM | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    churn(&s);
    begin_capture(&s, CAPTURE_GLOBAL);
    on_thread(churn, &s);
    CUgraph graph = end_capture(&s);
    if (graph != NULL) NEED(cuGraphDestroy(graph));
    close_scene(&s);
}

CASE(captures_of_a_blocking_stream_beside_a_thread_that_allocates, SIM | SHARED) {
    struct scene s = open_scene(0);
    churn(&s);
    begin_capture(&s, CAPTURE_THREAD);
    on_thread(churn, &s);
    CUgraph graph = end_capture(&s);
    if (graph != NULL) NEED(cuGraphDestroy(graph));
    close_scene(&s);
}

CASE(captures_that_fork, SIM | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    CUevent fork = NULL, join = NULL;
    CUstream branch = new_stream();
    NEED(cuEventCreate(&fork, 2));
    NEED(cuEventCreate(&join, 2));
    begin_capture(&s, CAPTURE_GLOBAL);
    NEED(cuEventRecord(fork, s.stream));
    NEED(cuStreamWaitEvent(branch, fork, 0));
    NEED(cuMemsetD32Async(s.spare, 0xB0B, MiB / 4, branch));
    relaxed(allocate_inside, &s);
    on_thread(churn, &s);
    NEED(cuEventRecord(join, branch));
    NEED(cuStreamWaitEvent(s.stream, join, 0));
    CUgraph graph = end_capture(&s);
    CUgraphExec ready = make_ready(graph);
    replay(ready, s.stream);
    say("filled: %s", yes(all_words(s.memory, MiB, 0x5EED) && all_words(s.spare, MiB, 0xB0B)));
    drop(graph, ready);
    NEED(cuEventDestroy_v2(fork));
    NEED(cuEventDestroy_v2(join));
    NEED(cuStreamDestroy_v2(branch));
    close_scene(&s);
}

CASE(captures_on_the_legacy_stream, SIM | SHARED) {
    say_code("begin", cuStreamBeginCapture_v2(CU_STREAM_LEGACY, CAPTURE_RELAXED));
}

CASE(captures_on_the_threads_own_stream, SIM | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    CUstream made = s.stream;
    s.stream = CU_STREAM_PER_THREAD;
    begin_capture(&s, CAPTURE_GLOBAL);
    relaxed(allocate_inside, &s);
    on_thread(churn, &s);
    CUgraph graph = end_capture(&s);
    CUgraphExec ready = make_ready(graph);
    replay(ready, s.stream);
    say("filled: %s", yes(all_words(s.memory, MiB, 0x5EED)));
    drop(graph, ready);
    s.stream = made;
    close_scene(&s);
}

CASE(captures_memory_of_the_graph, SIM | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    CUdeviceptr inside = 0;
    begin_capture(&s, CAPTURE_GLOBAL);
    say_code("cuMemAllocAsync", cuMemAllocAsync(&inside, 10 * MiB, s.stream));
    NEED(cuMemsetD32Async(inside, 0xAB, 10 * MiB / 4, s.stream));
    NEED(cuMemcpyDtoDAsync_v2(s.memory, inside, MiB, s.stream));
    say_code("cuMemFreeAsync", cuMemFreeAsync(inside, s.stream));
    CUgraph graph = end_capture(&s);
    CUgraphExec ready = make_ready(graph);
    for (int i = 0; i < 2; i++) replay(ready, s.stream);
    say("filled: %s", yes(all_words(s.memory, MiB, 0xAB)));
    drop(graph, ready);
    close_scene(&s);
}

CASE(captures_lost, SIM | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = 0;
    begin_capture(&s, CAPTURE_GLOBAL);
    say_code("cuMemAlloc", cuMemAlloc_v2(&at, MiB));
    CUgraph graph = end_capture(&s);
    say("a graph: %s", yes(graph != NULL));
    say_code("cuMemAlloc after the end", cuMemAlloc_v2(&at, MiB));
    say_code("cuMemFree", cuMemFree_v2(at));
    begin_capture(&s, CAPTURE_GLOBAL);
    graph = end_capture(&s);
    if (graph != NULL) NEED(cuGraphDestroy(graph));
    close_scene(&s);
}

CASE(captures_lost_not_ended, SIM) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = 0;
    begin_capture(&s, CAPTURE_GLOBAL);
    say_code("cuMemAlloc", cuMemAlloc_v2(&at, MiB));
    say_code("cuMemAlloc again", cuMemAlloc_v2(&at, MiB));
    say_code("cuMemFree", cuMemFree_v2(s.spare));
    end_capture(&s);
}

struct free_beside { struct scene *scene; int code, query; };

static void free_beside_work(void *argument) {
    struct free_beside *f = argument;
    f->code = cuMemFree_v2(f->scene->spare);
    f->query = cuStreamQuery(f->scene->other);
}

/* Does a free inside a capture wait for work elsewhere? */
CASE(captures_and_a_free_that_waits, SIM | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    struct free_beside f = {&s, -2, -2};
    busy(s.other);
    begin_capture(&s, CAPTURE_GLOBAL);
    relaxed(free_beside_work, &f);
    say_code("cuMemFree", f.code);
    say_code("cuStreamQuery", f.query);
    s.spare = 0;
    CUgraph graph = end_capture(&s);
    if (graph != NULL) NEED(cuGraphDestroy(graph));
    close_scene(&s);
}

CASE(captures_into_a_graph, GPU) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    size_t nodes = 0;
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuStreamBeginCaptureToGraph(s.stream, graph, NULL, NULL, 0, CAPTURE_GLOBAL));
    NEED(cuMemsetD32Async(s.memory, 1, MiB / 4, s.stream));
    on_thread(churn, &s);
    say_code("end", cuStreamEndCapture(s.stream, &graph));
    NEED(cuGraphGetNodes(graph, NULL, &nodes));
    say("operations: %zu", nodes);
}

CASE(captures_and_cudamalloc, SIM | RUNTIME | SHARED) {
    struct scene s = open_scene(CU_STREAM_NON_BLOCKING);
    void *at = NULL;
    begin_capture(&s, CAPTURE_GLOBAL);
    say_runtime("cudaMalloc", cudaMalloc(&at, MiB));
    say_runtime("cudaGetLastError", cudaGetLastError());
    end_capture(&s);
    begin_capture(&s, CAPTURE_RELAXED);
    say_runtime("relaxed: cudaMalloc", cudaMalloc(&at, MiB));
    say_runtime("cudaFree", cudaFree(at));
    say_runtime("cudaGetLastError", cudaGetLastError());
    CUgraph graph = end_capture(&s);
    if (graph != NULL) NEED(cuGraphDestroy(graph));
    close_scene(&s);
}
