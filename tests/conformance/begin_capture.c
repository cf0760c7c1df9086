#include "begin_capture.h"

#include "work.h"

static const char *const modes[] = {"global", "thread", "relaxed"};

struct scene open_scene(unsigned flags) {
    struct scene s = {.other = new_stream(), .memory = allocate(MiB), .spare = allocate(MiB)};
    NEED(cuStreamCreate(&s.stream, flags));
    s.ordered = allocate_async(MiB, s.other);
    NEED(cuCtxSynchronize());
    return s;
}

void begin_capture(struct scene *s, int mode) {
    NEED(cuStreamBeginCapture_v2(s->stream, mode));
    NEED(cuMemsetD32Async(s->memory, 0x5EED, MiB / 4, s->stream));
}

CUgraph end_capture(struct scene *s) {
    CUgraph graph = NULL;
    size_t nodes = 0;
    say_code("end", cuStreamEndCapture(s->stream, &graph));
    if (graph == NULL) return NULL;
    NEED(cuGraphGetNodes(graph, NULL, &nodes));
    say("operations: %zu", nodes);
    return graph;
}

void close_scene(struct scene *s) {
    NEED(cuCtxSynchronize());
    if (s->made != 0) NEED(cuMemFree_v2(s->made));
    if (s->spare != 0) NEED(cuMemFree_v2(s->spare));
    if (s->ordered != 0) NEED(cuMemFree_v2(s->ordered));
    NEED(cuMemFree_v2(s->memory));
    NEED(cuStreamDestroy_v2(s->stream));
    NEED(cuStreamDestroy_v2(s->other));
}

struct call {
    int (*body)(struct scene *);
    struct scene *scene;
    bool relaxed;
    int code;
};

static void make(void *argument) {
    struct call *call = argument;
    int mode = CAPTURE_RELAXED;
    if (call->relaxed) cuThreadExchangeStreamCaptureMode(&mode);
    call->code = call->body(call->scene);
    if (call->relaxed) cuThreadExchangeStreamCaptureMode(&mode);
}

/* One call in one capture. */
static void once(unsigned flags, int mode, bool other_thread, struct call *call) {
    struct scene s = open_scene(flags);
    CUgraph graph = NULL;
    size_t nodes = 0;
    call->scene = &s;
    begin_capture(&s, mode);
    if (other_thread)
        on_thread(make, call);
    else
        make(call);
    int end = cuStreamEndCapture(s.stream, &graph);
    if (graph != NULL) {
        NEED(cuGraphGetNodes(graph, NULL, &nodes));
        NEED(cuGraphDestroy(graph));
    }
    say("%s%s%s: %s, end %s, operations %zu", modes[mode], other_thread ? ", another thread" : "",
        call->relaxed ? ", relaxed around" : "", code_name(call->code), code_name(end), nodes);
    close_scene(&s);
}

void in_every_mode(unsigned flags, int (*body)(struct scene *)) {
    for (int other_thread = 0; other_thread < 2; other_thread++)
        for (int mode = CAPTURE_GLOBAL; mode <= CAPTURE_RELAXED; mode++) {
            struct call plain = {body, NULL, false, -2}, relaxed = {body, NULL, true, -2};
            once(flags, mode, other_thread, &plain);
            if (mode == CAPTURE_GLOBAL) once(flags, mode, other_thread, &relaxed);
        }
}
