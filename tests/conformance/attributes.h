/* What cuPointerGetAttribute says of an address, in words. */
#ifndef CONFORMANCE_ATTRIBUTES_H
#define CONFORMANCE_ATTRIBUTES_H

#include "conformance.h"

/* What the case knows of the memory that it asks about. */
struct known {
    CUdeviceptr base;
    size_t bytes;
    CUcontext context; /* that it was allocated in */
    CUmemoryPool pool; /* that it came from; NULL for none */
};

/* Adds one item for each attribute from 1 to 21. */
void say_attributes(struct known memory, CUdeviceptr at);

/* How an attribute's value reads, given its 16 bytes. */
const char *attribute_value(int attribute, const void *value, struct known memory,
                            CUdeviceptr at);

#endif
