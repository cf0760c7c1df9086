// Many libraries that use CUDA. LIBRARY: one of them. Else, with one of them and a folder, a
// program that loads copies of it: `stay`, all of them, and how many loaded files are looked at
// for a call of each that is not its first one; `go`, one after the other, and then one more.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cudaStreamSynchronize(void* stream);

#ifdef LIBRARY
int call(void) { return cudaStreamSynchronize(NULL); }
int look(void) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2") != NULL; }
#else
enum { COPIES = 48 };
static int looks;

static int count(struct dl_phdr_info* file, size_t bytes, void* next) {
    void** with = next;
    looks++;
    return ((int (*)(struct dl_phdr_info*, size_t, void*))with[0])(file, bytes, with[1]);
}

// In the place of libc's, for everybody.
int dl_iterate_phdr(int (*visit)(struct dl_phdr_info*, size_t, void*), void* data) {
    static int (*real)(int (*)(struct dl_phdr_info*, size_t, void*), void*);
    if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return real(count, (void*[]){(void*)visit, data});
}

static void* copy(const char* library, const char* folder, int number) {
    char command[4096];
    snprintf(command, sizeof command, "cp %s %s/libcopy%d.so", library, folder, number);
    if (system(command) != 0) exit(1);
    void* loaded = dlopen(strrchr(command, ' ') + 1, RTLD_NOW);
    if (loaded == NULL) puts(dlerror()), exit(1);
    return loaded;
}

static int answer(void* loaded, const char* function) { return ((int (*)(void))dlsym(loaded, function))(); }

int main(int argc, char** argv) {
    (void)argc;
    if (strcmp(argv[3], "go") == 0) {
        for (int i = 0; i < COPIES; i++) {
            void* loaded = copy(argv[1], argv[2], i);
            answer(loaded, "look"), dlclose(loaded);
        }
        void* last = copy(argv[1], argv[2], COPIES);
        return answer(last, "look") - 1 + answer(last, "call");
    }
    void* loaded[COPIES];
    for (int i = 0; i < COPIES; i++) loaded[i] = copy(argv[1], argv[2], i);
    int most = 0;
    for (int again = 0; again < 2; again++)
        for (int i = 0; i < COPIES; i++) {
            looks = 0;
            answer(loaded[i], "call");
            if (again && looks > most) most = looks;
        }
    printf("%d\n", most);
    return 0;
}
#endif
