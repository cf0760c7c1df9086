/* A thread without a context allocates and frees while another one captures: what the
 * capture forbids is refused, and ends the capture.
 *
 *   capturing cancelled   the thread that captures is cancelled, and makes no call by which it
 *                         would end */
#include "../support/cancelled.h"

static CUstream captured, other;
static CUdeviceptr plain, ordered, made;

static int frees(void) { return cuMemFree_v2(plain); }
static int allocates_in_order(void) { return cuMemAllocAsync(&made, MiB, other); }
static int frees_in_order(void) { return cuMemFreeAsync(ordered, other); }
static int frees_inside(void) { return cuMemFree_v2(plain + 512); }

static void *without_context(void *call) {
    printf(" %d", (*(int (**)(void))call)());
    return NULL;
}

static void refused(void *context) {
    enum { UNSUPPORTED = 900, INVALIDATED = 901 };
    CUgraph graph = NULL;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamBeginCapture_v2(captured, 0));
    IS(UNSUPPORTED, allocates_in_order());
    IS(INVALIDATED, cuStreamEndCapture(captured, &graph));
}

int main(int argc, char **argv) {
    static int (*calls[])(void) = {frees, allocates_in_order, frees_in_order, frees_inside};
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&captured, 1));
    OK(cuStreamCreate(&other, 1));
    if (argc > 1 && strcmp(argv[1], "cancelled") == 0) {
        run_cancelled(refused, context);
        return 0;
    }
    /* Global, of this thread, relaxed, and none at all. */
    for (int mode = 0; mode < 4; mode++) {
        for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
            pthread_t thread;
            CUgraph graph = NULL;
            OK(cuMemAlloc_v2(&plain, MiB));
            OK(cuMemAllocAsync(&ordered, MiB, other));
            if (mode < 3) OK(cuStreamBeginCapture_v2(captured, mode));
            printf("mode %d, call %u:", mode, i);
            CHECK(pthread_create(&thread, NULL, without_context, &calls[i]) == 0);
            CHECK(pthread_join(thread, NULL) == 0);
            printf(", end %d\n", mode < 3 ? cuStreamEndCapture(captured, &graph) : 0);
        }
    }
    return 0;
}
