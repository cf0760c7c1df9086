/* A process that exports memory of one context, and frees it while a thread ends another one, which
 * the pool knew first: as soon as memory is being unmapped, as the driver says. Each line that it
 * hears is the next step; the first one is answered with the handle. */
#include "../support/cuda.h"
#include <pthread.h>
#include <unistd.h>

CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
__attribute__((weak)) int is_unmapping(void);

static CUcontext other, own;

static void *end_other(void *given) {
    for (int i = 0; i < 5000 && !is_unmapping(); i++) usleep(1000);
    OK(cuCtxDestroy_v2(other));
    return given;
}

static void heard(void) {
    char line[16];
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

int main(void) {
    CUdeviceptr first, at;
    unsigned char handle[64];
    pthread_t thread;
    setvbuf(stdout, NULL, _IOLBF, 0);
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuMemAlloc_v2(&first, 4 * MiB));
    OK(cuCtxCreate_v2(&own, 0, 0));
    OK(cuMemAlloc_v2(&at, 64 * MiB));
    printf("ready\n");
    heard();
    OK(cuIpcGetMemHandle(handle, at));
    printf("0 ");
    for (size_t i = 0; i < sizeof handle; i++) printf("%02x", handle[i]);
    printf("\n");
    heard();
    OK(pthread_create(&thread, NULL, end_other, NULL));
    OK(cuMemFree_v2(at));
    OK(pthread_join(thread, NULL));
    printf("0\n");
    return 0;
}
