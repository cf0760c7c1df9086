/* Prints what the loader answers, for comparison with and without the library:
 * who is found from where, and what dlerror says after what. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void told(const char *what, const void *found) {
    const char *error = dlerror();
    printf("%s: %s, %s", what, found ? "found" : "absent", error ? error : "no error");
    printf(", then %s\n", dlerror() ? "an error" : "none");
}

static void close_(void *library) {
    if (library != NULL && dlclose(library) != 0)
        printf("not closed: %s\n", dlerror());
}

/* As told, and closes. */
static void opened(const char *what, void *library) {
    told(what, library);
    close_(library);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    int deep = strcmp(argv[1], "deepbind") == 0 ? RTLD_DEEPBIND : 0;
    opened("by the program's path", dlopen("libnear.so", RTLD_NOW | deep));
    opened("by the program's place", dlopen("$ORIGIN/near/libnear.so", RTLD_LAZY | deep));
    opened("in the same namespace", dlmopen(LM_ID_BASE, "libnear.so", RTLD_NOW | deep));
    opened("a neighbour's neighbour", dlopen("libdeep.so", RTLD_NOW | deep));

    void *far = dlopen("$ORIGIN/far/libfar.so", RTLD_NOW | deep);
    told("a neighbour", far);
    void *(*load)(const char *, int) = (void *(*)(const char *, int))dlsym(far, "load");
    told("its function", (void *)load);
    if (load == NULL)
        return 1;
    opened("its neighbour by its path", load("libdeep.so", RTLD_NOW | deep));
    opened("its neighbour by its place", load("$ORIGIN/deps/libdeep.so", RTLD_NOW | deep));
    opened("the program's neighbour from there", load("libnear.so", RTLD_NOW | deep));
    close_(far);

    opened("no file", dlopen("libno.so", RTLD_NOW | deep));
    opened("no library", dlopen(argv[0], RTLD_NOW | deep));
    opened("no file in a namespace", dlmopen(LM_ID_NEWLM, NULL, RTLD_NOW | deep));
    opened("no mode", dlopen("libnear.so", deep));
    opened("a wrong mode", dlopen("libnear.so", 0x100000 | deep));
    opened("not loaded", dlopen("libnear.so", RTLD_NOW | RTLD_NOLOAD | deep));
    opened("an empty name", dlopen("", RTLD_NOW | deep));
    void *self = dlopen(NULL, RTLD_NOW | deep);
    told("the program", self);
    told("its symbol", dlsym(self, "puts"));
    told("a symbol by the null handle", dlsym(NULL, "puts"));
    told("no symbol by the null handle", dlsym(NULL, "no_such_symbol"));

    /* An error stays until the next call, and no longer. */
    dlopen("libno.so", RTLD_NOW);
    told("a symbol after an error", dlsym(self, "puts"));
    dlopen("libno.so", RTLD_NOW);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    told("the driver after an error", driver);
    told("a hooked symbol", dlsym(driver, "cuMemAlloc_v2"));
    dlsym(driver, "cuNoSuchThing");
    told("a hooked symbol after an error", dlsym(driver, "cuMemFree_v2"));
    told("no symbol", dlsym(driver, "cuNoSuchThing"));
    /* Absent where the driver is not in the program's scope; the text of the
     * error names the library that was searched last. */
    void *everywhere = dlsym(RTLD_DEFAULT, "cuMemFree_v2");
    printf("everywhere: %d %d\n", everywhere != NULL, dlerror() != NULL);
    return 0;
}
