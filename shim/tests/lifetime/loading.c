/* Children that load a library, forked while other threads are in calls of the runtime by
 * which the library asks the loader who calls. */
#include "answers.h"
#include <sys/wait.h>

#define FORKS 300

static int stop;

static void *busy(void *argument) {
    (void)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        void *at = NULL;
        int count;
        OK(cudaMalloc(&at, 1000));
        OK(cudaStreamSynchronize(NULL));
        OK(cudaFree(at));
        for (int i = 0; i < 1000; i++) OK(cudaGetDeviceCount(&count));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    int loaded = 0;
    start_cuda();
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, busy, NULL) == 0);
    for (int i = 0; i < FORKS; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            _exit(dlopen("libutil.so.1", RTLD_NOW) == NULL);
        }
        CHECK(waitpid(child, &status, 0) == child);
        loaded += status == 0;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    printf("children that loaded a library: %d of %d\n", loaded, FORKS);
    return 0;
}
