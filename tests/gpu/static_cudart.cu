// A program that brings its own, statically linked CUDA runtime (nvcc's default):
// allocates and frees blocks of changing size, checks what they hold, and
// prints a checksum. With and without the pool the output must be the same.
//   static_cudart [STEPS]
//
// Build: nvcc -O2 -arch=native -o static_cudart tests/gpu/static_cudart.cu

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CK(call)                                                                     \
    do {                                                                             \
        cudaError_t e_ = (call);                                                     \
        if (e_ != cudaSuccess) {                                                     \
            printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(e_));    \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

__global__ void fill(unsigned *p, size_t words, unsigned seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
        p[i] = (unsigned)i * 2654435761u ^ seed;
}

__global__ void check(const unsigned *p, size_t words, unsigned seed, unsigned long long *wrong, unsigned long long *sum) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) {
        if (p[i] != ((unsigned)i * 2654435761u ^ seed)) atomicAdd(wrong, 1ull);
        if (i % 4099 == 0) atomicAdd(sum, (unsigned long long)p[i]);
    }
}

int main(int argc, char **argv) {
    const int steps = argc > 1 ? atoi(argv[1]) : 600;
    const int SLOTS = 24;
    unsigned *slot[SLOTS] = {0};
    size_t words[SLOTS] = {0};
    unsigned seed[SLOTS] = {0};
    unsigned long long *counters, host[2];
    CK(cudaMalloc((void **)&counters, 2 * sizeof *counters));
    CK(cudaMemset(counters, 0, 2 * sizeof *counters));
    cudaStream_t stream[2];
    for (int i = 0; i < 2; i++) CK(cudaStreamCreate(&stream[i]));
    unsigned random = 12345;
    for (int step = 0; step < steps; step++) {
        random = random * 1664525u + 1013904223u;
        int i = (random >> 8) % SLOTS;
        cudaStream_t s = stream[step & 1];
        if (slot[i]) {
            check<<<64, 256, 0, s>>>(slot[i], words[i], seed[i], counters, counters + 1);
            CK(cudaGetLastError());
            // A plain free right behind the launch: it must wait for the kernel.
            if (i & 1) CK(cudaFree(slot[i]));
            else CK(cudaFreeAsync(slot[i], s));
            slot[i] = NULL;
        } else {
            words[i] = (size_t)(1 + (random >> 16) % 48) << ((random & 3) ? 18 : 10);
            seed[i] = random;
            if (i & 1) CK(cudaMalloc((void **)&slot[i], words[i] * 4));
            else CK(cudaMallocAsync((void **)&slot[i], words[i] * 4, s));
            fill<<<64, 256, 0, s>>>(slot[i], words[i], seed[i]);
            CK(cudaGetLastError());
            CK(cudaStreamSynchronize(s));
        }
    }
    CK(cudaDeviceSynchronize());
    CK(cudaMemcpy(host, counters, sizeof host, cudaMemcpyDeviceToHost));
    size_t free_bytes, total;
    CK(cudaMemGetInfo(&free_bytes, &total));
    usleep(300000);
    printf("wrong %llu checksum %llu within %d\n", host[0], host[1], free_bytes <= total);
    return host[0] ? 1 : 0;
}
