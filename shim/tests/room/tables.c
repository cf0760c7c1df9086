/* Memory of one device that is open to another one takes page tables there. The driver keeps no
 * memory for them (MEMCUDA_SIM_LACKS=tables), and that device is full.
 *
 *   tables set     a memory pool is opened: what is idle there goes back for it
 *   tables grow    memory is new that is open at once: the same
 *   tables live    what is in use there stays, and out of memory is the answer
 *   tables copied  a copy in a capture opens it: the same
 *   tables lender  where it is the one that lends which is full, the other one keeps what it has
 */
#include "../support/cuda.h"

#define DEVICE (1024 * MiB)

struct access { int kind, device, flags; };

CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuMemPoolSetAccess(CUmemoryPool, const struct access *, size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuSimPhysical(int, uint64_t *);

static CUcontext lender, reader;

static uint64_t physical(int device) {
    uint64_t bytes;
    OK(cuSimPhysical(device, &bytes));
    return bytes;
}

/* The reader's device has nothing left afterwards; the lender is current. */
static CUdeviceptr fill(void) {
    CUdeviceptr all;
    OK(cuCtxSetCurrent(reader));
    OK(cuMemAlloc_v2(&all, DEVICE));
    OK(cuCtxSetCurrent(lender));
    CHECK(physical(1) == DEVICE);
    return all;
}

static void fill_idly(void) {
    OK(cuMemFree_v2(fill()));
    CHECK(physical(1) == DEVICE);
}

static void let_in(void) {
    OK(cuCtxSetCurrent(reader));
    OK(cuCtxEnablePeerAccess(lender, 0));
    OK(cuCtxSetCurrent(lender));
}

static CUresult open_pool(void) {
    struct access access = {.kind = 1, .device = 1, .flags = 3};
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    return cuMemPoolSetAccess(pool, &access, 1);
}

static void set(void) {
    CUdeviceptr at;
    OK(cuMemAllocAsync(&at, 4 * MiB, NULL));
    fill_idly();
    OK(open_pool());
    CHECK(physical(1) < DEVICE && physical(1) >= DEVICE / 2);
}

static void grow(void) {
    CUdeviceptr at;
    let_in();
    for (size_t bytes = 4096; bytes <= 64 * MiB; bytes *= 16384) {
        fill_idly();
        OK(cuMemAlloc_v2(&at, bytes));
        CHECK(physical(1) < DEVICE && physical(1) >= DEVICE / 2);
    }
    fill_idly();
    OK(cuMemAllocAsync(&at, 64 * MiB, NULL));
    CHECK(physical(1) < DEVICE && physical(1) >= DEVICE / 2);
}

static void live(void) {
    CUdeviceptr first, all, at;
    OK(cuMemAlloc_v2(&first, 4 * MiB));
    all = fill();
    IS(OUT_OF_MEMORY, open_pool());
    OK(cuMemFree_v2(all));
    OK(open_pool());
    all = fill();
    IS(OUT_OF_MEMORY, cuMemAlloc_v2(&at, 64 * MiB));
    CHECK(physical(1) == DEVICE);
    OK(cuMemFree_v2(all));
    OK(cuMemAlloc_v2(&at, 64 * MiB));
}

static void copied(void) {
    CUdeviceptr from, to;
    CUstream stream;
    CUgraph graph;
    OK(cuMemAlloc_v2(&from, 4 * MiB));
    OK(cuCtxSetCurrent(reader));
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&to, 4 * MiB));
    OK(cuMemFree_v2(to));
    fill_idly();
    OK(cuCtxSetCurrent(reader));
    OK(cuMemAlloc_v2(&to, 4 * MiB));
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(cuMemcpyAsync(to, from, 4 * MiB, stream));
    OK(cuStreamEndCapture(stream, &graph));
}

static void lends(void) {
    CUdeviceptr most, at;
    let_in();
    OK(cuMemAlloc_v2(&most, 1000 * MiB));
    fill_idly();
    IS(OUT_OF_MEMORY, cuMemAlloc_v2(&at, 64 * MiB));
    CHECK(physical(1) == DEVICE);
}

int main(int count, char **words) {
    CHECK(count > 1);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&lender, 0));
    OK(cuDevicePrimaryCtxRetain(&reader, 1));
    OK(cuCtxSetCurrent(lender));
    if (strcmp(words[1], "set") == 0) set();
    else if (strcmp(words[1], "grow") == 0) grow();
    else if (strcmp(words[1], "live") == 0) live();
    else if (strcmp(words[1], "copied") == 0) copied();
    else if (strcmp(words[1], "lender") == 0) lends();
    else CHECK(0);
    return 0;
}
