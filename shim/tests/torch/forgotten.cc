// Pages that another stream still reads when torch gives them up. Torch was told of it while somebody's
// private pool was open, and has forgotten it, as releases up to 2.12 do. usage: forgotten CASE
// The simulated GPU ends the program where an order is missing; the clock says whether the host waits.
#include "ladder.h"

static void record(void* at, cudaStream_t reader) {
    allocator.load()->recordStream({at}, {1, 0, reinterpret_cast<long>(reader)});
}
// While torch has a pool open from which nobody asks for anything.
template <typename F> static void beside_a_pool(F run) {
    const MempoolId_t pool(0, 1);
    allocator.load()->beginAllocateToPool(0, pool, [](cudaStream_t) { return false; });
    run();
    allocator.load()->endAllocateToPool(0, pool);
}

int main(int, char** argv) {
    const std::string what = argv[1];
    OK(cudaSetDevice(0));
    allocator.load()->init(1);
    Job job;
    job.prepare();
    beside_a_pool([&] {
        if (what != "plain") record(job.hole, job.other);
    });
    use(job.hole, Job::HOLE, what == "plain" ? job.one : job.other);
    drop(job.hole);
    // Torch is asked for it, or gives it up unasked.
    const bool waits = what != "plain";
    CHECK(at_once([&] { what == "emptied" ? allocator.load()->emptyCache() : (void)job.ask(); }) != waits);
    use(tensor(48, job.one), 48, job.one);
    OK(cudaDeviceSynchronize());
    return 0;
}
