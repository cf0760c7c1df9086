/* Nothing is written from inside dlsym, however much the log may say: the library's
 * write() is this program's. What was looked up is told of by the next call. */
#include "../support/cuda.h"

#include <sys/syscall.h>
#include <unistd.h>

static __thread int inside;
static int written, written_inside, routes;

ssize_t write(int descriptor, const void *bytes, size_t count) {
    written++;
    written_inside += inside;
    routes += memmem(bytes, count, "route: ", 7) != NULL;
    return syscall(SYS_write, descriptor, bytes, count);
}

static void *look_up(void *driver, const char *name) {
    inside = 1;
    void *found = dlsym(driver, name);
    inside = 0;
    return found;
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver != NULL && look_up(driver, "cuInit") != NULL);
    OK(cuInit(0));
    CHECK(written > 0); /* the library's lines come by here */
    printf("%d told\n", routes);
    for (int i = 0; i < 3; i++) {
        CHECK(look_up(driver, "cuMemAlloc_v2") != NULL);
        CHECK(look_up(driver, "cuMemFreeAsync") != NULL);
        CHECK(look_up(driver, "cuNoSuchThing") == NULL);
    }
    int before = written;
    size_t bytes;
    cuMemGetInfo_v2(&bytes, &bytes); /* without a context: an error, by a hook */
    CHECK(written > before);
    CHECK(written_inside == 0);
    return 0;
}
