/*
 * What a name costs a process: opened again while it is open, opened and closed
 * anew through the keeper, made and ended. Prints the median of several runs, in
 * nanoseconds or microseconds; asserts nothing.
 *
 *   benches/names.sh target/release
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../include/memcuda.h"

#define RUNS 21

extern int cudaFree(void *pointer);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(int result, const char *call)
{
    if (result != MEMCUDA_OK) {
        fprintf(stderr, "names: %s: %s\n", call, memcuda_present() ? memcuda_message() : "no libmemcuda.so");
        exit(3);
    }
}

static memcuda_options wanted = MEMCUDA_OPTIONS;

static void opened_again(void)
{
    memcuda_handle handle;
    must(memcuda_open("bench", NULL, &handle), "open");
    must(memcuda_close(handle), "close");
}

static void opened_anew(void)
{
    memcuda_handle handle;
    must(memcuda_open("kept", NULL, &handle), "open");
    must(memcuda_close(handle), "close");
}

static void made(void)
{
    memcuda_handle handle;
    must(memcuda_create("fresh", &wanted, &handle), "create");
    must(memcuda_close(handle), "close");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_ns(void (*work)(void), int times)
{
    double runs[RUNS];
    for (int run = 0; run < RUNS; run++) {
        double began = now();
        for (int i = 0; i < times; i++)
            work();
        runs[run] = (now() - began) / times;
    }
    qsort(runs, RUNS, sizeof *runs, compare);
    return runs[RUNS / 2];
}

int main(void)
{
    memcuda_handle handle, kept;
    cudaFree(NULL);
    wanted.bytes = 256u << 20;
    must(MEMCUDA_TRY(memcuda_create_or_open, "bench", &wanted, &handle), "create");
    wanted.flags = MEMCUDA_PERSIST;
    must(memcuda_create_or_open("kept", &wanted, &kept), "create");
    must(memcuda_close(kept), "close");
    wanted.flags = 0;
    printf("open again and close: %.0f ns\n", median_ns(opened_again, 100000));
    printf("open anew and close, 256 MiB: %.1f us\n", median_ns(opened_anew, 200) / 1e3);
    printf("create and close, 256 MiB: %.1f us\n", median_ns(made, 100) / 1e3);
    must(memcuda_delete("kept"), "delete");
    must(memcuda_close(handle), "close");
    return 0;
}
