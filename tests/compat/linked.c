/* Linked to the driver, without libdl: allocates on two threads. */
#define _GNU_SOURCE
#include <pthread.h>

#include "cuda.h"

static void *use(void *pooled) {
    CUdeviceptr a;
    start_cuda();
    OK(cuMemAlloc_v2(&a, 8 * MiB));
    *(int *)pooled = is_pooled(a);
    OK(cuMemFree_v2(a));
    return NULL;
}

int main(void) {
    int here = 0, there = 0;
    pthread_t thread;
    use(&here);
    CHECK(pthread_create(&thread, NULL, use, &there) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    puts(here && there ? "pooled" : here || there ? "one of two" : "plain");
    return 0;
}
