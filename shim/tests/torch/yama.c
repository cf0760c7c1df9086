/* A kernel with Yama: what its file says, and who may trace this process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static int setting(void) {
    const char *scope = getenv("YAMA");
    int file = memfd_create("ptrace_scope", MFD_CLOEXEC);
    if (write(file, scope, strlen(scope)) < 0 || write(file, "\n", 1) < 0) abort();
    lseek(file, 0, SEEK_SET);
    return file;
}

int open64(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "open64");
    if (strcmp(path, "/proc/sys/kernel/yama/ptrace_scope") == 0) return setting();
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    return real(path, flags, mode);
}

int prctl(int what, ...) {
    static int (*real)(int, unsigned long, unsigned long, unsigned long, unsigned long);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "prctl");
    va_list more;
    va_start(more, what);
    unsigned long a[4];
    for (int i = 0; i < 4; i++) a[i] = va_arg(more, unsigned long);
    va_end(more);
    if (what == PR_SET_PTRACER) {
        fprintf(stderr, "prctl: %s\n", a[0] == PR_SET_PTRACER_ANY ? "anybody" : "somebody");
        return 0;
    }
    return real(what, a[0], a[1], a[2], a[3]);
}
