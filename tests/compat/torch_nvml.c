/* A libnvidia-ml.so.1 with what torch's allocator asks of the management library: a device
 * that has no fabric, as one since Hopper says it, or as one before (-DBEFORE_HOPPER), or
 * that is on one (-DFABRIC). Nobody's processes are known. Knows nothing else. */
enum { SUCCESS = 0, NOT_SUPPORTED = 3 };

int nvmlInit_v2(void) { return SUCCESS; }

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 13000;
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
    static int only;
    (void)id;
    *device = &only;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *into) {
    (void)device, (void)into;
    *count = 0;
    return SUCCESS;
}

struct fabric {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
};
enum { COMPLETED = 3 };

/* Where there is none what it is told stays as it was: torch has said there that there is none. */
int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric *into) {
    (void)device, (void)into;
#ifdef BEFORE_HOPPER
    return NOT_SUPPORTED;
#endif
#ifdef FABRIC
    into->clique = 5;
    into->state = COMPLETED;
#endif
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return NOT_SUPPORTED; }
