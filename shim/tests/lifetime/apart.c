/* The end of a context, which the driver makes for as long as work of it runs, holds up
 * nobody: other contexts begin, are used and end meanwhile, and that work may wait for it. */
#include "answers.h"
#include <semaphore.h>

static sem_t at_moment, other_is_done;
static __thread int ends;

void answered(const char *call) { (void)call; }

void asked(const char *call) {
    if (!ends || strcmp(call, "cuCtxDestroy_v2") != 0) return;
    ends = 0;
    sem_post(&at_moment);
    sem_wait(&other_is_done);
}

static void *first(void *unused) {
    CUcontext context;
    CUdeviceptr at;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuMemAlloc_v2(&at, 4 * MiB));
    ends = 1;
    SAY(cuCtxDestroy_v2(context));
    return unused;
}

int main(void) {
    pthread_t thread;
    CUcontext primary, own;
    CUdeviceptr at;
    alarm(60);
    OK(cuInit(0));
    CHECK(sem_init(&at_moment, 0, 0) == 0 && sem_init(&other_is_done, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, first, NULL) == 0);
    sem_wait(&at_moment);
    SAY(cuDevicePrimaryCtxRetain(&primary, 0));
    SAY(cuCtxSetCurrent(primary));
    SAY(cuMemAlloc_v2(&at, 4 * MiB));
    SAY(cuMemFree_v2(at));
    SAY(cuCtxCreate_v2(&own, 0, 0));
    SAY(cuMemAlloc_v2(&at, 4 * MiB));
    fill(at, 4 * MiB, 7);
    printf("whole %d\n", holds(at, 4 * MiB, 7));
    SAY(cuCtxDestroy_v2(own));
    SAY(cuDevicePrimaryCtxRelease_v2(0));
    sem_post(&other_is_done);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
