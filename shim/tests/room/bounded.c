/* Calls that are out of memory while two devices have idle memory, some of it still in use by work:
 * nothing of it would help.
 *
 *   bounded limited     a memory pool of the program's that is at its limit
 *   bounded current     the same as the current pool
 *   bounded host        a memory pool that lies in host memory
 *   bounded "too much"  more than a device has
 */
#include "../support/cuda.h"

struct place { int kind, device; };
struct pool_properties { int kind, handle_types; struct place location; void *security; size_t limit; char rest[56]; };
struct properties { int kind, handle_types; struct place location; void *windows; unsigned char flags[8]; };
struct range { CUdeviceptr base; size_t bytes; uint32_t write; };

CUresult cuMemCreate(unsigned long long *, size_t, const struct properties *, unsigned long long);
CUresult cuMemPoolDestroy(CUmemoryPool);
CUresult cuSimPhysical(int, uint64_t *);
CUresult cuSimLaunch(CUstream, const void *, unsigned, double us);
uint64_t cuSimClock(void);

enum { ON_DEVICE = 1, ON_HOST = 2 };
static const size_t LIMIT = 64 * MiB, TOO_MUCH = 64ull << 30;
static CUstream stream;

/* Idle memory on both devices; of the first one's a part is used by work of ten seconds. */
static void fill(void) {
    for (int device = 1; device >= 0; device--) {
        CUcontext context;
        CUdeviceptr at, used;
        OK(cuDevicePrimaryCtxRetain(&context, device));
        OK(cuCtxSetCurrent(context));
        OK(cuStreamCreate(&stream, 1));
        OK(cuMemAlloc_v2(&at, 512 * MiB));
        OK(cuMemAllocAsync(&used, 64 * MiB, stream));
        OK(cuMemFree_v2(at));
        struct range range = {used, 64 * MiB, 1};
        OK(cuSimLaunch(stream, &range, 1, 1e7));
        OK(cuMemFreeAsync(used, stream));
    }
    OK(cuStreamCreate(&stream, 1));
}

static uint64_t physical(void) {
    uint64_t first, second;
    OK(cuSimPhysical(0, &first));
    OK(cuSimPhysical(1, &second));
    return first + second;
}

/* Out of memory, without anything else. */
#define REFUSED(call)                              \
    do {                                           \
        uint64_t held = physical();                \
        uint64_t began = cuSimClock();             \
        IS(OUT_OF_MEMORY, call);                   \
        CHECK(physical() == held);                 \
        CHECK(cuSimClock() - began < 100000000);   \
    } while (0)

static CUmemoryPool pool(int kind, size_t limit) {
    struct pool_properties properties = {.kind = 1, .location = {kind, 0}, .limit = limit};
    CUmemoryPool made;
    OK(cuMemPoolCreate(&made, &properties));
    return made;
}

static void limited(void) {
    CUmemoryPool own = pool(ON_DEVICE, LIMIT);
    CUdeviceptr first, second;
    REFUSED(cuMemAllocFromPoolAsync(&first, LIMIT + 2 * MiB, own, stream));
    OK(cuMemAllocFromPoolAsync(&first, LIMIT / 2, own, stream));
    REFUSED(cuMemAllocFromPoolAsync(&second, LIMIT / 2 + MiB, own, stream));
    OK(cuMemAllocFromPoolAsync(&second, LIMIT / 2, own, stream));
    REFUSED(cuMemAllocFromPoolAsync(&first, MiB, own, stream));
}

static void current(void) {
    CUmemoryPool own = pool(ON_DEVICE, LIMIT);
    CUdeviceptr at;
    OK(cuDeviceSetMemPool(0, own));
    REFUSED(cuMemAllocAsync(&at, LIMIT + 2 * MiB, stream));
    OK(cuMemAllocAsync(&at, LIMIT, stream));
    REFUSED(cuMemAllocAsync(&at, MiB, stream));
}

static void host(void) {
    CUmemoryPool own = pool(ON_HOST, 0);
    CUdeviceptr at;
    REFUSED(cuMemAllocFromPoolAsync(&at, MiB, own, stream));
}

static void too_much(void) {
    struct properties properties = {.kind = 1, .location = {ON_DEVICE, 0}};
    CUmemoryPool own = pool(ON_DEVICE, 0);
    unsigned long long handle;
    CUdeviceptr at;
    REFUSED(cuMemCreate(&handle, TOO_MUCH, &properties, 0));
    REFUSED(cuMemAllocFromPoolAsync(&at, TOO_MUCH, own, stream));
    OK(cuDeviceSetMemPool(0, own));
    REFUSED(cuMemAllocAsync(&at, TOO_MUCH, stream));
}

int main(int count, char **words) {
    CHECK(count > 1);
    OK(cuInit(0));
    fill();
    if (strcmp(words[1], "limited") == 0) limited();
    else if (strcmp(words[1], "current") == 0) current();
    else if (strcmp(words[1], "host") == 0) host();
    else if (strcmp(words[1], "too much") == 0) too_much();
    else return 2;
    return 0;
}
