/*
 * A program that knows nothing of names: it allocates once, writes there or not,
 * and says what it reads. Under one rule (`MEMCUDA_NAMES`) two of them hold the
 * same memory.
 *
 *   named write|read
 *
 * Holds its memory until its input ends. Ends with 0, with 3 if it could not run.
 * Needs no CUDA headers: it declares the runtime functions that it calls.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0 };                                    /* cudaError_t */
enum { DEVICE_FROM_HOST = 1, HOST_FROM_DEVICE = 2 };     /* cudaMemcpyKind */

extern int cudaMalloc(void **pointer, size_t bytes);
extern int cudaFree(void *pointer);
extern int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
extern const char *cudaGetErrorString(int error);

#define WORDS ((size_t)16 << 20)

static void must(int error, const char *call)
{
    if (error != SUCCESS) {
        fprintf(stderr, "named: %s: %s\n", call, cudaGetErrorString(error));
        exit(3);
    }
}

int main(int count, char **arguments)
{
    size_t bytes = WORDS * sizeof(uint32_t);
    uint32_t *words = calloc(WORDS, sizeof(uint32_t));
    uint64_t sum = 0;
    void *memory;

    if (count != 2 || !words || (strcmp(arguments[1], "write") && strcmp(arguments[1], "read"))) {
        fprintf(stderr, "usage: named write|read\n");
        return 3;
    }
    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    if (!strcmp(arguments[1], "write")) {
        for (size_t i = 0; i < WORDS; i++)
            words[i] = (uint32_t)(i * 2654435761u);
        must(cudaMemcpy(memory, words, bytes, DEVICE_FROM_HOST), "cudaMemcpy");
        memset(words, 0, bytes);
    }
    must(cudaMemcpy(words, memory, bytes, HOST_FROM_DEVICE), "cudaMemcpy");
    for (size_t i = 0; i < WORDS; i++)
        sum = sum * 31 + words[i];
    printf("%s: %zu MiB, checksum %016llx\n", arguments[1], bytes >> 20, (unsigned long long)sum);
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    must(cudaFree(memory), "cudaFree");
    free(words);
    return 0;
}
