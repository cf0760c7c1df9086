/* A clock that stands still, as libfaketime's where it is given a time: to be preloaded. */
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    *now = (struct timespec){1577836800, 0};
    return 0;
}
