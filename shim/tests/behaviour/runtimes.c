/* Two libraries, each with its own runtime: a call of one reaches that one. */
#include "../support/cuda.h"

struct user {
    int (*allocate)(void **, size_t);
    int (*release)(void *);
    int (*last_error)(void);
    int (*capturing)(int *);
    int (*devices)(int *);
};

static struct user load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    struct user user;
    user.allocate = (int (*)(void **, size_t))dlsym(library, "allocate");
    user.release = (int (*)(void *))dlsym(library, "release");
    user.last_error = (int (*)(void))dlsym(library, "last_error");
    user.capturing = (int (*)(int *))dlsym(library, "capturing");
    user.devices = (int (*)(int *))dlsym(library, "devices");
    return user;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    struct user one = load(argv[1]), two = load(argv[2]);
    int count = 0, status = 7;
    void *a, *b, *c;
    IS(0, one.devices(&count));
    CHECK(count >= 1);
    IS(0, one.capturing(&status));
    CHECK(status == 0);
    IS(0, one.allocate(&a, 8 * MiB));
    IS(0, two.allocate(&b, 8 * MiB));
    /* The error stays with the runtime that was asked. */
    IS(2, two.allocate(&c, (size_t)400 << 30));
    IS(0, one.last_error());
    IS(2, two.last_error());
    IS(0, one.release(a));
    IS(0, two.release(b));
    return 0;
}
