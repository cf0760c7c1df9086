/* Frees beside a kernel of a second, on a stream that knows nothing of the memory. */
#include "../support/cuda.h"

CUresult cuSimLaunch(CUstream, const void *, unsigned, double);
CUresult cuStreamQuery(CUstream);

int main(void) {
    CUdeviceptr at;
    CUstream stream;
    start_cuda();
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&at, MiB));
    OK(cuSimLaunch(stream, NULL, 0, 1e6));
    OK(cuMemFree_v2(at));
    puts(cuStreamQuery(stream) == SUCCESS ? "waited" : "at once");
    return 0;
}
