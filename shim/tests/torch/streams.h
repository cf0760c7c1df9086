// What the stand-in of an allocator that knows streams (streams.cc) has beside torch's
// own methods (c10.h).
#pragma once
#include "../../../sim/include/memcuda_sim.h"
#include "c10.h"

typedef struct CUevent_st* cudaEvent_t;

// The waits for a stream before a ladder unmaps pages: how many, and nanoseconds that
// passed in them.
struct Waits {
    size_t count, nanoseconds;
};
extern "C" {
extern EXPORT Waits waits;
// From now on torch's ladder ends by an exception, as where an event fails.
extern EXPORT bool torch_fails;
// From now on it waits for the default stream of the current device, whosever pages it
// unmaps (pytorch/pytorch#196258).
extern EXPORT bool torch_stays;
// Called when a ladder has waited for a stream: by then nothing runs on it.
extern EXPORT void (*torch_waited)(cudaStream_t stream);
// A use on a stream of this device.
EXPORT void torch_record_stream(void* at, cudaStream_t stream, int device);
// The memory of a device is open to another one from now on.
EXPORT void torch_add_reader(int device, int reader);
// Nobody replays graphs on the memory of this private pool any more.
EXPORT void torch_release_pool(unsigned long long pool);
// The handle of the page around an address.
EXPORT unsigned long long torch_handle(void* at);
EXPORT int torch_wait(cudaStream_t stream);
}
