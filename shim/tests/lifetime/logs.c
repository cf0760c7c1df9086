/* A module is loaded where the driver is out of memory at first: each try may write as long a log. */
#include "answers.h"

CUresult cuModuleLoadDataEx(void **, const void *, unsigned, int *, void **);

int main(void) {
    enum { LOG_BUFFER = 3, LOG_LENGTH = 4, IDLE = 32 };
    void *module = NULL;
    char log[100];
    int options[] = {LOG_BUFFER, LOG_LENGTH};
    void *values[] = {log, (void *)sizeof(log)};
    CUdeviceptr idle[IDLE];
    start_cuda();
    for (int i = 0; i < IDLE; i++) OK(cuMemAlloc_v2(&idle[i], 64 * MiB));
    for (int i = 0; i < IDLE; i++) OK(cuMemFree_v2(idle[i]));
    OK(cuModuleLoadDataEx(&module, "", 2, options, values));
    printf("its log has %zu bytes\n", (size_t)values[1]);
    return 0;
}
