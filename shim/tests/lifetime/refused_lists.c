/* What a list of attributes holds that the driver refuses for one of them: the answers that stand
 * before that one. */
#include "answers.h"

enum { CONTEXT = 1, HOST = 4, P2P_TOKENS = 5, START = 11, SIZE = 12, UNKNOWN = 999 };

static void ask(const char *what, CUdeviceptr at, CUdeviceptr base, CUcontext context, int refused, int place) {
    unsigned long long size = 77, start = 77;
    CUcontext whose = (CUcontext)77;
    int names[4] = {SIZE, CONTEXT, START, 0};
    void *values[4] = {&size, &whose, &start, NULL};
    for (int i = 3; i > place; i--) names[i] = names[i - 1], values[i] = values[i - 1];
    unsigned long long nothing[2] = {77, 77};
    names[place] = refused, values[place] = nothing;
    printf("%s, %d at %d: %d", what, refused, place, cuPointerGetAttributes(4, names, values, at));
    printf(" size %llu, context %s, start %s, refused %llu\n", size,
           whose == context ? "its own" : whose == (CUcontext)77 ? "as before" : "another",
           start == base ? "right" : start == 77 ? "as before" : "wrong", nothing[0]);
}

int main(void) {
    CUcontext primary = NULL;
    CUdeviceptr plain = 0, small = 0, pooled = 0;
    start_cuda();
    OK(cuCtxGetCurrent(&primary));
    OK(cuMemAlloc_v2(&plain, 6 * MiB));
    OK(cuMemAlloc_v2(&small, 1000));
    OK(cuMemAllocAsync(&pooled, 6 * MiB, NULL));
    for (int place = 0; place < 4; place++)
        for (int way = 0; way < 2; way++) {
            int refused = way ? UNKNOWN : P2P_TOKENS;
            ask("plain", plain, plain, primary, refused, place);
            ask("in the middle", plain + 4096, plain, primary, refused, place);
            ask("small", small, small, primary, refused, place);
            ask("pooled", pooled, pooled, NULL, refused, place);
        }
    OK(cuStreamSynchronize(NULL));
    OK(cuMemFree_v2(plain));
    CUdeviceptr host = 77;
    unsigned long long nothing = 77;
    int code = cuPointerGetAttributes(2, (int[]){HOST, UNKNOWN}, (void *[]){&host, &nothing}, plain);
    printf("freed: %d host %s, refused %llu\n", code, host == plain ? "itself" : "another", nothing);
    return 0;
}
