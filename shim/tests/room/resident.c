/* One of several processes on a device: does what it reads, a line at a time,
 * and answers each with a line. Ends at the end of its input; with an argument, a while
 * later.
 *
 *   alloc MIB          -> code, milliseconds
 *   try MIB SECONDS    -> the same, tried again while out of memory
 *   free               -> code: the last one
 *   busy MILLISECONDS MIB [PAUSE] -> MiB held at least while it was used again and again
 *   contexts MILLISECONDS -> contexts made, used and destroyed
 *   captures MILLISECONDS -> captures that ended well
 *   managed MIB        -> code: of the driver's own
 *   foreign            -> code: of the free of such memory
 *   reached            -> code: by the other device
 *   physical           -> MiB held
 *   info               -> MiB free, by cuMemGetInfo
 *   exits              -> milliseconds of the one of some children that took longest to end
 *   fork               -> the id of a child that outlives this process
 */
#include "../support/cuda.h"
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuCtxGetCurrent(CUcontext *);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuSimPhysical(int, uint64_t *);

static CUdeviceptr held[64];
static int count;

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

static unsigned long physical(void) {
    uint64_t bytes;
    OK(cuSimPhysical(0, &bytes));
    return bytes / MiB;
}

static int allocate(size_t mib) {
    int code = cuMemAlloc_v2(&held[count], mib * MiB);
    if (code == 0) count++;
    return code;
}

static unsigned long busy(double length, size_t mib, unsigned pause) {
    unsigned long least = ~0ul;
    for (double began = milliseconds(); milliseconds() - began < length; usleep(pause * 1000)) {
        CUdeviceptr at;
        OK(cuMemAlloc_v2(&at, mib * MiB));
        OK(cuMemFree_v2(at));
        unsigned long now = physical();
        if (now < least) least = now;
    }
    return least;
}

/* They end as programs do, with what is to be done at an exit. */
static double exits(void) {
    double longest = 0;
    fflush(stdout);
    for (int i = 0; i < 16; i++, usleep(60000)) {
        double began = milliseconds();
        pid_t child = fork();
        if (child == 0) exit(0);
        CHECK(waitpid(child, NULL, 0) == child);
        double took = milliseconds() - began;
        if (took > longest) longest = took;
    }
    return longest;
}

static int contexts(double length) {
    int made = 0;
    for (double began = milliseconds(); milliseconds() - began < length; made++) {
        CUcontext context;
        CUstream stream;
        CUdeviceptr at;
        OK(cuCtxCreate_v2(&context, 0, 0));
        OK(cuStreamCreate(&stream, 1));
        OK(cuMemAllocAsync(&at, 64 * MiB, stream));
        OK(cuMemFreeAsync(at, stream));
        OK(cuMemAllocAsync(&at, 32 * MiB, stream));
        OK(cuMemFreeAsync(at, stream));
        OK(cuCtxDestroy_v2(context));
    }
    return made;
}

static int captures(double length) {
    int ended = 0;
    CUstream stream, other;
    OK(cuStreamCreate(&stream, 0));
    OK(cuStreamCreate(&other, 1));
    for (double began = milliseconds(); milliseconds() - began < length; ended++) {
        CUgraph graph = NULL;
        CUdeviceptr at;
        OK(cuMemAllocAsync(&at, 64 * MiB, other));
        /* Not during the capture: in this mode the driver refuses it. */
        OK(cuMemFreeAsync(at, other));
        OK(cuStreamBeginCapture_v2(stream, 0));
        usleep(1000);
        OK(cuStreamEndCapture(stream, &graph));
        CHECK(graph != NULL);
    }
    return ended;
}

/* What is registered first runs last, when all else has ended. */
static void linger(void) { usleep(400000); }

int main(int words, char **unused) {
    (void)unused;
    if (words > 1) atexit(linger);
    char line[100], word[20];
    setvbuf(stdout, NULL, _IOLBF, 0);
    start_cuda();
    puts("ready");
    while (fgets(line, sizeof line, stdin) != NULL) {
        double a = 0, b = 0, c = 50, began = milliseconds();
        CHECK(sscanf(line, "%19s %lf %lf %lf", word, &a, &b, &c) >= 1);
        if (strcmp(word, "alloc") == 0) {
            int code = allocate(a);
            printf("%d %.0f\n", code, milliseconds() - began);
        } else if (strcmp(word, "try") == 0) {
            int code;
            while ((code = allocate(a)) == OUT_OF_MEMORY && milliseconds() - began < b * 1e3) usleep(50000);
            printf("%d %.0f\n", code, milliseconds() - began);
        } else if (strcmp(word, "free") == 0) {
            printf("%d\n", cuMemFree_v2(held[--count]));
        } else if (strcmp(word, "busy") == 0) {
            printf("%lu\n", busy(a, b, c));
        } else if (strcmp(word, "exits") == 0) {
            printf("%.0f\n", exits());
        } else if (strcmp(word, "contexts") == 0) {
            printf("%d\n", contexts(a));
        } else if (strcmp(word, "captures") == 0) {
            printf("%d\n", captures(a));
        } else if (strcmp(word, "managed") == 0) {
            CUdeviceptr at;
            printf("%d\n", cuMemAllocManaged(&at, (size_t)a * MiB, 1));
        } else if (strcmp(word, "foreign") == 0) {
            CUdeviceptr at;
            OK(cuMemAllocManaged(&at, 4096, 1));
            printf("%d\n", cuMemFree_v2(at));
        } else if (strcmp(word, "reached") == 0) {
            CUcontext own, other;
            OK(cuCtxGetCurrent(&own));
            OK(cuDevicePrimaryCtxRetain(&other, 1));
            OK(cuCtxSetCurrent(other));
            printf("%d\n", cuCtxEnablePeerAccess(own, 0));
            OK(cuCtxSetCurrent(own));
        } else if (strcmp(word, "physical") == 0) {
            printf("%lu\n", physical());
        } else if (strcmp(word, "info") == 0) {
            size_t free_bytes, total;
            OK(cuMemGetInfo_v2(&free_bytes, &total));
            printf("%zu\n", free_bytes / MiB);
        } else if (strcmp(word, "fork") == 0) {
            pid_t child = fork();
            if (child == 0) {
                close(0), close(1), close(2);
                sleep(30);
                _exit(0);
            }
            printf("%d\n", child);
        } else {
            fprintf(stderr, "%s: no such command\n", word);
            return 1;
        }
    }
    return 0;
}
