/* Memory pools: made, ended, made current, asked, told, opened to devices. */
#include "calls.h"

/* One that is alive, or now and then one that died just now; else the first device's own. */
static int some_pool(void) {
    int p = chance(45) ? any_device() : (int)pick(POOLS);
    int may_be_asked = pools[p].alive || (!legal && pools[p].died == births && pools[p].pool);
    return may_be_asked ? p : 0;
}

static void say_pool(int p) { say(" p%d%s", p, mark(pools[p].alive)); }

static void make(void) {
    int p = 2 + (int)pick(POOLS - 2), d = mostly(any_device(), 9, 7);
    CUmemPoolProps wanted = {.allocType = mostly(1, 0, 5), .handleTypes = chance(20), .location = {1, d},
        .maxSize = chance(20) ? (size_t)16 << 20 : 0};
    CUmemoryPool made = NULL;
    if (pools[p].alive) return;
    int code = cuMemPoolCreate(&made, &wanted);
    say(" p%d on d%d max %zu=%d", p, d, wanted.maxSize, code);
    for (int i = 2; i < POOLS; i++)
        if (!pools[i].alive) pools[i].died = 0;
    if (!code) pools[p] = (Pool){made, d, 1, 0};
}

static void end(void) {
    int p = some_pool(), none = mostly(0, 1, 5);
    if (legal && p < 2) return;
    int code = cuMemPoolDestroy(none ? NULL : pools[p].pool);
    say_pool(p);
    say_code(none ? "none" : "destroy", code);
    if (!code && !none && pools[p].alive) pools[p].alive = 0, pools[p].died = births;
}

static void current(void) {
    int d = mostly(any_device(), 9, 5), p = some_pool(), way = (int)pick(10), runtimes = chance(50);
    CUmemoryPool found = NULL;
    if (way < 5) {
        int code = runtimes ? cudaDeviceGetMemPool((void **)&found, d) : cuDeviceGetMemPool(&found, d);
        say(" d%d is=%d", d, code);
        say_memory_pool(found);
        return;
    }
    if (way == 5 && !legal) {
        say(" d%d set none=%d", d, cuDeviceSetMemPool(d, NULL));
        return;
    }
    if (small) return;
    if (legal) d = pools[p].device;
    say_pool(p);
    say(" d%d set=%d", d, runtimes ? cudaDeviceSetMemPool(d, pools[p].pool) : cuDeviceSetMemPool(d, pools[p].pool));
}

/* What is reserved, and how much of it now and at most, are the pool's own. The driver counts for ever what was freed
 * out of order. */
static int is_pools_own(int attribute) {
    enum { RESERVED = 5, MOST_RESERVED = 6, USED = 7, MOST_USED = 8 };
    return attribute == RESERVED || attribute == MOST_RESERVED || attribute == MOST_USED || (attribute == USED && (guarded || (uncounted && !alone)));
}

static void attribute(void) {
    static const int unknown[] = {0, 9, 99};
    enum { LAST_FLAG = 3 };
    const uint64_t untouched = 0xeeeeeeeeeeeeeeee;
    int p = some_pool(), which = mostly(1 + (int)pick(8), unknown[pick(3)], 8), runtimes = chance(40), code;
    uint64_t value = untouched;
    say_pool(p);
    say(" attribute %d", which);
    if (chance(60)) {
        if (runtimes) code = cudaMemPoolGetAttribute(pools[p].pool, which, &value);
        else code = cuMemPoolGetAttribute(pools[p].pool, which, &value);
        say_code("get", code);
        if (is_pools_own(which)) say(" %s", value == untouched ? "untouched" : "written");
        else say(" %llx", (unsigned long long)value);
        return;
    }
    value = which <= LAST_FLAG ? pick(2) : chance(70) ? 0 : pick(1 << 30);
    say(" %llu", (unsigned long long)value);
    if (runtimes) code = cudaMemPoolSetAttribute(pools[p].pool, which, &value);
    else code = cuMemPoolSetAttribute(pools[p].pool, which, &value);
    say_code("set", code);
}

static void trim(void) {
    int p = some_pool(), none = mostly(0, 1, 5), runtimes = chance(40);
    size_t keep = chance(60) ? 0 : (size_t)pick(1 << 27);
    CUmemoryPool pool = none ? NULL : pools[p].pool;
    say_pool(p);
    say_code(none ? "none" : "trim", runtimes ? cudaMemPoolTrimTo(pool, keep) : cuMemPoolTrimTo(pool, keep));
}

static void rights(void) {
    int p = some_pool(), d = mostly(any_device(), 9, 7), kind = mostly(1, 0, 5), wanted_rights = mostly(3, (int)pick(2), 50);
    CUmemAccessDesc wanted = {{kind, d}, wanted_rights};
    CUmemLocation place = {1, d};
    size_t count = (size_t)mostly(1, 0, 5);
    int found = 77;
    say_pool(p);
    say(" d%d", d);
    if (chance(50)) {
        say_code("get", cuMemPoolGetAccess(&found, pools[p].pool, &place));
        say(" %d", found);
    } else if (!any_capturing()) {
        settle_all();
        opened = 1;
        say(" set %zu of %d/%d=%d", count, kind, wanted_rights, cuMemPoolSetAccess(pools[p].pool, &wanted, count));
    }
}

const Op pool_ops[] = {{"pool_make", 8, make}, {"pool_end", 6, end}, {"pool_current", 10, current},
    {"pool_attribute", 25, attribute}, {"pool_trim", 10, trim}, {"pool_rights", 8, rights}, {0}};
