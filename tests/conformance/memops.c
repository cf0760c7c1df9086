/* SYNC_MEMOPS, which programs set on memory that a network card reads. */
#include "conformance.h"

static void say_set(const char *what, CUdeviceptr at, unsigned on) {
    say_code(what, cuPointerSetAttribute(&on, POINTER_SYNC_MEMOPS, at));
}

static void say_is(const char *what, CUdeviceptr at) {
    unsigned char on[16] = {0};
    int code = cuPointerGetAttribute(on, POINTER_SYNC_MEMOPS, at);
    if (code != CU_OK)
        say_code(what, code);
    else
        say("%s: %s", what, on[0] ? "true" : "false");
}

CASE(memops_plain, SIM) {
    CUdeviceptr at = allocate(4 * MiB), beside = allocate(4 * MiB);
    say_is("at first", at);
    say_set("set", at, 1);
    say_is("then", at);
    say_is("its last byte", at + 4 * MiB - 1);
    say_is("another allocation", beside);
    say_set("cleared", at, 0);
    say_is("then", at);
}

CASE(memops_inside, SIM) {
    CUdeviceptr at = allocate(4 * MiB);
    say_set("set inside", at + MiB + 3, 1);
    say_is("the base", at);
}

CASE(memops_two, SIM) {
    CUdeviceptr a = allocate(4 * MiB), b = allocate(4 * MiB);
    say_set("set", a, 1);
    say_set("set another", b, 1);
    say_set("clear the first", a, 0);
    say_is("the first", a);
    say_is("the other", b);
}

CASE(memops_after_a_free, SIM) {
    CUdeviceptr at = allocate(4 * MiB);
    say_set("set", at, 1);
    NEED(cuMemFree_v2(at));
    say_is("freed", at);
    at = allocate(4 * MiB);
    say_is("allocated again", at);
}

CASE(memops_async, SIM) {
    CUdeviceptr at = allocate_async(4 * MiB, NULL);
    say_is("at first", at);
    say_set("set", at, 1);
    say_is("then", at);
    NEED(cuMemFreeAsync(at, NULL));
    NEED(cuStreamSynchronize(NULL));
    at = allocate_async(4 * MiB, NULL);
    say_is("allocated again", at);
}

CASE(memops_mapped, SIM | SHARED) {
    struct mapping own = map_own(64 * MiB);
    say_set("set", own.at, 1);
    say_is("then", own.at);
    unmap_own(own);
}

CASE(memops_nowhere, SIM) {
    CUdeviceptr at = allocate(4 * MiB);
    NEED(cuMemFree_v2(at));
    say_set("freed", at, 1);
    say_set("address 0", 0, 1);
    static int on_host;
    say_set("a variable", (CUdeviceptr)&on_host, 1);
}

CASE(memops_bad_arguments, SIM) {
    CUdeviceptr at = allocate(4 * MiB);
    uint64_t value[2] = {1, 0};
    say_code("no value", cuPointerSetAttribute(NULL, POINTER_SYNC_MEMOPS, at));
    say_code("the buffer id", cuPointerSetAttribute(value, POINTER_BUFFER_ID, at));
    say_code("the context", cuPointerSetAttribute(value, POINTER_CONTEXT, at));
    say_code("attribute 99", cuPointerSetAttribute(value, 99, at));
    say_set("set to 2", at, 2);
    say_is("then", at);
}

CASE(memops_context_flags, SIM) {
    CUdeviceptr at = allocate(4 * MiB);
    unsigned before = 0, during = 0, after = 0;
    NEED(cuCtxGetFlags(&before));
    say_set("set", at, 1);
    NEED(cuCtxGetFlags(&during));
    say_set("cleared", at, 0);
    NEED(cuCtxGetFlags(&after));
    say("flags of the context changed: %s", yes(during != before));
    say("and are back: %s", yes(after == before));
}

CASE(memops_from_another_context, SIM) {
    CUdeviceptr at = allocate(4 * MiB);
    CUcontext other = NULL, popped = NULL;
    NEED(cuCtxCreate_v2(&other, 0, 0));
    say_set("set", at, 1);
    say_is("there", at);
    NEED(cuCtxPopCurrent_v2(&popped));
    say_is("in its own context", at);
}
