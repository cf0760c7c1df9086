/* A library with a runtime of its own behind it. */
#include "../support/cuda.h"

int allocate(void **out, size_t bytes) { return cudaMalloc(out, bytes); }
int release(void *address) { return cudaFree(address); }
int last_error(void) { return cudaGetLastError(); }
int capturing(int *status) { return cudaStreamIsCapturing(NULL, status); }
int devices(int *count) { return cudaGetDeviceCount(count); }
