// A driver whose allocations and frees do nothing, for a runtime to be measured
// over: preloaded, it answers whoever looks up cuMemAlloc, cuMemFree and their
// stream-ordered spellings with functions that return a constant. All else is
// the real driver's. See hooks.py.
//
// Build:  cc -O2 -shared -fPIC -o empty_driver.so benches/empty_driver.c -ldl

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static int allocate(unsigned long long *out, size_t bytes) {
    (void)bytes;
    *out = 0x7f0000000000ull;
    return 0;
}

static int allocate_async(unsigned long long *out, size_t bytes, void *stream) {
    (void)stream;
    return allocate(out, bytes);
}

static int give_async(unsigned long long at, void *stream) {
    (void)stream;
    return at == 0;
}

typedef int (*Free)(unsigned long long);
static Free real_free;

// A runtime starts by freeing nothing.
static int give(unsigned long long at) {
    return at == 0 && real_free ? real_free(at) : 0;
}

static void *instead_of(const char *name, void *real) {
    static const struct {
        const char *name;
        void *empty;
    } all[] = {
        {"cuMemAlloc", (void *)allocate},
        {"cuMemAllocAsync", (void *)allocate_async},
        {"cuMemFreeAsync", (void *)give_async},
        {"cuMemFree", (void *)give},
    };
    for (size_t i = 0; real && i < sizeof all / sizeof *all; i++) {
        size_t length = strlen(all[i].name);
        if (strncmp(name, all[i].name, length) != 0) continue;
        if (strcmp(name + length, "") != 0 && strcmp(name + length, "_v2") != 0) continue;
        if (all[i].empty == (void *)give) real_free = (Free)real;
        return all[i].empty;
    }
    return real;
}

typedef int (*Lookup)(const char *, void **, int, unsigned long long, int *);
static Lookup real_lookup;

static int lookup(const char *name, void **function, int version, unsigned long long flags, int *status) {
    int code = real_lookup(name, function, version, flags, status);
    if (code != 0 || !*function) return code;
    // Since 12.0 this name is the function of five arguments, and a runtime may
    // go on with the one that it gets here.
    if (strcmp(name, "cuGetProcAddress") == 0 && version >= 12000) *function = (void *)lookup;
    else *function = instead_of(name, *function);
    return code;
}

void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) {
        void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!found) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        if (!found) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
        real = (void *(*)(void *, const char *))found;
    }
    void *found = real(handle, name);
    if (found && strcmp(name, "cuGetProcAddress_v2") == 0) {
        real_lookup = (Lookup)found;
        return (void *)lookup;
    }
    return instead_of(name, found);
}
