/* Calls from elsewhere: a function of the host in a stream's order, a forked child, a thread that
 * ends, a green context; and handles passed on by descriptors.
 */
#include "calls.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ASKED = 4 };
static struct { CUdeviceptr at; size_t bytes; CUstream stream; int which[ASKED], codes[ASKED], ran; } asked;

enum { ALLOC, FREE, ALLOC_ASYNC, FREE_ASYNC, INFO, RANGE, TYPE, RETAIN, FILL, READ, ROWS, MANAGED_ALLOC, TRIM, WAIT_CONTEXT,
    WAIT_STREAM, CREATE, RESERVE, UNMAP, IPC_GET, CURRENT, POOL, FREE_NULL, FREE_NULL_ASYNC, HOST_FLAGS, BEGIN_CAPTURE,
    CLEAR_MARK, ALLOC_NONE, ALLOC_NONE_ASYNC, RESET, CALLS };

/* One of the calls that have to do with memory; its code. */
static int some_call(int which) {
    CUdeviceptr out = 0;
    size_t a = 0, b = 0;
    unsigned word = 0;
    unsigned char bytes[16];
    CUipcMemHandle exported;
    CUmemHandle handle;
    CUcontext context;
    CUmemoryPool pool;
    CUmemAllocationProp properties = {.type = 1, .location = {1, 0}};
    switch (which) {
    case ALLOC: return cuMemAlloc_v2(&out, 4096);
    case FREE: return cuMemFree_v2(asked.at);
    case ALLOC_ASYNC: return cuMemAllocAsync(&out, 4096, asked.stream);
    case FREE_ASYNC: return cuMemFreeAsync(asked.at, asked.stream);
    case INFO: return cuMemGetInfo_v2(&a, &b);
    case RANGE: return cuMemGetAddressRange_v2(&out, &a, asked.at);
    case TYPE: return cuPointerGetAttribute(bytes, POINTER_MEMORY_TYPE, asked.at);
    case RETAIN: return cuMemRetainAllocationHandle(&handle, (void *)asked.at);
    case FILL: return cuMemsetD8_v2(asked.at, 1, 1);
    case READ: return cuMemcpyDtoH_v2(bytes, asked.at, 1);
    case ROWS: return cuMemAllocPitch_v2(&out, &a, 100, 10, 4);
    case MANAGED_ALLOC: return cuMemAllocManaged(&out, 4096, 1);
    case TRIM: return cuMemPoolTrimTo(pools[0].pool, 0);
    case WAIT_CONTEXT: return cuCtxSynchronize();
    case WAIT_STREAM: return cuStreamSynchronize(asked.stream);
    case CREATE: return cuMemCreate(&handle, 2 << 20, &properties, 0);
    case RESERVE: return cuMemAddressReserve(&out, 2 << 20, 0, 0, 0);
    case UNMAP: return cuMemUnmap(asked.at, asked.bytes);
    case IPC_GET: return with_ipc ? cuIpcGetMemHandle(&exported, asked.at) : 0;
    case CURRENT: return cuCtxGetCurrent(&context);
    case POOL: return cuDeviceGetMemPool(&pool, 0);
    case FREE_NULL: return cuMemFree_v2(0);
    case FREE_NULL_ASYNC: return cuMemFreeAsync(0, asked.stream);
    case HOST_FLAGS: return cuMemHostGetFlags(&word, (void *)asked.at);
    case BEGIN_CAPTURE: return cuStreamBeginCapture_v2(asked.stream, 2);
    case CLEAR_MARK: return cuPointerSetAttribute(&word, POINTER_SYNC_MEMOPS, asked.at);
    case ALLOC_NONE: return cuMemAlloc_v2(&out, 0);
    case ALLOC_NONE_ASYNC: return cuMemAllocAsync(&out, 0, asked.stream);
    default: return cuDevicePrimaryCtxReset_v2(0);
    }
}

static void ask(void) {
    for (int i = 0; i < ASKED; i++) asked.codes[i] = some_call(asked.which[i]);
    asked.ran = 1;
}

static void say_asked(void) {
    for (int i = 0; i < ASKED; i++) say(" %d=%d", asked.which[i], asked.codes[i]);
}

/* Memory to ask about, and which calls; NULL where the answers would be another thing's. */
static Memory *prepare(int stream) {
    Memory *m = workable();
    for (int i = 0; i < ASKED; i++) asked.which[i] = (int)pick(CALLS);
    if (legal || !m || m->kind == MAPPED || any_capturing() || broken || !streams[stream].alive) return NULL;
    if (ended_is_current() || current_context() < 0 || !settle(m, THE_HOST)) return NULL;
    asked.at = m->base;
    asked.bytes = m->bytes;
    asked.stream = streams[stream].stream;
    asked.ran = 0;
    return m;
}

static void on_host(void *unused) {
    (void)unused;
    ask();
}

static void host_function(void) {
    int s = any_stream();
    Memory *m = prepare(s);
    if (!m) return;
    /* The library answers these by what it knows; the driver refuses all there. Of flags of the host no recording tells. */
    for (int i = 0; i < ASKED; i++) {
        int which = asked.which[i];
        int is_told = which == RETAIN || which == UNMAP || which == CLEAR_MARK || (which == HOST_FLAGS && alone);
        if (is_told || (which == BEGIN_CAPTURE && !alone)) asked.which[i] = TYPE;
    }
    int code = cuLaunchHostFunc(streams[s].stream, on_host, NULL);
    say(" m%d k%d s%d launched=%d", index_of(m), m->kind, s, code);
    if (code) return;
    say_code("waited", cuStreamSynchronize(streams[s].stream));
    say(" ran %d", asked.ran);
    say_asked();
}

static void child(void) {
    const unsigned patience = 20; /* seconds */
    Memory *m = prepare(LEGACY);
    int ends[2], status = 0;
    if (!m || pipe(ends)) return;
    pid_t id = fork();
    if (id == 0) {
        alarm(patience);
        ask();
        _exit(write(ends[1], &asked, sizeof asked) == sizeof asked ? 0 : 9);
    }
    close(ends[1]);
    ssize_t heard = read(ends[0], &asked, sizeof asked);
    close(ends[0]);
    waitpid(id, &status, 0);
    say(" m%d k%d status %x%s", index_of(m), m->kind, status, heard == sizeof asked ? "" : " nothing");
    say_asked();
}

static void *on_thread(void *context) {
    cuCtxSetCurrent(context);
    ask();
    return NULL;
}

/* A thread that lives for a few calls alone, which make and free nothing. */
static void short_thread(void) {
    static const int harmless[] = {INFO, RANGE, TYPE, RETAIN, READ, TRIM, WAIT_CONTEXT, WAIT_STREAM, UNMAP, CURRENT, POOL,
        FREE_NULL, FREE_NULL_ASYNC, HOST_FLAGS, ALLOC_NONE, ALLOC_NONE_ASYNC};
    int s = any_stream(), has_context = chance(70);
    Memory *m = prepare(s);
    pthread_t id;
    if (!m || s == PER_THREAD || m->device != contexts[current_context()].device) return;
    for (int i = 0; i < ASKED; i++) asked.which[i] = harmless[pick(sizeof harmless / sizeof *harmless)];
    pthread_create(&id, NULL, on_thread, has_context ? contexts[current_context()].context : NULL);
    pthread_join(id, NULL);
    say(" m%d k%d", index_of(m), m->kind);
    say_asked();
}

static void say_context_of(CUdeviceptr at, CUcontext view) {
    CUcontext its = NULL;
    say(" of=%d", cuPointerGetAttribute(&its, POINTER_CONTEXT, at));
    say(its == NULL ? " none" : its == view ? " the view" : its == contexts[0].context ? " the primary" : " another");
}

/* Memory that is made while a green context is current, and what it answers once that has ended. */
static void green(void) {
    enum { ASYNC, STAYS, FREED };
    Memory *m = fresh();
    size_t bytes = any_size();
    int way = (int)pick(3);
    char resource[512];
    void *description = NULL, *made = NULL;
    CUcontext view = NULL;
    CUdeviceptr at = 0;
    if (!m || any_capturing() || broken || current_context() != 0 || !contexts[0].alive) return;
    /* The library asks for no default stream, of which a view has none for each thread. */
    if (own_default && !alone) return;
    settle_all();
    if (cuDeviceGetDevResource(0, resource, 1) || cuDevResourceGenerateDesc(&description, resource, 1) ||
        cuGreenCtxCreate(&made, description, 0, 1)) {
        say(" none");
        return;
    }
    cuCtxFromGreenCtx(&view, made);
    cuCtxSetCurrent(view);
    int code = way == ASYNC ? cuMemAllocAsync(&at, bytes, NULL) : cuMemAlloc_v2(&at, bytes);
    say(" way %d size %zu=%d", way, bytes, code);
    int has_it = !code && at;
    if (has_it) {
        say_context_of(at, view);
        say_code("fill", cuMemsetD8_v2(at, 3, bytes));
    }
    say_code("wait", cuCtxSynchronize());
    if (has_it && way == FREED) {
        say_code("free", cuMemFree_v2(at));
        has_it = 0;
    }
    cuCtxSetCurrent(contexts[0].context);
    say_code("destroyed", cuGreenCtxDestroy(made));
    if (!has_it) return;
    say_context_of(at, NULL);
    *m = (Memory){.base = at, .bytes = bytes, .kind = way == ASYNC ? ORDERED : PLAIN, .alive = 1, .born = ++births,
        .lane = NO_LANE, .filled = 1, .value = 3};
}

static void descriptors(void) {
    Memory *m = live();
    CUmemAllocationProp found = {0};
    int descriptor = -1;
    if (!m || m->kind != MAPPED) return;
    int code = cuMemExportToShareableHandle(&descriptor, m->handle, 1, 0);
    say(" m%d export=%d", index_of(m), code);
    if (!code) close(descriptor);
    say_code("properties", cuMemGetAllocationPropertiesFromHandle(&found, m->handle));
    say(" %d %d %d", found.type, found.requestedHandleTypes, found.location.id);
}

static void more_of_contexts(void) {
    int c = (int)pick(CONTEXTS), s = any_stream(), device = -1;
    CUcontext found = NULL;
    if (any_capturing() || broken) return;
    switch (pick(4)) {
    case 0:
        if (contexts[c].alive) say(" c%d synchronize=%d", c, cuCtxSynchronize_v2(contexts[c].context));
        return;
    case 1: say_code("device", cuCtxGetDevice(&device)); break;
    case 2: say_code("the runtime's", cudaGetDevice(&device)); break;
    default:
        say(" s%d of=%d", s, cuStreamGetCtx(streams[s].stream, &found));
        say(" c%d", context_index(found));
        return;
    }
    say(" %d", device);
}

const Op place_ops[] = {{"host_function", 14, host_function}, {"child", 6, child}, {"short_thread", 10, short_thread},
    {"green", 6, green}, {"descriptors", 6, descriptors}, {"more_of_contexts", 8, more_of_contexts}, {0}};
