// A section of driver_facts.cu.
#pragma once
#include "common.cuh"

// ---- alias: may a kernel that started early read old bytes through another address? ----

static __device__ __forceinline__ unsigned load_cached(const unsigned *p) {
    unsigned v;
    asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

// Lets its successor start at once, waits, then writes.
__global__ void early_writer(unsigned *out, unsigned words, unsigned value, u64 ns) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    u64 begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < ns);
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) out[i] = value;
}

// Optionally pulls the old bytes into its cache, waits for its predecessor, then counts words that are old.
__global__ void late_reader(const unsigned *in, unsigned words, unsigned expected, int touch_first, unsigned *sink,
                            u64 *stale, u64 *early) {
    unsigned sum = 0, fresh_before = 0;
    if (touch_first)
        for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
            unsigned v = load_cached(in + i);
            sum += v;
            fresh_before += v == expected;
        }
    asm volatile("griddepcontrol.wait;" ::: "memory");
    u64 wrong = 0;
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) wrong += load_cached(in + i) != expected;
    if (wrong) atomicAdd(stale, wrong);
    if (touch_first && fresh_before == 0 && threadIdx.x == 0) atomicAdd(early, 1ull);
    if (sum == 0xffffffffu) *sink = sum;
}

static void section_alias() {
    printf("\n[alias] words read old by a kernel launched with programmatic stream serialization, of words read, 500 pairs;\n"
           "early = blocks that started before the writer wrote (touch-first rows)\n");
    const unsigned WORDS = 16 * 1024;  // 64 KiB: fits the first-level cache of every SM
    CUmemAllocationProp prop = allocation_prop();
    CUmemGenericAllocationHandle handle;
    CK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    CUdeviceptr a, b;
    CK(cuMemAddressReserve(&a, 2 * MIB, 0, 0, 0));
    CK(cuMemAddressReserve(&b, 2 * MIB, 0, 0, 0));
    CK(cuMemMap(a, 2 * MIB, 0, handle, 0));
    CK(cuMemMap(b, 2 * MIB, 0, handle, 0));
    set_access(a, 2 * MIB);
    set_access(b, 2 * MIB);
    u64 *counters = NULL;
    CK(cudaMalloc((void **)&counters, 4096));
    cudaStream_t stream;
    cudaEvent_t event;
    CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    int sms = 0;
    CK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    const int blocks = sms;
    printf("  %-44s %14s %16s %10s\n", "case", "stale words", "words read", "early");
    for (int alias = 0; alias < 2; alias++)
        for (int touch = 0; touch < 2; touch++)
            for (int edge = 0; edge < 4; edge++) {
                // edge: 0 early launch; 1 early launch + event record and wait; 2 early launch + record only; 3 plain launch
                const char *edges[] = {"early launch", "early launch, record+wait", "early launch, record", "plain launch"};
                CK(cudaMemset(counters, 0, 4096));
                unsigned *to = (unsigned *)a;
                const unsigned *from = (const unsigned *)(alias ? b : a);
                for (unsigned n = 1; n <= 500; n++) {
                    early_writer<<<blocks, 128, 0, stream>>>(to, WORDS, n, 20000ull);
                    CK(cudaGetLastError());
                    if (edge == 1 || edge == 2) CK(cudaEventRecord(event, stream));
                    if (edge == 1) CK(cudaStreamWaitEvent(stream, event, 0));
                    cudaLaunchAttribute attribute[1];
                    memset(attribute, 0, sizeof attribute);
                    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
                    attribute[0].val.programmaticStreamSerializationAllowed = edge == 3 ? 0 : 1;
                    cudaLaunchConfig_t config;
                    memset(&config, 0, sizeof config);
                    config.gridDim = dim3(blocks);
                    config.blockDim = dim3(256);
                    config.stream = stream;
                    config.attrs = attribute;
                    config.numAttrs = 1;
                    unsigned words = WORDS, expected = n;
                    unsigned *sink = (unsigned *)(counters + 8);
                    u64 *stale = counters, *early = counters + 1;
                    CK(cudaLaunchKernelEx(&config, late_reader, from, words, expected, touch, sink, stale, early));
                    // Without this the next writer could overtake a reader that is still counting.
                    CK(cudaStreamSynchronize(stream));
                }
                u64 result[2];
                CK(cudaMemcpy(result, counters, sizeof result, cudaMemcpyDeviceToHost));
                char name[96];
                snprintf(name, sizeof name, "%s, %s%s", alias ? "other address" : "same address",
                         touch ? "touched first, " : "", edges[edge]);
                printf("  %-44s %14llu %16llu %10llu\n", name, result[0], (u64)500 * blocks * WORDS, result[1]);
                fflush(stdout);
            }
    CK(cudaFree(counters));
    CK(cudaEventDestroy(event));
    CK(cudaStreamDestroy(stream));
    CK(cuMemUnmap(a, 2 * MIB));
    CK(cuMemUnmap(b, 2 * MIB));
    CK(cuMemRelease(handle));
    CK(cuMemAddressFree(a, 2 * MIB));
    CK(cuMemAddressFree(b, 2 * MIB));
}
