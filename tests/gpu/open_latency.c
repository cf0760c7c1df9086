/* What it takes to get memory of another process, by each way. Prints a JSON
 * line for every new process; tests/gpu/names.py makes medians of them.
 *
 *     gcc -O2 -o open_latency tests/gpu/open_latency.c -ldl
 *
 *     open_latency bare PROCESSES BYTES    without the library: import and map of a
 *                                          physical handle, legacy cuIpcOpenMemHandle
 *     open_latency named PROCESSES BYTES   preloaded: open by name
 *
 *     open_latency parts PROCESSES SOCKET  without the library: what the first opening
 *                                          is made of, each first in its process
 *
 * A context is there in each process before the clock starts. `first_us` is the
 * first thing that the process asks of the library; connection and pool were begun
 * with the context. `open_us` is another name right after it. With MEMCUDA_LOG=debug
 * the library says on standard error what each of them is made of.
 */
#include <pthread.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "named.h"

extern char **environ;
static size_t bytes;

static double since_us(uint64_t begin)
{
    return (double)(now_ns() - begin) / 1000;
}

/* So many processes of this program, one after the other; 0 where all did well. */
static int spawn(const char *self, int processes, char *const *arguments)
{
    for (int at = 0; at < processes; at++) {
        pid_t child;
        int status;
        if (posix_spawn(&child, self, NULL, NULL, arguments, environ) || waitpid(child, &status, 0) != child || status) {
            fprintf(stderr, "process %d of %d failed\n", at, processes);
            return 1;
        }
    }
    return 0;
}

static struct properties properties(void)
{
    struct properties properties = {.kind = 1, .handle_types = POSIX_DESCRIPTOR, .where = {1, 0}};
    return properties;
}

/* Import, range, map, access: what opening by name cannot do without. */
static void import(int descriptor)
{
    struct access access = {{1, 0}, 3};
    Handle handle;
    CUdeviceptr at;
    uint64_t begin = now_ns();
    MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor, POSIX_DESCRIPTOR));
    double imported_us = since_us(begin);
    MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    double reserved_us = since_us(begin);
    MUST(cuMemMap(at, bytes, 0, handle, 0));
    double mapped_us = since_us(begin);
    MUST(cuMemSetAccess(at, bytes, &access, 1));
    printf("{\"way\": \"import\", \"open_us\": %.2f, \"imported_us\": %.2f, \"reserved_us\": %.2f, \"mapped_us\": %.2f}\n",
           since_us(begin), imported_us, reserved_us, mapped_us);
}

static void legacy(const char *digits)
{
    Legacy handle;
    CUdeviceptr at;
    for (int byte = 0; byte < 64; byte++) {
        unsigned value = 0;
        sscanf(digits + 2 * byte, "%2x", &value);
        handle.bytes[byte] = (char)value;
    }
    uint64_t begin = now_ns();
    MUST(cuIpcOpenMemHandle_v2(&at, handle, 1));
    printf("{\"way\": \"legacy\", \"open_us\": %.2f}\n", since_us(begin));
}

static int bare(char *self, int processes, char *size)
{
    struct properties wanted = properties();
    Handle handle;
    CUdeviceptr plain;
    Legacy exported;
    int descriptor;
    char number[16], digits[129];
    MUST(cuMemCreate(&handle, bytes, &wanted, 0));
    MUST(cuMemExportToShareableHandle(&descriptor, handle, POSIX_DESCRIPTOR, 0));
    MUST(cuMemAlloc_v2(&plain, bytes));
    MUST(cuIpcGetMemHandle(&exported, plain));
    for (int byte = 0; byte < 64; byte++)
        sprintf(digits + 2 * byte, "%02x", (unsigned char)exported.bytes[byte]);
    /* The copy is inherited. */
    snprintf(number, sizeof number, "%d", dup(descriptor));
    return spawn(self, processes, (char *[]){self, "import", number, size, NULL})
        || spawn(self, processes, (char *[]){self, "legacy", digits, size, NULL});
}

/* A keeper's client up to its welcome, as src/share/protocol has it. */
static void knock(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {5, 0};
    char hello[8] = "mcud\1\0\1\0", introduce[16] = {1, 0}, answer[512], beside[64];
    struct iovec into = {answer, sizeof answer};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = beside, .msg_controllen = sizeof beside};
    size_t length = 2;
    for (unsigned pid = getpid(); ; pid >>= 7) {
        introduce[length++] = (char)((pid & 127) | (pid > 127 ? 128 : 0));
        if (pid < 128)
            break;
    }
    length += 3;                    /* no command, no leases, no more of them */
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    uint64_t begin = now_ns();
    int keeper = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    MUST(setsockopt(keeper, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    MUST(connect(keeper, (struct sockaddr *)&address, sizeof address));
    double connect_us = since_us(begin);
    MUST(send(keeper, hello, sizeof hello, 0) != sizeof hello);
    MUST(send(keeper, introduce, length, 0) != (ssize_t)length);
    double sent_us = since_us(begin);
    MUST(recvmsg(keeper, &message, 0) < 1 || answer[1] != 0);
    printf("{\"way\": \"connect\", \"connect_us\": %.2f, \"sent_us\": %.2f, \"welcome_us\": %.2f}\n",
           connect_us, sent_us, since_us(begin));
}

static void *rest(void *nothing)
{
    return nothing;
}

/* One part in this process, where it is the first thing. */
static void part(const char *what)
{
    struct properties wanted = properties();
    CUdeviceptr at;
    Handle handle;
    pthread_t thread;
    size_t granularity, free_bytes, total;
    uint64_t begin = now_ns();
    if (what[0] == '/')
        return knock(what);
    if (!strncmp(what, "reserve", 7)) {
        MUST(cuMemAddressReserve(&at, strtoull(what + 8, NULL, 10) << 30, 0, 0, 0));
    } else if (!strcmp(what, "info")) {
        MUST(cuMemGetInfo_v2(&free_bytes, &total));
    } else if (!strcmp(what, "granularity")) {
        MUST(cuMemGetAllocationGranularity(&granularity, &wanted, 0));
    } else if (!strcmp(what, "thread")) {
        MUST(pthread_create(&thread, NULL, rest, NULL));
    } else if (!strcmp(what, "create")) {
        MUST(cuMemCreate(&handle, 2 << 20, &wanted, 0));
    }
    printf("{\"way\": \"%s\", \"open_us\": %.2f}\n", what, since_us(begin));
}

static int parts(char *self, int processes, char *socket)
{
    char *all[] = {"reserve-1", "reserve-64", "reserve-1024", "info", "granularity", "thread", "create", socket};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++)
        if (spawn(self, processes, (char *[]){self, "part", all[at], "1", NULL}))
            return 1;
    return 0;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void open_names(const char *first, const char *second)
{
    enum { AGAIN = 10001 };
    static double again[AGAIN];
    memcuda_handle handle;
    uint64_t begin = now_ns();
    MUST(memcuda_open(first, NULL, &handle));
    double first_us = since_us(begin);
    begin = now_ns();
    MUST(memcuda_open(second, NULL, &handle));
    double open_us = since_us(begin);
    for (int at = 0; at < AGAIN; at++) {
        memcuda_handle other;
        begin = now_ns();
        MUST(memcuda_open(second, NULL, &other));
        again[at] = since_us(begin);
        MUST(memcuda_close(other));
    }
    qsort(again, AGAIN, sizeof *again, compare);
    printf("{\"way\": \"name\", \"first_us\": %.2f, \"open_us\": %.2f, \"again_us\": %.3f, \"again_p99_us\": %.3f}\n",
           first_us, open_us, again[AGAIN / 2], again[AGAIN * 99 / 100]);
}

static int named(char *self, int processes, char *size)
{
    memcuda_options options = MEMCUDA_OPTIONS;
    memcuda_handle handle;
    char names[2][64];
    options.bytes = bytes;
    for (int at = 0; at < 2; at++) {
        snprintf(names[at], sizeof names[at], "latency/%d/%d", getpid(), at);
        MUST(memcuda_create(names[at], &options, &handle));
    }
    return spawn(self, processes, (char *[]){self, "open", names[0], names[1], size, NULL});
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    bytes = count > 3 ? strtoull(arguments[count - 1], NULL, 10) : 0;
    if (!bytes && (count < 4 || strncmp(mode, "part", 4))) {
        fprintf(stderr, "usage: open_latency bare|named PROCESSES BYTES, or parts PROCESSES SOCKET\n");
        return 2;
    }
    start();
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    if (!strcmp(mode, "bare"))
        return bare(self, atoi(arguments[2]), arguments[3]);
    if (!strcmp(mode, "parts"))
        return parts(self, atoi(arguments[2]), arguments[3]);
    if (!strcmp(mode, "named"))
        return named(self, atoi(arguments[2]), arguments[3]);
    if (!strcmp(mode, "part"))
        part(arguments[2]);
    else if (!strcmp(mode, "import"))
        import(atoi(arguments[2]));
    else if (!strcmp(mode, "legacy"))
        legacy(arguments[2]);
    else if (!strcmp(mode, "open"))
        open_names(arguments[2], arguments[3]);
    return 0;
}
