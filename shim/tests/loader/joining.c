/* A library whose constructor and destructor wait for threads that use CUDA, and (PROGRAM)
 * who loads it: the loader's lock is held meanwhile. Or (MIDDLE) what such a library needs,
 * which needs the runtime. */
#include "../support/cuda.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#ifdef MIDDLE
int nothing;
#elif defined PROGRAM
int main(int argc, char **argv) {
    int count;
    alarm(60);
    start_cuda();
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    CHECK(runtime != NULL);
    IS(0, ((int (*)(int *))dlsym(runtime, "cudaGetDeviceCount"))(&count));
    /* The process's first memory is asked for by the constructor's thread. */
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(argc == 2 && library != NULL);
    CHECK(dlclose(library) == 0 && dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL);
    puts("closed");
    return 0;
}
#else
static pthread_t thread;
static sem_t told;
static void *kept;

static void *begin(void *unused) {
    CUdeviceptr at;
    start_cuda();
    OK(cuMemAlloc_v2(&at, 3 * MiB));
    OK(cuMemFree_v2(at));
    /* On its own default stream. */
    OK(cuMemAllocAsync(&at, MiB, (CUstream)2));
    OK(cuMemFreeAsync(at, (CUstream)2));
    IS(0, cudaMalloc(&kept, 3 * MiB));
    return unused;
}

static void *work(void *unused) {
    start_cuda();
    sem_wait(&told);
    IS(0, cudaStreamSynchronize(NULL));
    IS(0, cudaFree(kept));
    return unused;
}

__attribute__((constructor)) static void started(void) {
    CHECK(pthread_create(&thread, NULL, begin, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    sem_init(&told, 0, 0);
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
}

__attribute__((destructor)) static void ended(void) {
    sem_post(&told);
    CHECK(pthread_join(thread, NULL) == 0);
}
#endif
