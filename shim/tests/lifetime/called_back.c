/* A tool that the driver calls back while a context ends asks for memory with a name, which
 * another thread does as well: both take the primary context, whose end the library keeps
 * away meanwhile. */
#include "answers.h"
#include <semaphore.h>

static int (*create)(const char *, const void *, uint64_t *);
static sem_t at_moment;
static __thread int ends;

static int ask(void) {
    uint64_t handle;
    return create("name", NULL, &handle);
}

void answered(const char *call) {
    if (!ends || strcmp(call, "cuCtxDestroy_v2") != 0) return;
    sem_post(&at_moment);
    usleep(100000);
    ask();
}

static void *other(void *unused) {
    sem_wait(&at_moment);
    ask();
    return unused;
}

int main(void) {
    pthread_t thread;
    CUcontext context;
    alarm(60);
    OK(cuInit(0));
    *(void **)&create = dlsym(RTLD_DEFAULT, "memcuda_create");
    CHECK(create != NULL && sem_init(&at_moment, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuCtxSetCurrent(NULL));
    ends = 1;
    OK(cuCtxDestroy_v2(context));
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
