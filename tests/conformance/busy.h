/* A stream that is kept busy, and what a call did to it. */
#ifndef CONFORMANCE_BUSY_H
#define CONFORMANCE_BUSY_H

#include "conformance.h"

/* Microseconds: longer than any call of a case takes. */
enum { BUSY = 100 * 1000 };

/* Keeps a stream busy from now on. */
void busy(CUstream stream);
/* "yes" where all of its work is over, "no", or what the question answered. */
const char *is_over(CUstream stream);
/* Runs a function in a thread of its own with the caller's context current,
 * and waits for it. It must not use NEED. */
void on_thread(void (*body)(void *), void *argument);

#endif
