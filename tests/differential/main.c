/* differential: random calls of CUDA, right ones and wrong ones, each with its answer on a line.
 *
 *   differential SEED CALLS [only=K,K,...] [skip=K,K,...] [ipc] [legal] [guarded] [small] [alone]
 *
 * A seed makes the same calls over any driver, with a library before it or none, so that their
 * answers can be compared (differ.py does). Calls are numbered, and each has random numbers of
 * its own: any of them can be left out. Memory that somebody works on is used in an order that a
 * real GPU would take; what is wrong are calls, not races.
 *
 * legal: no wrong calls. guarded: the library puts guards behind memory, which count as used.
 * small: the devices have little memory, and nothing of it is the driver's own, which cannot have what lies
 * unused within a handle of the library's. alone: no library is there, so that what it answers otherwise
 * (docs/differences.md) is asked, too; and no context crashes.
 */
#define _GNU_SOURCE
#include "calls.h"
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#define DEFINE(name, arguments) int(*name) arguments;
DRIVER_FUNCTIONS(DEFINE)
MORE_FUNCTIONS(DEFINE)
RUNTIME_FUNCTIONS(DEFINE)
MORE_OF_RUNTIME(DEFINE)
#undef DEFINE

Memory memories[MEMORIES];
Stream streams[STREAMS];
Context contexts[CONTEXTS];
Event events[EVENTS];
Pool pools[POOLS];
Graph graphs[GRAPHS];
Array arrays[ARRAYS];
Host hosts[HOSTS];
Ipc ipcs[IPCS];
uint64_t seed;
int own_default, devices = 1, with_ipc, legal, guarded, small, alone, thread, opened, broken, uncounted, own_capturing[THREADS];
int (*crash)(void *);
unsigned long births = 1, captured[MEMORIES];

static uint64_t state;
static long call;

/* splitmix64 (Steele, Lea, Flood, 2014). */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t pick(uint64_t below) {
    state = mix(state);
    return state % below;
}

int chance(int of_hundred) { return pick(100) < (uint64_t)of_hundred; }

int mostly(int right, int wrong, int of_hundred) {
    int is_wrong = chance(of_hundred);
    return is_wrong && !legal ? wrong : right;
}

static const Op *const tables[] = {memory_ops, free_ops, question_ops, work_ops, object_ops, pool_ops, capture_ops, place_ops};
enum { TABLES = sizeof tables / sizeof *tables };

static const Op *any_op(void) {
    int total = 0;
    for (int t = 0; t < TABLES; t++)
        for (const Op *op = tables[t]; op->name; op++) total += op->weight;
    int at = (int)pick((uint64_t)total);
    for (int t = 0; t < TABLES; t++)
        for (const Op *op = tables[t]; op->name; at -= op++->weight)
            if (at < op->weight) return op;
    abort();
}

static void one_call(void) {
    state = mix(seed * 1000003u + (uint64_t)call);
    const Op *op = any_op();
    printf("%ld t%d c%d %s", call, thread, current_context(), op->name);
    fflush(stdout);
    op->run();
    look_at_primaries();
    for (int s = FIXED; s < STREAMS; s++)
        if (stream_capturing(s)) say(" s%d~%d", s, stream_capturing(s));
    if (!any_capturing()) memset(captured, 0, sizeof captured);
    int last = cudaGetLastError();
    if (last) say_code("last", last);
    printf("%s\n", answer());
    fflush(stdout);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;

static void *serves(void *which) {
    int me = (int)(intptr_t)which;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (turn != me) pthread_cond_wait(&turned, &lock);
        one_call();
        turn = 0;
        pthread_cond_broadcast(&turned);
    }
    return NULL;
}

/* One thread calls at a time. */
static void call_from(int which) {
    thread = which;
    if (which == 0) {
        one_call();
        return;
    }
    pthread_mutex_lock(&lock);
    turn = which;
    pthread_cond_broadcast(&turned);
    while (turn) pthread_cond_wait(&turned, &lock);
    pthread_mutex_unlock(&lock);
}

static int is_listed(const char *list, long number) {
    while (*list) {
        char *end;
        if (strtol(list, &end, 10) == number) return 1;
        if (*end != ',') break;
        list = end + 1;
    }
    return 0;
}

/* A function, in the form that takes the thread's own default stream where it is to be. */
static void *find(void *library, const char *name) {
    static const char *const endings[] = {"_ptsz", "_ptds"};
    char whole[128];
    for (int i = 0; i < 2 && own_default; i++) {
        snprintf(whole, sizeof whole, "%s%s", name, endings[i]);
        void *found = dlsym(library, whole);
        if (found) return found;
    }
    return dlsym(library, name);
}

/* Says why it cannot begin; 3 without a driver or a runtime. */
static int find_functions(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *runtime = dlopen("libcudart.so.13", RTLD_NOW);
    if (!driver || !runtime) {
        fprintf(stderr, "differential: no libcuda.so.1 or no libcudart.so.13\n");
        return 3;
    }
#define FIND(name, arguments) *(void **)&name = find(driver, #name);
    DRIVER_FUNCTIONS(FIND)
    MORE_FUNCTIONS(FIND)
#undef FIND
#define FIND(name, arguments) *(void **)&name = find(runtime, #name);
    RUNTIME_FUNCTIONS(FIND)
    MORE_OF_RUNTIME(FIND)
#undef FIND
    if (!alone) *(void **)&crash = dlsym(driver, "cuSimCrash");
    return 0;
}

static int begin(void) {
    if (cuInit(0)) return 4;
    cuDeviceGetCount(&devices);
    if (devices > 2) devices = 2;
    for (int s = 0; s < FIXED; s++) streams[s] = (Stream){(CUstream)(intptr_t)s, -1, 1, 0};
    if (own_default) streams[PER_THREAD].stream = NULL;
    for (int d = 0; d < devices; d++) {
        contexts[d] = (Context){.device = d, .alive = 1, .retained = 1};
        pools[d] = (Pool){.device = d, .alive = 1};
        if (cuDevicePrimaryCtxRetain(&contexts[d].context, d) || cuDeviceGetDefaultMemPool(&pools[d].pool, d)) return 5;
    }
    for (int i = 0; i < HOSTS; i++) {
        hosts[i].bytes = 1 << 20;
        hosts[i].at = aligned_alloc(4096, hosts[i].bytes);
        memset(hosts[i].at, 7, hosts[i].bytes);
    }
    for (intptr_t t = 1; t < THREADS; t++) {
        pthread_t id;
        pthread_create(&id, NULL, serves, (void *)t);
        pthread_detach(id);
    }
    return cuCtxSetCurrent(contexts[0].context);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: differential SEED CALLS [only=K,K,...] [skip=K,K,...] [ipc] [legal] [guarded] [small] [alone]\n");
        return 2;
    }
    const char *only = NULL, *skip = "";
    seed = strtoull(argv[1], NULL, 10);
    own_default = seed % 5 == 1;
    long calls = atol(argv[2]);
    for (int i = 3; i < argc; i++) {
        if (strncmp(argv[i], "only=", 5) == 0) only = argv[i] + 5;
        else if (strncmp(argv[i], "skip=", 5) == 0) skip = argv[i] + 5;
        with_ipc |= strcmp(argv[i], "ipc") == 0;
        legal |= strcmp(argv[i], "legal") == 0;
        guarded |= strcmp(argv[i], "guarded") == 0;
        small |= strcmp(argv[i], "small") == 0;
        alone |= strcmp(argv[i], "alone") == 0;
    }
    int code = find_functions();
    if (!code) code = begin();
    if (code) return code;
    for (call = 0; call < calls; call++) {
        if ((only && !is_listed(only, call)) || is_listed(skip, call)) continue;
        state = mix(seed ^ (uint64_t)call * 77);
        call_from(chance(75) ? 0 : 1 + (int)pick(THREADS - 1));
    }
    printf("end\n");
    fflush(stdout);
    if (seed % 2) _exit(0);
    exit(0);
}
