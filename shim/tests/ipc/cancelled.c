/* A thread that is cancelled has memory exported. */
#include "../support/cancelled.h"

static void exports(void *context) {
    CUdeviceptr at;
    char handle[64];
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&at, 4 * MiB));
    OK(cuIpcGetMemHandle(handle, at));
    OK(cuMemFree_v2(at));
}

int main(void) {
    CUcontext context;
    start_cuda();
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    run_cancelled(exports, context);
    /* Nothing is left locked. */
    exports(context);
    return 0;
}
