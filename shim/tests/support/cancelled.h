/* Runs something on a thread that is cancelled already: it may make no call by which such a
 * thread ends. */
#include "cuda.h"
#include <pthread.h>

struct cancelled { void (*work)(void *); void *of; int done; };

static void *cancelled_thread(void *argument) {
    struct cancelled *cancelled = argument;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    OK(pthread_cancel(pthread_self()));
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    cancelled->work(cancelled->of);
    cancelled->done = 1;
    pthread_testcancel();
    return NULL;
}

static inline void run_cancelled(void (*work)(void *), void *of) {
    struct cancelled cancelled = {work, of, 0};
    pthread_t thread;
    void *result = NULL;
    OK(pthread_create(&thread, NULL, cancelled_thread, &cancelled));
    OK(pthread_join(thread, &result));
    CHECK(cancelled.done && result == PTHREAD_CANCELED);
}
