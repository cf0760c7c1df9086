/* A device on which idle memory lies, where a call that the interface makes of the driver finds
 * no room at first: the primary context ("context"), or the stream of zeroed memory ("stream"). */
#include "../support/cuda.h"
#include "../../../include/memcuda.h"

CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxPopCurrent_v2(CUcontext *);

int main(int count, char **arguments) {
    CHECK(count == 2);
    int in_primary = !strcmp(arguments[1], "stream");
    CUcontext context;
    CUdeviceptr idle;
    OK(cuInit(0));
    if (in_primary) OK(cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context));
    else OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuMemAlloc_v2(&idle, 512 * MiB));
    OK(cuMemFree_v2(idle));
    if (!in_primary) OK(cuCtxPopCurrent_v2(&context));
    memcuda_handle handle;
    memcuda_options options = MEMCUDA_OPTIONS;
    options.bytes = 4096;
    options.flags = in_primary ? MEMCUDA_ZEROED : 0;
    int result = memcuda_create("w", &options, &handle);
    printf("%d %s\n", result, result ? memcuda_message() : "");
    return 0;
}
