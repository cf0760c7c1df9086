/* The simulated driver, behind calls that tell the program when they are done, and one that
 * wants to know before they begin, on the thread that made them, be it the program's call or
 * the library's. */
#include "answers.h"

void answered(const char *call);
__attribute__((weak)) void asked(const char *call);
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *, int *);
CUresult cuEventSynchronize(void *);
CUresult cuDeviceGetMemPool(CUmemoryPool *, CUdevice);

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define TOLD(name, ...)                       \
    if (asked != NULL) asked(#name);          \
    CUresult code = NEXT(name)(__VA_ARGS__); \
    answered(#name);                          \
    return code

CUresult cuCtxDestroy_v2(CUcontext context) { TOLD(cuCtxDestroy_v2, context); }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { TOLD(cuDevicePrimaryCtxRetain, context, device); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { TOLD(cuDevicePrimaryCtxRelease_v2, device); }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    TOLD(cuDevicePrimaryCtxGetState, device, flags, active);
}
CUresult cuEventSynchronize(void *event) { TOLD(cuEventSynchronize, event); }
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) { TOLD(cuDeviceGetMemPool, pool, device); }
