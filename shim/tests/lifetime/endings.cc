/* Ends in one of many ways while a pool is in use and other threads allocate;
 * destructors of every kind free memory after that. */
extern "C" {
#include "answers.h"
}
#include <csignal>
#include <stdexcept>
#include <thread>

static CUcontext context;
static CUdeviceptr of_static, of_library, of_atexit, of_thread;

/* Frees by the destructor of a static object, and says what it got. */
struct Late {
    ~Late() {
        if (of_static != 0) printf("static object: %d %d\n", cuCtxSetCurrent(context), cuMemFree_v2(of_static));
        fflush(stdout);
    }
};
static Late late;

struct OfThread {
    ~OfThread() {
        if (of_thread != 0) printf("end of a thread: %d\n", cuMemFree_v2(of_thread));
        fflush(stdout);
    }
};
static thread_local OfThread of_this_thread;

__attribute__((destructor)) static void end_of_library() {
    if (of_library != 0) printf("destructor: %d\n", cuMemFree_v2(of_library));
    fflush(stdout);
}

static void handler() {
    printf("atexit: %d\n", cuMemFree_v2(of_atexit));
    fflush(stdout);
}

static void busy() {
    CUdeviceptr kept[8] = {};
    if (cuCtxSetCurrent(context) != 0) return;
    for (size_t bytes = 1000, i = 0;; bytes = bytes * 7 % (5 * MiB) + 1, i = (i + 1) % 8) {
        if (kept[i] != 0) cuMemFree_v2(kept[i]);
        if (cuMemAlloc_v2(&kept[i], bytes) != 0) kept[i] = 0;
    }
}

static void in_a_thread() {
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&of_thread, 2 * MiB));
    (void)&of_this_thread;
}

int main(int, char **argv) {
    const char *way = argv[1];
    start_cuda();
    OK(cuCtxGetCurrent(&context));
    atexit(handler);
    at_quick_exit(handler);
    OK(cuMemAlloc_v2(&of_static, 9 * MiB));
    OK(cuMemAlloc_v2(&of_library, 3 * MiB));
    OK(cuMemAlloc_v2(&of_atexit, 100));
    if (!strcmp(way, "thread")) {
        std::thread(in_a_thread).join();
        return 0;
    }
    for (int i = 0; i < 3; i++) std::thread(busy).detach();
    usleep(20000);
    if (!strcmp(way, "exit")) exit(7);
    if (!strcmp(way, "_exit")) _exit(8);
    if (!strcmp(way, "quick_exit")) quick_exit(9);
    if (!strcmp(way, "abort")) abort();
    if (!strcmp(way, "throw")) throw std::runtime_error("nobody catches this");
    if (!strcmp(way, "sigterm")) raise(SIGTERM), pause();
    return 6;
}
