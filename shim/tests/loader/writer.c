/* As comfy-aimdo: looks cuMemAlloc and cuMemFree up and writes a jump into each, to count all that
 * is allocated, and to give memory of its own up where there is none. PROGRAM: loads it, as ComfyUI
 * does, and has memory by way of the runtime, before and after. */
#include "../support/cuda.h"

#ifdef PROGRAM
int cudaMalloc(void **, size_t);
int cudaFree(void *);

int main(int count, char **arguments) {
    void *early, *at;
    CHECK(count == 2);
    CHECK(cudaMalloc(&early, 8 * MiB) == 0);
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    CHECK(library != NULL);
    int (*set_up)(size_t) = (int (*)(size_t))dlsym(library, "aimdo_setup_hooks");
    size_t (*heard)(void) = (size_t (*)(void))dlsym(library, "heard");
    CHECK(set_up(12 * 1024 * MiB));
    CHECK(cudaMalloc(&at, 512 * MiB) == 0);
    printf("heard of %zu", heard() / MiB);
    CHECK(cudaFree(at) == 0);
    CHECK(cudaFree(early) == 0);
    printf(", %zu", heard() / MiB);
    /* The runtime's own is not the only way. */
    CUdeviceptr linked;
    OK(cuMemAlloc_v2(&linked, 256 * MiB));
    printf(", %zu", heard() / MiB);
    OK(cuMemFree_v2(linked));
    /* More than is left beside what the library holds: that goes. */
    CHECK(cudaMalloc(&at, 6 * 1024 * MiB) == 0);
    printf(", %zu\n", heard() / MiB);
}
#else
#include <sys/mman.h>

typedef CUresult Allocate(CUdeviceptr *, size_t);
typedef CUresult Free(CUdeviceptr);

/* A function that is written into: its beginning, as it was and as it is now. */
struct patch {
    unsigned char *function, before[16], after[16];
};
static struct patch allocates, frees;
static CUdeviceptr own;
static size_t total;
static struct { CUdeviceptr at; size_t bytes; } known[16];

size_t heard(void) { return total; }

static void write_into(struct patch *patch, const unsigned char *code) {
    memcpy(patch->function, code, sizeof patch->before);
    __builtin___clear_cache((char *)patch->function, (char *)patch->function + sizeof patch->before);
}

static CUresult really_allocate(CUdeviceptr *out, size_t bytes) {
    write_into(&allocates, allocates.before);
    CUresult code = ((Allocate *)allocates.function)(out, bytes);
    write_into(&allocates, allocates.after);
    return code;
}

static CUresult really_free(CUdeviceptr at) {
    write_into(&frees, frees.before);
    CUresult code = ((Free *)frees.function)(at);
    write_into(&frees, frees.after);
    return code;
}

static CUresult allocate(CUdeviceptr *out, size_t bytes) {
    CUresult code = really_allocate(out, bytes);
    if (code == OUT_OF_MEMORY && own != 0) {
        OK(really_free(own));
        own = 0;
        code = really_allocate(out, bytes);
    }
    for (int i = 0; code == 0 && i < 16; i++) {
        if (known[i].at != 0) continue;
        known[i].at = *out, known[i].bytes = bytes;
        total += bytes;
        break;
    }
    return code;
}

static CUresult give(CUdeviceptr at) {
    CUresult code = really_free(at);
    for (int i = 0; code == 0 && i < 16; i++)
        if (known[i].at == at) total -= known[i].bytes, known[i].at = 0;
    return code;
}

static void patch(struct patch *patch, const char *name, void *by) {
#ifdef __x86_64__
    static const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0};
#else
    static const unsigned char jump[] = {0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6};
#endif
    void *found;
    OK(cuGetProcAddress_v2(name, &found, 3020, 0, NULL));
    patch->function = found;
    memcpy(patch->before, found, sizeof patch->before);
    memcpy(patch->after, jump, sizeof jump);
    memcpy(patch->after + sizeof jump, &by, sizeof by);
    uintptr_t page = (uintptr_t)found & ~(uintptr_t)0xffff;
    CHECK(mprotect((void *)page, 0x20000, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    write_into(patch, patch->after);
}

/* Holds so much itself. */
int aimdo_setup_hooks(size_t bytes) {
    patch(&allocates, "cuMemAlloc", (void *)allocate);
    patch(&frees, "cuMemFree", (void *)give);
    OK(really_allocate(&own, bytes));
    return 1;
}
#endif
