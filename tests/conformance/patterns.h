/* Bytes that tell their place, and memory of every kind to put them in. */
#ifndef CONFORMANCE_PATTERNS_H
#define CONFORMANCE_PATTERNS_H

#include "conformance.h"

/* How memory was asked for. */
enum { PLAIN, ORDERED, KINDS };
extern const char *const kind_names[KINDS];

/* Memory of a kind, ready to be used by any stream; and back again. */
CUdeviceptr get_memory(int kind, size_t bytes);
void put_memory(CUdeviceptr at);

/* Host memory, to be freed, whose bytes depend on their place and on `seed`. */
unsigned char *pattern(size_t bytes, unsigned seed);
/* Host memory, to be freed, all of one byte. */
unsigned char *filled(size_t bytes, int value);

/* Is this what the device memory holds? Waits for the legacy stream alone. */
bool holds(CUdeviceptr at, const void *expected, size_t bytes);
/* Does the device memory hold this byte everywhere? */
bool holds_only(CUdeviceptr at, size_t bytes, int value);

#endif
