// A segment that one stream still uses when torch gives it back goes to another stream.
// usage: segments
// The simulated GPU ends the program where an order is missing. Prints "in MICROSECONDS us",
// which is how long the host took for the second segment.
#include "../../../sim/include/memcuda_sim.h"
#include "c10.h"

#include <cstdio>
#include <cstdlib>

extern "C" {
int cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
int cudaStreamSynchronize(cudaStream_t);
int cudaDeviceSynchronize();
}

using c10::cuda::CUDACachingAllocator::allocator;
static const size_t BYTES = 64 << 20;
static const double BUSY_US = 1e6;

#define OK(call) ((call) == 0 ? void() : (fprintf(stderr, "line %d: %s failed\n", __LINE__, #call), exit(1)))

static cudaStream_t new_stream() {
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, 1));
    return stream;
}
static void* segment(cudaStream_t stream) {
    current_stream = stream;
    return allocator.load()->raw_alloc(BYTES);
}
static void use(void* at, cudaStream_t stream) {
    CUsimRange range{reinterpret_cast<uint64_t>(at), BYTES, 1};
    OK(cuSimLaunch(stream, &range, 1, BUSY_US));
}

int main() {
    allocator.load()->init(1);
    cudaStream_t one = new_stream(), other = new_stream(), third = new_stream();
    void* first = segment(one);
    use(first, one);
    allocator.load()->raw_delete(first);
    allocator.load()->emptyCache();
    // All of this stream's work is over, so a third one may use what it is given.
    OK(cudaStreamSynchronize(other));
    uint64_t before = cuSimClock();
    void* second = segment(other);
    printf("%s in %llu us\n", second == first ? "again" : "elsewhere", (unsigned long long)(cuSimClock() - before) / 1000);
    use(second, third);
    OK(cudaDeviceSynchronize());
    return 0;
}
