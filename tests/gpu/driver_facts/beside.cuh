// A section of driver_facts.cu.
#pragma once
#include "common.cuh"

// ---- beside: what the virtual-memory calls cost while the GPU works ----
//
// A stream is given work for some 100 ms, then the calls are timed: each handle by itself, and
// BESIDE_HANDLES of them by one call. A round counts if the work is not over at its end.

static const int BESIDE_HANDLES = 8, BESIDE_ROUNDS = 7;
static const u64 BESIDE_HANDLE = 12 * MIB, BESIDE_COPY = 96 * MIB, BESIDE_PIECE = 4 * MIB;

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

static void section_beside() {
    printf("\n[beside] us a handle of %s, median of %d rounds; `of %d`: by one call for so many\n",
           bytes_text(BESIDE_HANDLE).c_str(), BESIDE_ROUNDS, BESIDE_HANDLES);
    BesideScene scene;
    CK(cuStreamCreate(&scene.stream, CU_STREAM_NON_BLOCKING));
    CK(cuMemAlloc(&scene.from, BESIDE_COPY));
    CK(cuMemAlloc(&scene.to, BESIDE_COPY));
    CK(cuMemHostAlloc(&scene.pinned, BESIDE_COPY, 0));
    CUdeviceptr at = 0;
    CK(cuMemAddressReserve(&at, BESIDE_HANDLES * BESIDE_HANDLE, 0, 0, 0));
    CUmemAllocationProp prop = allocation_prop();
    printf("  %-24s %8s %8s %8s %8s %8s %12s %12s %11s %7s\n", "the GPU has", "create", "map", "access", "unmap",
           "release", "access of 8", "unmap of 8", "cuMemAlloc", "rounds");
    for (int work = BESIDE_NOTHING; work <= BESIDE_PIECES; work++) {
        std::vector<double> create, map, access, unmap, release, access_all, unmap_all, alloc;
        int counted = 0;
        for (int round = 0; round < BESIDE_ROUNDS; round++) {
            CUmemGenericAllocationHandle handles[BESIDE_HANDLES];
            CUdeviceptr plain[BESIDE_HANDLES];
            std::vector<double> times[8];
            auto timed = [&](int row, int count, const std::function<void()> &call) {
                double begin = now_us();
                call();
                times[row].push_back((now_us() - begin) / count);
            };
            beside_work(scene, (BesideWork)work);
            for (int i = 0; i < BESIDE_HANDLES; i++)
                timed(0, 1, [&] { CK(cuMemCreate(&handles[i], BESIDE_HANDLE, &prop, 0)); });
            for (int all = 0; all < 2; all++) {
                for (int i = 0; i < BESIDE_HANDLES; i++)
                    timed(1, 1, [&] { CK(cuMemMap(at + i * BESIDE_HANDLE, BESIDE_HANDLE, 0, handles[i], 0)); });
                for (int i = 0; i < BESIDE_HANDLES && !all; i++)
                    timed(2, 1, [&] { set_access(at + i * BESIDE_HANDLE, BESIDE_HANDLE); });
                for (int i = 0; i < BESIDE_HANDLES && !all; i++)
                    timed(3, 1, [&] { CK(cuMemUnmap(at + i * BESIDE_HANDLE, BESIDE_HANDLE)); });
                if (!all) continue;
                timed(5, BESIDE_HANDLES, [&] { set_access(at, BESIDE_HANDLES * BESIDE_HANDLE); });
                timed(6, BESIDE_HANDLES, [&] { CK(cuMemUnmap(at, BESIDE_HANDLES * BESIDE_HANDLE)); });
            }
            for (int i = 0; i < BESIDE_HANDLES; i++) timed(4, 1, [&] { CK(cuMemRelease(handles[i])); });
            for (int i = 0; i < BESIDE_HANDLES; i++) timed(7, 1, [&] { CK(cuMemAlloc(&plain[i], BESIDE_HANDLE)); });
            bool busy = cuStreamQuery(scene.stream) == CUDA_ERROR_NOT_READY;
            CK(cuCtxSynchronize());
            for (CUdeviceptr each : plain) CK(cuMemFree(each));
            if (!busy && work != BESIDE_NOTHING) continue;
            counted++;
            std::vector<double> *into[] = {&create, &map, &access, &unmap, &release, &access_all, &unmap_all, &alloc};
            for (int row = 0; row < 8; row++) into[row]->insert(into[row]->end(), times[row].begin(), times[row].end());
        }
        printf("  %-24s %8.1f %8.1f %8.1f %8.1f %8.1f %12.1f %12.1f %11.1f %7d\n", BESIDE_NAMES[work], median(create), median(map),
               median(access), median(unmap), median(release), median(access_all), median(unmap_all), median(alloc), counted);
        fflush(stdout);
    }
    CK(cuMemAddressFree(at, BESIDE_HANDLES * BESIDE_HANDLE));
    CK(cuMemFreeHost(scene.pinned));
    CK(cuMemFree(scene.to));
    CK(cuMemFree(scene.from));
    CK(cuStreamDestroy(scene.stream));
}
