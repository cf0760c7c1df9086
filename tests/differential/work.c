/* Work on memory: fills and copies of every form, within allocations, and what they leave there.
 * An allocation is remembered by the byte that fills it.
 */
#include "calls.h"

static int is_on(int context, int device) {
    return context >= 0 && context < CONTEXTS && contexts[context].device == device;
}

/* Memory that work along this stream may use now, or NULL. Across devices it may only where that
 * cannot change who reaches what: a device that reaches one allocation of a pool reaches all. */
static Memory *ready(int s) {
    Memory *m = workable();
    Lane lane = lane_of(s);
    if (!m || !settle(m, lane)) return NULL;
    int stays_home = opened || broken || any_capturing() || own_capturing[thread];
    if (stays_home && !(is_on(lane.context, m->device) && is_on(current_context(), m->device))) return NULL;
    say(" m%d k%d d%d", index_of(m), m->kind, m->device);
    return m;
}

static void touched(Memory *m, int s) {
    if (stream_capturing(s)) captured[index_of(m)] = m->born;
    else m->lane = lane_of(s);
}

static void fill(void) {
    int way = (int)pick(8), s = way < 3 ? LEGACY : any_stream(), code;
    unsigned char v = (unsigned char)(1 + pick(200));
    Memory *m = ready(s);
    if (!m) return;
    CUstream stream = streams[s].stream;
    size_t bytes = m->bytes, filled = bytes;
    int is_captured = stream_capturing(s);
    say(" s%d", s);
    switch (way) {
    case 0: code = cuMemsetD8_v2(m->base, v, bytes); break;
    case 1: code = cudaMemset((void *)m->base, v, bytes); break;
    case 2: code = cuMemsetD2D8_v2(m->base, bytes, v, bytes, 1); break;
    case 3: code = cuMemsetD8Async(m->base, v, bytes, stream); break;
    case 4: code = cudaMemsetAsync((void *)m->base, v, bytes, stream); break;
    case 5: filled = bytes / 4 * 4; code = cuMemsetD32Async(m->base, v * 0x1010101u, bytes / 4, stream); break;
    case 6: filled = bytes / 2 * 2; code = cuMemsetD16Async(m->base, (unsigned short)(v * 0x101u), bytes / 2, stream); break;
    default: code = cuMemsetD2D8Async(m->base, bytes, v, bytes, 1, stream);
    }
    say(" fill %d %zu=%d", way, bytes, code);
    if (code) return;
    touched(m, s);
    m->filled = !is_captured && filled == bytes;
    m->value = v;
}

static void fill_wrongly(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m);
    int way = (int)pick(5), s = any_stream(), is_nowhere = !m && at < 4097;
    if (legal || (m && (!m->alive || any_capturing() || !settle(m, lane_of(LEGACY))))) return;
    switch (way) {
    case 0: say_code("no bytes", cuMemsetD8_v2(at, 1, 0)); break;
    case 1: if (m && m->base != at && at % 4) say_code("odd", cuMemsetD32_v2(at, 1, 1)); break;
    case 2: if (m && at + 4096 < m->base + m->bytes) say_code("short pitch", cuMemsetD2D8_v2(at, 8, 1, 16, 2)); break;
    case 3: if (is_nowhere) say_code("nowhere", cuMemsetD8_v2(at, 1, 16)); break;
    default: if (is_nowhere) say(" s%d nowhere=%d", s, cuMemsetD8Async(at, 1, 16, streams[s].stream));
    }
    if (m) m->filled = 0, m->lane = lane_of(LEGACY);
}

/* Of memory and of the host's: so many bytes. */
static size_t common(const Memory *m, const Host *h) { return m->bytes < h->bytes ? m->bytes : h->bytes; }

/* Waits for a copy that was queued; 0 where that is refused, and nobody knows when it is over. */
static int is_over(CUstream stream, Host *h) {
    int code = cuStreamSynchronize(stream);
    say_code("wait", code);
    h->lost |= code != 0;
    return !code;
}

/* Reads memory back, and compares it with what filled it. */
static void check(void) {
    int way = (int)pick(8), is_async = way >= 5, s = is_async ? any_stream() : LEGACY, at_end = chance(50), code;
    Host *h = &hosts[pick(HOSTS)];
    Memory *m = ready(s);
    if (!m || h->lost || !streams[s].alive || stream_capturing(s)) return;
    size_t bytes = common(m, h), bad = 0;
    CUdeviceptr from = m->base + (at_end ? m->bytes - bytes : 0);
    CUstream stream = streams[s].stream;
    char *to = h->at;
    memset(to, 0xcc, bytes);
    switch (way) {
    case 0: case 1: code = cuMemcpyDtoH_v2(to, from, bytes); break;
    case 2: code = cudaMemcpy(to, (void *)from, bytes, 2); break;
    case 3: code = cudaMemcpy(to, (void *)from, bytes, 4); break;
    case 4: code = cuMemcpy((CUdeviceptr)to, from, bytes); break;
    case 5: code = cuMemcpyDtoHAsync_v2(to, from, bytes, stream); break;
    case 6: code = cudaMemcpyAsync(to, (void *)from, bytes, 2, stream); break;
    default: code = cuMemcpyAsync((CUdeviceptr)to, from, bytes, stream);
    }
    say(" s%d h%d read %d=%d", s, (int)(h - hosts), way, code);
    if (code) {
        say(to[0] == (char)0xcc ? " untouched" : " written");
        return;
    }
    m->lane = lane_of(s);
    if ((is_async && !is_over(stream, h)) || !m->filled) return;
    for (size_t i = 0; i < bytes; i++) bad += (unsigned char)to[i] != m->value;
    say(bad ? " other bytes" : " as filled");
}

static void upload(void) {
    int way = (int)pick(6), is_async = way >= 3, s = is_async ? any_stream() : LEGACY, code;
    int kind = mostly(1, (int[]){0, 4, 5, 6}[pick(4)], 20);
    unsigned char v = (unsigned char)(1 + pick(200));
    Host *h = &hosts[pick(HOSTS)];
    Memory *m = ready(s);
    if (!m || h->lost || !streams[s].alive || stream_capturing(s)) return;
    if (h->registered && !settle_each(lane_of(s))) return;
    size_t bytes = common(m, h);
    CUstream stream = streams[s].stream;
    memset(h->at, v, bytes);
    switch (way) {
    case 0: code = cuMemcpyHtoD_v2(m->base, h->at, bytes); break;
    case 1: code = cudaMemcpy((void *)m->base, h->at, bytes, kind); break;
    case 2: code = cuMemcpy(m->base, (CUdeviceptr)h->at, bytes); break;
    case 3: code = cuMemcpyHtoDAsync_v2(m->base, h->at, bytes, stream); break;
    case 4: code = cudaMemcpyAsync((void *)m->base, h->at, bytes, 1, stream); break;
    default: code = cuMemcpyAsync(m->base, (CUdeviceptr)h->at, bytes, stream);
    }
    say(" s%d h%d kind %d write %d=%d", s, (int)(h - hosts), way == 1 ? kind : 1, way, code);
    int is_there = !code && (!is_async || is_over(stream, h));
    m->lane = lane_of(s);
    m->filled = is_there && bytes == m->bytes;
    m->value = v;
}

static int home_of(const Memory *m) { return m->context < 0 ? m->device : m->context; }

/* From one allocation to another one. */
static void copy(void) {
    enum { ROWS_3D = 4, PEER = 8, PEER_ASYNC, PEER_OF_RUNTIME, ROWS_3D_ASYNC, WAYS };
    int way = (int)pick(WAYS), waits = way <= ROWS_3D || way == PEER || way == PEER_OF_RUNTIME, unified = chance(30);
    int s = waits ? LEGACY : any_stream(), code;
    Memory *a = ready(s), *b = ready(s);
    if (!a || !b || a == b || !streams[s].alive || !settle(a, lane_of(s)) || !settle(b, lane_of(s))) return;
    size_t bytes = a->bytes < b->bytes ? a->bytes : b->bytes;
    CUstream stream = streams[s].stream;
    int is_captured = stream_capturing(s), from = home_of(a), to = home_of(b);
    int names_contexts = way == PEER || way == PEER_ASYNC;
    if (names_contexts && !(contexts[from].alive && contexts[to].alive)) return;
    if (way >= PEER && ((way != PEER_ASYNC && any_capturing()) || !settle(a, THE_HOST) || !settle(b, THE_HOST))) return;
    CUDA_MEMCPY2D rows = {.src = {.memoryType = unified ? 4 : 2, .device = a->base, .pitch = bytes},
        .dst = {.memoryType = 2, .device = b->base, .pitch = bytes}, .WidthInBytes = bytes, .Height = 1};
    CUDA_MEMCPY3D planes = {.src = {.memoryType = 2, .device = a->base, .pitch = bytes, .height = 1},
        .dst = {.memoryType = 4, .device = b->base, .pitch = bytes, .height = 1},
        .WidthInBytes = bytes, .Height = 1, .Depth = 1};
    switch (way) {
    case 0: code = cuMemcpyDtoD_v2(b->base, a->base, bytes); break;
    case 1: code = cudaMemcpy((void *)b->base, (void *)a->base, bytes, 3); break;
    case 2: code = cuMemcpy(b->base, a->base, bytes); break;
    case 3: code = cuMemcpy2D_v2(&rows); break;
    case ROWS_3D: code = cuMemcpy3D_v2(&planes); break;
    case 5: code = cuMemcpyDtoDAsync_v2(b->base, a->base, bytes, stream); break;
    case 6: code = cudaMemcpyAsync((void *)b->base, (void *)a->base, bytes, 4, stream); break;
    case 7: code = cuMemcpy2DAsync_v2(&rows, stream); break;
    case PEER: code = cuMemcpyPeer(b->base, contexts[to].context, a->base, contexts[from].context, bytes); break;
    case PEER_ASYNC:
        code = cuMemcpyPeerAsync(b->base, contexts[to].context, a->base, contexts[from].context, bytes, stream);
        break;
    case PEER_OF_RUNTIME: code = cudaMemcpyPeer((void *)b->base, b->device, (void *)a->base, a->device, bytes); break;
    default: code = cuMemcpy3DAsync_v2(&planes, stream);
    }
    say(" s%d copy %d %zu=%d", s, way, bytes, code);
    if (code) return;
    touched(a, s);
    touched(b, s);
    if (way == PEER || way == PEER_OF_RUNTIME) settle_all();
    b->filled = !is_captured && bytes == b->bytes && a->filled;
    b->value = a->value;
}

/* Rows of the host's and a device's memory, and what may be wrong with them. */
static void rows(void) {
    enum { NO_HOST, NO_DEVICE, SHORT_PITCH, NO_HEIGHT, NO_WIDTH, NO_ARRAY, NOTHING, RIGHT = 9 };
    int way = (int)pick(4), wrong = legal ? RIGHT : (int)pick(12), code;
    size_t width = 1 + pick(2000), height = 1 + pick(200), pitch = width + pick(300);
    Host *h = &hosts[pick(HOSTS)];
    Memory *m = ready(LEGACY);
    if (!m || h->lost || any_capturing() || pitch * height > common(m, h)) return;
    CUDA_MEMCPY2D wanted = {.src = {.memoryType = 1, .host = h->at, .pitch = pitch},
        .dst = {.memoryType = 2, .device = m->base, .pitch = pitch}, .WidthInBytes = width, .Height = height};
    size_t at_device = wrong == SHORT_PITCH ? width - 1 : pitch;
    wanted.dst.pitch = at_device;
    if (wrong == NO_HOST) wanted.src.host = NULL;
    if (wrong == NO_DEVICE) wanted.dst.device = 0;
    if (wrong == NO_HEIGHT) wanted.Height = 0;
    if (wrong == NO_WIDTH) wanted.WidthInBytes = 0;
    if (wrong == NO_ARRAY) wanted.dst.memoryType = 3;
    m->filled = 0;
    switch (way) {
    case 0: code = cuMemcpy2D_v2(wrong == NOTHING ? NULL : &wanted); break;
    case 1: code = cuMemcpy2DUnaligned_v2(&wanted); break;
    case 2: code = cudaMemcpy2D((void *)m->base, at_device, h->at, pitch, width, height, wrong == NO_HEIGHT ? 9 : 1); break;
    default: code = cudaMemset2D((void *)m->base, at_device, 3, width, height);
    }
    say(" rows %d wrong %d=%d", way, wrong, code);
    m->lane = lane_of(LEGACY);
}

static void write_value(void) {
    int s = any_stream();
    CUdeviceptr offset = (CUdeviceptr)mostly(4, 2, 20);
    Memory *m = ready(s);
    /* Into stream-ordered memory the driver writes none. */
    if (!m || m->kind != PLAIN || !streams[s].alive || m->bytes < 8 || stream_capturing(s)) return;
    if (!is_on(lane_of(s).context, m->device)) return;
    say(" s%d value=%d", s, cuStreamWriteValue32_v2(streams[s].stream, m->base + offset, 5, 0));
    m->filled = 0;
    touched(m, s);
}

const Op work_ops[] = {{"fill", 60, fill}, {"fill_wrongly", 15, fill_wrongly}, {"check", 50, check}, {"upload", 25, upload},
    {"copy", 50, copy}, {"rows", 15, rows}, {"write_value", 6, write_value}, {0}};
