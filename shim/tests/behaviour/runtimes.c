/* Two libraries, each with its own runtime: a call of one reaches that one. A third, which
 * was linked to none, reaches any. Where one was another may come to lie. */
#include "../support/cuda.h"

struct user {
    void *library, *place;
    int (*allocate)(void **, size_t);
    int (*release)(void *);
    int (*last_error)(void);
    int (*capturing)(int *);
    int (*devices)(int *);
};

static struct user load(const char *path) {
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    struct user user = {library};
    Dl_info about;
    user.allocate = (int (*)(void **, size_t))dlsym(library, "allocate");
    user.release = (int (*)(void *))dlsym(library, "release");
    user.last_error = (int (*)(void))dlsym(library, "last_error");
    user.capturing = (int (*)(int *))dlsym(library, "capturing");
    user.devices = (int (*)(int *))dlsym(library, "devices");
    CHECK(dladdr((void *)user.allocate, &about) != 0);
    user.place = about.dli_fbase;
    return user;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    struct user one = load(argv[1]), two = load(argv[2]), loose = load(argv[3]);
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
    IS(0, loose.allocate(&c, 8 * MiB));
    IS(0, loose.release(c));
    /* The runtimes stay. */
    CHECK(dlopen("libcudart.so.13", RTLD_LAZY) != NULL && dlopen("libcudart.so.98", RTLD_LAZY) != NULL);
    CHECK(dlclose(one.library) == 0 && dlclose(two.library) == 0);
    int same = 0;
    void *before = NULL;
    for (int round = 0; round < 10; round++) {
        struct user user = load(argv[1 + round % 2]);
        same += user.place == before;
        before = user.place;
        IS(0, user.allocate(&a, 8 * MiB));
        IS(2, user.allocate(&c, (size_t)400 << 30));
        IS(2, user.last_error());
        IS(0, user.release(a));
        CHECK(dlclose(user.library) == 0);
    }
    CHECK(same > 0);
    return 0;
}
