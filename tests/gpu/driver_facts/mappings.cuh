// A section of driver_facts.cu.
#pragma once
#include "common.cuh"
#include <cstdlib>

// ---- mappings (only when named): how many does the driver take, and what can be done when it takes no more? ----

// Maps a handle again and again, opened each time, until the driver refuses or `wanted` stand. Returns how many do.
static u64 map_again(CUdeviceptr base, u64 piece, u64 wanted, CUmemGenericAllocationHandle handle) {
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = g_device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    double t0 = now_us();
    for (u64 done = 0; done < wanted; done++) {
        CUdeviceptr at = base + done * piece;
        CUresult m = cuMemMap(at, piece, 0, handle, 0);
        CUresult s = m ? m : cuMemSetAccess(at, piece, &access, 1);
        if (s != CUDA_SUCCESS) {
            printf("  refused after %llu: map = %d, set access = %d\n", done, (int)m, (int)s);
            if (!m) CK(cuMemUnmap(at, piece));
            return done;
        }
        if ((done + 1) % 100000 == 0) {
            printf("  %llu mappings, %.1f us each so far\n", done + 1, (now_us() - t0) / (done + 1));
            fflush(stdout);
        }
    }
    printf("  %llu mappings stand\n", wanted);
    return wanted;
}

// What else a process may still do, itself and beside others.
static void still_possible() {
    for (u64 bytes : {(u64)1024, 2 * MIB, 64 * MIB}) {
        CUdeviceptr p = 0;
        CUresult code = cuMemAlloc(&p, bytes);
        printf("  cuMemAlloc of %s: %d\n", bytes_text(bytes).c_str(), (int)code);
        if (code == CUDA_SUCCESS) CK(cuMemFree(p));
    }
    void *host = nullptr;
    CUresult pinned = cuMemHostAlloc(&host, 2 * MIB, 0);
    printf("  cuMemHostAlloc of 2 MiB: %d\n", (int)pinned);
    if (pinned == CUDA_SUCCESS) CK(cuMemFreeHost(host));
    CUstream stream = nullptr;
    CUresult made = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    printf("  cuStreamCreate: %d\n", (int)made);
    if (made == CUDA_SUCCESS) CK(cuStreamDestroy(stream));
    fflush(stdout);
}

// As many mappings of a handle of `piece` bytes as there can be, then `meanwhile`.
static void fill(u64 piece, u64 wanted, void (*meanwhile)()) {
    CUmemAllocationProp prop = allocation_prop();
    CUmemGenericAllocationHandle handle, other;
    size_t before = 0, after = 0, total = 0;
    CK(cuMemCreate(&handle, piece, &prop, 0));
    CK(cuMemCreate(&other, piece, &prop, 0));
    CUdeviceptr base;
    CK(cuMemAddressReserve(&base, (wanted + 1) * piece, 0, 0, 0));
    CK(cuMemGetInfo(&before, &total));
    u64 done = map_again(base, piece, wanted, handle);
    CK(cuMemGetInfo(&after, &total));
    printf("  the device has %lld MiB less; one of another handle:\n", ((long long)before - (long long)after) / (long long)MIB);
    u64 more = map_again(base + done * piece, piece, 1, other);
    if (more) CK(cuMemUnmap(base + done * piece, piece));
    if (meanwhile) meanwhile();
    double t0 = now_us();
    for (u64 i = 0; i < done; i += 4096) CK(cuMemUnmap(base + i * piece, std::min<u64>(4096, done - i) * piece));
    printf("  unmapped at %.1f us each\n", done ? (now_us() - t0) / done : 0.0);
    CK(cuMemRelease(handle));
    CK(cuMemRelease(other));
    CK(cuMemAddressFree(base, (wanted + 1) * piece));
}

static void when_full() {
    still_possible();
    printf("  beside it, another process:\n");
    fflush(stdout);
    int status = system("/proc/$PPID/exe few");
    printf("  (ended with %d)\n", status);
}

static void section_few() {
    printf("\n[few] 20000 mappings of 2 MiB\n");
    fill(2 * MIB, 20000, still_possible);
}

static void section_mappings() {
    printf("\n[mappings] one handle of 2 MiB mapped again and again, up to 600000 times\n");
    fill(2 * MIB, 600000, when_full);
    printf("\n[mappings] one handle of 8 MiB\n");
    fill(8 * MIB, 600000, nullptr);
}
