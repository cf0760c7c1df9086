/* A process that does what it is told, one line a command, and answers each with
 * one line: the result of the call, then what it gave. Addresses are hexadecimal,
 * sizes in bytes; a name `-` stands for a null pointer. */
#include "../support/cuda.h"
#include "../support/view.h"
#include "../../../include/memcuda.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct range { uint64_t base; size_t bytes; uint32_t write; };
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemset(void *, int, size_t);
int cudaMemsetAsync(void *, int, size_t, void *);
int cudaSetDevice(int);
int cudaDeviceReset(void);
int cudaDeviceSynchronize(void);
int cudaStreamCreate(void **);
int cudaStreamSynchronize(void *);
int cudaStreamQuery(void *);
struct handle { unsigned char bytes[64]; };
int cudaIpcGetMemHandle(struct handle *, void *);
int cudaIpcOpenMemHandle(void **, struct handle, unsigned);
int cudaIpcCloseMemHandle(void *);

static void *stream;
static char line[8192];

/* Words of the command, in turn; NULL at the end. */
static const char *word(void) { return strtok(NULL, " \n"); }
static uint64_t number(void) { const char *text = word(); return text ? strtoull(text, NULL, 0) : 0; }
static const char *name(void) { const char *text = word(); return text && strcmp(text, "-") ? text : NULL; }

/* Opens a name once, and then again and again without a system call: one would
 * end the thread at once. So it ends without the C library, too. */
static struct { const char *name; int count; volatile int opened, ended, id; } strict;
static void *open_strictly(void *unused) {
    memcuda_handle handle; int result = 0;
    for (; strict.opened < strict.count && !result; strict.opened++) {
        result = memcuda_open(strict.name, NULL, &handle);
        if (!result) result = memcuda_close(handle);
        if (strict.opened >= 0) continue;
        strict.id = (int)syscall(SYS_gettid);
        CHECK(!prctl(PR_SET_SECCOMP, 1 /* strict: read, write, exit */));
    }
    strict.ended = !result;
    syscall(SYS_exit, 0);
    return unused;
}

/* Options as `bytes=4096 flags=1 device=1 dtype=f32 shape=2x3 wait=1000`. */
static memcuda_options *options(void) {
    static memcuda_options read;
    static uint64_t shape[64];
    read = (memcuda_options)MEMCUDA_OPTIONS;
    for (const char *text; (text = word());) {
        const char *value = strchr(text, '=') + 1;
        if (!strncmp(text, "bytes", 5)) read.bytes = strtoull(value, NULL, 0);
        else if (!strncmp(text, "flags", 5)) read.flags = strtoul(value, NULL, 0);
        else if (!strncmp(text, "device", 6)) read.device = atoi(value);
        else if (!strncmp(text, "dtype", 5)) read.dtype = value;
        else if (!strncmp(text, "wait", 4)) read.wait_us = strtoull(value, NULL, 0);
        else if (!strncmp(text, "size", 4)) read.size = strtoul(value, NULL, 0);
        else if (!strncmp(text, "shape", 5)) {
            char *end = (char *)value;
            for (read.rank = 0, read.shape = shape; *end; end += *end == 'x') shape[read.rank++] = strtoull(end, &end, 0);
        } else CHECK(!"such an option");
    }
    return &read;
}

static double now_us(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec / 1e3; }
static int listed(const memcuda_info *info, void *names) {
    snprintf((char *)names + strlen(names), 4096 - strlen(names), " %s", info->name);
    return strlen(names) > 3500;
}
static int counted(const memcuda_info *info, void *count) { CHECK(info->bytes > 0); ++*(int *)count; return 0; }

static void print_info(int result, const memcuda_info *info) {
    printf("%d name=%s state=%u bytes=%lu mapped=%lu version=%lu flags=%u dtype=%s rank=%u first=%lu references=%lu holders=%u "
           "device=%d address=%lx persist=%lu maker=%u generation=%02x%02x%02x%02x\n",
           result, info->name, info->state, info->bytes, info->mapped, info->version, info->flags, info->dtype, info->rank, info->shape[0],
           info->references, info->holders, info->device, info->address, info->persist_until_s, info->maker_pid, info->generation[0],
           info->generation[1], info->generation[2], info->generation[3]);
}

/* Uses memory for a while by a handle of its own, while another one of it ends. */
static struct range overtaken;
static void launch(void *on, double microseconds) {
    int (*simulated)(void *, const struct range *, unsigned, double) = dlsym(RTLD_DEFAULT, "cuSimLaunch");
    CHECK(!simulated(on, &overtaken, 1, microseconds));
}
static void *overtake(void *unused) {
    memcuda_handle handle; void *other;
    CHECK(!cudaSetDevice(0) && !cudaStreamCreate(&other)); usleep(100000);
    CHECK(!memcuda_find((void *)overtaken.base, &handle)); launch(other, 6e5); CHECK(!memcuda_close(handle));
    return unused;
}

static const char *raced;
static void *open_it(void *handle) {
    CHECK(memcuda_open(raced, NULL, handle) == MEMCUDA_OK);
    return NULL;
}

static void *publish_it(void *handle) { memcuda_publish((memcuda_handle)handle, 0, NULL); return NULL; }

static void obey(const char *what) {
    void *at = NULL;
    memcuda_handle handle = 0;
    uint64_t value = 0, a, b;
    memcuda_info info = {.size = sizeof info};
    int result;
    if (!strcmp(what, "malloc")) { result = cudaMalloc(&at, number()); printf("%d %lx\n", result, (uint64_t)at); }
    else if (!strcmp(what, "async")) { result = cudaMallocAsync(&at, number(), stream); printf("%d %lx\n", result, (uint64_t)at); }
    else if (!strcmp(what, "driver")) { CUdeviceptr p = 0; result = cuMemAlloc_v2(&p, number()); printf("%d %llx\n", result, p); }
    else if (!strcmp(what, "rows")) { CUdeviceptr p = 0; size_t pitch = 0; a = number(); result = cuMemAllocPitch_v2(&p, &pitch, a, number(), 4); printf("%d %llx\n", result, p); }
    else if (!strcmp(what, "free")) printf("%d\n", cudaFree((void *)strtoull(word(), NULL, 16)));
    else if (!strcmp(what, "freeasync")) printf("%d\n", cudaFreeAsync((void *)strtoull(word(), NULL, 16), stream));
    else if (!strcmp(what, "set")) { a = strtoull(word(), NULL, 16); b = number(); printf("%d\n", cudaMemset((void *)a, (int)b, number()) | cudaDeviceSynchronize()); }
    else if (!strcmp(what, "setasync")) { a = strtoull(word(), NULL, 16); b = number(); printf("%d\n", cudaMemsetAsync((void *)a, (int)b, number(), stream)); }
    else if (!strcmp(what, "get")) { unsigned char byte = 0; a = strtoull(word(), NULL, 16); result = cudaMemcpy(&byte, (void *)a, 1, 2); printf("%d %u\n", result, byte); }
    else if (!strcmp(what, "sum")) { /* of all bytes */
        a = strtoull(word(), NULL, 16); b = number(); unsigned char *bytes = malloc(b);
        result = cudaMemcpy(bytes, (void *)a, b, 2);
        for (uint64_t i = 0; i < b; i++) value += bytes[i];
        free(bytes); printf("%d %lu\n", result, value);
    }
    else if (!strcmp(what, "range")) { CUdeviceptr base = 0; size_t bytes = 0; result = cuMemGetAddressRange_v2(&base, &bytes, strtoull(word(), NULL, 16)); printf("%d %llx %zu\n", result, base, bytes); }
    else if (!strcmp(what, "access")) { unsigned flags = 0; result = cuPointerGetAttribute(&flags, 16, strtoull(word(), NULL, 16)); printf("%d %u\n", result, flags); }
    else if (!strcmp(what, "device")) printf("%d\n", cudaSetDevice((int)number()));
    else if (!strcmp(what, "reset")) printf("%d\n", cudaDeviceReset());
    else if (!strcmp(what, "view")) printf("%d\n", view_begins());
    else if (!strcmp(what, "view-ends")) printf("%d\n", view_ends());
    else if (!strcmp(what, "nowhere")) printf("%d\n", cuCtxSetCurrent(NULL));
    else if (!strcmp(what, "work")) { /* writes on the default stream for so many microseconds, and is not waited for */
        overtaken = (struct range){strtoull(word(), NULL, 16), 0, 1}; overtaken.bytes = number(); launch(NULL, (double)number()); puts("0");
    }
    else if (!strcmp(what, "sync-device")) printf("%d\n", cudaDeviceSynchronize());
    else if (!strcmp(what, "query-default")) printf("%d\n", cudaStreamQuery(NULL));
    else if (!strcmp(what, "sync")) printf("%d\n", cudaStreamSynchronize(stream));
    else if (!strcmp(what, "query")) printf("%d\n", cudaStreamQuery(stream));
    else if (!strcmp(what, "thread")) printf("%d\n", prctl(PR_SET_NAME, word()));
    else if (!strcmp(what, "create")) { const char *n = name(); result = MEMCUDA_TRY(memcuda_create, n, options(), &handle); printf("%d %lu\n", result, handle); }
    else if (!strcmp(what, "open")) { const char *n = name(); result = MEMCUDA_TRY(memcuda_open, n, options(), &handle); printf("%d %lu\n", result, handle); }
    else if (!strcmp(what, "either")) { const char *n = name(); result = MEMCUDA_TRY(memcuda_create_or_open, n, options(), &handle); printf("%d %lu\n", result, handle); }
    else if (!strcmp(what, "next")) { const char *n = name(); int mode = (int)number(); printf("%d\n", MEMCUDA_TRY(memcuda_name_next, n, mode, options())); }
    else if (!strcmp(what, "find")) { result = MEMCUDA_TRY(memcuda_find, (void *)strtoull(word(), NULL, 16), &handle); printf("%d %lu\n", result, handle); }
    else if (!strcmp(what, "close")) printf("%d\n", MEMCUDA_TRY(memcuda_close, number()));
    else if (!strcmp(what, "address")) printf("0 %lx\n", (uint64_t)memcuda_address(number()));
    else if (!strcmp(what, "describe")) { result = MEMCUDA_TRY(memcuda_describe, number(), &info); print_info(result, &info); }
    else if (!strcmp(what, "show")) { result = MEMCUDA_TRY(memcuda_show, name(), &info); print_info(result, &info); }
    else if (!strcmp(what, "seal")) printf("%d\n", MEMCUDA_TRY(memcuda_seal, number()));
    else if (!strcmp(what, "publish")) { a = number(); result = MEMCUDA_TRY(memcuda_publish, a, number(), &value); printf("%d %lu\n", result, value); }
    else if (!strcmp(what, "publishon")) { a = number(); result = MEMCUDA_TRY(memcuda_publish_on, a, number(), stream, &value); printf("%d %lu\n", result, value); }
    else if (!strcmp(what, "publish-default")) { a = number(); result = MEMCUDA_TRY(memcuda_publish_on, a, number(), NULL, &value); printf("%d %lu\n", result, value); }
    else if (!strcmp(what, "wait-default")) { a = number(); printf("%d\n", MEMCUDA_TRY(memcuda_wait_on, a, number(), NULL)); }
    else if (!strcmp(what, "wait")) { a = number(); b = number(); result = MEMCUDA_TRY(memcuda_wait, a, b, number(), &value); printf("%d %lu\n", result, value); }
    else if (!strcmp(what, "waiton")) { a = number(); printf("%d\n", MEMCUDA_TRY(memcuda_wait_on, a, number(), stream)); }
    else if (!strcmp(what, "persist")) { const char *n = name(); printf("%d\n", MEMCUDA_TRY(memcuda_persist, n, number())); }
    else if (!strcmp(what, "delete")) printf("%d\n", MEMCUDA_TRY(memcuda_delete, name()));
    else if (!strcmp(what, "list")) { char names[4096] = ""; result = MEMCUDA_TRY(memcuda_list, listed, names); printf("%d%s\n", result, names); }
    else if (!strcmp(what, "capture")) printf("%d\n", cuStreamBeginCapture_v2(stream, 0));
    else if (!strcmp(what, "relaxed")) printf("%d\n", cuStreamBeginCapture_v2(stream, 2));
    else if (!strcmp(what, "captured")) { CUgraph graph; printf("%d\n", cuStreamEndCapture(stream, &graph)); }
    else if (!strcmp(what, "physical")) { result = ((int (*)(int, uint64_t *))dlsym(RTLD_DEFAULT, "cuSimPhysical"))(0, &value); printf("%d %lu\n", result, value); }
    else if (!strcmp(what, "message")) printf("0 %s\n", memcuda_message());
    else if (!strcmp(what, "cuda")) printf("0 %d\n", memcuda_cuda_result());
    else if (!strcmp(what, "resultname")) printf("0 %s\n", memcuda_result_name((int)number()));
    else if (!strcmp(what, "version")) printf("%d %d\n", memcuda_present(), memcuda_present() ? memcuda_version() : 0);
    else if (!strcmp(what, "many")) { /* creates N names, opens all, lists all; us for the list, descriptors in use */
        int count = (int)number(), seen = 0; char each[64]; memcuda_options wanted = MEMCUDA_OPTIONS; wanted.bytes = 1 << 20;
        const char *mode = word(); result = 0;
        for (int i = 0; i < count && !result; i++) {
            snprintf(each, sizeof each, "many/%05d", i);
            result = !strcmp(mode, "create") ? memcuda_create(each, &wanted, &handle) : memcuda_open(each, NULL, &handle);
            if (!result && !strcmp(mode, "create")) memset(memcuda_address(handle), i & 127, 1);
            else if (!result) CHECK(*(char *)memcuda_address(handle) == (i & 127));
        }
        int open_fds = 0; for (int fd = 0; fd < 1024; fd++) open_fds += fcntl(fd, F_GETFD) >= 0;
        double began = now_us(); if (!result) result = memcuda_list(counted, &seen);
        printf("%d %d %.0f %d %s\n", result, seen, now_us() - began, open_fds, result ? memcuda_message() : "");
    }
    else if (!strcmp(what, "dlpack")) { /* a tensor of DLPack that owns the handle is let go */
        uint64_t *managed = calloc(1, 256); a = number();
        if (number()) { managed[1] = a; memcuda_dlpack_deleter_versioned(managed); } else { managed[6] = a; memcuda_dlpack_deleter(managed); }
        memcuda_dlpack_deleter(NULL); puts("0");
    }
    else if (!strcmp(what, "race")) { /* eight threads open a name; how many addresses they have */
        memcuda_handle handles[8]; pthread_t threads[8]; int distinct = 0; raced = word();
        for (int i = 0; i < 8; i++) CHECK(!pthread_create(&threads[i], NULL, open_it, &handles[i]));
        for (int i = 0; i < 8; i++) { CHECK(!pthread_join(threads[i], NULL)); distinct += i == 0 || memcuda_address(handles[i]) != memcuda_address(handles[0]); }
        for (int i = 0; i < 8; i++) CHECK(memcuda_close(handles[i]) == MEMCUDA_OK);
        printf("0 %d\n", distinct);
    }
    else if (!strcmp(what, "looks")) { /* at what is open, while another thread publishes a version of it: microseconds */
        pthread_t thread; a = number();
        CHECK(!pthread_create(&thread, NULL, publish_it, (void *)a)); usleep(100000);
        double began = now_us(); result = memcuda_describe(a, &info); printf("%d %.0f\n", result, now_us() - began);
        fflush(stdout); CHECK(!pthread_join(thread, NULL));
    }
    else if (!strcmp(what, "fork")) { /* has a child an address of a handle, or can it close it? */
        int status = -1; a = number();
        pid_t child = fork();
        if (child == 0) _exit(memcuda_address(a) != NULL || memcuda_close(a) != MEMCUDA_UNAVAILABLE);
        CHECK(waitpid(child, &status, 0) == child); printf("0 %d\n", status);
    }
    else if (!strcmp(what, "files")) { /* so many descriptors; 0: as many as are open */
        struct rlimit limit; a = number(); CHECK(!getrlimit(RLIMIT_NOFILE, &limit)); limit.rlim_cur = a;
        if (!a) { int free_one = dup(0); CHECK(free_one > 0 && !close(free_one)); limit.rlim_cur = (rlim_t)free_one; }
        printf("%d\n", setrlimit(RLIMIT_NOFILE, &limit));
    }
    else if (!strcmp(what, "close-sockets")) { /* as daemons close what they do not know; the rest is the simulator's */
        char link[32], to[32];
        for (int fd = 3; fd < 256; fd++) {
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            if (readlink(link, to, sizeof to) > 7 && !memcmp(to, "socket:", 7)) close(fd);
        }
        printf("0\n");
    }
    else if (!strcmp(what, "again")) { /* opens an open name N times more in a thread that may make no system call */
        pthread_t thread; strict.name = word(); strict.count = (int)number(); strict.opened = -1; strict.ended = 0;
        CHECK(!pthread_create(&thread, NULL, open_strictly, NULL));
        while (!strict.id || !syscall(SYS_tgkill, getpid(), strict.id, 0)) usleep(1000);
        if (strict.ended) printf("0 %d\n", strict.opened); else printf("-1 a system call, when %d were opened\n", strict.opened);
    }
    else if (!strcmp(what, "overtaken")) { /* a close, or a free, by a handle that comes, is used and goes during its wait */
        pthread_t thread; overtaken = (struct range){strtoull(word(), NULL, 16), 4096, 0}; a = number(); launch(stream, 3e5);
        CHECK(!pthread_create(&thread, NULL, overtake, NULL)); result = a ? memcuda_close(a) : cudaFree((void *)overtaken.base);
        CHECK(!pthread_join(thread, NULL)); printf("%d\n", result | cudaDeviceSynchronize());
    }
    else if (!strcmp(what, "kernel")) { /* writes */
        int (*launch)(void *, const struct range *, unsigned, double) = dlsym(RTLD_DEFAULT, "cuSimLaunch");
        struct range range = {strtoull(word(), NULL, 16), 0, 1}; range.bytes = number();
        result = launch(stream, &range, 1, 10.0); printf("%d\n", result ? result : cudaStreamSynchronize(stream));
    }
    else if (!strcmp(what, "ipcget")) {
        struct handle read = {{0}}; result = cudaIpcGetMemHandle(&read, (void *)strtoull(word(), NULL, 16)); printf("%d ", result);
        for (int i = 0; i < 64; i++) printf("%02x", read.bytes[i]);
        puts("");
    }
    else if (!strcmp(what, "ipcclose")) printf("%d\n", cudaIpcCloseMemHandle((void *)strtoull(word(), NULL, 16)));
    else if (!strcmp(what, "ipcopen")) {
        struct handle read; const char *text = word(); unsigned byte;
        for (int i = 0; i < 64; i++) { CHECK(sscanf(text + 2 * i, "%2x", &byte) == 1); read.bytes[i] = (unsigned char)byte; }
        result = cudaIpcOpenMemHandle(&at, read, 1); printf("%d %lx\n", result, (uint64_t)at);
    }
    else printf("-1 no such command: %s\n", what);
}

int main(int argc, char **argv) {
    if (argc > 1) CHECK(cudaSetDevice(atoi(argv[1])) == 0);
    CHECK(cudaStreamCreate(&stream) == 0);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        obey(strtok(line, " \n"));
        fflush(stdout);
    }
    return 0;
}
