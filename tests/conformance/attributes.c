/* What cuPointerGetAttribute and its kin say of memory. */
#include "conformance.h"

CASE(attributes_freed, SIM | SHARED) {
    CUdeviceptr at = allocate(64 * MiB), start = 7;
    NEED(cuMemFree_v2(at));
    say_code("start of freed memory", cuPointerGetAttribute(&start, POINTER_RANGE_START, at));
    say("written: %s", yes(start != 7));
}
