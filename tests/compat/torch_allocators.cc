// Random tensors over a release of torch's real CUDA allocator, on the simulated GPU or a real one.
// usage: torch_allocators LIBC10_CUDA whole|tight|async NAME=WORD...
// Prints a line for each thing that it counted: "sum" of all that was read, "live" and
// "physical" bytes (peaks), "left" (physical bytes after all was given back), "refused" requests,
// "counters" of torch's. Ends with 3 where torch was out of memory, and was not meant to be;
// asks nothing of whoever stands between torch and the driver. SEED in the environment makes
// others of the tensors.
#include <thread>

#include "torch_job.h"

// What the program ends with where torch is out of memory.
static const int OUT_OF_MEMORY = 3;

static void is_served(bool served) {
    if (served) return;
    printf("out of memory\n");
    fflush(stdout);
    _Exit(OUT_OF_MEMORY);
}

// Everything that torch does; with others beside it neither private pools nor an emptied
// cache, of which torch wants to be alone.
static void whole(Job& job, bool alone) {
    auto mixed = [&] { return job.mixed(); };
    is_served(job.churn(150, 900 * MIB, mixed));
    is_served(job.train(12, 4));
    if (alone) {
        is_served(job.pooled());
        job.torch.empty();
    }
    is_served(job.churn(60, 900 * MIB, mixed));
    job.clear();
    is_served(job.train(12, 5));
    job.look();
}

// Long tensors among short ones that stay: what torch cuts up it cannot give back.
static void tight(Job& job) {
    job.raw = 0;
    auto size = [&] { return job.below(4) ? 4 * MIB + job.below(26 * MIB) : 90 * MIB + job.below(90 * MIB); };
    is_served(job.churn(400, 600 * MIB, size));
    job.clear();
    job.look();
}

int main(int, char** argv) {
    Torch torch(argv[1], argv + 3);
    call::find();
    torch.start([](signed char device) {
        unsigned flags = 0;
        int active = 0;
        OK(call::cuDevicePrimaryCtxGetState(device, &flags, &active));
        return active != 0;
    });
    auto queue = [&] { return Queue(torch, torch.stream()); };
    const char* named = getenv("SEED");
    const uint64_t seed = named ? strtoul(named, nullptr, 10) * 3 : 0;
    Job job(torch, seed + 1, {Queue(torch, torch.default_stream()), queue(), queue()});
    const bool native = strcmp(argv[2], "async") != 0;
    if (strcmp(argv[2], "tight") == 0) {
        tight(job);
    } else {
        Job other(torch, seed + 2, {queue(), queue()});
        // The other backend has private pools for captures alone.
        job.scopes = other.scopes = native;
        whole(job, true);
        std::thread([&] { whole(other, true); }).join();
        // So far all was in one order, and nobody asked whether work had ended.
        if (native) {
            printf("counters");
            for (long word : torch.counters()) printf(" %ld", word);
            printf("\n");
        }
        size_t physical = std::max(job.physical, other.physical);
        Job beside(torch, seed + 3, {queue(), queue()});
        job.shares = other.shares = beside.shares = true;
        std::thread both([&] { whole(beside, false); });
        whole(job, false);
        both.join();
        // More than there is: torch says so, and goes on.
        job.refused = !job.allocate(300ul << 30, job.queues[0], true);
        whole(job, true);
        job.sum ^= other.sum * 3 ^ beside.sum * 5;
        job.physical = physical;
        printf("refused %zu\n", job.refused);
    }
    torch.empty();
    printf("sum %lx\nlive %zu\nphysical %zu\nleft %zu\n", job.sum, job.peak, job.physical, (size_t)held());
    return 0;
}
