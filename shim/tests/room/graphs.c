/* A graph takes memory on the devices of its nodes, wherever it is made or launched: what the
 * pools of other devices keep idle goes back for it, once there is none on this one. */
#include "../support/cuda.h"

CUresult cuGraphInstantiateWithFlags(void **, CUgraph, unsigned long long);
CUresult cuGraphLaunch(void *, CUstream);

int main(void) {
    CUcontext context, other;
    CUstream stream;
    CUdeviceptr idle;
    CUgraph graph;
    void *executable;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamBeginCapture_v2(stream, 2));
    OK(cuStreamEndCapture(stream, &graph));
    for (int call = 0; call < 2; call++) {
        OK(cuCtxSetCurrent(other));
        OK(cuMemAlloc_v2(&idle, 64 * MiB));
        OK(cuMemFree_v2(idle));
        OK(cuCtxSetCurrent(context));
        if (call == 0) OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
        else OK(cuGraphLaunch(executable, stream));
    }
    OK(cuStreamSynchronize(stream));
    return 0;
}
