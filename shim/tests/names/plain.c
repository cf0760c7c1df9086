/* An unmodified program: it allocates, writes or not, and tells what it reads. */
#include "../support/cuda.h"

int cudaMemcpy(void *, const void *, size_t, int);

int main(int argc, char **argv) {
    size_t bytes = 4 * MiB;
    unsigned char *host = malloc(bytes);
    void *at;
    CHECK(argc == 2 && cudaMalloc(&at, bytes) == 0);
    if (!strcmp(argv[1], "write")) {
        for (size_t i = 0; i < bytes; i++) host[i] = (unsigned char)(i * 31 + (i >> 12));
        CHECK(cudaMemcpy(at, host, bytes, 1) == 0);
    }
    CHECK(cudaMemcpy(host, at, bytes, 2) == 0);
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i++) sum = sum * 31 + host[i];
    printf("%016lx\n", sum);
    fflush(stdout);
    getchar(); /* until its input ends */
    CHECK(cudaFree(at) == 0);
    return 0;
}
