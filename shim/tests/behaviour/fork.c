/* A child forked before CUDA starts is a process of its own; one forked after
 * is left to the driver. Neither harms the other. */
#include "../support/cuda.h"
#include <sys/wait.h>
#include <unistd.h>

static void wait_for(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void use(void) {
    CUdeviceptr a;
    OK(cuMemAlloc_v2(&a, 8 * MiB));
    CHECK(is_pooled(a));
    OK(cuMemFree_v2(a));
}

int main(void) {
    pid_t early = fork();
    if (early == 0) {
        start_cuda();
        use();
        _exit(0);
    }
    wait_for(early);
    start_cuda();
    CUdeviceptr held;
    OK(cuMemAlloc_v2(&held, 8 * MiB));
    pid_t late = fork();
    if (late == 0) {
        /* Whatever the driver answers after a fork, it is the driver. */
        CUdeviceptr a = 0;
        size_t bytes = 0;
        cuMemGetAddressRange_v2(NULL, &bytes, held);
        if (cuMemAlloc_v2(&a, 8 * MiB) == SUCCESS) {
            cuMemFree_v2(a);
        }
        _exit(0);
    }
    wait_for(late);
    CHECK(is_pooled(held));
    OK(cuMemFree_v2(held));
    use();
    return 0;
}
