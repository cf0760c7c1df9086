/* Another preloaded library: it stands in for getppid, cudaMalloc and dlsym, and finds
 * the next ones as such libraries do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/types.h>

pid_t getppid(void) {
    pid_t (*next)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "getppid");
    return next() + 1000000;
}

int allocated;

int cudaMalloc(void **out, size_t bytes) {
    int (*next)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc");
    allocated++;
    return next(out, bytes);
}

#ifdef WITH_DLSYM
int lookups;
static void *next_dlsym;

__attribute__((used, visibility("hidden"))) void *find_next_dlsym(void) {
    lookups++;
    if (next_dlsym == NULL) {
        next_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    }
    if (next_dlsym == NULL) {
        next_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    }
    return next_dlsym;
}

__asm__(".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "    push %rdi\n"
        "    push %rsi\n"
        "    sub $8, %rsp\n"
        "    call find_next_dlsym\n"
        "    add $8, %rsp\n"
        "    pop %rsi\n"
        "    pop %rdi\n"
        "    jmp *%rax\n");
#endif
