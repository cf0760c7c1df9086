/* Looks functions up when it is loaded, as UCX does before it writes into them, and tells in
 * whose file each lies. */
#include "../support/cuda.h"

#ifdef MAPPINGS
void ucm_cuMemMap(void) {}
#endif

static void tell(void *place, const char *name) {
    Dl_info about;
    CHECK(dladdr(dlsym(place, name), &about) != 0);
    printf("%s in %s\n", name, strrchr(about.dli_fname, '/') + 1);
}

__attribute__((constructor)) static void look(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    CHECK(driver != NULL);
    for (int by_handle = 0; by_handle < 2; by_handle++) {
        tell(by_handle ? driver : RTLD_DEFAULT, "cuMemAlloc_v2");
        tell(by_handle ? driver : RTLD_DEFAULT, "cuMemFreeAsync");
    }
}
