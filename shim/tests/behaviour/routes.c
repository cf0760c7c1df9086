/* Every door leads to the hooks; what the driver does not have stays absent. */
#include "../support/cuda.h"

typedef CUresult (*get_v1)(const char *, void **, int, uint64_t);
typedef CUresult (*get_v2)(const char *, void **, int, uint64_t, int *);

static int hooked(void *function) {
    return lies_in(function, "libmemcuda.so");
}

static int of_driver(void *function) {
    return function != NULL && !hooked(function);
}

int main(void) {
    /* Linked directly. */
    CHECK(hooked((void *)cuMemAlloc_v2) && hooked((void *)cuInit));

    /* dlsym: on the driver's handle, on the whole program, of an absent and
     * of an unhooked function, of the 32-bit ABI. */
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver != NULL);
    CHECK(hooked(dlsym(driver, "cuMemAlloc_v2")));
    CHECK(hooked(dlsym(driver, "cuGetProcAddress_v2")));
    CHECK(hooked(dlsym(RTLD_DEFAULT, "cuMemFree_v2")));
    CHECK(of_driver(dlsym(driver, "cuDeviceGet")));
    CHECK(dlsym(driver, "cuMemAlloc") == NULL || of_driver(dlsym(driver, "cuMemAlloc")));
    CHECK(dlsym(driver, "cuNoSuchThing") == NULL && dlerror() != NULL);
    CHECK(dlsym(driver, "cuModuleLoadFatBinary") == NULL && dlerror() != NULL);

    /* What the library looks for and does not find is no error of the program's. */
    OK(cuInit(0));
    CHECK(dlerror() == NULL);

    /* A module gets functions of its own, whichever way it asks. */
    void *looked_up = dlsym(driver, "cuMemAlloc_v2");
    CHECK(looked_up != (void *)cuMemAlloc_v2 && looked_up == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));

    /* cuGetProcAddress in both versions, by itself and through itself, with
     * the thread's own default stream, without status, with an empty name. */
    void *found = NULL;
    int status = -1;
    OK(cuGetProcAddress("cuMemAlloc", &found, 3020, 0));
    CHECK(hooked(found));
    OK(cuGetProcAddress_v2("cuMemAlloc", &found, 3020, 0, &status));
    CHECK(hooked(found) && status == 0);
    OK(cuGetProcAddress_v2("cuMemAlloc", &found, 3020, 0, NULL));
    CHECK(hooked(found));
    void *plain, *own;
    OK(cuGetProcAddress_v2("cuMemAllocAsync", &plain, 11020, 0, NULL));
    OK(cuGetProcAddress_v2("cuMemAllocAsync", &own, 11020, 2, NULL));
    CHECK(hooked(plain) && hooked(own) && plain != own);
    CHECK(own == dlsym(driver, "cuMemAllocAsync_ptsz"));
    OK(cuGetProcAddress_v2_ptsz("cuMemAllocAsync", &found, 11020, 0, NULL));
    CHECK(found == own);
    OK(cuGetProcAddress_v2_ptsz("cuMemAllocAsync", &found, 11020, 1, NULL));
    CHECK(found == plain);
    OK(cuGetProcAddress_v2("cuDeviceGet", &found, 2000, 0, NULL));
    CHECK(of_driver(found));
    found = (void *)1;
    CHECK(cuGetProcAddress_v2("cuNoSuchThing", &found, 12000, 0, NULL) != SUCCESS ||
          found == NULL);
    cuGetProcAddress_v2("", &found, 0, 0, NULL);

    void *v1, *v2;
    OK(cuGetProcAddress_v2("cuGetProcAddress", &v1, 11030, 0, NULL));
    OK(cuGetProcAddress_v2("cuGetProcAddress", &v2, 12000, 0, NULL));
    CHECK(hooked(v1) && hooked(v2) && v1 != v2);
    OK(((get_v1)v1)("cuMemFree", &found, 3020, 0));
    CHECK(hooked(found));
    OK(((get_v2)v2)("cuMemFree", &found, 3020, 0, NULL));
    CHECK(hooked(found));

    /* Another thread may be changing the environment: what needs none of it reads none. */
    extern char **environ;
    char **before = environ;
    environ = (char **)8;
    found = dlsym(driver, "cuMemAlloc_v2");
    environ = before;
    CHECK(found == looked_up);

    /* The runtime's door. */
    int result = -1;
    IS(0, cudaGetDriverEntryPoint("cuMemAlloc", &found, 0, &result));
    CHECK(found == looked_up);
    IS(0, cudaGetDriverEntryPoint_ptsz("cuMemAllocAsync", &found, 0, &result));
    CHECK(hooked(found));
    IS(0, cudaGetDriverEntryPointByVersion("cuMemFree", &found, 12000, 0, &result));
    CHECK(found == dlsym(driver, "cuMemFree_v2"));
    return 0;
}
