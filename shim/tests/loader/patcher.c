/* Looks functions up when it is loaded, as UCX does before it writes into them, and tells in
 * whose file each lies: first, as UCX up to 1.15 did, those behind itself. OTHER: it is not UCX.
 * PROGRAM: loads it. */
#include "../support/cuda.h"

#ifdef PROGRAM
int main(int count, char **arguments) {
    CHECK(count == 2 && dlopen(arguments[1], RTLD_LAZY) != NULL);
}
#else

#ifndef OTHER
void ucm_cuMemFree(void) {}
#endif
#ifdef MODES
void ucm_cuMemMap(void) {}
/* Its settings: whether it redirects references (2), and writes into functions (4). */
struct {
    int others[6];
    uint64_t modes;
} ucm_global_opts = {{0}, MODES};
#endif

/* Can it move the beginning of a function, to write a jump there? It knows what compilers begin
 * functions with: pushes, room on the stack, constants. Not on aarch64 before 1.18. */
static int can_be_moved(const unsigned char *code) {
#ifdef __x86_64__
    const unsigned char *at = code;
    while (at < code + 5) {
        if ((at[0] & 0xF0) == 0x50) at += 1;
        else if (at[0] == 0x41 && (at[1] & 0xF0) == 0x50) at += 2;
        else if (memcmp(at, "\x48\x89\xE5", 3) == 0) at += 3;
        else if (memcmp(at, "\x48\x81\xEC", 3) == 0) at += 7;
        else if ((at[0] & 0xF8) == 0xB8) at += 5;
        else return 0;
    }
    return 1;
#else
    return (void)code, 0;
#endif
}

static void tell(const char *name, void *found) {
    Dl_info about;
    CHECK(dladdr(found, &about) != 0);
    const char *file = strrchr(about.dli_fname, '/') + 1;
    printf("%s in %s\n", name, file);
    /* The first one of ours that it writes into: if it cannot, it goes without its caches. */
    int is_first = strcmp(name, "cuMemAlloc_v2") == 0 && strcmp(file, "libmemcuda.so") == 0;
    CHECK(!is_first || !can_be_moved(found));
}

__attribute__((constructor)) static void look(void) {
    tell("cudaFree", dlsym(RTLD_NEXT, "cudaFree"));
    void *places[] = {RTLD_NEXT, RTLD_DEFAULT, NULL};
    for (int at = 0; at < 3; at++) {
        if (at == 1) {
            places[2] = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
            CHECK(places[2] != NULL);
        }
        tell("cuMemAlloc_v2", dlsym(places[at], "cuMemAlloc_v2"));
        tell("cuMemFreeAsync", dlsym(places[at], "cuMemFreeAsync"));
    }
    void *found;
    OK(cuGetProcAddress_v2("cuMemFree", &found, 3020, 0, NULL));
    tell("cuMemFree", found);
}
#endif
