/* The driver's own memory by one name, N times: by two threads at once that both may make it
 * (threads), or by a process that makes and closes it again and again (make) and one that wants
 * it meanwhile, whoever makes it (either), or as soon as it is there (open). How often a call
 * failed, and how often it did not. */
#include "../support/cuda.h"
#include "../../../include/memcuda.h"
#include <pthread.h>

CUresult cuCtxGetCurrent(CUcontext *);

static CUcontext context;
static pthread_barrier_t both;
static int rounds, had, failed;

/* Opens it in a way, and closes it. */
static void once(const char *name, int (*way)(const char *, const memcuda_options *, memcuda_handle *)) {
    memcuda_handle handle;
    memcuda_options options = MEMCUDA_OPTIONS;
    options.bytes = 4096;
    options.wait_us = 20000000;
    options.flags = MEMCUDA_CUDA_IPC | MEMCUDA_AWAIT;
    int result = way(name, &options, &handle);
    if (!result) result = memcuda_close(handle);
    if (result) fprintf(stderr, "%d %s\n", result, memcuda_message());
    __sync_fetch_and_add(result ? &failed : &had, 1);
}

static void *race(void *unused) {
    char name[32];
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < rounds; i++) {
        snprintf(name, sizeof name, "r%d", i);
        pthread_barrier_wait(&both);
        once(name, memcuda_create_or_open);
        pthread_barrier_wait(&both);
    }
    return unused;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    rounds = atoi(arguments[2]);
    start_cuda();
    OK(cuCtxGetCurrent(&context));
    if (!strcmp(arguments[1], "threads")) {
        pthread_t other;
        CHECK(!pthread_barrier_init(&both, NULL, 2));
        CHECK(!pthread_create(&other, NULL, race, NULL));
        race(NULL);
        CHECK(!pthread_join(other, NULL));
    } else {
        char way = arguments[1][0];
        for (int i = 0; i < rounds; i++)
            once("w", way == 'e' ? memcuda_create_or_open : way == 'o' ? memcuda_open : memcuda_create);
    }
    printf("%d %d\n", failed, had);
    return 0;
}
