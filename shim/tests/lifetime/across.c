/* Memory of one device that is freed in the order of another one's stream, which ends with work
 * queued; another stream gets its handle. */
#include "answers.h"

enum { BYTES = 32 * MiB, SECOND = 1000000 };

struct place { CUcontext context; CUstream stream; };

static struct place place(CUdevice device) {
    struct place of;
    OK(cuDevicePrimaryCtxRetain(&of.context, device));
    OK(cuCtxSetCurrent(of.context));
    OK(cuStreamCreate(&of.stream, 1));
    return of;
}

static void works(CUstream stream, CUdeviceptr at) {
    struct range range = {at, BYTES, 1};
    OK(cuSimLaunch(stream, &range, 1, SECOND));
}

int main(void) {
    CUdeviceptr at = 0, next = 0;
    CUstream fresh = NULL;
    OK(cuInit(0));
    struct place one = place(0), other = place(1);
    OK(cuMemAlloc_v2(&at, BYTES));
    OK(cuCtxSetCurrent(one.context));
    OK(cuMemAlloc_v2(&next, BYTES));
    OK(cuMemFree_v2(next));
    OK(cuCtxEnablePeerAccess(other.context, 0));
    works(one.stream, at);
    SAY(cuMemFreeAsync(at, one.stream));
    SAY(cuStreamDestroy_v2(one.stream));
    OK(cuStreamCreate(&fresh, 1));
    printf("its handle: %d\n", fresh == one.stream);
    OK(cuCtxSetCurrent(other.context));
    for (int i = 0; i < 2; i++) {
        SAY(cuMemAlloc_v2(&next, BYTES));
        works(other.stream, next);
    }
    SAY(cuCtxSynchronize());
    return 0;
}
