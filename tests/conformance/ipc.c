/* Legacy IPC handles, inside the process that exports. */
#include "conformance.h"

static int get(CUipcMemHandle *handle, CUdeviceptr at) {
    memset(handle, 0, sizeof *handle);
    return cuIpcGetMemHandle(handle, at);
}

static bool same(const CUipcMemHandle *a, const CUipcMemHandle *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

CASE(ipc_plain, SIM) {
    CUipcMemHandle base, inside, again;
    CUdeviceptr at = allocate(64 * MiB);
    say_code("base", get(&base, at));
    say_code("inside", get(&inside, at + 33 * MiB));
    say_code("again", get(&again, at));
    say("inside is the same: %s", yes(same(&base, &inside)));
    say("again is the same: %s", yes(same(&base, &again)));
    say_code("behind", get(&inside, at + 64 * MiB));
    say_code("no output", cuIpcGetMemHandle(NULL, at));
}

CASE(ipc_small, SIM) {
    CUipcMemHandle one, other;
    CUdeviceptr a = allocate(1000), b = allocate(1000);
    say_code("one", get(&one, a));
    say_code("another", get(&other, b));
    say("they differ: %s", yes(!same(&one, &other)));
}

CASE(ipc_two_allocations, SIM) {
    CUipcMemHandle one, other, later;
    CUdeviceptr a = allocate(4 * MiB), b = allocate(4 * MiB);
    NEED(get(&one, a));
    NEED(get(&other, b));
    say("they differ: %s", yes(!same(&one, &other)));
    NEED(cuMemFree_v2(a));
    a = allocate(4 * MiB);
    NEED(get(&later, a));
    say("another one after a free: %s", yes(!same(&one, &later)));
}

CASE(ipc_other_memory, SIM) {
    CUipcMemHandle handle;
    CUdeviceptr ordered = allocate_async(4 * MiB, NULL), freed = allocate(4 * MiB);
    struct mapping own = map_own(64 * MiB);
    static int on_host;
    NEED(cuMemFree_v2(freed));
    say_code("stream-ordered", get(&handle, ordered));
    say_code("mapped", get(&handle, own.at));
    say_code("freed", get(&handle, freed));
    say_code("address 0", get(&handle, 0));
    say_code("a variable", get(&handle, (CUdeviceptr)&on_host));
}

CASE(ipc_open_own, SIM) {
    CUipcMemHandle handle;
    CUdeviceptr at = allocate(4 * MiB), opened = 7;
    NEED(get(&handle, at));
    say_code("open in the same process", cuIpcOpenMemHandle_v2(&opened, handle, 1));
    say("written: %s", yes(opened != 7));
}

CASE(ipc_open_nonsense, SIM) {
    CUipcMemHandle handle;
    CUdeviceptr opened = 7;
    memset(&handle, 0, sizeof handle);
    say_code("zeros", cuIpcOpenMemHandle_v2(&opened, handle, 1));
    memset(&handle, 0xA5, sizeof handle);
    say_code("nonsense", cuIpcOpenMemHandle_v2(&opened, handle, 1));
    say("written: %s", yes(opened != 7));
}

CASE(ipc_close_unopened, SIM) {
    CUdeviceptr at = allocate(4 * MiB);
    say_code("address 0", cuIpcCloseMemHandle(0));
    say_code("own memory", cuIpcCloseMemHandle(at));
    say_code("address 4096", cuIpcCloseMemHandle(4096));
    say_code("its free", cuMemFree_v2(at));
}

CASE(ipc_without_context, SIM) {
    CUipcMemHandle handle;
    CUdeviceptr at = allocate(4 * MiB);
    NEED(cuCtxSetCurrent(NULL));
    say_code("get", get(&handle, at));
}
