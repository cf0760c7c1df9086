/* What asks for memory, in every way, rightly and wrongly; and addresses to ask about. */
#include "calls.h"

size_t any_size(void) {
    static const size_t right[] = {1, 511, 512, 513, 1000, 4096, 65536, 65537, 262144, 262145, 1 << 20, (1 << 20) + 512,
        (2 << 20) - 1, 2 << 20, (2 << 20) + 1, (3 << 20) + 1000, 5 << 20, 20 << 20, (34 << 20) + 100, 64 << 20};
    static const size_t wrong[] = {0, (size_t)1 << 40, (size_t)-1, (size_t)1 << 63, (size_t)-512, (size_t)400 << 30};
    if (!legal && chance(7)) return wrong[pick(6)];
    if (chance(15)) return 1 + pick(8 << 20);
    return right[pick(20)];
}

/* A place for new memory, or NULL. */
Memory *fresh(void) {
    Memory *m = &memories[pick(MEMORIES)];
    return m->alive ? NULL : m;
}

/* Memory that is alive, or NULL. */
Memory *live(void) {
    Memory *m = &memories[pick(MEMORIES)];
    for (int i = 0; i < 4 && !m->alive; i++) m = &memories[pick(MEMORIES)];
    return m->alive ? m : NULL;
}

/* The same that work may use: what is made in a capture is a graph's. */
Memory *workable(void) {
    Memory *m = live();
    return m && m->kind != CAPTURED ? m : NULL;
}

void dies(Memory *memory) {
    memory->alive = 0;
    memory->died = births;
}

/* With a context go its memory, but for that of memory pools and what the program maps itself,
 * its streams and whatever else is its own. */
void context_dies(int context, int ordered_too) {
    for (int i = 0; i < MEMORIES; i++) {
        Memory *m = &memories[i];
        int stays = m->kind == MAPPED || m->kind == ORDERED;
        if (m->alive && m->context == context && (ordered_too || !stays)) dies(m);
        if (m->lane.context == context) m->lane = NO_LANE;
    }
    for (int s = FIXED; s < STREAMS; s++)
        if (streams[s].alive && streams[s].context == context) streams[s].alive = 0, streams[s].died = 0;
    for (int i = 0; i < EVENTS; i++)
        if (events[i].context == context) events[i].alive = 0;
    for (int i = 0; i < ARRAYS; i++)
        if (arrays[i].context == context) arrays[i].alive = 0;
    for (int i = 0; i < GRAPHS; i++)
        if (graphs[i].context == context) graphs[i].graph = NULL, graphs[i].exec = NULL;
    for (int i = 0; i < HOSTS; i++)
        if (hosts[i].context == context) hosts[i].registered = 0;
}

static CUdeviceptr of_memory(Memory **of, int at_base) {
    Memory *m = &memories[pick(MEMORIES)];
    uint64_t inside = pick(1 << 20), how = pick(4);
    for (int i = 0; i < 3 && !m->alive && m->died != births; i++) m = &memories[pick(MEMORIES)];
    int may_be_asked = m->alive || (!legal && m->died == births && (alone || !m->lingers));
    /* The simulated GPU ends memory of a capture with that. */
    if (m->base == 0 || m->kind == CAPTURED || !may_be_asked) {
        say(" none");
        return 0;
    }
    const size_t offsets[] = {1, m->bytes - 1, m->bytes / 2, inside % m->bytes};
    size_t offset = at_base || offsets[how] >= m->bytes ? 0 : offsets[how];
    say(" [m%d%s+%zu of %zu k%d d%d]", index_of(m), mark(m->alive), offset, m->bytes, m->kind, m->device);
    *of = m;
    return m->base + offset;
}

/* An address to ask about: of live memory mostly, inside it, of memory that died just now, of
 * the host, nowhere. */
CUdeviceptr pointer(Memory **of) {
    static long variable;
    int way = (int)pick(100), host = (int)pick(HOSTS), inside = (int)pick(4096);
    *of = NULL;
    if (legal || way < 88) return of_memory(of, way < 60);
    if (way < 92) {
        say(" [0]");
        return 0;
    }
    if (way < (alone ? 94 : 96)) {
        say(" [4096]");
        return 4096;
    }
    if (way < 96) {
        say(" [-1]");
        return (CUdeviceptr)-1;
    }
    if (way < 98) {
        say(" [variable]");
        return (CUdeviceptr)&variable;
    }
    say(" [h%d+%d]", host, inside);
    return (CUdeviceptr)hosts[host].at + (CUdeviceptr)inside;
}

static int device_of(int context) {
    return context >= 0 && context < CONTEXTS ? contexts[context].device : -1;
}

/* Says what a call answered, and notes what it made. */
static void born(Memory *m, const char *call, int code, CUdeviceptr at, size_t bytes, int kind, int stream) {
    say_code(call, code);
    if (code || at == 0) {
        say(" %zu %s", bytes, at == 0 ? "null" : at == UNTOUCHED ? "untouched" : "written");
        return;
    }
    int context = kind == ORDERED && stream >= FIXED ? streams[stream].context : current_context();
    *m = (Memory){.base = at, .bytes = bytes, .kind = kind, .device = device_of(context), .context = context, .alive = 1,
        .born = ++births, .lane = NO_LANE};
    if (kind == ORDERED) {
        m->lane = lane_of(stream);
        if (stream_capturing(stream)) m->kind = CAPTURED;
    }
    say(" m%d %zu%s", index_of(m), bytes, at % 512 ? " unaligned" : "");
}

static void alloc(void) {
    Memory *m = fresh();
    size_t bytes = any_size();
    int way = (int)pick(12);
    CUdeviceptr at = UNTOUCHED;
    if (!m) return;
    if (way == 0 && !legal && chance(20)) {
        say_code("cuMemAlloc to NULL", cuMemAlloc_v2(NULL, bytes));
    } else if (way < 6) {
        int code = cuMemAlloc_v2(&at, bytes);
        born(m, "cuMemAlloc", code, at, bytes, PLAIN, LEGACY);
    } else {
        int code = cudaMalloc((void **)&at, bytes);
        born(m, "cudaMalloc", code, at, bytes, PLAIN, LEGACY);
    }
}

static void alloc_async(void) {
    Memory *m = fresh();
    size_t bytes = any_size();
    int s = any_stream(), way = (int)pick(6), code;
    CUdeviceptr at = UNTOUCHED;
    if (!m) return;
    /* A graph's memory is the driver's own. */
    if (small && stream_capturing(s)) return;
    if (way == 3 && s == LEGACY) s = PER_THREAD;
    CUstream stream = streams[s].stream;
    say(" s%d%s", s, mark(streams[s].alive));
    if (way < 3) code = cuMemAllocAsync(&at, bytes, stream);
    else if (way == 3) code = cuMemAllocAsync_ptsz(&at, bytes, stream);
    else code = cudaMallocAsync((void **)&at, bytes, stream);
    born(m, way < 3 ? "cuMemAllocAsync" : way == 3 ? "cuMemAllocAsync_ptsz" : "cudaMallocAsync", code, at, bytes, ORDERED, s);
}

static void alloc_from_pool(void) {
    Memory *m = fresh();
    size_t bytes = any_size();
    int s = any_stream(), p = (int)pick(POOLS), is_runtimes = chance(50), none = mostly(0, 1, 8), code;
    CUdeviceptr at = UNTOUCHED;
    if (!m) return;
    int may_be_named = pools[p].alive || (!legal && pools[p].died == births);
    if (!may_be_named) p = 0;
    int is_drivers_own = p >= devices || pools[p].device != device_of(lane_of(s).context);
    if (small && (is_drivers_own || stream_capturing(s))) return;
    CUmemoryPool pool = none && !may_be_named ? NULL : pools[p].pool;
    say(" s%d%s p%d", s, mark(streams[s].alive), p);
    if (is_runtimes) code = cudaMallocFromPoolAsync((void **)&at, bytes, pool, streams[s].stream);
    else code = cuMemAllocFromPoolAsync(&at, bytes, pool, streams[s].stream);
    born(m, "FromPoolAsync", code, at, bytes, ORDERED, s);
    if (!code && at && at != UNTOUCHED) m->device = pools[p].device;
}

static void alloc_rows(void) {
    static const unsigned elements[] = {4, 8, 16, 16, 1, 0, 3, 32};
    Memory *m = fresh();
    size_t width = 1 + pick(3000), height = 1 + pick(600), depth = 1 + pick(4), pitch = 77;
    unsigned element = elements[pick(legal ? 4 : 8)];
    int way = (int)pick(3), code;
    CUdeviceptr at = UNTOUCHED;
    if (!m) return;
    width = mostly(1, 0, 10) * width;
    height = mostly(1, 0, 10) * height;
    if (way == 2) {
        cudaPitchedPtr rows = {(void *)UNTOUCHED, 1, 2, 3};
        code = cudaMalloc3D(&rows, (cudaExtent){width, height, depth});
        say(" %zux%zux%zu pitch=%zu %zu %zu", width, height, depth, rows.pitch, rows.xsize, rows.ysize);
        born(m, "cudaMalloc3D", code, (CUdeviceptr)rows.ptr, rows.pitch * height * depth, PLAIN, LEGACY);
        return;
    }
    if (way == 0) code = cuMemAllocPitch_v2(&at, &pitch, width, height, element);
    else code = cudaMallocPitch((void **)&at, &pitch, width, height);
    say(" %zux%zu/%u pitch=%zu", width, height, way == 0 ? element : 0, pitch);
    born(m, way == 0 ? "cuMemAllocPitch" : "cudaMallocPitch", code, at, pitch * height, PLAIN, LEGACY);
}

static void alloc_managed(void) {
    Memory *m = fresh();
    size_t bytes = any_size();
    CUdeviceptr at = UNTOUCHED;
    unsigned flags = legal ? 1 : (unsigned)pick(4);
    if (!m || small) return;
    int code = cuMemAllocManaged(&at, bytes, flags);
    say(" flags %u", flags);
    born(m, "cuMemAllocManaged", code, at, bytes, MANAGED, LEGACY);
}

static void alloc_mapped(void) {
    Memory *m = fresh();
    size_t bytes = (1 + pick(4)) << 21, reserved = 2 * bytes;
    int device = any_device();
    CUdeviceptr at = 0;
    CUmemHandle handle = 0;
    if (!m || small) return;
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = chance(30), .location = {1, device}};
    CUmemAccessDesc access = {{1, device}, 3};
    int created = cuMemCreate(&handle, bytes, &properties, 0), had = cuMemAddressReserve(&at, reserved, 0, 0, 0);
    int mapped = created || had ? -1 : cuMemMap(at, bytes, 0, handle, 0);
    int opened_up = mapped ? -1 : cuMemSetAccess(at, bytes, &access, 1);
    say(" create=%d reserve=%d map=%d access=%d", created, had, mapped, opened_up);
    if (opened_up) {
        if (!mapped) cuMemUnmap(at, bytes);
        if (!had) cuMemAddressFree(at, reserved);
        if (!created) cuMemRelease(handle);
        return;
    }
    born(m, "mapped", 0, at, bytes, MAPPED, LEGACY);
    m->reserved = reserved;
    m->handle = handle;
    m->device = device;
    m->context = -1;
}

const Op memory_ops[] = {{"alloc", 90, alloc}, {"alloc_async", 68, alloc_async}, {"alloc_from_pool", 22, alloc_from_pool},
    {"alloc_rows", 12, alloc_rows}, {"alloc_managed", 8, alloc_managed}, {"alloc_mapped", 10, alloc_mapped}, {0}};
