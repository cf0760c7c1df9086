/* Makes a CUDA runtime resolve its driver, and prints where the functions that
 * it keeps lie: "driver OFFSET" in libcuda.so.1, "memcuda OFFSET" in
 * libmemcuda.so.
 *
 *     probe [deepbind] LIBCUDART...   one or more runtimes, in one process
 *     probe                           the runtime that is linked in (-DSTATIC)
 *
 * Looks into the runtime's writable memory, because it tells nobody what it
 * looked up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct range {
    uintptr_t base, start, end;
};

struct search {
    const char *file;      /* The module of this name, or */
    uintptr_t address;     /* the one that holds this address. */
    struct range found;
    const ElfW(Phdr) *headers;
    int count;
};

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct search *search = data;
    struct range range = {info->dlpi_addr, UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD)
            continue;
        uintptr_t start = range.base + header->p_vaddr;
        if (start < range.start)
            range.start = start;
        if (start + header->p_memsz > range.end)
            range.end = start + header->p_memsz;
    }
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *file = slash ? slash + 1 : info->dlpi_name;
    int match = search->file ? strcmp(file, search->file) == 0
                             : search->address >= range.start && search->address < range.end;
    if (!match)
        return 0;
    search->found = range;
    search->headers = info->dlpi_phdr;
    search->count = info->dlpi_phnum;
    return 1;
}

static void print_where(uintptr_t word, const char *file, const char *name) {
    struct search module = {.file = file};
    if (dl_iterate_phdr(visit, &module) == 0)
        return;
    if (word >= module.found.start && word < module.found.end)
        printf("%s %lx\n", name, (unsigned long)(word - module.found.base));
}

/* The module that holds this function. */
static void scan(void *function) {
    struct search module = {.address = (uintptr_t)function};
    if (dl_iterate_phdr(visit, &module) == 0) {
        fprintf(stderr, "no module holds cudaMalloc\n");
        exit(1);
    }
    for (int i = 0; i < module.count; i++) {
        const ElfW(Phdr) *header = &module.headers[i];
        if (header->p_type != PT_LOAD || !(header->p_flags & PF_W))
            continue;
        const uintptr_t *word = (const uintptr_t *)(module.found.base + header->p_vaddr);
        const uintptr_t *end = (const uintptr_t *)((uintptr_t)word + header->p_memsz);
        word = (const uintptr_t *)(((uintptr_t)word + 7) & ~(uintptr_t)7);
        for (; word + 1 <= end; word++) {
            print_where(*word, "libcuda.so.1", "driver");
            print_where(*word, "libmemcuda.so", "memcuda");
        }
    }
}

typedef int (*allocate)(void **, size_t);

static void use(allocate allocate) {
    void *memory = NULL;
    /* A runtime that could not start lets go of the driver: it is kept. */
    if (dlopen("libcuda.so.1", RTLD_NOW) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    printf("cudaMalloc answered %d\n", allocate(&memory, 1 << 20));
    scan((void *)allocate);
}

#ifdef STATIC
int cudaMalloc(void **, size_t);

int main(void) {
    use(cudaMalloc);
    return 0;
}
#else
int main(int argc, char **argv) {
    int flags = RTLD_NOW | RTLD_LOCAL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "deepbind") == 0) {
            flags |= RTLD_DEEPBIND;
            continue;
        }
        void *runtime = dlopen(argv[i], flags);
        allocate allocate = runtime ? (int (*)(void **, size_t))dlsym(runtime, "cudaMalloc") : NULL;
        if (allocate == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        use(allocate);
    }
    return argc < 2;
}
#endif
