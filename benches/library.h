// A library of CUDA's that a benchmark calls by name. No header and no library of CUDA is
// needed to build it. What fails ends the program with status 1.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void *library;

static void *find(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s: the library has no %s\n", program_invocation_short_name, name);
        exit(1);
    }
    return found;
}

static void check(int code, const char *what) {
    if (code != 0) {
        fprintf(stderr, "%s: %s = %d\n", program_invocation_short_name, what, code);
        exit(1);
    }
}

#define CALL(name, ...) check(((int (*)())find(name))(__VA_ARGS__), name)

// In nanoseconds.
static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
