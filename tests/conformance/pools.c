/* The device's default memory pool, its sums, and pools of the program's own. */
#include "conformance.h"

static CUmemoryPool default_pool(void) {
    CUmemoryPool pool = NULL;
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static CUmemoryPool own_pool(void) {
    CUmemPoolProps properties = {.allocType = ALLOCATION_PINNED, .location = {LOCATION_DEVICE, 0}};
    CUmemoryPool pool = NULL;
    NEED(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static uint64_t get(CUmemoryPool pool, int attribute) {
    uint64_t value = 0;
    NEED(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static int set(CUmemoryPool pool, int attribute, uint64_t value) {
    return cuMemPoolSetAttribute(pool, attribute, &value);
}

static void give(CUdeviceptr at) {
    NEED(cuMemFreeAsync(at, NULL));
    NEED(cuStreamSynchronize(NULL));
}

static unsigned long long number(CUmemoryPool pool, int attribute) { return get(pool, attribute); }

CASE(pools_at_first, SIM) {
    CUmemoryPool pool = default_pool();
    for (int attribute = 1; attribute <= 8; attribute++)
        say("%d: %llu", attribute, number(pool, attribute));
}

CASE(pools_used, SIM) {
    CUmemoryPool pool = default_pool();
    CUdeviceptr a = allocate_async(64 * MiB, NULL), b = allocate_async(100 * MiB, NULL);
    say("used: %llu", number(pool, POOL_USED));
    say("reserved is no less: %s", yes(get(pool, POOL_RESERVED) >= 164 * MiB));
    give(a);
    say("after a free: %llu", number(pool, POOL_USED));
    give(b);
    say("after all: %llu", number(pool, POOL_USED));
    say("most: %llu", number(pool, POOL_USED_HIGH));
    say("most reserved is no less: %s", yes(get(pool, POOL_RESERVED_HIGH) >= 164 * MiB));
}

CASE(pools_used_small, SIM) {
    CUmemoryPool pool = default_pool();
    CUdeviceptr a = allocate_async(1, NULL), b = allocate_async(1000, NULL);
    say("1 and 1000 bytes: %llu", number(pool, POOL_USED));
    CUdeviceptr c = allocate_async(3 * MiB + 1, NULL);
    say("and 3 MiB and 1 byte: %llu", number(pool, POOL_USED));
    give(a);
    give(b);
    give(c);
    say("after all: %llu", number(pool, POOL_USED));
}

/* The driver counts a free by cuMemFree at some later moment. */
CASE(pools_used_by_plain_memory, GPU) {
    CUmemoryPool pool = default_pool();
    CUdeviceptr plain = allocate(64 * MiB);
    say("used: %llu", number(pool, POOL_USED));
    CUdeviceptr ordered = allocate_async(32 * MiB, NULL);
    say("with 32 MiB: %llu", number(pool, POOL_USED));
    NEED(cuMemFree_v2(plain));
    say("plain freed: %llu", number(pool, POOL_USED));
    NEED(cuMemFree_v2(ordered));
    say("all freed: %llu", number(pool, POOL_USED));
    say("most: %llu", number(pool, POOL_USED_HIGH));
}

CASE(pools_plain_freed_in_order, SIM) {
    CUmemoryPool pool = default_pool();
    CUdeviceptr plain = allocate(64 * MiB);
    give(plain);
    say("used: %llu; most: %llu", number(pool, POOL_USED), number(pool, POOL_USED_HIGH));
}

CASE(pools_reserved_by_plain_memory, SIM) {
    CUmemoryPool pool = default_pool();
    CUdeviceptr plain = allocate(64 * MiB);
    say("reserved: %llu", number(pool, POOL_RESERVED));
    NEED(cuMemFree_v2(plain));
    say("freed: %llu; most: %llu", number(pool, POOL_RESERVED), number(pool, POOL_RESERVED_HIGH));
}

CASE(pools_most_used_anew, SIM) {
    CUmemoryPool pool = default_pool();
    CUdeviceptr a = allocate_async(64 * MiB, NULL), b = allocate_async(32 * MiB, NULL);
    give(a);
    say("most: %llu", number(pool, POOL_USED_HIGH));
    say_code("set to 0", set(pool, POOL_USED_HIGH, 0));
    say("most: %llu", number(pool, POOL_USED_HIGH));
    a = allocate_async(16 * MiB, NULL);
    say("with 16 MiB more: %llu", number(pool, POOL_USED_HIGH));
    give(a);
    give(b);
    say("after all: %llu", number(pool, POOL_USED_HIGH));
}

CASE(pools_most_reserved_anew, SIM) {
    CUmemoryPool pool = default_pool();
    CUdeviceptr a = allocate_async(64 * MiB, NULL);
    say("most is what is: %s", yes(get(pool, POOL_RESERVED_HIGH) == get(pool, POOL_RESERVED)));
    give(a);
    NEED(cuMemPoolTrimTo(pool, 0));
    say("most is no less than 64 MiB: %s", yes(get(pool, POOL_RESERVED_HIGH) >= 64 * MiB));
    say_code("set to 0", set(pool, POOL_RESERVED_HIGH, 0));
    say("most: %llu", number(pool, POOL_RESERVED_HIGH));
}

/* The driver does not survive a null among these. */
CASE(pools_wrong_settings, GPU) {
    CUmemoryPool pool = default_pool();
    uint64_t value = 7;
    CUdeviceptr at = allocate_async(4 * MiB, NULL);
    say_code("most used to 5", set(pool, POOL_USED_HIGH, 5));
    say_code("most reserved to 5", set(pool, POOL_RESERVED_HIGH, 5));
    say_code("used", set(pool, POOL_USED, 0));
    say_code("reserved", set(pool, POOL_RESERVED, 0));
    say_code("attribute 0", set(pool, 0, 0));
    say_code("attribute 99", set(pool, 99, 0));
    say_code("no value", cuMemPoolSetAttribute(pool, POOL_RELEASE_THRESHOLD, NULL));
    say_code("no pool", set(NULL, POOL_RELEASE_THRESHOLD, 0));
    say_code("asked for 0", cuMemPoolGetAttribute(pool, 0, &value));
    say_code("asked for 99", cuMemPoolGetAttribute(pool, 99, &value));
    say("written: %s", yes(value != 7));
    say_code("asked to nowhere", cuMemPoolGetAttribute(pool, POOL_USED, NULL));
    say_code("asked of no pool", cuMemPoolGetAttribute(NULL, POOL_USED, &value));
    give(at);
}

CASE(pools_threshold, SIM) {
    CUmemoryPool pool = default_pool();
    say_code("set", set(pool, POOL_RELEASE_THRESHOLD, 123456789));
    say("is: %llu", number(pool, POOL_RELEASE_THRESHOLD));
    say_code("set to all", set(pool, POOL_RELEASE_THRESHOLD, UINT64_MAX));
    say("is: %llu", number(pool, POOL_RELEASE_THRESHOLD));
    CUdeviceptr at = allocate_async(64 * MiB, NULL);
    give(at);
    say("kept after a free: %s", yes(get(pool, POOL_RESERVED) >= 64 * MiB));
    say_code("trimmed", cuMemPoolTrimTo(pool, 0));
    say("left: %llu", number(pool, POOL_RESERVED));
}

CASE(pools_released_below_threshold, SIM) {
    CUmemoryPool pool = default_pool();
    CUdeviceptr at = allocate_async(64 * MiB, NULL);
    give(at);
    say("left after a free and a wait: %llu", number(pool, POOL_RESERVED));
}

CASE(pools_reuse_flags, SIM) {
    CUmemoryPool pool = default_pool();
    for (int attribute = 1; attribute <= 3; attribute++) {
        int off = 0, is = 7;
        say_code("set", cuMemPoolSetAttribute(pool, attribute, &off));
        NEED(cuMemPoolGetAttribute(pool, attribute, &is));
        say("%d: %d", attribute, is);
    }
}

CASE(pools_trim, SIM) {
    CUmemoryPool pool = default_pool();
    NEED(set(pool, POOL_RELEASE_THRESHOLD, UINT64_MAX));
    CUdeviceptr a = allocate_async(64 * MiB, NULL), b = allocate_async(64 * MiB, NULL);
    give(a);
    say_code("to more than there is", cuMemPoolTrimTo(pool, GiB));
    say("at least 128 MiB: %s", yes(get(pool, POOL_RESERVED) >= 128 * MiB));
    say_code("to 0", cuMemPoolTrimTo(pool, 0));
    say("at least 64 MiB: %s", yes(get(pool, POOL_RESERVED) >= 64 * MiB));
    say("less than 128 MiB: %s", yes(get(pool, POOL_RESERVED) < 128 * MiB));
    say("used: %llu", number(pool, POOL_USED));
    give(b);
    say_code("to 0", cuMemPoolTrimTo(pool, 0));
    say("left: %llu", number(pool, POOL_RESERVED));
    say_code("no pool", cuMemPoolTrimTo(NULL, 0));
}

CASE(pools_current, SIM) {
    CUmemoryPool pool = default_pool(), current = NULL;
    say_code("current", cuDeviceGetMemPool(&current, 0));
    say("is the default one: %s", yes(current == pool));
    say_code("to nowhere", cuDeviceGetMemPool(NULL, 0));
    say_code("of device 99", cuDeviceGetMemPool(&current, 99));
    say_code("default of device 99", cuDeviceGetDefaultMemPool(&current, 99));
}

CASE(pools_own_current, SIM) {
    CUmemoryPool theirs = default_pool(), mine = own_pool(), current = NULL, of = NULL;
    CUdeviceptr before = allocate_async(32 * MiB, NULL);
    say_code("set", cuDeviceSetMemPool(0, mine));
    NEED(cuDeviceGetMemPool(&current, 0));
    say("current is mine: %s", yes(current == mine));
    CUdeviceptr at = allocate_async(64 * MiB, NULL);
    NEED(cuPointerGetAttribute(&of, POINTER_MEMPOOL, at));
    say("memory is of mine: %s", yes(of == mine));
    NEED(cuPointerGetAttribute(&of, POINTER_MEMPOOL, before));
    say("memory before is of the default one: %s", yes(of == theirs));
    say("used: %llu of mine, %llu of the default one", number(mine, POOL_USED), number(theirs, POOL_USED));
    say_code("set back", cuDeviceSetMemPool(0, theirs));
    CUdeviceptr after = allocate_async(16 * MiB, NULL);
    NEED(cuPointerGetAttribute(&of, POINTER_MEMPOOL, after));
    say("memory after is of the default one: %s", yes(of == theirs));
    say("used: %llu of mine, %llu of the default one", number(mine, POOL_USED), number(theirs, POOL_USED));
    give(at);
    give(before);
    give(after);
    say("after all: %llu of mine, %llu of the default one", number(mine, POOL_USED), number(theirs, POOL_USED));
    say_code("destroyed", cuMemPoolDestroy(mine));
}

CASE(pools_destroyed_while_current, SIM) {
    CUmemoryPool theirs = default_pool(), mine = own_pool(), current = NULL, of = NULL;
    NEED(cuDeviceSetMemPool(0, mine));
    say_code("destroyed", cuMemPoolDestroy(mine));
    NEED(cuDeviceGetMemPool(&current, 0));
    say("current is the default one: %s", yes(current == theirs));
    CUdeviceptr at = allocate_async(4 * MiB, NULL);
    NEED(cuPointerGetAttribute(&of, POINTER_MEMPOOL, at));
    say("memory is of the default one: %s", yes(of == theirs));
    give(at);
}

CASE(pools_destroyed_while_used, SIM) {
    CUmemoryPool mine = own_pool();
    CUdeviceptr at = 0;
    NEED(cuMemAllocFromPoolAsync(&at, 4 * MiB, mine, NULL));
    NEED(cuStreamSynchronize(NULL));
    say_code("destroyed", cuMemPoolDestroy(mine));
    say_code("its memory written", cuMemsetD8_v2(at, 1, 4 * MiB));
    say_code("and freed", cuMemFreeAsync(at, NULL));
    say_code("and waited for", cuStreamSynchronize(NULL));
}

CASE(pools_default_destroyed, SIM) {
    say_code("the default one", cuMemPoolDestroy(default_pool()));
    say_code("none", cuMemPoolDestroy(NULL));
}

CASE(pools_named, SIM) {
    CUmemoryPool theirs = default_pool(), mine = own_pool(), of = NULL;
    CUdeviceptr a = 0, b = 0;
    say_code("from mine", cuMemAllocFromPoolAsync(&a, 4 * MiB, mine, NULL));
    say_code("from the default one", cuMemAllocFromPoolAsync(&b, 4 * MiB, theirs, NULL));
    NEED(cuPointerGetAttribute(&of, POINTER_MEMPOOL, a));
    say("is of mine: %s", yes(of == mine));
    NEED(cuPointerGetAttribute(&of, POINTER_MEMPOOL, b));
    say("is of the default one: %s", yes(of == theirs));
    say("used: %llu of mine, %llu of the default one", number(mine, POOL_USED), number(theirs, POOL_USED));
    CUdeviceptr none = 7;
    say_code("no pool", cuMemAllocFromPoolAsync(&none, 4 * MiB, NULL, NULL));
    say_code("0 bytes", cuMemAllocFromPoolAsync(&none, 0, theirs, NULL));
    say_code("to nowhere", cuMemAllocFromPoolAsync(NULL, 4 * MiB, theirs, NULL));
    say_code("400 GiB", cuMemAllocFromPoolAsync(&none, 400 * GiB, theirs, NULL));
    say("written: %s", yes(none != 7));
    give(a);
    give(b);
}

CASE(pools_access, SIM) {
    CUmemoryPool pool = default_pool();
    CUmemLocation here = {LOCATION_DEVICE, 0};
    CUmemAccessDesc both = {here, ACCESS_READWRITE}, none = {here, 0};
    int flags = 7;
    say_code("asked", cuMemPoolGetAccess(&flags, pool, &here));
    say("is: %d", flags);
    say_code("given", cuMemPoolSetAccess(pool, &both, 1));
    say_code("taken from itself", cuMemPoolSetAccess(pool, &none, 1));
}

CASE(pools_runtime, SIM | RUNTIME) {
    void *theirs = NULL, *mine = own_pool(), *current = NULL, *at = NULL;
    uint64_t used = 0;
    NEED(cudaDeviceGetDefaultMemPool(&theirs, 0));
    say("the default one is the driver's: %s", yes(theirs == default_pool()));
    say_runtime("set", cudaDeviceSetMemPool(0, mine));
    NEED(cudaDeviceGetMemPool(&current, 0));
    say("current is mine: %s", yes(current == mine));
    say_runtime("cudaMallocAsync", cudaMallocAsync(&at, 4 * MiB, NULL));
    say_runtime("used", cudaMemPoolGetAttribute(mine, POOL_USED, &used));
    say("%llu", (unsigned long long)used);
    say_runtime("cudaFreeAsync", cudaFreeAsync(at, NULL));
    say_runtime("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync(&at, 4 * MiB, theirs, NULL));
    say_runtime("used", cudaMemPoolGetAttribute(theirs, POOL_USED, &used));
    say("%llu", (unsigned long long)used);
    say_runtime("cudaFree", cudaFree(at));
    say_runtime("trim", cudaMemPoolTrimTo(theirs, 0));
    say_runtime("last", cudaGetLastError());
}

CASE(pools_runtime_own, SIM | RUNTIME) {
    void *mine = own_pool(), *at = NULL;
    say_runtime("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync(&at, 4 * MiB, mine, NULL));
    CUmemoryPool of = NULL;
    NEED(cuPointerGetAttribute(&of, POINTER_MEMPOOL, (CUdeviceptr)at));
    say("memory is of mine: %s", yes(of == mine));
    say_runtime("cudaFreeAsync", cudaFreeAsync(at, NULL));
    say_runtime("destroyed", cudaMemPoolDestroy(mine));
    say_runtime("cudaMallocFromPoolAsync of no pool", cudaMallocFromPoolAsync(&at, 4 * MiB, NULL, NULL));
    say_runtime("last", cudaGetLastError());
}
