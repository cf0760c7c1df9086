/* A process that does what it is told, one line a command, and answers each with
 * one line: the code of the call, then what it gave. Addresses are hexadecimal,
 * handles 128 digits of it. */
#include "../support/cuda.h"
#include "../support/view.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct handle { unsigned char bytes[64]; };
struct range { uint64_t base; size_t bytes; uint32_t write; };

CUresult cuMemGetHandleForAddressRange(void *, unsigned long long, size_t, int, unsigned long long);
CUresult cuMemRelease(unsigned long long);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxGetFlags(unsigned *);
CUresult cuCtxSetFlags(unsigned);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned);
int cudaIpcGetMemHandle(struct handle *, void *);
int cudaIpcOpenMemHandle(void **, struct handle, unsigned);
int cudaIpcCloseMemHandle(void *);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaSetDevice(int);
int cudaDeviceReset(void);
int cudaDeviceSynchronize(void);
int cudaDeviceEnablePeerAccess(int, unsigned);
int cudaStreamCreate(void **);
int cudaStreamBeginCapture(void *, int);
int cudaStreamEndCapture(void *, void **);

/* Of a stand-in for torch, where the program has one. */
__attribute__((weak)) void *torch_alloc(size_t);
__attribute__((weak)) void *torch_tensor(size_t);
__attribute__((weak)) void torch_free(void *);
__attribute__((weak)) void torch_empty(void);
__attribute__((weak)) int torch_share(void *);
__attribute__((weak)) int torch_let_go(void);

static void *stream;
static int (*launch)(void *, const struct range *, unsigned, double);
static int (*physical)(int, uint64_t *);
static int (*crash)(void *);

static int nibble(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

static struct handle handle_of(const char *text) {
    struct handle handle;
    CHECK(strlen(text) == 2 * sizeof handle);
    for (size_t i = 0; i < sizeof handle; i++)
        handle.bytes[i] = (unsigned char)(nibble(text[2 * i]) << 4 | nibble(text[2 * i + 1]));
    return handle;
}

/* Word i of the pattern that a number stands for. */
static uint32_t word(uint64_t number, size_t i) {
    uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)i * 0xC2B2AE3D27D4EB4Fu;
    return (uint32_t)(mixed >> 29);
}

static int fill(void *at, size_t bytes, uint64_t number) {
    uint32_t *words = malloc(bytes);
    for (size_t i = 0; i < bytes / 4; i++) words[i] = word(number, i);
    int code = cudaMemcpy(at, words, bytes, 1);
    free(words);
    return code;
}

/* 1: the pattern is there. */
static int is(void *at, size_t bytes, uint64_t number, int *same) {
    uint32_t *words = malloc(bytes);
    int code = cudaMemcpy(words, at, bytes, 2);
    *same = 1;
    for (size_t i = 0; i < bytes / 4 && *same; i++) *same = words[i] == word(number, i);
    free(words);
    return code;
}

/* An open by a thread of its own. */
struct task { struct handle handle; void *at; int code; pthread_t thread; };

static void *open_it(void *given) {
    struct task *task = given;
    task->code = cudaIpcOpenMemHandle(&task->at, task->handle, 1);
    return NULL;
}

/* Opens it, uses it for a while and closes it. */
static void *overtake(void *given) {
    void *other;
    OK(cudaSetDevice(0));
    OK(cudaStreamCreate(&other));
    usleep(100000);
    open_it(given);
    struct task *task = given;
    OK(task->code);
    struct range range = {(uint64_t)task->at, 4096, 0};
    OK(launch(other, &range, 1, 6e5));
    OK(cudaIpcCloseMemHandle(task->at));
    return NULL;
}

/* Makes stitches of ever other lengths until it is told to end. */
static volatile int stitching;

static void *stitch(void *given) {
    void *held[8] = {NULL};
    OK(cudaSetDevice(0));
    for (size_t i = 0; stitching; i++) {
        void **at = &held[i % 8];
        OK(cudaFree(*at));
        OK(cudaMalloc(at, (3 << 20) * (1 + i * 7919 % 41)));
    }
    for (int i = 0; i < 8; i++) OK(cudaFree(held[i]));
    return given;
}

static void answer(char *line) {
    char name[32] = "", text[160] = "";
    unsigned long long a = 0, b = 0, c = 0;
    void *at = NULL;
    struct handle handle;
    CHECK(sscanf(line, "%31s", name) == 1);
    const char *rest = line + strlen(name);
#define COMMAND(word) else if (strcmp(name, word) == 0)
    if (0) {}
    COMMAND("alloc") {
        sscanf(rest, "%llu", &a);
        int code = cudaMalloc(&at, a);
        printf("%d %llx\n", code, (unsigned long long)at);
    }
    COMMAND("alloc-async") {
        sscanf(rest, "%llu", &a);
        int code = cudaMallocAsync(&at, a, stream);
        printf("%d %llx\n", code, (unsigned long long)at);
    }
    COMMAND("torch") {
        sscanf(rest, "%llu", &a);
        printf("0 %llx\n", (unsigned long long)torch_alloc(a));
    }
    COMMAND("tensor") { printf("0 %llx\n", (unsigned long long)torch_tensor(strtoull(rest, NULL, 10))); }
    COMMAND("torch-free") {
        sscanf(rest, "%llx", &a);
        torch_free((void *)a);
        printf("0\n");
    }
    COMMAND("torch-empty") {
        torch_empty();
        printf("0\n");
    }
    COMMAND("descriptor") {
        /* Of the page around an address, as torch passes it on. */
        sscanf(rest, "%llx", &a);
        printf("%d\n", torch_share((void *)a));
    }
    COMMAND("torch-lets-go") { printf("%d\n", torch_let_go()); }
    COMMAND("more-files") {
        struct rlimit limit;
        int free_one = dup(0);
        close(free_one);
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = atoi(rest) ? limit.rlim_max : (rlim_t)free_one;
        printf("%d\n", setrlimit(RLIMIT_NOFILE, &limit));
    }
    COMMAND("bind") {
        sscanf(rest, "%llx", &a);
        printf("%d\n", cuMulticastBindAddr(7, 0, a, 2 << 20, 0));
    }
    COMMAND("dma-buf") {
        int descriptor = -1;
        sscanf(rest, "%llx %llu", &a, &b);
        printf("%d\n", cuMemGetHandleForAddressRange(&descriptor, a, b, 1, 0));
        close(descriptor);
    }
    COMMAND("retain") {
        unsigned long long kept = 0;
        sscanf(rest, "%llx", &a);
        int code = cuMemRetainAllocationHandle(&kept, (void *)a);
        printf("%d\n", code);
        if (code == 0) cuMemRelease(kept);
    }
    COMMAND("mark") {
        unsigned value = 1;
        sscanf(rest, "%llx %llu", &a, &b);
        value = (unsigned)b;
        printf("%d\n", cuPointerSetAttribute(&value, 6, a));
    }
    COMMAND("flags") {
        unsigned flags = 0;
        int code = cuCtxGetFlags(&flags);
        printf("%d %x\n", code, flags);
    }
    COMMAND("set-flags") {
        sscanf(rest, "%llx", &a);
        printf("%d\n", cuCtxSetFlags((unsigned)a));
    }
    COMMAND("set-primary-flags") {
        sscanf(rest, "%llx", &a);
        printf("%d\n", cuDevicePrimaryCtxSetFlags_v2(0, (unsigned)a));
    }
    COMMAND("free") {
        sscanf(rest, "%llx", &a);
        printf("%d\n", cudaFree((void *)a));
    }
    COMMAND("free-async") {
        sscanf(rest, "%llx", &a);
        printf("%d\n", cudaFreeAsync((void *)a, stream));
    }
    COMMAND("fill") {
        sscanf(rest, "%llx %llu %llu", &a, &b, &c);
        printf("%d\n", fill((void *)a, b, c));
    }
    COMMAND("is") {
        int same = 0;
        sscanf(rest, "%llx %llu %llu", &a, &b, &c);
        int code = is((void *)a, b, c, &same);
        printf("%d %s\n", code, same ? "same" : "other");
    }
    COMMAND("get") {
        sscanf(rest, "%llx", &a);
        memset(&handle, 0, sizeof handle);
        printf("%d ", cudaIpcGetMemHandle(&handle, (void *)a));
        for (size_t i = 0; i < sizeof handle; i++) printf("%02x", handle.bytes[i]);
        printf("\n");
    }
    COMMAND("open") {
        a = 1;
        sscanf(rest, "%159s %llu", text, &a);
        at = (void *)7;
        int code = cudaIpcOpenMemHandle(&at, handle_of(text), (unsigned)a);
        printf("%d %llx\n", code, (unsigned long long)at);
    }
    COMMAND("close") {
        sscanf(rest, "%llx", &a);
        printf("%d\n", cudaIpcCloseMemHandle((void *)a));
    }
    COMMAND("close-overtaken") {
        /* By an opening that comes, is used and goes during its wait. */
        struct task task;
        pthread_t thread;
        sscanf(rest, "%159s %llx", text, &a);
        struct range range = {a, 4096, 0};
        task.handle = handle_of(text);
        OK(launch(stream, &range, 1, 3e5));
        CHECK(pthread_create(&thread, NULL, overtake, &task) == 0);
        int code = cudaIpcCloseMemHandle((void *)a);
        pthread_join(thread, NULL);
        printf("%d\n", code | cudaDeviceSynchronize());
    }
    COMMAND("open-at-once") {
        /* Four times, by as many threads. */
        struct task tasks[4];
        sscanf(rest, "%159s", text);
        for (int i = 0; i < 4; i++) {
            tasks[i].handle = handle_of(text);
            CHECK(pthread_create(&tasks[i].thread, NULL, open_it, &tasks[i]) == 0);
        }
        for (int i = 0; i < 4; i++) {
            CHECK(pthread_join(tasks[i].thread, NULL) == 0);
            CHECK(tasks[i].code == 0 && tasks[i].at == tasks[0].at);
        }
        printf("0 %llx\n", (unsigned long long)tasks[0].at);
    }
    COMMAND("range") {
        CUdeviceptr base = 0;
        size_t bytes = 0;
        sscanf(rest, "%llx", &a);
        int code = cuMemGetAddressRange_v2(&base, &bytes, a);
        printf("%d %llx %zu\n", code, base, bytes);
    }
    COMMAND("attribute") {
        unsigned long long value = 0;
        sscanf(rest, "%llx %llu", &a, &b);
        int code = cuPointerGetAttribute(&value, (int)b, a);
        printf("%d %llx\n", code, value);
    }
    COMMAND("access") {
        /* Asked with no context current. */
        unsigned flags = 77;
        sscanf(rest, "%llx", &a);
        OK(cuCtxSetCurrent(NULL));
        int code = cuPointerGetAttribute(&flags, 16, a);
        start_cuda();
        printf("%d %u\n", code, flags);
    }
    COMMAND("work") {
        /* A kernel that writes for so many microseconds; nobody waits for it. */
        sscanf(rest, "%llx %llu %llu", &a, &b, &c);
        struct range range = {a, b, 1};
        printf("%d\n", launch(stream, &range, 1, (double)c));
    }
    COMMAND("crash") { printf("%d\n", crash(stream) | cudaDeviceSynchronize()); }
    COMMAND("sync") { printf("%d\n", cudaDeviceSynchronize()); }
    COMMAND("stitches") {
        static pthread_t thread;
        sscanf(rest, "%d", &stitching);
        CHECK((stitching ? pthread_create(&thread, NULL, stitch, NULL) : pthread_join(thread, NULL)) == 0);
        printf("0\n");
    }
    COMMAND("destroy") {
        /* Another context. */
        CUcontext other = NULL;
        OK(cuCtxCreate_v2(&other, 0, 0));
        int code = cuCtxDestroy_v2(other);
        start_cuda();
        printf("%d\n", code);
    }
    COMMAND("reset") {
        int code = cudaDeviceReset();
        start_cuda();
        CHECK(cudaStreamCreate(&stream) == 0);
        printf("%d\n", code);
    }
    COMMAND("view") { printf("%d\n", view_begins()); }
    COMMAND("view-ends") { printf("%d\n", view_ends()); }
    COMMAND("device") {
        sscanf(rest, "%llu", &a);
        int code = cudaSetDevice((int)a);
        /* Its context, and a stream there. */
        CHECK(cudaFree(NULL) == 0 && cudaStreamCreate(&stream) == 0);
        printf("%d\n", code);
    }
    COMMAND("peer") {
        sscanf(rest, "%llu", &a);
        printf("%d\n", cudaDeviceEnablePeerAccess((int)a, 0));
    }
    COMMAND("capture") {
        sscanf(rest, "%llu", &a);
        printf("%d\n", cudaStreamBeginCapture(stream, (int)a));
    }
    COMMAND("queue-copy") {
        sscanf(rest, "%llx %llx %llu", &a, &b, &c);
        printf("%d\n", cudaMemcpyAsync((void *)a, (void *)b, c, 4, stream));
    }
    COMMAND("captured") {
        void *graph = NULL;
        int code = cudaStreamEndCapture(stream, &graph);
        printf("%d %s\n", code, graph == NULL ? "lost" : "kept");
    }
    COMMAND("physical") {
        uint64_t bytes = 0;
        int code = physical(0, &bytes);
        printf("%d %llu\n", code, (unsigned long long)bytes);
    }
    COMMAND("fork") {
        /* The child does nothing and goes, with its copies of all descriptors. */
        int status = -1;
        pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, &status, 0);
        printf("%d\n", status);
    }
    COMMAND("fork-and-stay") {
        pid_t child = fork();
        if (child == 0) {
            /* Not holding the pipes of the test. */
            close(0), close(1), close(2);
            for (;;) pause();
        }
        printf("0 %d\n", child);
    }
    COMMAND("close-sockets") {
        /* As daemons close what they do not know; the rest is the simulator's. */
        for (int fd = 3; fd < 256; fd++) {
            char link[32];
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            ssize_t length = readlink(link, text, sizeof text);
            if (length > 7 && memcmp(text, "socket:", 7) == 0) close(fd);
        }
        printf("0\n");
    }
    COMMAND("reap") {
        /* What a program that waits for all of its children would see. */
        int status = 0;
        printf("0 %d\n", (int)waitpid(-1, &status, WNOHANG));
    }
    else printf("unknown command %s\n", name);
    fflush(stdout);
}

int main(void) {
    char *line = NULL;
    size_t room = 0;
    *(void **)&launch = dlsym(RTLD_DEFAULT, "cuSimLaunch");
    *(void **)&physical = dlsym(RTLD_DEFAULT, "cuSimPhysical");
    *(void **)&crash = dlsym(RTLD_DEFAULT, "cuSimCrash");
    CHECK(launch != NULL && physical != NULL && crash != NULL);
    start_cuda();
    OK(cudaStreamCreate(&stream));
    printf("ready\n");
    fflush(stdout);
    while (getline(&line, &room, stdin) > 0) answer(line);
    free(line);
    return 0;
}
