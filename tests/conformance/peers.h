/* Two devices: contexts, and memory of the one that is not current. */
#ifndef CONFORMANCE_PEERS_H
#define CONFORMANCE_PEERS_H

#include "patterns.h"

/* Contexts of the first two devices; the first one is current. */
struct pair { CUcontext first, second; };

struct pair open_pair(void);
/* The same two the other way round: device 1's is the first, and current. */
struct pair open_pair_turned(void);

/* Memory of a device, and what it holds, whichever context is current. */
CUdeviceptr get_memory_on(CUcontext device, int kind, size_t bytes);
CUdeviceptr allocate_on(CUcontext device, size_t bytes);
CUstream new_stream_on(CUcontext device);
void fill_on(CUcontext device, CUdeviceptr at, size_t bytes, int value);
void put_on(CUcontext device, CUdeviceptr at, const void *bytes, size_t count);
bool holds_on(CUcontext device, CUdeviceptr at, const void *expected, size_t bytes);

/* Waits for both devices; the first code that is none of success. */
int settle(struct pair p);
/* What a call answered, the wait after it, and whether its work was done. */
void say_done(const char *what, size_t bytes, int code, int after, bool equal);

#endif
