/* A context ends on one thread while it, or another one, begins on a second: at the worst
 * moment, which is behind a call of the driver's that this process makes. */
#include "answers.h"
#include <semaphore.h>
#include <time.h>

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned);

static sem_t at_moment, other_is_done;
/* Behind which of these calls the thread that is armed waits for the other one; that may
 * be kept from its call until this thread is done, so it is not waited for for long. */
static __thread const char *moment;
static __thread int which;

void answered(const char *call) {
    if (moment == NULL || strcmp(call, moment) != 0 || --which > 0) return;
    struct timespec until;
    moment = NULL;
    sem_post(&at_moment);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    sem_timedwait(&other_is_done, &until);
}

/* Without the library there may have been no such call. */
static void moment_is_over(void) {
    which = 0;
    if (moment != NULL) answered(moment);
}

static CUcontext begins(int primary) {
    CUcontext context = NULL;
    if (primary) OK(cuDevicePrimaryCtxRetain(&context, 0));
    else OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

static const char *way;
static CUdeviceptr old_memory;

/* Uses a context and ends it. */
static void *first(void *argument) {
    int primary = strcmp(way, "destroy") != 0;
    CUcontext context = begins(primary);
    CUstream stream;
    CUdeviceptr pooled;
    OK(cuMemAlloc_v2(&old_memory, 4 * MiB));
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAllocAsync(&pooled, 8 * MiB, stream));
    OK(cuMemFreeAsync(pooled, stream));
    OK(cuCtxSetCurrent(NULL));
    which = 1;
    moment = "cuDevicePrimaryCtxRelease_v2";
    if (strcmp(way, "asked") == 0) moment = "cuDevicePrimaryCtxGetState", which = 2;
    if (primary) SAY(cuDevicePrimaryCtxRelease_v2(0));
    else moment = "cuCtxDestroy_v2", SAY(cuCtxDestroy_v2(context));
    moment_is_over();
    (void)argument;
    return NULL;
}

/* One thread ends a context while another one begins one. */
static void begun(void) {
    pthread_t thread;
    CUdeviceptr at, more, pooled;
    CUstream stream;
    CHECK(pthread_create(&thread, NULL, first, NULL) == 0);
    sem_wait(&at_moment);
    begins(strcmp(way, "destroy") != 0);
    OK(cuMemAlloc_v2(&at, 4 * MiB));
    fill(at, 4 * MiB, 7);
    sem_post(&other_is_done);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(cuMemAlloc_v2(&more, 4 * MiB));
    printf("apart %d\n", at != more);
    OK(cuMemsetD32_v2(more, 9, MiB));
    printf("whole %d\n", holds(at, 4 * MiB, 7));
    OK(cuStreamCreate(&stream, 1));
    SAY(cuMemAllocAsync(&pooled, 8 * MiB, stream));
    SAY(cuMemFreeAsync(pooled, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemFree_v2(more));
    SAY(cuMemFree_v2(at));
    size_t free_bytes, total;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("%zu MiB free\n", free_bytes / MiB);
}

static void *last_user(void *argument) {
    (void)argument;
    sem_wait(&at_moment);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    sem_post(&other_is_done);
    return NULL;
}

/* The library asks for the primary context while its last user gives it up. */
static void flags(void) {
    pthread_t thread;
    unsigned synchronous = 1;
    CUdeviceptr at;
    begins(1);
    OK(cuMemAlloc_v2(&at, 4 * MiB));
    OK(cuPointerSetAttribute(&synchronous, 6, at));
    OK(cuCtxSetCurrent(NULL));
    CHECK(pthread_create(&thread, NULL, last_user, NULL) == 0);
    which = 1;
    moment = "cuDevicePrimaryCtxRetain";
    SAY(cuDevicePrimaryCtxSetFlags_v2(0, 0));
    moment_is_over();
    CHECK(pthread_join(thread, NULL) == 0);
    begins(1);
    SAY(cuPointerGetAttribute(&synchronous, 6, at));
    SAY(cuMemFree_v2(at));
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    way = arguments[1];
    OK(cuInit(0));
    sem_init(&at_moment, 0, 0);
    sem_init(&other_is_done, 0, 0);
    if (strcmp(way, "flags") == 0) flags();
    else begun();
    return 0;
}
