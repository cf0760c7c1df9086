/* A library's call of the runtime reaches another preloaded library, too, as the loader binds
 * it: the process's scope comes before the library's own. */
#include "../support/cuda.h"

int main(int argc, char **argv) {
    void *at;
    CHECK(argc == 2 && dlopen("libcudart.so.13", RTLD_NOW | RTLD_GLOBAL) != NULL);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    IS(0, ((int (*)(void **, size_t))dlsym(library, "allocate"))(&at, 8 * MiB));
    printf("%d\n", *(const int *)dlsym(RTLD_DEFAULT, "allocated"));
    IS(0, ((int (*)(void *))dlsym(library, "release"))(at));
    return 0;
}
