/* A release of the primary context that is not its last one, and a retain, wait for no free of
 * another thread's: what that waits for may only end behind them. */
#include "answers.h"
#include <semaphore.h>

static sem_t at_moment, other_is_done;
static CUcontext primary;
static CUdeviceptr at;
static __thread int frees;

void answered(const char *call) { (void)call; }

void asked(const char *call) {
    if (!frees || strcmp(call, "cuEventSynchronize") != 0) return;
    frees = 0;
    sem_post(&at_moment);
    sem_wait(&other_is_done);
}

static void *first(void *unused) {
    OK(cuCtxSetCurrent(primary));
    frees = 1;
    OK(cuMemFree_v2(at));
    CHECK(!frees);
    return unused;
}

typedef CUresult releases(CUdevice);

/* The context, which is retained twice, ends with the second release. */
static void ends_with(releases *release_first) {
    OK(cuMemAlloc_v2(&at, 4 * MiB));
    OK(release_first(0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK(cuDevicePrimaryCtxRelease_v2(0) != SUCCESS);
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    CHECK(cuMemFree_v2(at) != SUCCESS);
}

int main(void) {
    pthread_t thread;
    CUcontext again;
    alarm(60);
    OK(cuInit(0));
    CHECK(sem_init(&at_moment, 0, 0) == 0 && sem_init(&other_is_done, 0, 0) == 0);
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    OK(cuMemAlloc_v2(&at, 4 * MiB));
    CHECK(pthread_create(&thread, NULL, first, NULL) == 0);
    sem_wait(&at_moment);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(again == primary);
    sem_post(&other_is_done);
    CHECK(pthread_join(thread, NULL) == 0);
    ends_with(cuDevicePrimaryCtxRelease_v2);
    /* Also where the one before comes to no hook. */
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    void *behind = dlopen("libsimulated.so", RTLD_NOW | RTLD_NOLOAD);
    CHECK(behind != NULL);
    ends_with((releases *)dlsym(behind, "cuDevicePrimaryCtxRelease_v2"));
    return 0;
}
