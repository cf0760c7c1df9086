// Random tensors over a release of torch's real CUDA allocator, on the simulated GPU or a real one.
// usage: torch_allocators LIBC10_CUDA whole|tight|ended|beside|private|turned|captures|refusal|later|forgotten|fabric|async|devices NAME=WORD...
// Prints a line for each thing that it counted: "sum" of all that was read, "live" and
// "physical" bytes (peaks), "left" (physical bytes after all was given back), "refused" requests,
// "counters" of torch's, "access" to a fabric. Ends with 3 where torch was out of memory, and was not meant to be;
// asks nothing of whoever stands between torch and the driver. SEED in the environment makes
// others of the tensors; with PINNED torch has allocated pinned memory before.
#include <thread>

#include "torch_job.h"

// What the program ends with where torch is out of memory.
static const int OUT_OF_MEMORY = 3;
// A capture during which no thread may free memory.
static const int GLOBAL = 0;

static void is_served(bool served) {
    if (served) return;
    printf("out of memory\n");
    fflush(stdout);
    _Exit(OUT_OF_MEMORY);
}

// Torch has no private pools beside another thread on the device, and its cache is not
// emptied beside one that has.
enum Beside { NOBODY, ANOTHER_DEVICE, THIS_DEVICE };

// Everything that torch does, with who is beside it.
static void whole(Job& job, Beside beside) {
    auto mixed = [&] { return job.mixed(); };
    is_served(job.churn(150, 900 * MIB, mixed));
    is_served(job.train(12, 4));
    if (beside != THIS_DEVICE) is_served(job.pooled());
    if (beside == NOBODY) job.torch.empty();
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

// While a private pool is open, another thread needs all that torch holds idle beside it.
static void beside(Job& job) {
    auto fill = [&job](int tensors, size_t bytes, const Queue& queue) {
        for (int i = 0; i < tensors; i++) is_served(job.allocate(bytes, queue, i % 2 == 0));
    };
    fill(6, 90 * MIB, job.queues[0]);
    job.clear();
    const Queue& private_ = job.queues[1];
    const MempoolId pool(0, 1);
    job.torch.open_pool(pool, 0, private_.stream);
    std::thread([&] { fill(6, 90 * MIB, job.queues[0]); }).join();
    fill(3, 40 * MIB, private_);
    job.torch.close_pool(pool, 0, private_.stream);
    job.clear();
    job.torch.release_pool(pool, 0);
    job.look();
}

// A private pool that fills most of the device: torch's segments for it waste no more than by itself.
static void in_private(Job& job) {
    const Queue& its = job.queues[1];
    const MempoolId pool(0, 1);
    job.torch.open_pool(pool, 0, its.stream);
    for (int i = 0; i < 110; i++) is_served(job.allocate(6 * MIB + 300 * KIB, its, true));
    job.torch.close_pool(pool, 0, its.stream);
    job.clear();
    job.torch.release_pool(pool, 0);
    job.look();
}

// The program turns expandable segments off, as servers do around memory that they share, and on again.
static void turned(Job& job) {
    is_served(job.allocate(1 * MIB, job.queues[0], true));
    job.clear();
    job.torch.set("expandable_segments:False");
    in_private(job);
    job.torch.set("expandable_segments:True");
    is_served(job.churn(60, 500 * MIB, [&] { return job.mixed(); }));
    job.clear();
    job.look();
}

// Graphs of falling batches, captured one after the other into one pool.
static void captures(Job& job) {
    const Queue& its = job.queues[1];
    const MempoolId pool(0, 1);
    job.torch.make_current(its.torch);
    std::vector<DataPtr> tensors;
    auto allocate = [&](size_t bytes) {
        tensors.emplace_back();
        is_served(Torch::served([&] { job.torch.allocate(bytes, &tensors.back()); }));
    };
    auto clear = [&] {
        for (DataPtr& tensor : tensors) job.torch.free(tensor.words[0]);
        tensors.clear();
    };
    for (size_t batch = 512; batch >= 8; batch -= 8) {
        void* graph = nullptr;
        job.torch.open_pool(pool, 0, its.stream);
        OK(call::cuStreamBeginCapture_v2(its.stream, GLOBAL));
        for (int layer = 0; layer < 3; layer++, clear())
            for (size_t kib : {16, 112, 56, 16}) allocate(batch * kib * KIB);
        allocate(batch * 594 * KIB);
        clear();
        OK(call::cuStreamEndCapture(its.stream, &graph));
        job.torch.close_pool(pool, 0, its.stream);
        job.physical = std::max<size_t>(job.physical, held(0));
    }
    job.torch.release_pool(pool, 0);
}

// A graph's memory is idle in torch's eyes. Its pool, on a device that is full, asks for more than there
// is: the graph replays on it still.
static void refusal(Job& job) {
    const Queue& its = job.queues[1];
    const MempoolId pool(0, 1);
    auto in_pool = [&](size_t bytes) {
        job.torch.open_pool(pool, 0, its.stream);
        bool served = job.allocate(bytes, its, true);
        job.torch.close_pool(pool, 0, its.stream);
        return served;
    };
    is_served(in_pool(100 * MIB));
    const uint64_t graphs = job.tensors[0].address();
    job.clear();
    while (job.allocate(60 * MIB, job.queues[0], true)) continue;
    CHECK(!in_pool(300 * MIB));
    uint64_t base = 0;
    size_t bytes = 0;
    OK(call::cuMemGetAddressRange_v2(&base, &bytes, graphs));
    job.clear();
    job.torch.release_pool(pool, 0);
    job.look();
}

// A stream that has read a tensor waits for what is launched once torch has more than it ever had:
// where torch is asked for that tensor first, and waits for the stream, it comes to no end.
static void later(Job& job) {
    const Queue& reader = job.queues[1];
    void* pinned = nullptr;
    OK(call::cudaMallocHost(&pinned, sizeof(uint32_t)));
    *static_cast<uint32_t*>(pinned) = 0;
    const uint64_t flag = reinterpret_cast<uint64_t>(pinned);
    is_served(job.allocate(100 * MIB, job.queues[0], true));
    job.share(job.tensors[0], reader);
    OK(call::cuStreamWaitValue32_v2(reader.stream, flag, 1, 0));
    job.free(0);
    is_served(job.allocate(400 * MIB, job.queues[0], true));
    OK(call::cuStreamWriteValue32_v2(job.queues[2].stream, flag, 1, 0));
    job.clear();
    job.look();
}

// A tensor is freed that another stream reads, of which torch is told while somebody's private pool is open:
// releases up to 2.12 forget it then. What follows on the tensor's own stream has other bytes.
static void forgotten(Job& job) {
    const Queue &own = job.queues[1], &reader = job.queues[2];
    const MempoolId pool(0, 1);
    is_served(job.allocate(24 * MIB, own, true));
    is_served(job.allocate(100 * MIB, own, true));
    job.torch.open_pool(pool, 0, job.queues[0].stream);
    job.share(job.tensors[1], reader);
    job.runs(reader, job.tensors[1], false, 3e5);
    job.free(1);
    job.torch.close_pool(pool, 0, job.queues[0].stream);
    is_served(job.allocate(130 * MIB, own, true));
    job.clear();
    job.look();
}

// Where handles can be for a fabric: somebody asks for one while torch has in use what it ever had,
// and a tensor is shared, as between processes, and given up.
static void fabric(Job& job) {
    for (int i = 0; i < 4; i++) is_served(job.allocate(50 * MIB, job.queues[0], true));
    printf("access %d\n", job.torch.has_fabric(0));
    job.torch.share(job.tensors[1].at);
    job.clear();
    job.look();
}

// A thread for each of two devices at once, then one that is at home on both.
static void devices(const Torch& torch, uint64_t seed, Job& job) {
    auto queue = [&](signed char device) { return Queue(torch, torch.stream(device)); };
    Job other(torch, seed + 2, {Queue(torch, torch.default_stream(1)), queue(1)});
    std::thread beside([&] {
        OK(call::cudaSetDevice(1));
        whole(other, ANOTHER_DEVICE);
    });
    whole(job, ANOTHER_DEVICE);
    beside.join();
    const size_t physical = job.physical + other.physical;
    Job both(torch, seed + 3, {queue(0), queue(1), Queue(torch, torch.default_stream(0)), queue(1)});
    both.shares = true;
    whole(both, NOBODY);
    job.sum ^= other.sum * 3 ^ both.sum * 5;
    job.physical = physical;
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
    auto queue = [&] { return Queue(torch, torch.stream(0)); };
    const char* named = getenv("SEED");
    const uint64_t seed = named ? strtoul(named, nullptr, 10) * 3 : 0;
    Job job(torch, seed + 1, {Queue(torch, torch.default_stream(0)), queue(), queue()});
    if (getenv("PINNED")) {
        is_served(job.allocate(1 * MIB, job.queues[0], true));
        job.clear();
        torch.pinned();
    }
    const bool native = strcmp(argv[2], "async") != 0;
    if (strcmp(argv[2], "tight") == 0) {
        tight(job);
    } else if (strcmp(argv[2], "ended") == 0) {
        torch.begin_and_end_pool(MempoolId(0, 1), 0);
        tight(job);
    } else if (strcmp(argv[2], "beside") == 0) {
        beside(job);
    } else if (strcmp(argv[2], "private") == 0) {
        in_private(job);
    } else if (strcmp(argv[2], "turned") == 0) {
        turned(job);
    } else if (strcmp(argv[2], "captures") == 0) {
        captures(job);
    } else if (strcmp(argv[2], "refusal") == 0) {
        refusal(job);
    } else if (strcmp(argv[2], "later") == 0) {
        later(job);
    } else if (strcmp(argv[2], "forgotten") == 0) {
        forgotten(job);
    } else if (strcmp(argv[2], "fabric") == 0) {
        fabric(job);
    } else if (strcmp(argv[2], "devices") == 0) {
        devices(torch, seed, job);
    } else {
        Job other(torch, seed + 2, {queue(), queue()});
        // The other backend has private pools for captures alone.
        job.scopes = other.scopes = native;
        whole(job, NOBODY);
        std::thread([&] { whole(other, NOBODY); }).join();
        // So far all was in one order, and nobody asked whether work had ended.
        if (native) {
            printf("counters");
            for (long word : torch.counters()) printf(" %ld", word);
            printf("\n");
        }
        size_t physical = std::max(job.physical, other.physical);
        Job beside(torch, seed + 3, {queue(), queue()});
        job.shares = other.shares = beside.shares = true;
        std::thread both([&] { whole(beside, THIS_DEVICE); });
        whole(job, THIS_DEVICE);
        both.join();
        // More than there is: torch says so, and goes on.
        job.refused = !job.allocate(300ul << 30, job.queues[0], true);
        whole(job, NOBODY);
        job.sum ^= other.sum * 3 ^ beside.sum * 5;
        job.physical = physical;
        printf("refused %zu\n", job.refused);
    }
    torch.empty();
    printf("sum %lx\nlive %zu\nphysical %zu\nleft %zu\n", job.sum, job.peak, job.physical, (size_t)held(0));
    return 0;
}
