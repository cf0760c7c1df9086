/* Beside a capture, by a thread whose current context another one has ended: whether the capture
 * forbids an allocation or a free is told all the same. */
#include "answers.h"

static void *ends(void *context) {
    OK(cuCtxDestroy_v2((CUcontext)context));
    return NULL;
}

int main(void) {
    CUcontext primary, other;
    CUstream captures, serves;
    CUdeviceptr at, next = 0;
    CUgraph graph;
    pthread_t thread;
    start_cuda();
    OK(cuCtxGetCurrent(&primary));
    OK(cuStreamCreate(&captures, 1));
    OK(cuStreamCreate(&serves, 1));
    OK(cuMemAllocAsync(&at, 4 * MiB, serves));
    OK(cuStreamSynchronize(serves));
    for (int way = 0; way < 3; way++) {
        OK(cuCtxCreate_v2(&other, 0, 0));
        OK(pthread_create(&thread, NULL, ends, other));
        OK(pthread_join(thread, NULL));
        SAY(cuStreamBeginCapture_v2(captures, 0));
        if (way == 0) SAY(cuMemAllocAsync(&next, 4 * MiB, serves));
        if (way == 1) SAY(cuMemFreeAsync(at, serves));
        if (way == 2) SAY(cuMemFree_v2(at));
        SAY(cuStreamEndCapture(captures, &graph));
        OK(cuCtxSetCurrent(primary));
    }
    OK(cuMemFreeAsync(at, serves));
    OK(cuStreamSynchronize(serves));
    return 0;
}
