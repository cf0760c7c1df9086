/* How cases are run: inside this process, and in processes of their own. */
#ifndef CONFORMANCE_RUNNER_H
#define CONFORMANCE_RUNNER_H

#include "conformance.h"

/* Runs a case in this process. Its text, valid until the next one is run. */
const char *run_case(const struct test *test, int devices);

/* Runs each case in a fresh process of this program, those that may share one
 * together, and keeps their texts: what a case said, or how it ended. */
void run_all(const struct test **tests, char **texts, int count);

/* Devices that the driver shows; asked in this process. */
int device_count(void);

#endif
