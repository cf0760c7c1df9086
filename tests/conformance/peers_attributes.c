/* What the driver says of memory of a device that is not current: its attributes,
 * and where the allocation lies. */
#include "attributes.h"
#include "peers.h"

static struct known of_second(struct pair p, int kind) {
    struct known memory = {get_memory_on(p.second, kind, 64 * MiB), 64 * MiB, p.second, NULL};
    if (kind == ORDERED) NEED(cuDeviceGetDefaultMemPool(&memory.pool, 1));
    NEED(settle(p));
    return memory;
}

CASE(peers_attributes_plain, SIM | DEVICES2) {
    struct known memory = of_second(open_pair(), PLAIN);
    say_attributes(memory, memory.base + 5);
}

CASE(peers_attributes_ordered, SIM | DEVICES2) {
    struct known memory = of_second(open_pair(), ORDERED);
    say_attributes(memory, memory.base + 5);
}

/* A device has access once its context may reach the other's. */
CASE(peers_attributes_once_enabled, SIM | DEVICES2) {
    struct pair p = open_pair();
    struct known before = of_second(p, PLAIN);
    NEED(cuCtxEnablePeerAccess(p.second, 0));
    say_attributes(before, before.base);
    struct known after = of_second(p, PLAIN);
    unsigned flags = 77;
    say_code("of memory from after", cuPointerGetAttribute(&flags, POINTER_ACCESS_FLAGS, after.base));
    say("access %u", flags);
}

static void say_range(const char *when, struct known memory) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    say_code(when, cuMemGetAddressRange_v2(&base, &bytes, memory.base + 5));
    say("base: %s", yes(base == memory.base));
    say("%zu bytes", bytes);
}

CASE(peers_ranges, SIM | DEVICES2) {
    struct pair p = open_pair();
    struct known memory = of_second(p, PLAIN);
    say_range("cuMemGetAddressRange", memory);
    NEED(cuCtxEnablePeerAccess(p.second, 0));
    say_range("once enabled", memory);
    NEED(cuCtxDisablePeerAccess(p.second));
    say_range("disabled again", memory);
}
