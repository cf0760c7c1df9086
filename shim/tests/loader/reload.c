/* Loads two plugins that use CUDA in turn, again and again: what is kept of those that are gone
 * does not grow. Their paths. */
#include "../support/cuda.h"
#include <malloc.h>

static void use(const char *path) {
    void *plugin = dlopen(path, RTLD_NOW);
    CHECK(plugin != NULL);
    int (*run)(void) = (int (*)(void))dlsym(plugin, "run");
    CHECK(run() == 0);
    dlclose(plugin);
}

int main(int count, char **paths) {
    CHECK(count == 3);
    void *first;
    OK(cudaMalloc(&first, MiB));
    size_t before = 0;
    for (int round = 0; round < 300; round++) {
        if (round == 100) before = mallinfo2().uordblks;
        use(paths[1]);
        use(paths[2]);
    }
    size_t grown = mallinfo2().uordblks - before;
    if (grown > 4096) fprintf(stderr, "%zu bytes more\n", grown);
    CHECK(grown <= 4096);
    OK(cudaFree(first));
    return 0;
}
