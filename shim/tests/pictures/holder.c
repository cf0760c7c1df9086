/* Holds device memory, as it is told line by line, and answers each with one.
 * Ends at the end of its input.
 *
 *   alloc BYTES STREAM   -> code and address, of a stream-ordered allocation
 *   malloc BYTES         -> the same, of a plain one
 *   free                 -> code: the last one
 *   fail BYTES COUNT STEP -> how many of so many allocations, each STEP bytes
 *                           longer, were out of memory
 *   threads BYTES COUNT  -> the same, of so many threads at once
 *   churn COUNT          -> 0; so many threads allocate and free from now on
 */
#include "../support/cuda.h"
#include <pthread.h>
#include <unistd.h>

#ifdef LOCAL
/* glibc takes it out of the stack of every thread. */
__thread char local[LOCAL];
#endif

static CUcontext context;
static CUdeviceptr held[4096];
static int count;
static CUstream streams[4];
static pthread_barrier_t together;

static void answer(int code, CUdeviceptr *at) {
    if (code == 0) held[count++] = *at;
    printf("%d %#llx\n", code, *at);
}

static void *fail_once(void *bytes) {
    CUdeviceptr at;
    OK(cuCtxSetCurrent(context));
    pthread_barrier_wait(&together);
    return (void *)(size_t)(cuMemAlloc_v2(&at, (size_t)bytes) == OUT_OF_MEMORY);
}

static int threads(size_t bytes, int all) {
    pthread_t made[64];
    int failed = 0;
    pthread_barrier_init(&together, NULL, all);
    for (int i = 0; i < all; i++) CHECK(pthread_create(&made[i], NULL, fail_once, (void *)bytes) == 0);
    for (int i = 0; i < all; i++) {
        void *one;
        pthread_join(made[i], &one);
        failed += (size_t)one;
    }
    return failed;
}

/* Memory of many sizes, most of it for a moment. */
static void *churn_on(void *number) {
    enum { LIVE = 40 };
    CUdeviceptr live[LIVE] = {0};
    unsigned seed = (unsigned)(size_t)number;
    OK(cuCtxSetCurrent(context));
    for (;;) {
        CUdeviceptr *at = &live[rand_r(&seed) % LIVE];
        CUstream stream = streams[rand_r(&seed) % 4];
        size_t bytes = (size_t)1 << (9 + rand_r(&seed) % 13);
        if (*at) OK(cuMemFreeAsync(*at, stream));
        OK(cuMemAllocAsync(at, bytes + rand_r(&seed) % bytes, stream));
        if (rand_r(&seed) % 4 == 0) usleep(1000);
    }
    return NULL;
}

static int churn(size_t all) {
    pthread_t made;
    for (size_t i = 0; i < all; i++) CHECK(pthread_create(&made, NULL, churn_on, (void *)i) == 0);
    return 0;
}

int main(void) {
    char line[128];
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 4; i++) OK(cuStreamCreate(&streams[i], 1));
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long bytes = 0, number = 0, step = 0;
        CUdeviceptr at = 0;
        if (sscanf(line, "alloc %llu %llu", &bytes, &number) == 2) {
            answer(cuMemAllocAsync(&at, bytes, streams[number % 4]), &at);
        } else if (sscanf(line, "malloc %llu", &bytes) == 1) {
            answer(cuMemAlloc_v2(&at, bytes), &at);
        } else if (sscanf(line, "fail %llu %llu %llu", &bytes, &number, &step) == 3) {
            int failed = 0;
            for (unsigned long long i = 0; i < number; i++) {
                failed += cuMemAllocAsync(&at, bytes + i * step, streams[0]) == OUT_OF_MEMORY;
            }
            printf("%d\n", failed);
        } else if (sscanf(line, "threads %llu %llu", &bytes, &number) == 2) {
            printf("%d\n", threads(bytes, (int)number));
        } else if (sscanf(line, "churn %llu", &number) == 1) {
            printf("%d\n", churn(number));
        } else if (sscanf(line, "device %llu", &number) == 1) {
            CUcontext other;
            OK(cuDevicePrimaryCtxRetain(&other, (CUdevice)number));
            OK(cuCtxSetCurrent(other));
            puts("0");
        } else if (strcmp(line, "free\n") == 0 && count > 0) {
            printf("%d\n", cuMemFree_v2(held[--count]));
        } else {
            fprintf(stderr, "what is %s", line);
            return 1;
        }
    }
    return 0;
}
