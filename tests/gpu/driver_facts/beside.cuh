// A section of driver_facts.cu.
#pragma once
#include "common.cuh"

// ---- beside: what the virtual-memory calls cost while the GPU works ----
//
// A stream is given work for some 100 ms, then the calls are timed: each handle by itself, and
// BESIDE_HANDLES of them by one call. A round counts if the work is not over at its end.

static const int BESIDE_HANDLES = 8, BESIDE_ROUNDS = 7;
static const u64 BESIDE_COPY = 96 * MIB, BESIDE_PIECE = 4 * MIB;

enum BesideWork { BESIDE_NOTHING, BESIDE_SPIN, BESIDE_ON_DEVICE, BESIDE_FROM_HOST, BESIDE_TO_HOST, BESIDE_PIECES };
static const char *const BESIDE_NAMES[] = {"nothing", "a kernel of one block", "copies on the device",
                                           "copies from the host", "copies to the host",
                                           "the same, 4 MiB each"};

struct BesideScene {
    CUstream stream;
    CUdeviceptr from, to;
    void *pinned;
};

static void beside_work(const BesideScene &scene, BesideWork work) {
    if (work == BESIDE_SPIN) {
        spin_kernel<<<1, 1, 0, (cudaStream_t)scene.stream>>>(100000000);
        CK(cudaGetLastError());
    }
    for (int i = 0; i < 60 && work == BESIDE_FROM_HOST; i++)
        CK(cuMemcpyHtoDAsync(scene.to, scene.pinned, BESIDE_COPY, scene.stream));
    u64 to_host = work == BESIDE_TO_HOST ? BESIDE_COPY : BESIDE_PIECE;
    for (u64 i = 0; i < 60 * BESIDE_COPY / to_host && work >= BESIDE_TO_HOST; i++)
        CK(cuMemcpyDtoHAsync(scene.pinned, scene.from, to_host, scene.stream));
    for (int i = 0; i < 1500 && work == BESIDE_ON_DEVICE; i++)
        CK(cuMemcpyDtoDAsync(scene.to, scene.from, BESIDE_COPY, scene.stream));
}

// One row: handles of so many bytes, which another process could open or not.
static void beside_row(const BesideScene &scene, const char *name, BesideWork work, u64 bytes, bool exportable) {
    CUmemAllocationProp prop = allocation_prop();
    if (!exportable) prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    CUdeviceptr at = 0;
    CK(cuMemAddressReserve(&at, BESIDE_HANDLES * bytes, 0, 0, 0));
    enum { CREATE, MAP, ACCESS, UNMAP, RELEASE, ACCESS_ALL, UNMAP_ALL, ALLOC, CALLS };
    std::vector<double> all[CALLS];
    int counted = 0;
    for (int round = 0; round < BESIDE_ROUNDS; round++) {
        CUmemGenericAllocationHandle handles[BESIDE_HANDLES];
        CUdeviceptr plain[BESIDE_HANDLES];
        std::vector<double> times[CALLS];
        auto timed = [&](int row, int count, const std::function<void()> &call) {
            double begin = now_us();
            call();
            times[row].push_back((now_us() - begin) / count);
        };
        auto each = [&](int row, const std::function<void(int)> &call) {
            for (int i = 0; i < BESIDE_HANDLES; i++) timed(row, 1, [&] { call(i); });
        };
        auto map = [&](int i) { CK(cuMemMap(at + i * bytes, bytes, 0, handles[i], 0)); };
        beside_work(scene, work);
        each(CREATE, [&](int i) { CK(cuMemCreate(&handles[i], bytes, &prop, 0)); });
        each(MAP, map);
        each(ACCESS, [&](int i) { set_access(at + i * bytes, bytes); });
        each(UNMAP, [&](int i) { CK(cuMemUnmap(at + i * bytes, bytes)); });
        each(MAP, map);
        timed(ACCESS_ALL, BESIDE_HANDLES, [&] { set_access(at, BESIDE_HANDLES * bytes); });
        timed(UNMAP_ALL, BESIDE_HANDLES, [&] { CK(cuMemUnmap(at, BESIDE_HANDLES * bytes)); });
        each(RELEASE, [&](int i) { CK(cuMemRelease(handles[i])); });
        each(ALLOC, [&](int i) { CK(cuMemAlloc(&plain[i], bytes)); });
        bool busy = cuStreamQuery(scene.stream) == CUDA_ERROR_NOT_READY;
        CK(cuCtxSynchronize());
        for (CUdeviceptr memory : plain) CK(cuMemFree(memory));
        if (!busy && work != BESIDE_NOTHING) continue;
        counted++;
        for (int row = 0; row < CALLS; row++) all[row].insert(all[row].end(), times[row].begin(), times[row].end());
    }
    CK(cuMemAddressFree(at, BESIDE_HANDLES * bytes));
    printf("  %-24s %8s %4s", name, bytes_text(bytes).c_str(), exportable ? "yes" : "no");
    for (const std::vector<double> &times : all) printf(" %9.1f", median(times));
    printf(" %7d\n", counted);
    fflush(stdout);
}

static void section_beside() {
    printf("\n[beside] us a handle, median of %d rounds of %d handles; access*, unmap*: by one call for all of them\n",
           BESIDE_ROUNDS, BESIDE_HANDLES);
    BesideScene scene;
    CK(cuStreamCreate(&scene.stream, CU_STREAM_NON_BLOCKING));
    CK(cuMemAlloc(&scene.from, BESIDE_COPY));
    CK(cuMemAlloc(&scene.to, BESIDE_COPY));
    CK(cuMemHostAlloc(&scene.pinned, BESIDE_COPY, 0));
    printf("  %-24s %8s %4s %9s %9s %9s %9s %9s %9s %9s %9s %7s\n", "the GPU has", "handle", "fd", "create", "map", "access",
           "unmap", "release", "access*", "unmap*", "MemAlloc", "rounds");
    for (int work = BESIDE_NOTHING; work <= BESIDE_PIECES; work++)
        beside_row(scene, BESIDE_NAMES[work], (BesideWork)work, 12 * MIB, true);
    beside_row(scene, BESIDE_NAMES[BESIDE_TO_HOST], BESIDE_TO_HOST, 12 * MIB, false);
    beside_row(scene, BESIDE_NAMES[BESIDE_TO_HOST], BESIDE_TO_HOST, 2 * MIB, true);
    beside_row(scene, BESIDE_NAMES[BESIDE_TO_HOST], BESIDE_TO_HOST, 96 * MIB, true);
    CK(cuMemFreeHost(scene.pinned));
    CK(cuMemFree(scene.to));
    CK(cuMemFree(scene.from));
    CK(cuStreamDestroy(scene.stream));
}
