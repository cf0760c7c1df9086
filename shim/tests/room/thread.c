/* What a program does beside the thread that gives memory back.
 *
 *   thread closed     it closes every descriptor that it did not open
 *   thread full       it has no descriptor to spare, and somebody asks for memory
 *   thread barred     it may have no descriptor at all
 *   thread refused    there was none to be had when it was first wanted
 *   thread trapped    a sandbox of the program's answers a call of the thread in a handler
 *   thread unasked    one that came later ends whoever lets somebody in, where nobody asks
 *   thread sleepless  one refuses it every wait but those for locks
 *   thread LIBRARY    a constructor, under the loader's lock, ends a context while
 *                     the thread wants to know who else is on the device
 *
 * As a library (-DLIBRARY) it is the constructor.
 */
#define _GNU_SOURCE
#include "../support/cuda.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef LIBRARY
__attribute__((constructor)) static void construct(void) {
    void (*work)(void);
    CHECK(sscanf(getenv("THREAD_WORK"), "%p", (void **)&work) == 1);
    work();
}
#else
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxPopCurrent_v2(CUcontext *);

static CUcontext second;
static int refuses;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return refuses ? refuses = 0, EAGAIN : real(thread, attributes, run, with);
}

static int threads(void) {
    int count = 0;
    DIR *all = opendir("/proc/self/task");
    for (struct dirent *one; (one = readdir(all));) count += one->d_name[0] != '.';
    closedir(all);
    return count;
}

static void in_the_loader(void) {
    /* What lies there counts as idle after a second, from the next look on. */
    usleep(2600000);
    OK(cuCtxDestroy_v2(second));
}

static double seconds_of_cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static volatile int answered;

static void answer(int signal, siginfo_t *about, void *context) {
    ucontext_t *at = context;
    (void)signal, (void)about;
#ifdef __x86_64__
    at->uc_mcontext.gregs[REG_RAX] = -EPERM;
#else
    at->uc_mcontext.regs[0] = -EPERM;
#endif
    answered++;
}

#ifdef SYS_poll
enum { POLL = SYS_poll };
#else
enum { POLL = SYS_ppoll };
#endif

/* From now on no thread makes these calls. */
static void forbid(int call, int other, unsigned answer) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0);
}

/* The wait of the library's thread, which nobody else makes here, is the handler's to answer. */
static void trap(void) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    forbid(POLL, POLL, SECCOMP_RET_TRAP);
    for (int looks = 0; !answered && looks < 1000; looks++) usleep(10000);
    CHECK(answered);
}

/* By a call that no case forbids. */
static void rest(long milliseconds) {
    struct timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
    select(0, NULL, NULL, NULL, &time);
}

/* How many doors others find here, and the name of one of them. */
static int doors(char name[108]) {
    char line[512], own[32];
    int count = 0;
    snprintf(own, sizeof own, "/%d-", (int)getpid());
    FILE *sockets = fopen("/proc/net/unix", "r");
    CHECK(sockets);
    while (fgets(line, sizeof line, sockets)) {
        char *door = strstr(line, "@memcuda/");
        if (!door || !strstr(door, own)) continue;
        snprintf(name, 108, "%.*s", (int)strcspn(door, "\n"), door);
        count++;
    }
    fclose(sockets);
    return count;
}

/* Asks this process for memory as another one would, and stays. */
static void knock(void) {
    char name[108];
    CHECK(doors(name) == 1);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    int asker = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (open("/dev/null", O_RDONLY) >= 0) {}
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    CHECK(connect(asker, (struct sockaddr *)&address, length) == 0);
}

int main(int count, char **arguments) {
    CUdeviceptr at;
    CHECK(count == 2);
    start_cuda();
    refuses = strcmp(arguments[1], "refused") == 0;
    OK(cuCtxCreate_v2(&second, 0, refuses));
    OK(cuCtxPopCurrent_v2(&second));
    OK(cuMemAlloc_v2(&at, 64 * MiB));
    OK(cuMemFree_v2(at));
    if (strcmp(arguments[1], "refused") == 0) {
        char name[108];
        /* Nobody would answer. With the pool of another device it is wanted again. */
        CHECK(!refuses && threads() == 1 && doors(name) == 0);
        OK(cuCtxSetCurrent(second));
        OK(cuMemAlloc_v2(&at, 64 * MiB));
        CHECK(threads() == 2);
        for (int looks = 0; doors(name) < 2 && looks < 1000; looks++) usleep(10000);
        CHECK(doors(name) == 2);
        return 0;
    }
    if (strcmp(arguments[1], "closed") == 0) {
        for (int descriptor = 3; descriptor < 256; descriptor++) close(descriptor);
    } else if (strcmp(arguments[1], "full") == 0) {
        knock();
    } else if (strcmp(arguments[1], "trapped") == 0) {
        trap();
    } else if (strcmp(arguments[1], "unasked") == 0) {
        for (int looks = 0; doors((char[108]){0}) < 1 && looks < 1000; looks++) rest(10);
        forbid(SYS_accept4, SYS_accept, SECCOMP_RET_KILL_PROCESS);
        rest(1500);
    } else if (strcmp(arguments[1], "sleepless") == 0) {
        forbid(POLL, SYS_clock_nanosleep, SECCOMP_RET_ERRNO | EPERM);
        rest(1500);
        CHECK(threads() == 2);
    } else if (strcmp(arguments[1], "barred") == 0) {
        struct rlimit none = {0, 0};
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    } else {
        char work[32];
        snprintf(work, sizeof work, "%p", (void *)in_the_loader);
        setenv("THREAD_WORK", work, 1);
        alarm(60);
        CHECK(dlopen(arguments[1], RTLD_NOW));
        return 0;
    }
    double before = seconds_of_cpu();
    rest(1000);
    double spent = seconds_of_cpu() - before;
    if (spent > 0.05) fprintf(stderr, "the thread was busy for %.2f s of 1 s\n", spent);
    return spent > 0.05;
}
#endif
