/*
 * Fragments device memory as a comb does: many equal blocks, every second one
 * freed, then one block as large as all the holes together. Does it in several
 * rounds with other block sizes, and checks every byte that it wrote.
 *
 *   fragment [LIVE_MIB] [async|plain]
 *
 * LIVE_MIB (default 640) is the most that is live at one time. `async` takes
 * memory by cudaMallocAsync from the device's pool, told to keep what it has,
 * as frameworks do; an allocator that cannot join holes then holds up to half
 * as much again. `plain` takes it by cudaMalloc.
 *
 * Ends with 0, with 1 if an allocation failed, 2 if data was wrong, 3 if it
 * could not run.
 * Needs no CUDA headers: it declares the runtime functions that it calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2 };                 /* cudaError_t */
enum { HOST_FROM_DEVICE = 2 };                           /* cudaMemcpyKind */
enum { RELEASE_THRESHOLD = 4, RESERVED_HIGH = 6 };       /* cudaMemPoolAttr */

extern int cudaMalloc(void **pointer, size_t bytes);
extern int cudaFree(void *pointer);
extern int cudaMallocAsync(void **pointer, size_t bytes, void *stream);
extern int cudaFreeAsync(void *pointer, void *stream);
extern int cudaDeviceGetDefaultMemPool(void **pool, int device);
extern int cudaMemPoolSetAttribute(void *pool, int attribute, void *value);
extern int cudaMemPoolGetAttribute(void *pool, int attribute, void *value);
extern int cudaMemPoolTrimTo(void *pool, size_t keep);
extern int cudaMemset(void *pointer, int byte, size_t bytes);
extern int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
extern int cudaDeviceSynchronize(void);
extern int cudaGetLastError(void);
extern const char *cudaGetErrorString(int error);

#define MIB ((size_t)1 << 20)
#define MAX_BLOCKS 64

static const int ROUNDS[] = {64, 32, 56, 16};            /* blocks of each round */

struct block {
    void *pointer;
    size_t bytes;
    int byte;                                            /* what it is filled with */
};

static int is_async = 1;
static int failures;
static int wrong;

static void must(int error, const char *call)
{
    if (error != SUCCESS) {
        fprintf(stderr, "fragment: %s: %s\n", call, cudaGetErrorString(error));
        exit(3);
    }
}

static void take(struct block *block, size_t bytes, int byte)
{
    int error = is_async ? cudaMallocAsync(&block->pointer, bytes, NULL)
                         : cudaMalloc(&block->pointer, bytes);
    if (error == OUT_OF_MEMORY) {
        fprintf(stderr, "fragment: %zu MiB: %s\n", bytes / MIB, cudaGetErrorString(error));
        cudaGetLastError();
        block->pointer = NULL;
        failures++;
        return;
    }
    must(error, "allocation");
    block->bytes = bytes;
    block->byte = byte;
    must(cudaMemset(block->pointer, byte, bytes), "cudaMemset");
}

static void give(struct block *block)
{
    if (block->pointer)
        must(is_async ? cudaFreeAsync(block->pointer, NULL) : cudaFree(block->pointer), "free");
    block->pointer = NULL;
}

static void verify(const struct block *block, unsigned char *host)
{
    if (!block->pointer)
        return;
    must(cudaMemcpy(host, block->pointer, block->bytes, HOST_FROM_DEVICE), "cudaMemcpy");
    /* All bytes are equal if the first is right and each equals the next. */
    if (host[0] != block->byte || memcmp(host, host + 1, block->bytes - 1) != 0)
        wrong++;
}

static void comb(size_t live, int count, int seed, unsigned char *host)
{
    struct block blocks[MAX_BLOCKS] = {{0}}, large = {0};
    size_t bytes = live / count / (2 * MIB) * (2 * MIB);
    for (int i = 0; i < count; i++)
        take(&blocks[i], bytes, 1 + (seed + i) % 255);
    for (int i = 0; i < count; i += 2)
        give(&blocks[i]);
    take(&large, bytes * (count / 2), 1 + (seed + count) % 255);
    verify(&large, host);
    give(&large);
    for (int i = 1; i < count; i += 2) {
        verify(&blocks[i], host);
        give(&blocks[i]);
    }
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

int main(int argc, char **argv)
{
    char *end = "";
    size_t live = argc > 1 ? strtoul(argv[1], &end, 10) : 640;
    if (argc > 2)
        is_async = strcmp(argv[2], "plain") != 0;
    if (*end || live < 128 || live > 1 << 20 || argc > 3 ||
        (argc > 2 && is_async && strcmp(argv[2], "async") != 0)) {
        fprintf(stderr, "usage: fragment [LIVE_MIB] [async|plain], LIVE_MIB from 128 to 1048576\n");
        return 3;
    }
    live *= MIB;
    unsigned char *host = malloc(live);
    if (!host) {
        fprintf(stderr, "fragment: no %zu MiB of host memory\n", live / MIB);
        return 3;
    }
    void *pool = NULL;
    unsigned long long held = 0, keep = ~0ull;
    if (is_async) {
        must(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
        must(cudaMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &keep), "cudaMemPoolSetAttribute");
    }
    int rounds = sizeof ROUNDS / sizeof ROUNDS[0];
    for (int i = 0; i < rounds; i++) {
        comb(live, ROUNDS[i], 37 * i, host);
        /* Each round begins with an empty pool, so that none inherits holes. */
        if (is_async)
            must(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
    }
    if (is_async)
        must(cudaMemPoolGetAttribute(pool, RESERVED_HIGH, &held), "cudaMemPoolGetAttribute");
    printf("fragment: %d rounds, live %zu MiB", rounds, live / MIB);
    if (is_async)
        printf(", held %llu MiB", held / MIB);
    printf(", %d allocations failed, data %s\n", failures, wrong ? "WRONG" : "right");
    free(host);
    return wrong ? 2 : failures ? 1 : 0;
}
