// What the CUDA driver does, measured on one GPU: the facts that the pool's design rests on.
//
// Build:  nvcc -O2 -arch=sm_90 -o driver_facts tests/gpu/driver_facts.cu -lcuda
// Run:    ./driver_facts [SECTION...]
//         sections: align costs capture reserve pairs alias copy (the default: all of these), mappings, few, records, waits,
//                   beside, threads, legacy, reuse, memops
// Times are medians in microseconds. Nothing is left allocated, no setting of the GPU is changed.
// Exit status: 0 measured, 1 a call failed that should not, 2 no usable GPU or a wrong argument.

#include "driver_facts/alias.cuh"
#include "driver_facts/beside.cuh"
#include "driver_facts/calls.cuh"
#include "driver_facts/capture.cuh"
#include "driver_facts/copy.cuh"
#include "driver_facts/mappings.cuh"
#include "driver_facts/memops.cuh"
#include "driver_facts/order.cuh"
#include "driver_facts/records.cuh"
#include "driver_facts/threads.cuh"
#include "driver_facts/waits.cuh"

struct Section {
    const char *name;
    void (*body)();
    bool by_default;
};
static const Section SECTIONS[] = {
    {"align", section_align, true}, {"costs", section_costs, true}, {"capture", section_capture, true},
    {"reserve", section_reserve, true}, {"pairs", section_pairs, true}, {"alias", section_alias, true},
    {"copy", section_copy, true}, {"mappings", section_mappings, false}, {"few", section_few, false},
    {"records", section_records, false}, {"waits", section_waits, false},
    {"beside", section_beside, false}, {"threads", section_threads, false},
    {"legacy", section_legacy, false}, {"reuse", section_reuse, false}, {"memops", section_memops, false},
};
static const size_t SECTION_COUNT = sizeof SECTIONS / sizeof *SECTIONS;

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        bool known = false;
        for (size_t s = 0; s < SECTION_COUNT; s++) known = known || !strcmp(argv[i], SECTIONS[s].name);
        if (!known) {
            printf("unknown section '%s'; known: align costs capture reserve pairs alias copy mappings few records waits beside threads legacy reuse memops\n", argv[i]);
            return 2;
        }
    }
    int count = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
        printf("no usable CUDA device: nothing was measured\n");
        return 2;
    }
    CK(cudaSetDevice(0));
    CK(cudaFree(0));
    CK(cuDeviceGet(&g_device, 0));
    CK(cuCtxGetCurrent(&g_context));
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library) {
        p_capture_info = (CaptureInfoFn)dlsym(library, "cuStreamGetCaptureInfo_v2");
        p_ctx_record = (CtxRecordFn)dlsym(library, "cuCtxRecordEvent");
        p_ctx_wait = (CtxWaitFn)dlsym(library, "cuCtxWaitEvent");
        p_ctx_create = (CtxCreateFn)dlsym(library, "cuCtxCreate_v2");
    }
    char name[128];
    int version = 0;
    CK(cuDeviceGetName(name, sizeof name, g_device));
    CK(cuDriverGetVersion(&version));
    printf("%s, driver API %d.%d, built with CUDA %d\n", name, version / 1000, version % 1000 / 10, CUDART_VERSION);
    for (size_t s = 0; s < SECTION_COUNT; s++) {
        bool wanted = argc == 1 && SECTIONS[s].by_default;
        for (int i = 1; i < argc; i++) wanted = wanted || !strcmp(argv[i], SECTIONS[s].name);
        if (wanted) SECTIONS[s].body();
        fflush(stdout);
    }
    printf("\ndone\n");
    return 0;
}
