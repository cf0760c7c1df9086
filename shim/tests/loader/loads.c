/* Loads a plugin in a way of its choice, and tells who serves it.
 *     loads PLUGIN WAY...   ways: local, global, deepbind, base, namespace */
#include "../support/cuda.h"

static void load(const char *plugin, const char *way) {
    void *library = NULL;
    if (strcmp(way, "local") == 0)
        library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    else if (strcmp(way, "global") == 0)
        library = dlopen(plugin, RTLD_LAZY | RTLD_GLOBAL);
    else if (strcmp(way, "deepbind") == 0)
        library = dlopen(plugin, RTLD_NOW | RTLD_DEEPBIND);
    else if (strcmp(way, "base") == 0)
        library = dlmopen(LM_ID_BASE, plugin, RTLD_NOW | RTLD_DEEPBIND);
    else if (strcmp(way, "namespace") == 0)
        library = dlmopen(LM_ID_NEWLM, plugin, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s: %s\n", way, dlerror());
        exit(1);
    }
    int (*linked)(void) = (int (*)(void))dlsym(library, "linked");
    int (*looked_up)(void) = (int (*)(void))dlsym(library, "looked_up");
    int (*is_past)(void) = (int (*)(void))dlsym(library, "is_past");
    CHECK(linked != NULL && looked_up != NULL && is_past != NULL);
    printf("%s: linked %d, looked up %d%s\n", way, linked(), looked_up(), is_past() ? ", past it" : "");
    CHECK(dlclose(library) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    for (int i = 2; i < argc; i++)
        load(argv[1], argv[i]);
    /* Another library that stands in for dlopen was not passed over. */
    const int *opened = dlsym(RTLD_DEFAULT, "opened");
    if (opened != NULL)
        printf("%d opened\n", *opened > 0);
    return 0;
}
