/* A library between whose segments another one lies, as many do in an old glibc's loader:
 *     hole WIDE PLUGIN      (PROGRAM)
 * The loader keeps such a hole for the library; here it is given up first. */
#ifdef PROGRAM
#include "../support/cuda.h"
#include <link.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
typedef struct { const char *file; uintptr_t from, to; } Hole;

/* The hole behind the code of a file. */
static int look(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    Hole *hole = argument;
    if (strcmp(info->dlpi_name, hole->file) != 0) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + header->p_vaddr;
        if (header->p_type != PT_LOAD) continue;
        if (header->p_flags & PF_X) hole->from = (at + header->p_memsz + PAGE - 1) & -PAGE;
        else if (hole->from != 0 && hole->to == 0) hole->to = at & -PAGE;
    }
    return 1;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    void *wide = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    Hole hole = {.file = argv[1]};
    CHECK(wide != NULL && dl_iterate_phdr(look, &hole) == 1 && hole.to > hole.from);
    CHECK(munmap((void *)hole.from, hole.to - hole.from) == 0);
    /* What is free above it is taken first. */
    char *filler;
    do filler = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    while (filler != MAP_FAILED && ((uintptr_t)filler < hole.from || (uintptr_t)filler >= hole.to));
    CHECK(filler != MAP_FAILED && munmap(filler, 4 * PAGE) == 0);
    void *plugin = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    CHECK(plugin != NULL);
    int (*linked)(void) = (int (*)(void))dlsym(plugin, "linked");
    int (*looked_up)(void) = (int (*)(void))dlsym(plugin, "looked_up");
    CHECK(linked != NULL && looked_up != NULL);
    int within = (uintptr_t)linked >= hole.from && (uintptr_t)linked < hole.to;
    printf("within %d, linked %d, looked up %d\n", within, linked(), looked_up());
    return 0;
}
#else
int data = 1;
int code(void) { return data; }
#endif
