/* A thread opens a name of the driver's own memory while its maker closes it, again and again
 * (N times): how often it had memory, found nothing, or had anything else. */
#include "../support/cuda.h"
#include "../../../include/memcuda.h"
#include <pthread.h>
#include <unistd.h>

CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuCtxGetCurrent(CUcontext *);

static CUcontext context;
static pthread_barrier_t both;
static char name[32];
static int rounds, had, missed, others;

static void *open_all(void *unused) {
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < rounds; i++) {
        memcuda_handle handle;
        pthread_barrier_wait(&both);
        usleep(rand() % 300);
        int result = memcuda_open(name, NULL, &handle);
        pthread_barrier_wait(&both); /* the maker has closed it */
        if (result == MEMCUDA_NOT_FOUND) missed++;
        else if (result) others++, fprintf(stderr, "open: %d %s\n", result, memcuda_message());
        else {
            had++;
            OK(cuMemsetD8_v2((CUdeviceptr)memcuda_address(handle), 1, 4096));
            CHECK(memcuda_close(handle) == MEMCUDA_OK);
        }
        pthread_barrier_wait(&both);
    }
    return unused;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    rounds = atoi(arguments[1]);
    start_cuda();
    OK(cuCtxGetCurrent(&context));
    CHECK(!pthread_barrier_init(&both, NULL, 2));
    pthread_t opener;
    CHECK(!pthread_create(&opener, NULL, open_all, NULL));
    for (int i = 0; i < rounds; i++) {
        memcuda_handle handle;
        memcuda_options options = MEMCUDA_OPTIONS;
        options.bytes = 4096;
        options.flags = MEMCUDA_CUDA_IPC;
        snprintf(name, sizeof name, "l%d", i);
        CHECK(memcuda_create(name, &options, &handle) == MEMCUDA_OK);
        pthread_barrier_wait(&both);
        usleep(rand() % 300);
        CHECK(memcuda_close(handle) == MEMCUDA_OK);
        pthread_barrier_wait(&both);
        pthread_barrier_wait(&both);
    }
    CHECK(!pthread_join(opener, NULL));
    printf("%d %d %d\n", had, missed, others);
    return 0;
}
