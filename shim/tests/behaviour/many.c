/* Many libraries, each with a runtime of its own: a call of one reaches that one, however many
 * there are.
 *
 *   many LIBRARY...   LIBRARYs are copies of runtime_user.c */
#include "../support/cuda.h"

struct user {
    int (*allocate)(void **, size_t);
    int (*release)(void *);
    int (*last_error)(void);
    int (*capturing)(int *);
};

static struct user load(const char *path) {
    struct user user;
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    user.allocate = (int (*)(void **, size_t))dlsym(library, "allocate");
    user.release = (int (*)(void *))dlsym(library, "release");
    user.last_error = (int (*)(void))dlsym(library, "last_error");
    user.capturing = (int (*)(int *))dlsym(library, "capturing");
    return user;
}

int main(int count, char **paths) {
    static struct user users[64];
    CHECK(count > 2 && count <= 65);
    for (int i = 1; i < count; i++) users[i - 1] = load(paths[i]);
    for (int i = 0; i < count - 1; i++) {
        int status = 7;
        void *at = NULL, *none = NULL;
        IS(0, users[i].capturing(&status));
        CHECK(status == 0);
        IS(0, users[i].allocate(&at, 8 * MiB));
        CHECK(is_pooled((CUdeviceptr)at));
        IS(0, users[i].release(at));
        /* The error stays with the runtime that was asked. */
        IS(2, users[i].allocate(&none, (size_t)400 << 30));
    }
    for (int i = 0; i < count - 1; i++) {
        IS(2, users[i].last_error());
        IS(0, users[i].last_error());
    }
    return 0;
}
