// A server that sizes a cache by what is free after its largest step, on a device of 16 GiB. Prints
// in MiB what is free after the step, while torch caches it; to who has asked torch for its counters;
// with torch's cache emptied. Then takes a cache of nearly as much as was free first, and makes the
// step three times again: within it torch's cache is emptied though nothing is in it, and torch is
// refused more than there is. Prints what is free after these beside the cache.
#include "c10.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

extern "C" int cudaMemGetInfo(size_t*, size_t*);

using c10::cuda::CUDACachingAllocator::allocator;
static const size_t MIB = 1 << 20, GIB = 1024 * MIB;

static size_t is_free() {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total)) abort();
    return free / MIB;
}

// Tensors of which every second one is freed, and then one that fits into no gap.
static size_t step(void (*last)()) {
    auto& torch = *allocator.load();
    std::vector<void*> held(7);
    for (auto& tensor : held) tensor = torch.raw_alloc(GIB);
    for (size_t i = 1; i < held.size(); i += 2) torch.raw_delete(held[i]);
    void* logits = torch.raw_alloc(GIB + GIB / 2);
    last();
    const size_t inside = is_free();
    torch.raw_delete(logits);
    for (size_t i = 0; i < held.size(); i += 2) torch.raw_delete(held[i]);
    return inside;
}

int main() {
    auto& torch = *allocator.load();
    torch.init(1);
    for (int i = 0; i < 4; i++) torch.raw_alloc(GIB);
    step([] {});
    const size_t after = is_free();
    if (torch.getDeviceStats(3).words[1] != 3) abort();
    const size_t known = is_free();
    torch.emptyCache();
    printf("%zu %zu %zu", after, known, is_free());
    size_t cache = 0;
    for (; cache + 512 < after; cache += 256) torch.raw_alloc(256 * MIB);
    step([] {});
    printf(" %zu", cache + step([] {
        for (int i = 0; i < 2; i++) allocator.load()->emptyCache();
    }));
    torch.emptyCache();
    printf(" %zu", cache + step([] {
        try {
            allocator.load()->raw_alloc(30 * GIB);
            abort();
        } catch (std::bad_alloc&) {
        }
    }));
}
