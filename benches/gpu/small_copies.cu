// Host cost of small copies, fills and their waits on memory of several makes:
// cuMemAlloc, one handle in a reservation of its own, and one of many handles
// in one large reservation; with and without the properties that a pool asks
// for. Microseconds, median of 15 rounds.
//
//   nvcc -O2 -o /tmp/small benches/gpu/small_copies.cu -lcuda && /tmp/small
//   LD_PRELOAD=target/release/libmemcuda.so /tmp/small
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <vector>

#define OK(call) check((call), #call, __LINE__)

static void check(CUresult code, const char *what, int line) {
    if (code != CUDA_SUCCESS) {
        fprintf(stderr, "line %d: %s: %d\n", line, what, (int)code);
        exit(1);
    }
}

static const size_t MIB = 1 << 20;

static double now() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

template <class F> static double cost(int calls, F f) {
    std::vector<double> rounds;
    for (int i = 0; i < calls; i++) f();
    for (int r = 0; r < 15; r++) {
        OK(cuCtxSynchronize());
        double began = now();
        for (int i = 0; i < calls; i++) f();
        rounds.push_back((now() - began) / calls);
    }
    std::sort(rounds.begin(), rounds.end());
    return rounds[7];
}

static CUmemGenericAllocationHandle handle(size_t bytes, bool fd, bool rdma, bool decompress) {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if (fd) prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.allocFlags.gpuDirectRDMACapable = rdma;
    if (decompress) prop.allocFlags.usage = 2;
    CUmemGenericAllocationHandle made;
    OK(cuMemCreate(&made, bytes, &prop, 0));
    return made;
}

static void map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle made) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    OK(cuMemMap(at, bytes, 0, made, 0));
    OK(cuMemSetAccess(at, bytes, &access, 1));
}

static CUdeviceptr vmm(int handles, size_t bytes, size_t reservation, bool fd, bool rdma, bool dec) {
    CUdeviceptr base;
    OK(cuMemAddressReserve(&base, reservation, 0, 0, 0));
    for (int i = 0; i < handles; i++) map(base + i * bytes, bytes, handle(bytes, fd, rdma, dec));
    return base + (handles / 2) * bytes;
}

static CUstream stream;
static char *pinned;
static char pageable[1 << 16];

static void row(const char *name, CUdeviceptr p) {
    double t[9];
    t[0] = cost(300, [&] { OK(cuMemcpyDtoH(pageable, p, 4)); });
    t[1] = cost(300, [&] { OK(cuMemcpyHtoD(p, pageable, 4)); });
    t[2] = cost(300, [&] { OK(cuMemcpyDtoHAsync(pageable, p, 4, stream)); OK(cuStreamSynchronize(stream)); });
    t[3] = cost(300, [&] { OK(cuMemcpyDtoHAsync(pinned, p, 4, stream)); OK(cuStreamSynchronize(stream)); });
    t[4] = cost(300, [&] { OK(cuMemcpyHtoDAsync(p, pageable, 4, stream)); });
    t[5] = cost(300, [&] { OK(cuMemcpyHtoDAsync(p, pageable, 32768, stream)); });
    t[6] = cost(300, [&] { OK(cuMemcpyDtoDAsync(p + 65536, p, 4096, stream)); });
    t[7] = cost(300, [&] { OK(cuMemsetD32Async(p, 1, 1024, stream)); });
    CUmemorytype kind;
    t[8] = cost(300, [&] { OK(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p)); });
    printf("%-44s", name);
    for (double v : t) printf(" %8.2f", v);
    printf("\n");
}

int main() {
    CUdevice device;
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocHost((void **)&pinned, 1 << 16));
    printf("%-44s %8s %8s %8s %8s %8s %8s %8s %8s %8s\n", "us a call", "DtoH", "HtoD", "DtoHa+s", "pinned+s",
           "HtoDa 4", "HtoDa32K", "DtoDa", "memset", "attr");
    CUdeviceptr plain;
    OK(cuMemAlloc(&plain, 64 * MIB));
    row("cuMemAlloc 64 MiB", plain);
    row("VMM 1 x 64 MiB, no properties", vmm(1, 64 * MIB, 64 * MIB, false, false, false));
    row("VMM 1 x 64 MiB, fd", vmm(1, 64 * MIB, 64 * MIB, true, false, false));
    row("VMM 1 x 64 MiB, fd rdma", vmm(1, 64 * MIB, 64 * MIB, true, true, false));
    row("VMM 1 x 64 MiB, fd rdma decompress", vmm(1, 64 * MIB, 64 * MIB, true, true, true));
    row("VMM 1 x 64 MiB in 1 TiB, fd rdma", vmm(1, 64 * MIB, MIB << 20, true, true, false));
    row("VMM 2000 x 2 MiB in 1 TiB, no properties", vmm(2000, 2 * MIB, MIB << 20, false, false, false));
    row("VMM 2000 x 2 MiB in 1 TiB, fd rdma", vmm(2000, 2 * MIB, MIB << 20, true, true, false));
    row("VMM 2000 x 2 MiB, fd rdma", vmm(2000, 2 * MIB, 2000 * 2 * MIB, true, true, false));
    row("cuMemAlloc 64 MiB, again", plain);
    return 0;
}
