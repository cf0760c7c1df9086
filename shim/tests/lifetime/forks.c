/* Children that are forked, spawned and executed while other threads allocate. */
#include "answers.h"
#include <spawn.h>
#include <sys/wait.h>
#include <sys/stat.h>

extern char **environ;
static CUcontext context;
static int stop;

static void *busy(void *argument) {
    (void)argument;
    OK(cuCtxSetCurrent(context));
    for (size_t bytes = 1000; !__atomic_load_n(&stop, __ATOMIC_RELAXED); bytes = bytes * 7 % (9 * MiB) + 1) {
        CUdeviceptr at = 0;
        OK(cuMemAlloc_v2(&at, bytes));
        OK(cuMemFree_v2(at));
        OK(cuMemAllocAsync(&at, bytes, NULL));
        OK(cuMemFreeAsync(at, NULL));
    }
    return NULL;
}

static int ended(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

/* A descriptor of a file with such a name. */
static int has_a_file(const char *name) {
    for (int fd = 3; fd < 64; fd++) {
        char path[64], to[256] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, to, sizeof to - 1) > 0 && strstr(to, name)) return 1;
    }
    return 0;
}

/* A new program: starts as if nothing had been, and works. */
static int fresh(void) {
    if (has_a_file("memcuda")) return 3;
    CUdeviceptr at = 0;
    start_cuda();
    OK(cuMemAlloc_v2(&at, 5 * MiB));
    fill(at, 5 * MiB, 17);
    CHECK(holds(at, 5 * MiB, 17));
    OK(cuMemFree_v2(at));
    return 0;
}

int main(int argc, char **argv) {
    char *again[] = {argv[0], "fresh", NULL};
    if (argc > 1) return fresh();
    setvbuf(stdout, NULL, _IONBF, 0);
    CUdeviceptr held = 0;
    pthread_t threads[3];
    start_cuda();
    OK(cuCtxGetCurrent(&context));
    OK(cuMemAlloc_v2(&held, 8 * MiB));
    fill(held, 8 * MiB, 5);
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, busy, NULL) == 0);
    for (int round = 0; round < 10; round++) {
        pid_t child = fork();
        if (child == 0) {
            CUdeviceptr at = 0;
            unsigned long long value;
            void *runtimes = NULL;
            /* Whatever the other threads were doing in the parent. */
            alarm(60);
            if (has_a_file("memcuda-stats")) _exit(3);
            SAY(cuMemAlloc_v2(&at, 8 * MiB));
            SAY(cuMemAllocAsync(&at, 8 * MiB, NULL));
            SAY(cuPointerGetAttribute(&value, 11, held));
            SAY(cuMemFreeAsync(held, NULL));
            SAY(cuMemFree_v2(held));
            SAY(cuInit(0));
            SAY(cudaMalloc(&runtimes, 1000));
            _exit(42);
        }
        CHECK(ended(child) == 42 << 8);
        child = fork();
        if (child == 0) execv("/proc/self/exe", again), _exit(1);
        CHECK(ended(child) == 0);
        child = vfork();
        if (child == 0) execv("/proc/self/exe", again), _exit(1);
        CHECK(ended(child) == 0);
        CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, again, environ) == 0);
        CHECK(ended(child) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    printf("the parent's memory: %d\n", holds(held, 8 * MiB, 5));
    SAY(cuMemFree_v2(held));
    execv("/proc/self/exe", again);
    return 1;
}
