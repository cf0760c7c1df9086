/* A random program that is legal on a real GPU: threads, streams, devices,
 * events, captures, memory of every kind. Whatever lends it memory must keep
 * it so; the simulated GPU ends the program where that fails.
 *
 *   random SEED OPERATIONS THREADS
 *
 * RANDOM_ALLOW=2,999  codes that any call may answer (injected failures)
 * RANDOM_SHORT=1      an allocation may answer out-of-memory
 * RANDOM_FREES=1      a free may answer an allowed code too
 * RANDOM_WHOLE=1      first takes all memory: nobody else has any
 * RANDOM_FORK=1       forks before CUDA starts and in mid-run
 * RANDOM_KEEPS=1      nothing is asked of what is held in the end
 */
#include "random.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

pthread_rwlock_t forbidden = PTHREAD_RWLOCK_INITIALIZER, whole_device = PTHREAD_RWLOCK_INITIALIZER;
static long operations_each;
static int threads, devices;
static Stream shared[DEVICES][2];
static const char *allowed;

uint64_t pick(Thread *t, uint64_t below) {
    t->seed ^= t->seed << 13;
    t->seed ^= t->seed >> 7;
    t->seed ^= t->seed << 17;
    return below == 0 ? 0 : (t->seed * 0x2545F4914F6CDD1Du >> 11) % below;
}

_Noreturn void fail(const char *what, int value) {
    fprintf(stderr, "random: %s: %d\n", what, value);
    _exit(1);
}

int is_on(const char *name) {
    const char *value = getenv(name);
    return value != 0 && *value != 0;
}

static int is_allowed(int code) {
    char text[16];
    snprintf(text, sizeof text, ",%d,", code);
    return allowed != 0 && strstr(allowed, text) != 0;
}

int answer(Thread *t, int code, const char *call, int allocates) {
    if (code == 0) return 0;
    int pass = is_allowed(code) && (allocates >= 0 || is_on("RANDOM_FREES"));
    pass |= code == OUT_OF_MEMORY && allocates > 0 && is_on("RANDOM_SHORT");
    /* A capture in which a call failed may be incomplete. */
    pass |= t->refused_in_capture && strcmp(call, "cudaStreamEndCapture") == 0;
    if (!pass) fail(call, code);
    __atomic_fetch_add(&t->refused, 1, __ATOMIC_RELAXED);
    return code;
}

/* Waits on the host, by one of the ways there are. */
static int wait_for(Thread *t, int device, int lane) {
    Stream stream = t->lanes[device][lane];
    Event event = t->events[device][pick(t, EVENTS)];
    int way = pick(t, 3), code = 0;
    if (way > 0) TRY(cudaEventRecord(event, stream));
    enter_forbidden(t);
    if (way == 0) code = cudaStreamSynchronize(stream);
    else if (way == 1) code = cudaEventSynchronize(event);
    else while ((code = cudaEventQuery(event)) == NOT_READY) {}
    leave_forbidden(t);
    if (answer(t, code, "a wait for a stream", 0)) return 1;
    lane_done(t, device, lane);
    return 0;
}

static int wait_for_device(Thread *t, int device) {
    pthread_rwlock_wrlock(&whole_device);
    enter_forbidden(t);
    int code = answer(t, cudaDeviceSynchronize(), "cudaDeviceSynchronize", 0);
    leave_forbidden(t);
    pthread_rwlock_unlock(&whole_device);
    for (int lane = 0; lane < LANES && !code; lane++) lane_done(t, device, lane);
    return code;
}

/* Some work may still run on a stream when it goes; its handle may return. */
static int recycle_stream(Thread *t, int device) {
    int lane = LANES - 1 - pick(t, OWN_LANES);
    for (Replay *r = t->replays; r < t->replays + GRAPHS; r++)
        if (r->graph != 0 && r->device == device && lane >= CAPTURE_LANES) return 0;
    for (Block *b = t->blocks; b < t->blocks + BLOCKS; b++)
        if (b->base != 0 && b->device == device && b->lane == lane && follow(t, b, SHARED_LANES)) return 1;
    unsigned flags = lane < CAPTURE_LANES && pick(t, 2) ? 0 : NON_BLOCKING;
    Stream fresh = 0;
    TRY(cudaStreamCreateWithFlags(&fresh, flags));
    Stream old = t->lanes[device][lane];
    t->lanes[device][lane] = fresh;
    return answer(t, cudaStreamDestroy(old), "cudaStreamDestroy", 0);
}

static int ask_for_sizes(Thread *t) {
    size_t free_bytes, total;
    TRY(cudaMemGetInfo(&free_bytes, &total));
    if (free_bytes > total || total == 0) fail("cudaMemGetInfo", 0);
    return 0;
}

static int trim(Thread *t, int device, size_t keep) {
    Pool pool;
    TRY(cudaDeviceGetDefaultMemPool(&pool, device));
    enter_forbidden(t);
    int code = answer(t, cudaMemPoolTrimTo(pool, keep), "cudaMemPoolTrimTo", 0);
    leave_forbidden(t);
    return code;
}

static int step(Thread *t) {
    int device = pick(t, t->devices);
    TRY(cudaSetDevice(device));
    uint64_t choice = pick(t, 1000);
    if (choice < 250) return allocate(t, device);
    if (choice < 300) { ask_for_sizes(t); return 0; }
    if (choice < 303) return trim(t, device, pick(t, 4) ? 0 : pick(t, 256 << 20));
    if (choice < 303 + t->waiting) return wait_for_device(t, device);
    if (choice < 312 + 6 * t->waiting) return wait_for(t, device, some_lane(t));
    if (choice < 355) return recycle_stream(t, device);
    if (choice < 375) return capture(t, device);
    if (choice < 400) {
        Replay *r = &t->replays[pick(t, GRAPHS)];
        if (r->graph == 0) return 0;
        TRY(cudaSetDevice(r->device));
        return replay(t, r);
    }
    Block *b = some_block(t, device);
    if (b == 0) return 0;
    if (choice < 560) return use(t, b, some_lane(t), pick(t, 2));
    if (choice < 590) return read_side_by_side(t, b);
    if (choice < 680) return fill(t, b);
    if (choice < 700) return verify(t, b);
    if (choice < 740) return copy(t, b, some_block(t, device));
    if (choice < 760) return use(t, b, b->lane == DONE ? SHARED_LANES : b->lane, 1);
    return release(t, b);
}

/* In the child of a process that uses CUDA everything fails, and nothing else. */
static void fork_now(void) {
    pid_t child = fork();
    if (child == 0) {
        Address base;
        if (cudaMalloc(&base, 1 << 20) == 0) cudaFree(base);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) fail("the forked child", status);
}

/* Without these there is no program: tried again where a failure is injected. */
#define SURELY(call) do { \
    int tries_ = 0; \
    while (answer(t, (call), #call, 0)) if (++tries_ == TRIES) fail("refused again and again: " #call, tries_); \
} while (0)

static void *run(void *argument) {
    Thread *t = argument;
    for (int device = 0; device < devices; device++) {
        SURELY(cudaSetDevice(device));
        Stream *lanes = t->lanes[device];
        lanes[LEGACY_LANE] = (Stream)1;
        lanes[PER_THREAD_LANE] = (Stream)2;
        memcpy(&lanes[SHARED_LANES], shared[device], sizeof shared[device]);
        for (int lane = LANES - OWN_LANES; lane < LANES; lane++)
            SURELY(cudaStreamCreateWithFlags(&lanes[lane], NON_BLOCKING));
        for (int i = 0; i < EVENTS; i++)
            SURELY(cudaEventCreateWithFlags(&t->events[device][i], NO_TIMING));
    }
    t->devices = devices;
    for (; t->operations < operations_each; t->operations++) {
        step(t);
        if (t->operations == operations_each / 2 && is_on("RANDOM_FORK")) fork_now();
    }
    for (Replay *r = t->replays; r < t->replays + GRAPHS; r++) {
        if (r->graph == 0) continue;
        SURELY(cudaSetDevice(r->device));
        drop_replay(t, r);
    }
    for (Block *b = t->blocks; b < t->blocks + BLOCKS; b++)
        for (int tries = 0; b->base != 0; tries++) {
            if (tries > 100) fail("a block cannot be freed", tries);
            if (answer(t, cudaSetDevice(b->device), "cudaSetDevice", 0) == 0) release(t, b);
        }
    return 0;
}

/* All of a device's memory but 64 MiB can be had at once. */
static void take_it_all(Thread *t) {
    for (int device = 0; device < devices; device++) {
        size_t free_bytes, total;
        Address base;
        SURELY(cudaSetDevice(device));
        SURELY(cudaMemGetInfo(&free_bytes, &total));
        if (free_bytes != total) fail("MiB in use by nobody", (total - free_bytes) >> 20);
        if (cudaMalloc(&base, total - (64 << 20)) != 0 || cudaFree(base) != 0) fail("all of the memory", device);
    }
}

/* Everything was freed and nothing runs: all memory goes back on request. */
static void end(Thread *t) {
    /* Memory of one device may have been freed behind work of the other. */
    for (int device = 0; device < devices; device++)
        if (cudaSetDevice(device) != 0 || cudaDeviceSynchronize() != 0) fail("the end", device);
    for (int device = 0; device < devices; device++) {
        uint64_t held = 0;
        if (cudaSetDevice(device) != 0 || trim(t, device, 0)) fail("the end", device);
        if (cuSimPhysical(device, &held) != 0 || held != 0) fail("MiB held in the end", held >> 20);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    operations_each = atol(argv[2]) / (threads = atoi(argv[3]));
    allowed = getenv("RANDOM_ALLOW");
    if (is_on("RANDOM_FORK")) {
        pid_t child = fork();
        if (child == 0) {
            unsetenv("RANDOM_FORK");
            execv("/proc/self/exe", argv);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) fail("the child before the start", status);
    }
    Thread *all = calloc(threads, sizeof *all), *t = all;
    SURELY(cudaGetDeviceCount(&devices));
    devices = devices > DEVICES ? DEVICES : devices;
    for (int device = 0; device < devices; device++)
        for (int i = 0; i < 2; i++) {
            SURELY(cudaSetDevice(device));
            SURELY(cudaStreamCreateWithFlags(&shared[device][i], NON_BLOCKING * i));
        }
    if (is_on("RANDOM_WHOLE")) take_it_all(t);
    pthread_t *ids = calloc(threads, sizeof *ids);
    for (int i = 0; i < threads; i++) {
        all[i].seed = strtoull(argv[1], 0, 10) * 0x9E3779B97F4A7C15u + 7919 * (i + 1);
        for (int skip = 0; skip < 8; skip++) pick(&all[i], 1);
        all[i].plain = (int[]){0, 2, 6}[pick(&all[i], 3)];
        all[i].waiting = (int[]){0, 1, 5}[pick(&all[i], 3)];
        all[i].favourite = pick(&all[i], 3) ? (int)pick(&all[i], CAPTURE_LANES) : DONE;
        for (int size = 0; size < 8; size++) all[i].sizes[size] = any_size(&all[i]);
        if (pthread_create(&ids[i], 0, run, &all[i]) != 0) fail("pthread_create", i);
    }
    Thread sum = {0};
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], 0);
        sum.operations += all[i].operations;
        sum.allocations += all[i].allocations;
        sum.refused += all[i].refused;
        sum.captures += all[i].captures;
    }
    if (!is_on("RANDOM_KEEPS")) end(&sum);
    uint64_t failures = 0;
    if (cuSimFailures(&failures) != 0) fail("cuSimFailures", 0);
    printf("operations %ld allocations %ld captures %ld refused %ld failures %lu\n",
           sum.operations, sum.allocations, sum.captures, sum.refused, (unsigned long)failures);
    return 0;
}
