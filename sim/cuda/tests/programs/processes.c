/* Several processes over simulated devices: this one, and a second one that
 * it starts with the same program and another case.
 */
#include "common.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Starts this program again; `fd` becomes its descriptor 101, `line` its input. */
static pid_t begin(const char *name, int fd, const void *line, size_t length) {
    int in[2], out[2]; OK(pipe(in)); OK(pipe(out)); pid_t child = fork();
    if (!child) {
        dup2(in[0], 0); dup2(out[1], 100); if (fd >= 0) dup2(fd, 101); close(in[1]); close(out[0]);
        execl("/proc/self/exe", "self", name, (char *)0); _exit(9);
    }
    close(in[0]); close(out[1]); TRUE(write(in[1], line, length) == (ssize_t)length);
    char ready; TRUE(read(out[0], &ready, 1) == 1); /* it says on 100 that it got there */
    return child;
}
static void ready(void) { TRUE(write(100, "r", 1) == 1); }
static void forever(void) { for (;;) pause(); }
static void ended(pid_t child) { int status; waitpid(child, &status, 0); TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0); }
static size_t free_bytes(void) { size_t f, t; OK(cuMemGetInfo_v2(&f, &t)); return f; }

static void import_fd(void) {
    start(); P h, x, at; int fd; OK(cuMemImportFromShareableHandle(&h, (void *)101, 1)); close(101); IS(1, cuMemExportToShareableHandle(&fd, h, 1, 0));
    at = mapped(2 * PIECE, h); TRUE(*(char *)(at + PIECE) == 5); OK(cuMemsetD8_v2(at + PIECE, 6, 1)); OK(cuCtxSynchronize());
    IS(1, cuMemImportFromShareableHandle(&x, (void *)0, 1)); OK(cuMemUnmap(at, 2 * PIECE)); OK(cuMemRelease(h)); OK(cuMemAddressFree(at, 2 * PIECE)); OK(cuSimCheckLeaks()); ready();
}
static void export_fd(void) {
    start(); handle(PIECE); P h = handle(2 * PIECE), at = mapped(2 * PIECE, h), own; int fd; OK(cuMemsetD8_v2(at + PIECE, 5, 1)); OK(cuCtxSynchronize());
    OK(cuMemExportToShareableHandle(&fd, h, 1, 0)); ended(begin("import_fd", fd, "", 0)); TRUE(*(char *)(at + PIECE) == 6);
    /* Imported where it was made, it is the same memory: an alias. */
    OK(cuMemImportFromShareableHandle(&own, (void *)(intptr_t)fd, 1)); P alias = mapped(2 * PIECE, own); TRUE(*(char *)(alias + PIECE) == 6); close(fd);
}
static void hold_fd(void) { ready(); forever(); }
static void descriptor_keeps_memory(void) {
    /* A process that holds the descriptor alone keeps the bytes and their charge. */
    start(); size_t before = free_bytes(); P h = handle(PIECE), at = mapped(PIECE, h); int fd; OK(cuMemExportToShareableHandle(&fd, h, 1, 0));
    OK(cuMemsetD8_v2(at, 5, 1)); OK(cuCtxSynchronize()); pid_t child = begin("hold_fd", fd, "", 0);
    OK(cuMemUnmap(at, PIECE)); OK(cuMemRelease(h)); close(fd); TRUE(before - free_bytes() == PIECE);
    P other = handle(PIECE), there = mapped(PIECE, other); TRUE(*(char *)there != 5); OK(cuMemUnmap(there, PIECE)); OK(cuMemRelease(other));
    kill(child, SIGKILL); waitpid(child, 0, 0); TRUE(free_bytes() == before);
}
static void outlive(void) {
    start(); P h; OK(cuMemImportFromShareableHandle(&h, (void *)101, 1)); close(101); pid_t exporter = getppid(); ready();
    while (getppid() == exporter) usleep(1000);
    TRUE(*(char *)mapped(PIECE, h) == 5);
}
static void importer_outlives_exporter(void) {
    start(); P h = handle(PIECE), at = mapped(PIECE, h); int fd; OK(cuMemExportToShareableHandle(&fd, h, 1, 0)); OK(cuMemsetD8_v2(at, 5, 1)); OK(cuCtxSynchronize());
    pid_t child = begin("outlive", fd, "", 0); OK(cuMemUnmap(at, PIECE)); OK(cuMemRelease(h)); TRUE(child > 0);
}
static Ipc received(void) { Ipc h; TRUE(read(0, &h, sizeof h) == sizeof h); return h; }
static void open_ipc(void) {
    start(); Ipc h = received(); P at, again; OK(cuIpcOpenMemHandle_v2(&at, h, 1)); OK(cuIpcOpenMemHandle_v2(&again, h, 1)); TRUE(at == again);
    TRUE(*(char *)(at + 100) == 5); OK(cuMemsetD8_v2(at + 100, 6, 1)); OK(cuCtxSynchronize()); IS(1, cuMemFree_v2(at)); OK(cuIpcCloseMemHandle(at)); OK(cuIpcCloseMemHandle(at)); IS(1, cuIpcCloseMemHandle(at)); ready();
}
/* It waits for the context that opened the memory, and for no other one. */
static void close_ipc_in_use(void) {
    start(); P at, other; OK(cuIpcOpenMemHandle_v2(&at, received(), 1)); OK(cuCtxCreate_v2(&other, 0, 0)); writes(stream(), at, 16); OK(cuCtxSetCurrent(context)); cuIpcCloseMemHandle(at);
}
static void export_ipc(void) {
    start(); P p = alloc(4096), vmm = mapped(PIECE, handle(PIECE)), x; Ipc h, noise; memset(&noise, 3, sizeof noise);
    OK(cuMemsetD8_v2(p + 100, 5, 1)); OK(cuCtxSynchronize()); OK(cuIpcGetMemHandle(&h, p + 8)); IS(1, cuIpcGetMemHandle(&h, vmm)); OK(cuIpcGetMemHandle(&h, p));
    IS(201, cuIpcOpenMemHandle_v2(&x, h, 1)); IS(1, cuIpcOpenMemHandle_v2(&x, noise, 1)); IS(1, cuIpcCloseMemHandle(p)); ended(begin("open_ipc", -1, &h, sizeof h)); TRUE(*(char *)(p + 100) == 6);
}
static void close_ipc_misused(void) { /* ends as its child does, which is misused */
    start(); P p = alloc(4096); Ipc h; OK(cuIpcGetMemHandle(&h, p)); int in[2]; OK(pipe(in)); TRUE(write(in[1], &h, sizeof h) == sizeof h);
    pid_t child = fork(); if (!child) { dup2(in[0], 0); execl("/proc/self/exe", "self", "close_ipc_in_use", (char *)0); _exit(9); }
    int status; waitpid(child, &status, 0); if (WIFSIGNALED(status)) { signal(WTERMSIG(status), SIG_DFL); raise(WTERMSIG(status)); }
}
/* With MEMCUDA_SIM_SHARED and 64 MiB. */
static void occupy(void) { start(); handle(40 * MIB); ready(); forever(); }
static void shared_device(void) {
    start(); size_t before = free_bytes(); pid_t child = begin("occupy", -1, "", 0); TRUE(before - free_bytes() == 40 * MIB);
    P h; Properties pr = properties(); IS(2, cuMemCreate(&h, 40 * MIB, &pr, 0)); OK(cuMemCreate(&h, 20 * MIB, &pr, 0));
    kill(child, SIGKILL); waitpid(child, 0, 0); OK(cuMemCreate(&h, 40 * MIB, &pr, 0)); TRUE(before - free_bytes() == 60 * MIB);
}

static const Case cases[] = {
    CASE(import_fd), CASE(export_fd), CASE(hold_fd), CASE(descriptor_keeps_memory), CASE(outlive), CASE(importer_outlives_exporter), CASE(open_ipc),
    CASE(close_ipc_in_use), CASE(close_ipc_misused), CASE(export_ipc), CASE(occupy), CASE(shared_device),
};
MAIN(cases)
