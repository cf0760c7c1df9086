/* Whether the library is found, and whether a call reaches it. Of CUDA nothing is linked. */
#include <stdio.h>

#include "../../../include/memcuda.h"

int main(void) {
    int result = MEMCUDA_TRY(memcuda_delete, "w");
    printf("%d %s\n", memcuda_present(), memcuda_present() ? memcuda_result_name(result) : "absent");
    return 0;
}
