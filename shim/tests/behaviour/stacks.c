/* What a thread has of a stack that the program made small, in bytes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>

static void *left(void *unused) {
    char here;
    void *lowest;
    size_t bytes;
    pthread_attr_t about;
    if (pthread_getattr_np(pthread_self(), &about) == 0 &&
        pthread_attr_getstack(&about, &lowest, &bytes) == 0)
        printf("%td\n", &here - (char *)lowest);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_attr_t about;
    return pthread_attr_init(&about) != 0 || pthread_attr_setstacksize(&about, 64 << 10) != 0 ||
           pthread_create(&thread, &about, left, NULL) != 0 || pthread_join(thread, NULL) != 0;
}
