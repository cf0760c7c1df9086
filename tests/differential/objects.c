/* Contexts, streams, events, devices, access between them: made, used, ended. */
#include "calls.h"

int context_index(CUcontext context) {
    if (context == NULL) return -1;
    for (int i = 0; i < CONTEXTS; i++)
        if (contexts[i].alive && contexts[i].context == context) return i;
    for (int i = 0; i < CONTEXTS; i++)
        if (contexts[i].context == context) return i;
    return 99;
}

int current_context(void) {
    CUcontext context = NULL;
    cuCtxGetCurrent(&context);
    return context_index(context);
}

int ended_is_current(void) {
    int c = current_context();
    return c >= CONTEXTS || (c >= 0 && !contexts[c].alive);
}

/* The runtime brings a primary context back that has ended. */
void look_at_primaries(void) {
    for (int d = 0; d < devices; d++) {
        unsigned flags;
        int active = 0;
        cuDevicePrimaryCtxGetState(d, &flags, &active);
        if (active) contexts[d].alive = 1;
    }
}

int any_device(void) { return (int)pick((uint64_t)devices); }

/* May this one be named? One that ended may, until something else can have its handle. */
static int may_be_named(int c) {
    return contexts[c].context && (contexts[c].alive || (!legal && contexts[c].died == births));
}

static void set_current(void) {
    int c = (int)pick(CONTEXTS + 1);
    if (c == CONTEXTS) {
        if (!legal && chance(30)) say_code("none", cuCtxSetCurrent(NULL));
    } else if (may_be_named(c)) {
        say(" c%d%s set=%d", c, mark(contexts[c].alive), cuCtxSetCurrent(contexts[c].context));
    }
}

static void set_device(void) {
    int d = mostly(any_device(), chance(50) ? -1 : 7, 7);
    say(" cudaSetDevice(%d)=%d", d, cudaSetDevice(d));
}

static void push_pop(void) {
    int c = (int)pick(CONTEXTS);
    if (chance(50)) {
        CUcontext was = NULL;
        int code = cuCtxPopCurrent_v2(&was);
        say(" pop=%d c%d", code, context_index(was));
    } else if (contexts[c].alive) {
        say(" push c%d=%d", c, cuCtxPushCurrent_v2(contexts[c].context));
    }
}

static void make_context(void) {
    int c = 2 + (int)pick(CONTEXTS - 2), d = mostly(any_device(), 9, 5);
    if (contexts[c].alive) return;
    CUcontext made = NULL;
    int code = cuCtxCreate_v2(&made, (unsigned)pick(4), d);
    say(" c%d on d%d=%d", c, d, code);
    /* A handle of one that ended may be this one's. */
    for (int i = 0; i < CONTEXTS; i++)
        if (!contexts[i].alive) contexts[i].died = 0;
    if (!code) contexts[c] = (Context){made, d, 1, 0, 0};
}

static void has_ended(int c, int ordered_too) {
    context_dies(c, ordered_too);
    contexts[c].alive = 0;
    contexts[c].died = births;
}

/* Of every third program: others would have none left. */
static void end_primary(void) {
    int d = any_device(), way = (int)pick(4), runtimes = chance(40), active = 0, code;
    Context *primary = &contexts[d];
    unsigned flags;
    if (seed % 3 || any_capturing()) return;
    settle_all();
    if (way == 3 && d == 0 && runtimes) {
        say_code("set", cudaSetDevice(d));
        say_code("cudaDeviceReset", code = cudaDeviceReset());
        if (!code) {
            context_dies(d, 1);
            say_code("set", cudaSetDevice(d));
        }
    } else if (way == 0) {
        say(" reset d%d=%d", d, code = cuDevicePrimaryCtxReset_v2(d));
        if (!code) context_dies(d, 0);
    } else if (way == 1 && primary->retained) {
        say(" release d%d=%d", d, code = cuDevicePrimaryCtxRelease_v2(d));
        if (!code) primary->retained--;
    } else {
        CUcontext again;
        say(" retain d%d=%d", d, code = cuDevicePrimaryCtxRetain(&again, d));
        if (!code) {
            say(" %s", again == primary->context ? "same" : "new");
            primary->retained++;
            primary->context = again;
            primary->alive = 1;
        }
    }
    code = cuDevicePrimaryCtxGetState(d, &flags, &active);
    say(" state=%d %d", code, active);
    if (!active) has_ended(d, 0);
}

static void end_context(void) {
    int c = 2 + (int)pick(CONTEXTS - 2), way = (int)pick(4), code;
    if (!may_be_named(c) || any_capturing()) return;
    settle_all();
    int was_alive = contexts[c].alive;
    say(" c%d%s", c, mark(was_alive));
    if (way == 0) say_code("detach", code = cuCtxDetach(contexts[c].context));
    else say_code("destroy", code = cuCtxDestroy_v2(contexts[c].context));
    if (!code && was_alive) has_ended(c, 0);
}

static void make_stream(void) {
    int s = FIXED + (int)pick(STREAMS - FIXED), context = current_context();
    unsigned flags = (unsigned)mostly((int)pick(2), 9, 5);
    CUstream made = NULL;
    if (streams[s].alive) return;
    int code = cuStreamCreate(&made, flags);
    say(" s%d flags %u=%d", s, flags, code);
    for (int i = FIXED; i < STREAMS; i++)
        if (!streams[i].alive) streams[i].died = 0;
    if (!code) streams[s] = (Stream){made, context, 1, 0};
}

static void end_stream(void) {
    int s = any_stream();
    if (s < FIXED || (streams[s].alive && any_capturing())) return;
    for (int i = 0; i < MEMORIES; i++)
        if (memories[i].lane.stream == s && !settle(&memories[i], THE_HOST)) return;
    int code = cuStreamDestroy_v2(streams[s].stream);
    say(" s%d%s=%d", s, mark(streams[s].alive), code);
    if (!code && streams[s].alive) streams[s].alive = 0, streams[s].died = births;
}

/* "Not yet" is no difference. */
static int or_later(int code) { return code == 600 ? 0 : code; }

static void wait_stream(void) {
    int s = any_stream(), way = (int)pick(5), status = 77;
    say(" s%d%s", s, mark(streams[s].alive));
    switch (way) {
    case 0: say_code("query", or_later(cuStreamQuery(streams[s].stream))); break;
    case 1: say_code("context", cuCtxSynchronize()); break;
    case 2: say_code("device", cudaDeviceSynchronize()); break;
    case 3:
        say_code("capturing", cudaStreamIsCapturing(streams[s].stream, &status));
        say(" %d", status);
        break;
    default: say_code("stream", cuStreamSynchronize(streams[s].stream));
    }
}

static void event(void) {
    int e = (int)pick(EVENTS), s = any_stream(), way = (int)pick(6), code;
    Event *it = &events[e];
    CUevent made = NULL;
    say(" e%d", e);
    if (!it->alive) {
        say_code("create", code = cuEventCreate(&made, 2));
        if (!code) *it = (Event){made, current_context(), 1};
        return;
    }
    switch (way) {
    case 0: case 1: say(" s%d record=%d", s, cuEventRecord(it->event, streams[s].stream)); break;
    case 2: say(" s%d wait=%d", s, cuStreamWaitEvent(streams[s].stream, it->event, 0)); break;
    case 3: say_code("query", or_later(cuEventQuery(it->event))); break;
    case 4: say_code("synchronize", cuEventSynchronize(it->event)); break;
    default:
        if (any_capturing()) return;
        say_code("destroy", code = cuEventDestroy_v2(it->event));
        if (!code) it->alive = 0;
    }
}

static void peers(void) {
    int c = (int)pick(CONTEXTS), way = (int)pick(3);
    if (!contexts[c].alive || any_capturing()) return;
    settle_all();
    opened = 1;
    if (way == 2) say(" c%d disable=%d", c, cuCtxDisablePeerAccess(contexts[c].context));
    else say(" c%d enable=%d", c, cuCtxEnablePeerAccess(contexts[c].context, (unsigned)mostly(0, 1, 5)));
}

static void array(void) {
    Array *a = &arrays[pick(ARRAYS)];
    CUDA_ARRAY_DESCRIPTOR wanted = {1 + pick(512), pick(64), FORMAT_UINT32, (unsigned)mostly(1, 3, 10)};
    CUarray made = NULL;
    int code;
    if (small) return;
    say(" a%d", (int)(a - arrays));
    if (!a->alive) {
        say_code("create", code = cuArrayCreate_v2(&made, &wanted));
        if (!code) *a = (Array){made, current_context(), 1};
    } else if (!any_capturing()) {
        say_code("destroy", code = cuArrayDestroy(a->array));
        if (!code) a->alive = 0;
    }
}

static void flags(void) {
    /* By this one copies of the whole context wait: the library sets it for one allocation. */
    const unsigned sync_memops = 0x80;
    unsigned found = 77;
    if (chance(70)) {
        int code = cuCtxGetFlags(&found);
        say(" flags=%d %u", code, code ? found : found & ~sync_memops);
    } else if (!any_capturing()) {
        say_code("set", cuCtxSetFlags((unsigned)pick(5)));
    }
}

/* A kernel that faults, in a context that is not a primary one; of every eighth program. */
static void crashes(void) {
    int s = any_stream(), c = lane_of(s).context;
    int may = !legal && seed % 8 == 0 && crash && !any_capturing() && chance(50);
    if (!may || c < 2 || c >= CONTEXTS || !contexts[c].alive || !streams[s].alive || !settle_each(THE_HOST)) return;
    broken = 1;
    say(" s%d c%d crash=%d", s, c, crash(streams[s].stream));
    say_code("seen", cuStreamSynchronize(streams[s].stream));
}

const Op object_ops[] = {{"set_current", 25, set_current}, {"set_device", 15, set_device}, {"push_pop", 8, push_pop},
    {"make_context", 14, make_context}, {"end_primary", 4, end_primary}, {"end_context", 8, end_context},
    {"make_stream", 30, make_stream}, {"end_stream", 12, end_stream}, {"wait_stream", 25, wait_stream}, {"event", 30, event},
    {"peers", 8, peers}, {"array", 5, array}, {"flags", 4, flags}, {"crashes", 4, crashes}, {0}};
