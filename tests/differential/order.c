/* In which order work uses memory: along one stream, and along another one only when that has
 * been waited for. A real GPU punishes nothing else so silently as the lack of it.
 */
#include "calls.h"

const Lane NO_LANE = {-1, -1, -1}, THE_HOST = {-2, -2, -2};

static int default_stream(int stream) { return own_default && stream == LEGACY ? PER_THREAD : stream; }

/* One that is alive, a default one, or now and then one that died just now. */
int any_stream(void) {
    if (chance(25)) return default_stream((int)pick(FIXED));
    int s = FIXED + (int)pick(STREAMS - FIXED);
    const Stream *stream = &streams[s];
    int may_be_asked = stream->alive || (!legal && stream->died == births && stream->stream != NULL);
    return may_be_asked ? s : default_stream(LEGACY);
}

Lane lane_of(int stream) {
    stream = default_stream(stream);
    int context = stream < FIXED ? current_context() : streams[stream].context;
    return (Lane){stream, context, stream == PER_THREAD ? thread : 0};
}

/* Both names of the legacy stream are one. */
static int place(Lane lane) { return lane.stream == BY_NAME ? LEGACY : lane.stream; }

static int is_same(Lane a, Lane b) {
    return place(a) == place(b) && a.context == b.context && a.thread == b.thread;
}

static int is_alive(int context) { return context >= 0 && context < CONTEXTS && contexts[context].alive; }

/* Waits for what is pending on memory but along that lane; 0 where that cannot be done now. */
int settle(Memory *memory, Lane lane) {
    Lane pending = memory->lane;
    if (pending.stream == NO_LANE.stream || is_same(pending, lane)) return 1;
    int of_another = pending.stream == PER_THREAD && pending.thread != thread;
    if (any_capturing() || of_another || !is_alive(pending.context)) return 0;
    CUcontext before = NULL;
    cuCtxPushCurrent_v2(contexts[pending.context].context);
    int code = cuStreamSynchronize(streams[pending.stream].stream);
    cuCtxPopCurrent_v2(&before);
    if (code) say_code("settle", code);
    else memory->lane = NO_LANE;
    return !code;
}

/* The same for all memory. */
int settle_each(Lane lane) {
    for (int i = 0; i < MEMORIES; i++)
        if (!settle(&memories[i], lane)) return 0;
    return 1;
}

/* Waits for all contexts. */
void settle_all(void) {
    for (int c = 0; c < CONTEXTS; c++) {
        CUcontext before = NULL;
        if (!contexts[c].alive) continue;
        cuCtxPushCurrent_v2(contexts[c].context);
        say_code("settle", cuCtxSynchronize());
        cuCtxPopCurrent_v2(&before);
    }
    for (int i = 0; i < MEMORIES; i++) memories[i].lane = NO_LANE;
}
