/* Which memory pool is the current one is known, though another thread was told of the one before
 * it, and notes that only later. */
#include "answers.h"
#include <semaphore.h>
#include <time.h>

struct properties { int kind, handle_types, location, device; char rest[72]; };
CUresult cuMemPoolDestroy(CUmemoryPool);

static sem_t told, set;
static __thread int waits;

void answered(const char *call) {
    struct timespec until;
    if (!waits || strcmp(call, "cuDeviceGetMemPool") != 0) return;
    waits = 0;
    sem_post(&told);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    sem_timedwait(&set, &until);
}

static void *destroys(void *pool) {
    waits = 1;
    OK(cuMemPoolDestroy(pool));
    return NULL;
}

int main(void) {
    struct properties on_device = {.kind = 1, .location = 1};
    CUmemoryPool own, other;
    CUdeviceptr at;
    pthread_t thread;
    sem_init(&told, 0, 0);
    sem_init(&set, 0, 0);
    start_cuda();
    OK(cuMemAllocAsync(&at, 4 * MiB, NULL));
    CHECK(is_pooled(at));
    OK(cuMemPoolCreate(&own, &on_device));
    OK(cuMemPoolCreate(&other, &on_device));
    OK(pthread_create(&thread, NULL, destroys, other));
    sem_wait(&told);
    OK(cuDeviceSetMemPool(0, own));
    sem_post(&set);
    OK(pthread_join(thread, NULL));
    OK(cuMemAllocAsync(&at, 4 * MiB, NULL));
    CHECK(!is_pooled(at));
    return 0;
}
