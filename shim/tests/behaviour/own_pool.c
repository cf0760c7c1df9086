/* While a memory pool of the program's own is the current one, stream-ordered memory is the
 * driver's; once that was destroyed, the default one is current, and it is ours again. */
#include "../support/cuda.h"

struct properties { int kind, handle_types, location, device; char rest[72]; };
CUresult cuMemPoolDestroy(CUmemoryPool);

static int comes_from_the_pool(CUstream stream) {
    CUdeviceptr at;
    OK(cuMemAllocAsync(&at, 4 * MiB, stream));
    int pooled = is_pooled(at);
    OK(cuMemFreeAsync(at, stream));
    return pooled;
}

int main(void) {
    struct properties on_device = {.kind = 1, .location = 1};
    CUmemoryPool own;
    CUstream stream;
    start_cuda();
    OK(cuStreamCreate(&stream, 1));
    CHECK(comes_from_the_pool(stream));
    OK(cuMemPoolCreate(&own, &on_device));
    OK(cuDeviceSetMemPool(0, own));
    CHECK(!comes_from_the_pool(stream));
    OK(cuMemPoolDestroy(own));
    CHECK(comes_from_the_pool(stream));
    return 0;
}
