// A section of driver_facts.cu.
#pragma once
#include "common.cuh"

// ---- copy: bandwidth of a device copy by the size of the handles below it ----

struct Stitched {
    CUdeviceptr base;
    u64 bytes, piece;
    std::vector<CUmemGenericAllocationHandle> handles;
};

static u64 g_random = 88172645463325252ull;
static u64 next_random() {
    g_random ^= g_random << 13;
    g_random ^= g_random >> 7;
    g_random ^= g_random << 17;
    return g_random;
}

// Two ranges whose handles were made in turn and are mapped shuffled.
static void stitch_two(Stitched *two, u64 bytes, u64 piece, bool shuffled) {
    CUmemAllocationProp prop = allocation_prop();
    std::vector<CUmemGenericAllocationHandle> all(2 * bytes / piece);
    for (size_t i = 0; i < all.size(); i++) CK(cuMemCreate(&all[i], piece, &prop, 0));
    if (shuffled)
        for (size_t i = all.size() - 1; i > 0; i--) std::swap(all[i], all[next_random() % (i + 1)]);
    for (int k = 0; k < 2; k++) {
        two[k].bytes = bytes;
        two[k].piece = piece;
        two[k].handles.assign(all.begin() + k * (all.size() / 2), all.begin() + (k + 1) * (all.size() / 2));
        CK(cuMemAddressReserve(&two[k].base, bytes, 0, 0, 0));
        for (size_t i = 0; i < two[k].handles.size(); i++)
            CK(cuMemMap(two[k].base + i * piece, piece, 0, two[k].handles[i], 0));
        set_access(two[k].base, bytes);
    }
}

static void drop(Stitched &s) {
    CK(cuMemUnmap(s.base, s.bytes));
    for (size_t i = 0; i < s.handles.size(); i++) CK(cuMemRelease(s.handles[i]));
    CK(cuMemAddressFree(s.base, s.bytes));
}

static double copy_gbs(CUdeviceptr to, CUdeviceptr from, u64 bytes, CUstream stream, CUevent begin, CUevent end) {
    std::vector<double> all;
    for (int i = 0; i < 16; i++) {
        float ms = 0;
        CK(cuEventRecord(begin, stream));
        CK(cuMemcpyDtoDAsync(to, from, bytes, stream));
        CK(cuEventRecord(end, stream));
        CK(cuEventSynchronize(end));
        CK(cuEventElapsedTime(&ms, begin, end));
        if (i) all.push_back(2.0 * (double)bytes / ms * 1e-6);
    }
    return median(all);
}

static void section_copy() {
    const u64 BYTES = 8 * GIB;
    size_t free_bytes, total;
    CK(cuMemGetInfo(&free_bytes, &total));
    if (free_bytes < 5 * BYTES) {
        printf("\n[copy] needs 40 GiB of free memory, %llu MiB are free\n", (u64)free_bytes / MIB);
        exit(1);
    }
    printf("\n[copy] 8 GiB device to device, GB/s read + written, against cuMemAlloc measured before and after\n");
    CUstream stream;
    CUevent begin, end;
    CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    CUdeviceptr x, y;
    CK(cuMemAlloc(&x, BYTES));
    CK(cuMemAlloc(&y, BYTES));
    printf("  %-28s %10s %10s %8s\n", "backing", "stitched", "plain", "ratio");
    const u64 pieces[] = {2, 4, 8, 16, 32, 64, 128, 2};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        bool shuffled = i != sizeof pieces / sizeof *pieces - 1;
        Stitched two[2];
        stitch_two(two, BYTES, pieces[i] * MIB, shuffled);
        double before = copy_gbs(y, x, BYTES, stream, begin, end);
        double stitched = copy_gbs(two[0].base, two[1].base, BYTES, stream, begin, end);
        double again = copy_gbs(two[0].base, two[1].base, BYTES, stream, begin, end);
        double after = copy_gbs(y, x, BYTES, stream, begin, end);
        double plain = (before + after) / 2, mean = (stitched + again) / 2;
        printf("  %4llu MiB handles, %-10s %10.0f %10.0f %8.3f\n", pieces[i], shuffled ? "shuffled" : "in order", mean,
               plain, mean / plain);
        fflush(stdout);
        drop(two[0]);
        drop(two[1]);
    }
    CK(cuMemFree(x));
    CK(cuMemFree(y));
    CK(cuEventDestroy(begin));
    CK(cuEventDestroy(end));
    CK(cuStreamDestroy(stream));
}
