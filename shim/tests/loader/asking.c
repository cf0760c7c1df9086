/* A library whose constructor waits for a thread that asks for a variable, and (PROGRAM) who
 * loads it: the loader's lock is held meanwhile. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef PROGRAM
int main(int argc, char **argv) {
    alarm(60);
    return argc != 2 || dlopen(argv[1], RTLD_NOW) == NULL;
}
#else
static void *ask(void *unused) {
    if (getenv("LD_PRELOAD") != NULL) puts("told");
    return unused;
}

__attribute__((constructor)) static void started(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, ask, NULL) == 0) pthread_join(thread, NULL);
}
#endif
