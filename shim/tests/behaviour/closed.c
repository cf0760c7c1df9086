/* Preloaded behind libmemcuda.so: a file system over a network, which says when a report is closed
 * that there was no room for it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int close(int file) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t bytes = readlink(name, path, sizeof path - 1);
    path[bytes < 0 ? 0 : bytes] = 0;
    int closed = syscall(SYS_close, file);
    return strstr(path, "/.oom-") ? (errno = EDQUOT, -1) : closed;
}
