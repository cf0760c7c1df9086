/* Words of shared host memory as signals between streams and processes: what
 * versions of names rest on, and what the simulated driver answers from the
 * documentation (sim/cuda/src/values.rs). Prints each answer, ends with 1 where
 * one is another than the simulation's or the library's need.
 *
 *     gcc -O2 -o values tests/gpu/values.c -ldl && ./values
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUstream, *CUgraph;

#define DRIVER(X)                                                       \
    X(cuInit, (unsigned))                                               \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, int))                     \
    X(cuCtxSetCurrent, (CUcontext))                                     \
    X(cuStreamCreate, (CUstream *, unsigned))                           \
    X(cuStreamQuery, (CUstream))                                        \
    X(cuStreamSynchronize, (CUstream))                                  \
    X(cuStreamBeginCapture_v2, (CUstream, int))                         \
    X(cuStreamEndCapture, (CUstream, CUgraph *))                        \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                           \
    X(cuMemHostRegister_v2, (void *, size_t, unsigned))                 \
    X(cuMemHostUnregister, (void *))                                    \
    X(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned))  \
    X(cuStreamWriteValue64_v2, (CUstream, CUdeviceptr, uint64_t, unsigned)) \
    X(cuStreamWaitValue64_v2, (CUstream, CUdeviceptr, uint64_t, unsigned))
#define DECLARE(name, arguments) static int (*name) arguments;
DRIVER(DECLARE)

#define PAGE 4096
#define NOT_READY 600
static int wrong;

static void say(const char *what, int got, int wanted)
{
    printf("%-58s %d%s\n", what, got, got == wanted ? "" : "  DIFFERS");
    wrong |= got != wanted;
}

static void start(void)
{
    CUcontext context;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
#define FIND(name, arguments) \
    if (!driver || !(name = (int(*) arguments)dlsym(driver, #name))) { fprintf(stderr, "no " #name "\n"); exit(3); }
    DRIVER(FIND)
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) exit(3);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The page of this process, and its address for streams. */
static CUdeviceptr page_of(volatile uint64_t *word)
{
    CUdeviceptr at = 0;
    say("register a shared page of a memfd", cuMemHostRegister_v2((void *)word, PAGE, 3), 0);
    say("its address for streams", cuMemHostGetDevicePointer_v2(&at, (void *)word, 0), 0);
    return at;
}

/* The other process: its stream waits for version 2, then writes version 3. */
static int other(int file)
{
    CUstream stream;
    volatile uint64_t *word = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    start();
    CUdeviceptr at = page_of(word);
    if (cuStreamCreate(&stream, 1)) return 3;
    say("wait for a word of another process", cuStreamWaitValue64_v2(stream, at, 2, 0), 0);
    say("write behind it", cuStreamWriteValue64_v2(stream, at, 3, 0), 0);
    say("the stream is held", cuStreamQuery(stream), NOT_READY);
    word[8] = 1; /* ready */
    say("the wait ends", cuStreamSynchronize(stream), 0);
    fflush(stdout);
    return wrong;
}

int main(void)
{
    int file = memfd_create("values", MFD_CLOEXEC), status;
    if (file < 0 || ftruncate(file, PAGE)) return 3;
    volatile uint64_t *word = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pid_t child = fork(); /* before CUDA */
    if (child == 0) exit(other(file));
    start();
    CUstream stream, waiter;
    CUgraph graph;
    CUdeviceptr memory, at = page_of(word);
    if (cuStreamCreate(&stream, 1) || cuStreamCreate(&waiter, 1) || cuMemAlloc_v2(&memory, PAGE)) return 3;
    while (!word[8]) usleep(1000);
    double began = now_us();
    say("write for another process", cuStreamWriteValue64_v2(stream, at, 2, 0), 0);
    while (word[0] < 3 && now_us() - began < 10e6) cuStreamQuery(stream);
    printf("%-58s %.1f us\n", "there and back through two streams", now_us() - began);
    say("both words came", (int)word[0], 3);
    waitpid(child, &status, 0);
    wrong |= status;

    say("a wait that the host lets go is held", cuStreamWaitValue64_v2(waiter, at, 5, 0) ? -1 : cuStreamQuery(waiter), NOT_READY);
    __atomic_store_n(&word[0], 7, __ATOMIC_RELEASE);
    say("a larger word ends it", cuStreamSynchronize(waiter), 0);
    say("write to memory of the device", cuStreamWriteValue64_v2(stream, memory, 1, 0), 0);
    say("write to host memory that is not registered", cuStreamWriteValue64_v2(stream, (CUdeviceptr)aligned_alloc(PAGE, PAGE), 1, 0), 1);
    say("write to an odd address", cuStreamWriteValue64_v2(stream, at + 4, 1, 0), 1);
    say("write with unknown flags", cuStreamWriteValue64_v2(stream, at, 1, 2), 1);
    say("wait with unknown flags", cuStreamWaitValue64_v2(stream, at, 1, 4), 1);
    if (cuStreamBeginCapture_v2(stream, 2)) return 3;
    printf("%-58s %d\n", "write in a capture", cuStreamWriteValue64_v2(stream, at, 1, 0));
    printf("%-58s %d\n", "wait in a capture", cuStreamWaitValue64_v2(stream, at, 1, 0));
    printf("%-58s %d\n", "the capture ends", cuStreamEndCapture(stream, &graph));
    say("register the page twice", cuMemHostRegister_v2((void *)word, PAGE, 3), 712);
    say("unregister", cuMemHostUnregister((void *)word), 0);
    return wrong;
}
