/* A library that looks a function of the driver up as it is loaded, and one that loads many
 * copies of it (CROWD: their paths, separated by colons). */
#include "../support/cuda.h"

__attribute__((constructor)) static void begin(void) {
    CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
    const char *all = getenv("CROWD");
    char *paths = all == NULL || *all == 0 ? NULL : strdup(all);
    unsetenv("CROWD");
    for (char *path = paths; path != NULL;) {
        char *end = strchr(path, ':');
        if (end != NULL) *end++ = 0;
        CHECK(dlopen(path, RTLD_LAZY | RTLD_LOCAL) != NULL);
        path = end;
    }
    free(paths);
}
