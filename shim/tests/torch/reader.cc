// Stand-in for a libtorch_cuda.so, which comes before libc10_cuda.so and reads the
// allocator's configuration as well.
#include "c10.h"

extern "C" EXPORT size_t split_size() { return c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::instance().split; }
