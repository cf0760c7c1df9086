/* What gives memory back, rightly and wrongly, by whatever call; and calls for mappings on memory
 * that is none of the program's own. */
#include "calls.h"

static int is_in_graphs(const Memory *m) {
    for (int g = 0; g < GRAPHS; g++)
        if (graphs[g].uses[index_of(m)] == m->born) return 1;
    return 0;
}

/* By the call of this number. */
static int call_by(int way, CUdeviceptr at, int s) {
    CUstream stream = streams[s].stream;
    switch (way) {
    case 0: case 1: case 2: case 3: say(" cuMemFree"); return cuMemFree_v2(at);
    case 4: case 5: say(" cudaFree"); return cudaFree((void *)at);
    case 6: case 7: case 8: say(" s%d cuMemFreeAsync", s); return cuMemFreeAsync(at, stream);
    case 9: say(" s%d cuMemFreeAsync_ptsz", s); return cuMemFreeAsync_ptsz(at, stream);
    case 10: case 11: say(" s%d cudaFreeAsync", s); return cudaFreeAsync((void *)at, stream);
    case 12: say(" cuMemFreeHost"); return cuMemFreeHost((void *)at);
    default: say(" cudaFreeHost"); return cudaFreeHost((void *)at);
    }
}

/* In the way of the call, whatever the memory is of. */
static void release(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m);
    int way = (int)pick(14), s = any_stream(), waits = way < 6, is_hosts = way >= 12;
    if (way == 9 && s == LEGACY) s = PER_THREAD;
    /* Nobody knows whether memory stays where the free of a broken context answers its error. */
    if (broken || (!at && m)) return;
    int frees = m && m->alive && at == m->base;
    /* A guard is read for it, beside work on the memory. */
    if (guarded && m && m->alive && !frees) return;
    if (frees) {
        int is_own = m->kind == PLAIN && m->lane.context == m->context;
        if (waits ? !is_own && !settle(m, THE_HOST) : !settle(m, lane_of(s))) return;
        if (captured[index_of(m)] == m->born || (is_in_graphs(m) && m->lane.stream != NO_LANE.stream)) return;
    }
    int code = call_by(way, at, s);
    say("=%d", code);
    if (code || !frees || is_hosts) return;
    m->lingers = !waits && m->kind == PLAIN;
    uncounted |= waits && m->kind == ORDERED;
    dies(m);
}

/* As it should be. */
static void release_well(void) {
    Memory *m = live();
    if (!m || broken || captured[index_of(m)] == m->born || !settle(m, THE_HOST)) return;
    int code;
    say(" m%d k%d", index_of(m), m->kind);
    if (m->kind != MAPPED) {
        say_code("cuMemFree", code = cuMemFree_v2(m->base));
        uncounted |= m->kind == ORDERED;
    } else {
        say_code("unmap", code = cuMemUnmap(m->base, m->bytes));
        if (!code) {
            say_code("free", cuMemAddressFree(m->base, m->reserved));
            say_code("release", cuMemRelease(m->handle));
        }
    }
    if (!code) dies(m);
}

static void map_wrongly(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m);
    size_t bytes = m ? m->bytes : 2 << 20, page = 2 << 20;
    int whole_length = chance(50), whole_address = chance(50), way = (int)pick(4);
    CUmemAccessDesc access = {{1, any_device()}, pick(3) == 0 ? 1 : 3};
    CUmemAllocationProp properties = {.type = 1, .location = {1, 0}};
    CUmemHandle handle = 0;
    if (legal || small || !at || (m && m->kind == MAPPED)) return;
    if (whole_length) bytes = (bytes + page - 1) / page * page;
    if (whole_address) at = at / page * page;
    switch (way) {
    case 0: say_code("cuMemUnmap", cuMemUnmap(at, bytes)); break;
    case 1: say_code("cuMemAddressFree", cuMemAddressFree(at, bytes)); break;
    case 2: say_code("cuMemSetAccess", cuMemSetAccess(at, bytes, &access, 1)); break;
    default:
        if (cuMemCreate(&handle, page, &properties, 0)) break;
        say_code("cuMemMap", cuMemMap(at, page, 0, handle, 0));
        say_code("release", cuMemRelease(handle));
    }
}

const Op free_ops[] = {{"release", 90, release}, {"release_well", 50, release_well}, {"map_wrongly", 12, map_wrongly}, {0}};
