/* Questions about addresses: attributes of every kind, ranges, handles, what the functions for
 * the host's and for managed memory say of other memory, CUDA IPC.
 */
#include "calls.h"
#include <unistd.h>

enum { UNWRITTEN = 0xee };

/* The identity of an allocation: it stays, and no other one has it. */
static void say_id(unsigned long long id, Memory *m) {
    if (m && m->alive) {
        if (m->id && m->id != id) say(" changed");
        m->id = id;
        for (int i = 0; i < MEMORIES; i++)
            if (&memories[i] != m && memories[i].alive && memories[i].id == id && id) say(" as m%d", i);
    }
    say(id ? " id" : " 0");
}

/* The answer to an attribute, in words that do not depend on where memory lies. */
static void say_attribute(int attribute, const unsigned char *bytes, Memory *m) {
    uint64_t whole;
    int word;
    memcpy(&whole, bytes, sizeof whole);
    memcpy(&word, bytes, sizeof word);
    switch (attribute) {
    case POINTER_CONTEXT: say(" c%d", context_index((CUcontext)whole)); break;
    /* What was recorded does not tell it once somebody was let in. */
    case POINTER_DEVICE_POINTER: if (!opened || !alone) say_address("at", whole); break;
    case POINTER_RANGE_START: say_address("at", whole); break;
    case POINTER_HOST_POINTER: say_address("host", whole); break;
    case POINTER_MAPPING_BASE: case POINTER_MAPPING_SIZE:
    case POINTER_P2P_TOKENS: case POINTER_MEMORY_BLOCK_ID: say(whole ? " some" : " none"); break;
    case POINTER_MEMPOOL: say_memory_pool((CUmemoryPool)whole); break;
    case POINTER_BUFFER_ID: say_id(whole, m); break;
    case POINTER_SYNC_MEMOPS: if (!broken) say(" %d", bytes[0]); break;
    case POINTER_ACCESS_FLAGS: if (!broken) say(" %d", word); break;
    case POINTER_MEMORY_TYPE: case POINTER_DEVICE_ORDINAL: case POINTER_ALLOWED_HANDLE_TYPES: say(" %d", word); break;
    case POINTER_RANGE_SIZE: say(" %llu", (unsigned long long)whole); break;
    default:
        say(" %d", bytes[0]);
        if (bytes[1] != UNWRITTEN) say(" %02x%02x%02x", bytes[1], bytes[2], bytes[3]);
    }
}

static int some_attribute(void) {
    static const int unknown[] = {0, 22, 99, -1};
    return mostly(1 + (int)pick(21), unknown[pick(4)], 6);
}

/* Is that asked of the current context, where there is none? Then the mapping's answer is told of
 * freed memory, and nothing marks what tokens were asked for. */
static int is_contexts(int attribute, const Memory *m) {
    int has_context = current_context() >= 0 && !ended_is_current();
    int of_freed = attribute == POINTER_DEVICE_POINTER && m && !m->alive;
    return !has_context && (of_freed || attribute == POINTER_P2P_TOKENS);
}

static void attribute(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m);
    unsigned char bytes[16];
    int which = some_attribute(), none = mostly(0, 1, 3);
    memset(bytes, UNWRITTEN, sizeof bytes);
    /* Tokens that are written nowhere are some, or none. */
    if (is_contexts(which, m) || (none && which == POINTER_P2P_TOKENS)) return;
    int code = cuPointerGetAttribute(none ? NULL : bytes, which, at);
    if (which == POINTER_DEVICE_POINTER && opened) return;
    say(" %d%s=%d", which, none ? " to NULL" : "", code);
    if (none || (code && bytes[0] == UNWRITTEN)) return;
    if (code) say(" wrote");
    say_attribute(which, bytes, m);
}

static void attributes(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m);
    unsigned count = (unsigned)pick(8);
    int which[8];
    unsigned char bytes[8][16];
    void *into[8];
    memset(bytes, UNWRITTEN, sizeof bytes);
    for (unsigned i = 0; i < count; i++) {
        which[i] = some_attribute();
        into[i] = mostly(0, 1, 3) ? NULL : bytes[i];
        if (is_contexts(which[i], m)) return;
    }
    say(" %u=%d", count, cuPointerGetAttributes(count, which, into, at));
    for (unsigned i = 0; i < count; i++) {
        say(" %d%s:", which[i], into[i] ? "" : " to NULL");
        if (bytes[i][0] == UNWRITTEN && bytes[i][3] == UNWRITTEN) say(" unwritten");
        else say_attribute(which[i], bytes[i], m);
    }
}

static void runtime_attributes(void) {
    enum { PINNED = 1, MANAGED_MEMORY = 3 };
    Memory *m;
    CUdeviceptr at = pointer(&m);
    cudaPointerAttributes found;
    memset(&found, UNWRITTEN, sizeof found);
    int code = cudaPointerGetAttributes(&found, (void *)at);
    say_code("cudaPointerGetAttributes", code);
    if (code) return;
    say(" type %d device %d", found.type, found.device);
    if (!opened) say_address("at", (CUdeviceptr)found.devicePointer);
    if (found.type == PINNED || found.type == MANAGED_MEMORY) say_address("host", (CUdeviceptr)found.hostPointer);
}

static void set_attribute(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m);
    unsigned value = (unsigned)pick(2);
    int which = chance(85) ? POINTER_SYNC_MEMOPS : some_attribute(), none = mostly(0, 1, 4);
    /* The library marks the whole context, which it cannot beside a capture. */
    if (any_capturing() || broken || ended_is_current()) return;
    say(" %d to %u=%d", which, value, cuPointerSetAttribute(none ? NULL : &value, which, at));
}

static void range(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m), base = UNTOUCHED;
    size_t bytes = 77;
    int way = (int)pick(8), no_base = way == 0 || way == 2, no_bytes = way == 1 || way == 2;
    say_code("range", cuMemGetAddressRange_v2(no_base ? NULL : &base, no_bytes ? NULL : &bytes, at));
    say(" %zu", bytes);
    if (base == UNTOUCHED) say(" untouched");
    else say_address("base", base);
}

static void handle(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m);
    CUmemHandle found = 0x5a5a;
    int none = mostly(0, 1, 5), code = cuMemRetainAllocationHandle(none ? NULL : &found, (void *)at);
    say_code("retain", code);
    if (code || none) return;
    say(m && found == m->handle ? " its own" : " another");
    say_code("release", cuMemRelease(found));
}

static void dma_buf(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m);
    int found = -77, type = mostly(1, (int)pick(3), 10);
    unsigned long long flags = (unsigned)mostly(0, (int)pick(3), 10);
    size_t bytes = m ? m->bytes : 4096;
    /* Where it lies within pages may differ. */
    int is_whole = m && m->alive && at == m->base && m->kind != ORDERED && m->bytes % 4096 == 0 && m->bytes >= 2 << 20;
    if (m ? !is_whole : ended_is_current()) return;
    int code = cuMemGetHandleForAddressRange(&found, at, bytes, type, flags);
    say(" type %d flags %llu=%d %s", type, flags, code, found == -77 ? "untouched" : "written");
    if (!code && found >= 0) {
        say(lseek(found, 0, SEEK_END) > 0 ? " long" : " empty");
        close(found);
    }
}

static void of_hosts(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m), device = UNTOUCHED;
    unsigned found = 77, flags = (unsigned)mostly(0, 1, 20);
    int way = (int)pick(5), code;
    if (way >= 3 && (legal || !m || (way == 3 && m->kind == MANAGED) || (!m->alive && !alone))) return;
    switch (way) {
    case 0:
        code = cuMemHostGetFlags(&found, (void *)at);
        say(" flags=%d %u", code, found);
        return;
    case 1: say_code("pointer", cuMemHostGetDevicePointer_v2(&device, (void *)at, flags)); break;
    case 2: say_code("the runtime's pointer", cudaHostGetDevicePointer((void **)&device, (void *)at, flags)); break;
    case 3: say_code("register", cuMemHostRegister_v2((void *)at, 4096, 0)); return;
    default: say_code("unregister", cuMemHostUnregister((void *)at)); return;
    }
    if (device == UNTOUCHED) say(" untouched");
    else say_address("at", device);
}

/* Memory of the host itself. */
static void hosts_own(void) {
    Host *it = &hosts[pick(HOSTS)];
    unsigned flags = (unsigned)pick(4);
    int runtimes = chance(50), context = current_context(), code;
    say(" h%d", (int)(it - hosts));
    if (!it->registered) {
        code = runtimes ? cudaHostRegister(it->at, it->bytes, flags) : cuMemHostRegister_v2(it->at, it->bytes, flags);
        say(" register %u=%d", flags, code);
        if (!code) it->registered = 1, it->context = context;
    } else if (settle_each(THE_HOST)) {
        say_code("unregister", code = cuMemHostUnregister(it->at));
        if (!code) it->registered = 0;
    }
}

static void reached(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m);
    CUmemLocation place = {1, any_device()};
    unsigned long long rights = 77;
    /* What opens a pool to a device opens all of it; behind what was freed the pool's mapping stays; and what is no mapping
     * the driver says nothing of. */
    if (opened || (m && !m->alive) || (m && m->kind != MAPPED && !alone)) return;
    say(" of d%d=%d", place.id, cuMemGetAccess(&rights, &place, at));
    say(" %llu", rights);
}

static void info(void) {
    size_t free = 77, total = 77;
    int code = chance(50) ? cuMemGetInfo_v2(&free, &total) : cudaMemGetInfo(&free, &total);
    say(" info=%d %zu %s", code, small ? 0 : total, free > total ? "more" : free == 77 ? "untouched" : "fits");
}

static void ipc_get(void) {
    Memory *m;
    Ipc *it = &ipcs[pick(IPCS)];
    CUdeviceptr at = pointer(&m);
    CUipcMemHandle found;
    if (!with_ipc) return;
    int code = chance(70) ? cuIpcGetMemHandle(&found, at) : cudaIpcGetMemHandle(&found, (void *)at);
    say(" i%d get=%d", (int)(it - ipcs), code);
    if (!code && m) *it = (Ipc){found, 1, index_of(m), m->born};
}

/* Its own memory no process opens. */
static void ipc_open(void) {
    Ipc *it = &ipcs[pick(IPCS)];
    CUdeviceptr at = UNTOUCHED;
    CUipcMemHandle garbage;
    unsigned flags = (unsigned)mostly(1, (int)pick(3), 15);
    memset(&garbage, (int)pick(3), sizeof garbage);
    /* After a crash the flags are looked at first, or last. */
    if (!with_ipc || (broken && flags != 1)) return;
    int is_there = it->valid && memories[it->memory].alive && memories[it->memory].born == it->born;
    if (!is_there && legal) return;
    int code = cuIpcOpenMemHandle_v2(&at, is_there ? it->handle : garbage, flags);
    say(is_there ? " i%d of m%d" : " garbage", (int)(it - ipcs), it->memory);
    say(" flags %u open=%d %s", flags, code, at == UNTOUCHED ? "untouched" : "written");
}

static void ipc_close(void) {
    Memory *m;
    CUdeviceptr at = pointer(&m);
    if (!legal) say_code("close", cuIpcCloseMemHandle(at));
}

const Op question_ops[] = {{"attribute", 50, attribute}, {"attributes", 50, attributes},
    {"runtime_attributes", 25, runtime_attributes}, {"set_attribute", 10, set_attribute}, {"range", 40, range},
    {"handle", 15, handle}, {"dma_buf", 12, dma_buf}, {"of_hosts", 20, of_hosts}, {"hosts_own", 12, hosts_own},
    {"reached", 8, reached}, {"info", 10, info}, {"ipc_get", 10, ipc_get}, {"ipc_open", 8, ipc_open},
    {"ipc_close", 8, ipc_close}, {0}};
