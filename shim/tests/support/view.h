/* A green context, a view of the primary one of device 0: the current context from its
 * beginning to its end. */
CUresult cuDeviceGetDevResource(CUdevice, void *, int);
CUresult cuDevResourceGenerateDesc(void **, const void *, unsigned);
CUresult cuGreenCtxCreate(void **, void *, CUdevice, unsigned);
CUresult cuGreenCtxDestroy(void *);
CUresult cuCtxFromGreenCtx(CUcontext *, void *);

static void *green;

static int view_begins(void) {
    long long resource[32];
    void *description = NULL;
    CUcontext context = NULL;
    OK(cuDeviceGetDevResource(0, resource, 1));
    OK(cuDevResourceGenerateDesc(&description, resource, 1));
    OK(cuGreenCtxCreate(&green, description, 0, 1));
    OK(cuCtxFromGreenCtx(&context, green));
    return cuCtxSetCurrent(context);
}

static int view_ends(void) {
    CUcontext primary = NULL;
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    return cuGreenCtxDestroy(green);
}
