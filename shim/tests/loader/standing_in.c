// STUB: a library with a function of the runtime's, as TileLang has one, that is called where
// nobody has a runtime: then it answers 999. USER: a library that needs it. Else a program that
// loads the latter, and where it is told a runtime for everybody, before or after.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int cudaMalloc(void** at, size_t bytes);

#if defined(STUB)
__attribute__((visibility("default"))) int cudaMalloc(void** at, size_t bytes) {
    int (*real)(void**, size_t) = (int (*)(void**, size_t))dlsym(RTLD_DEFAULT, "cudaMalloc");
    if (!real || real == cudaMalloc) real = (int (*)(void**, size_t))dlsym(RTLD_NEXT, "cudaMalloc");
    fprintf(stderr, "the stub\n");
    return real ? real(at, bytes) : 999;
}
#elif defined(USER)
int use(void) {
    void* at;
    int code = cudaMalloc(&at, 4 << 20);
    return code;
}
#else
int main(int count, char** arguments) {
    int runtime = strcmp(arguments[2], "none") != 0, first = strcmp(arguments[2], "first") == 0;
    if (first) dlopen("libcudart.so.13", RTLD_LAZY | RTLD_GLOBAL);
    void* user = dlopen(arguments[1], RTLD_LAZY);
    if (!user) return fprintf(stderr, "%s\n", dlerror()), 1;
    if (runtime && !first) dlopen("libcudart.so.13", RTLD_LAZY | RTLD_GLOBAL);
    int (*use)(void) = (int (*)(void))dlsym(user, "use");
    printf("%d\n", use());
    return count != 3;
}
#endif
