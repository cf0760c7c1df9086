/* A version on a stream and one on the host, begun at once by two threads, again and again:
 * how often the newest was not the larger of the two in the end. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../../include/memcuda.h"

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);

enum { TIMES = 30000 };
static void *context;
static memcuda_handle handle;
static atomic_int begun, done;
static uint64_t on_host;

static void *host(void *nothing) {
    cuCtxSetCurrent(context);
    for (int time = 1; time <= TIMES; time++) {
        while (atomic_load(&begun) < time)
            continue;
        /* It may be refused: the stream's is to come. */
        if (memcuda_publish(handle, 0, &on_host) != MEMCUDA_OK) on_host = 0;
        atomic_store(&done, time);
    }
    return nothing;
}

int main(void) {
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    memcuda_options options = MEMCUDA_OPTIONS;
    options.bytes = 4096;
    if (memcuda_create("raced", &options, &handle) != MEMCUDA_OK) return 2;
    pthread_t thread;
    if (pthread_create(&thread, NULL, host, NULL)) return 3;
    int wrong = 0, failed = 0;
    for (int time = 1; time <= TIMES; time++) {
        uint64_t on_stream = 0;
        atomic_store(&begun, time);
        for (volatile int pause = rand() % 400; pause > 0; pause--)
            continue;
        failed += memcuda_publish_on(handle, 0, NULL, &on_stream) != MEMCUDA_OK;
        while (atomic_load(&done) < time)
            continue;
        cuCtxSynchronize();
        memcuda_info info = {.size = sizeof info};
        memcuda_describe(handle, &info);
        wrong += info.version != (on_stream > on_host ? on_stream : on_host);
    }
    pthread_join(thread, NULL);
    printf("%d wrong, %d failed\n", wrong, failed);
    return 0;
}
