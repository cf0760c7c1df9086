/* Preloaded: stands in for the loader's list of files, as ThreadSanitizer does, and can
 * answer only once it has looked the real one up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>

typedef int visits(struct dl_phdr_info *, size_t, void *);
static int (*real)(visits *, void *);

int dl_iterate_phdr(visits *visit, void *data) { return real(visit, data); }

__attribute__((constructor)) static void start(void) {
    real = (int (*)(visits *, void *))dlsym(RTLD_NEXT, "dl_iterate_phdr");
}
