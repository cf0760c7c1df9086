/* The handle of a stream that ends with its context comes back in another context while the
 * driver's call that ends the first is not done yet: work and memory there are the second
 * context's. */
#include "answers.h"
#include <semaphore.h>

static sem_t went_over, at_moment, used, ended;
static CUcontext first, second;
static __thread int ends;

void answered(const char *call) {
    if (!ends || strcmp(call, "cuCtxDestroy_v2") != 0) return;
    ends = 0;
    sem_post(&at_moment);
    sem_wait(&used);
}

static void work(CUdeviceptr at, CUstream stream, double us) {
    struct range all = {at, 8 * MiB, 1};
    SAY(cuSimLaunch(stream, &all, 1, us));
}

static void *goes_over(void *unused) {
    CUstream stream, again, other;
    CUdeviceptr at;
    OK(cuCtxSetCurrent(first));
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAllocAsync(&at, MiB, stream));
    OK(cuMemFreeAsync(at, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuCtxSetCurrent(second));
    sem_post(&went_over);
    sem_wait(&at_moment);
    OK(cuStreamCreate(&again, 1));
    CHECK(again == stream);
    SAY(cuMemAllocAsync(&at, 8 * MiB, again));
    work(at, again, 100000);
    SAY(cuMemFreeAsync(at, again));
    sem_post(&used);
    sem_wait(&ended);
    OK(cuStreamCreate(&other, 1));
    SAY(cuMemAllocAsync(&at, 8 * MiB, other));
    work(at, other, 1);
    SAY(cuCtxSynchronize());
    return unused;
}

int main(void) {
    pthread_t thread;
    sem_init(&went_over, 0, 0), sem_init(&at_moment, 0, 0), sem_init(&used, 0, 0), sem_init(&ended, 0, 0);
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&second, 0, 0));
    OK(cuCtxCreate_v2(&first, 0, 0));
    CHECK(pthread_create(&thread, NULL, goes_over, NULL) == 0);
    sem_wait(&went_over);
    ends = 1;
    SAY(cuCtxDestroy_v2(first));
    sem_post(&ended);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
