/* Preloaded behind libmemcuda.so: a signal interrupts each first of two calls that make the file
 * of a recording or give it room. With NONE set, room is given by writing alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int interrupted(void) {
    static int calls;
    return calls++ % 2 == 0 ? (errno = EINTR) : 0;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if (strcmp(path, getenv("MEMCUDA_TRACE")) == 0 && interrupted()) return -1;
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fallocate(int file, int how, off_t at, off_t bytes) {
    if (interrupted()) return -1;
    return getenv("NONE") ? (errno = EOPNOTSUPP, -1) : syscall(SYS_fallocate, file, how, at, bytes);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) {
    return interrupted() ? -1 : syscall(SYS_pwrite64, file, from, bytes, at);
}
