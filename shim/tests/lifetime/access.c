/* Access between all devices: given to memory that is there and memory that
 * comes, taken away again, given once more. With an argument the last kernel
 * has no access, which ends the program. */
#include "answers.h"

enum { DEVICES = 8, LARGE = 40 * MiB };
static CUcontext contexts[DEVICES];
static int devices;

static void touch(int from, CUdeviceptr at, size_t bytes) {
    struct range range = {at, bytes, 1};
    OK(cuCtxSetCurrent(contexts[from]));
    OK(cuSimLaunch(NULL, &range, 1, 5.0));
    OK(cuCtxSynchronize());
}

static CUdeviceptr allocate(int on, size_t bytes) {
    CUdeviceptr at = 0;
    OK(cuCtxSetCurrent(contexts[on]));
    OK(cuMemAlloc_v2(&at, bytes));
    return at;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    OK(cuInit(0));
    OK(cuDeviceGetCount(&devices));
    for (int i = 0; i < devices; i++) OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
    CUdeviceptr before = allocate(0, LARGE), small = allocate(0, 3000);
    for (int round = 0; round < 3; round++) {
        for (int i = 1; i < devices; i++) {
            OK(cuCtxSetCurrent(contexts[i]));
            SAY(cuCtxEnablePeerAccess(contexts[0], 0));
            SAY(cuCtxEnablePeerAccess(contexts[0], 0));
            touch(i, before, LARGE);
            touch(i, small, 3000);
            CUdeviceptr after = allocate(0, LARGE + round * MiB), own = allocate(i, LARGE);
            touch(i, after, LARGE);
            OK(cuCtxSetCurrent(contexts[0]));
            fill(after, LARGE, 7 + i);
            OK(cuCtxSynchronize());
            OK(cuCtxSetCurrent(contexts[i]));
            SAY(cuMemcpyPeer(own, contexts[i], after, contexts[0], LARGE));
            OK(cuCtxSynchronize());
            printf("copied: %d\n", holds(own, LARGE, 7 + i));
            OK(cuMemFree_v2(own));
            OK(cuMemFree_v2(after));
        }
        for (int i = 1; i < devices; i++) {
            OK(cuCtxSetCurrent(contexts[i]));
            /* Work of this device is under way while it loses its access. */
            struct range range = {before, LARGE, 0};
            OK(cuSimLaunch(NULL, &range, 1, 500.0));
            OK(cuCtxSynchronize());
            SAY(cuCtxDisablePeerAccess(contexts[0]));
            SAY(cuCtxDisablePeerAccess(contexts[0]));
        }
    }
    /* A context that ends, and one of another device, which may get its handle. */
    for (int i = 0; i < devices; i++) {
        CUcontext other;
        CUdeviceptr at = 0;
        int device = -1;
        OK(cuCtxCreate_v2(&other, 0, i));
        OK(cuMemAlloc_v2(&at, LARGE));
        SAY(cuPointerGetAttribute(&device, 9, at));
        printf("on device %d\n", device);
        OK(cuCtxDestroy_v2(other));
    }
    if (!strcmp(how, "after-disable")) touch(1, before, LARGE);
    if (!strcmp(how, "after-destroy")) {
        CUcontext other;
        OK(cuCtxCreate_v2(&other, 0, 1));
        OK(cuCtxEnablePeerAccess(contexts[0], 0));
        struct range range = {before, LARGE, 1};
        OK(cuSimLaunch(NULL, &range, 1, 5.0));
        OK(cuCtxSynchronize());
        OK(cuCtxDestroy_v2(other));
        touch(1, before, LARGE);
    }
    return 0;
}
