/* Looks functions up when it is loaded, as UCX does before it writes into them, and tells in
 * whose file each lies. */
#include "../support/cuda.h"

#ifdef MODES
void ucm_cuMemMap(void) {}
/* Its settings: whether it redirects references (2), and writes into functions (4). */
struct {
    int others[6];
    uint64_t modes;
} ucm_global_opts = {{0}, MODES};
#endif

static void tell(const char *name, void *found) {
    Dl_info about;
    CHECK(dladdr(found, &about) != 0);
    printf("%s in %s\n", name, strrchr(about.dli_fname, '/') + 1);
}

__attribute__((constructor)) static void look(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    CHECK(driver != NULL);
    for (int by_handle = 0; by_handle < 2; by_handle++) {
        void *place = by_handle ? driver : RTLD_DEFAULT;
        tell("cuMemAlloc_v2", dlsym(place, "cuMemAlloc_v2"));
        tell("cuMemFreeAsync", dlsym(place, "cuMemFreeAsync"));
    }
    void *found;
    OK(cuGetProcAddress_v2("cuMemFree", &found, 3020, 0, NULL));
    tell("cuMemFree", found);
}
