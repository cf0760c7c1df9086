// The driver's calls for mapping memory, looked up through the runtime as torch does,
// and the runtime's that a stand-in of its allocator makes.
#pragma once
#include "c10.h"

#include <cstdlib>

typedef unsigned long long u64;
struct Properties {
    int type, handles, location, device;
    void* windows;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};
struct Access {
    int location, device, flags;
};
extern "C" {
int cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, u64, int*);
int cudaGetDevice(int*);
int cudaGetDeviceCount(int*);
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int cudaStreamSynchronize(cudaStream_t);
int cudaDeviceSynchronize(void);
}

template <typename F> static void driver(F& into, const char* name) {
    void* found = nullptr;
    int status = 0;
    if (cudaGetDriverEntryPointByVersion(name, &found, 12010, 0, &status) || !found) abort();
    into = reinterpret_cast<F>(found);
}
