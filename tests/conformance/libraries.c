/* Loads the driver and the runtime, and fills in the pointers to them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"
#include "runtime.h"

#define DEFINE(name, arguments) CUresult(*name) arguments;
DRIVER_FUNCTIONS(DEFINE)
RUNTIME_FUNCTIONS(DEFINE)
#undef DEFINE

static void *driver;

/* Stands for every function that a library lacks. The arguments of a call are
 * the caller's affair in the ABIs that CUDA runs on. */
static int absent(void) { return ABSENT; }

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    return found != NULL ? found : (void *)absent;
}

void driver_load(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (driver == NULL) {
        fprintf(stderr, "conformance: no CUDA driver: %s\n", dlerror());
        exit(3);
    }
#define FILL(name, arguments) *(void **)&name = find(driver, #name);
    DRIVER_FUNCTIONS(FILL)
#undef FILL
}

void *driver_symbol(const char *name) { return dlsym(driver, name); }

int simulated(void) { return driver_symbol("cuSimLaunch") != NULL; }

int runtime_load(void) {
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    void *runtime = NULL;
    for (unsigned i = 0; i < sizeof names / sizeof *names && runtime == NULL; i++)
        runtime = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (runtime == NULL) return 0;
#define FILL(name, arguments) *(void **)&name = find(runtime, #name);
    RUNTIME_FUNCTIONS(FILL)
#undef FILL
    return 1;
}
