/* A driver that is out of memory once it has compiled a module, and has its log written by then:
 * where it read how long that may be it says how long it is. */
#include "../support/cuda.h"

CUresult cuModuleLoadDataEx(void **, const void *, unsigned, int *, void **);

CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
    static int calls;
    (void)module, (void)image;
    printf("of %u: a log of %zu bytes\n", count, (size_t)values[1]);
    values[1] = (void *)(size_t)7;
    return options[1] == 4 && calls++ < 2 ? OUT_OF_MEMORY : SUCCESS;
}
