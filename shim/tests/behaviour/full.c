/* Preloaded behind libmemcuda.so: once the simulated GPU has made its own file no other one
 * may have more bytes than MOST. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

int ftruncate64(int file, off_t bytes) {
    int result = syscall(SYS_ftruncate, file, bytes);
    if (bytes > 1L << 30) {
        rlim_t most = atol(getenv("MOST"));
        struct rlimit limit = {most, most};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    return result;
}

int ftruncate(int file, off_t bytes) { return ftruncate64(file, bytes); }
