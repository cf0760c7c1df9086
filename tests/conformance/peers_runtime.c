/* Memory of a device that is not the current one as the runtime's calls take it,
 * without access between the two. */
#include "peers.h"

enum { WIDTH = 1024, ROWS = 777, BYTES = WIDTH * ROWS };

/* Device 0 is current; `here` is its memory, `there` device 1's. */
struct memory {
    struct pair pair;
    void *here, *there;
    unsigned char *some, *host;
};

static struct memory open_memory(void) {
    struct memory m = {.some = pattern(BYTES, 5), .host = filled(BYTES, 0)};
    NEED(cudaSetDevice(1));
    NEED(cudaMalloc(&m.there, BYTES));
    NEED(cudaSetDevice(0));
    NEED(cudaMalloc(&m.here, BYTES));
    m.pair = open_pair();
    return m;
}

enum target { TO_HERE, TO_THERE, TO_HOST };

static void prepare(struct memory *m, enum target target) {
    put_on(m->pair.first, (CUdeviceptr)m->here, m->some, BYTES);
    put_on(m->pair.second, (CUdeviceptr)m->there, m->some, BYTES);
    memcpy(m->host, m->some, BYTES);
    if (target == TO_HERE) fill_on(m->pair.first, (CUdeviceptr)m->here, BYTES, 0);
    if (target == TO_THERE) fill_on(m->pair.second, (CUdeviceptr)m->there, BYTES, 0);
    if (target == TO_HOST) memset(m->host, 0, BYTES);
}

/* What a call answered, what the runtime keeps of it, and whether it was done. */
static void judge(struct memory *m, const char *what, int code, enum target target) {
    int waited = cudaDeviceSynchronize(), kept = cudaGetLastError();
    bool equal = false;
    if (code == CU_OK && waited == CU_OK && settle(m->pair) == CU_OK) {
        if (target == TO_HERE) equal = holds_on(m->pair.first, (CUdeviceptr)m->here, m->some, BYTES);
        if (target == TO_THERE) equal = holds_on(m->pair.second, (CUdeviceptr)m->there, m->some, BYTES);
        if (target == TO_HOST) equal = memcmp(m->host, m->some, BYTES) == 0;
    }
    say("%s: %s, then %s, kept %s, equal %s", what, runtime_name(code), runtime_name(waited),
        runtime_name(kept), yes(equal));
}

#define TRY(what, target, call)           \
    do {                                  \
        prepare(&m, target);              \
        judge(&m, what, call, target);    \
    } while (0)

CASE(peers_runtime_copies, SIM | RUNTIME | DEVICES2) {
    struct memory m = open_memory();
    TRY("by address", TO_THERE, cudaMemcpy(m.there, m.here, BYTES, COPY_DEFAULT));
    TRY("by address back", TO_HERE, cudaMemcpy(m.here, m.there, BYTES, COPY_DEFAULT));
    TRY("device to device", TO_THERE, cudaMemcpy(m.there, m.here, BYTES, COPY_DEVICE_TO_DEVICE));
    TRY("device to device back", TO_HERE, cudaMemcpy(m.here, m.there, BYTES, COPY_DEVICE_TO_DEVICE));
    TRY("cudaMemcpyPeer", TO_THERE, cudaMemcpyPeer(m.there, 1, m.here, 0, BYTES));
    TRY("cudaMemcpyPeer back", TO_HERE, cudaMemcpyPeer(m.here, 0, m.there, 1, BYTES));
}

CASE(peers_runtime_copies_queued, SIM | RUNTIME | DEVICES2) {
    struct memory m = open_memory();
    CUstream stream = new_stream();
    TRY("by address", TO_THERE, cudaMemcpyAsync(m.there, m.here, BYTES, COPY_DEFAULT, stream));
    TRY("by address back", TO_HERE, cudaMemcpyAsync(m.here, m.there, BYTES, COPY_DEFAULT, stream));
    TRY("device to device", TO_THERE, cudaMemcpyAsync(m.there, m.here, BYTES, COPY_DEVICE_TO_DEVICE, stream));
    TRY("device to device back", TO_HERE, cudaMemcpyAsync(m.here, m.there, BYTES, COPY_DEVICE_TO_DEVICE, stream));
}

CASE(peers_runtime_copies_of_host, SIM | RUNTIME | DEVICES2) {
    struct memory m = open_memory();
    CUstream stream = new_stream();
    TRY("up", TO_THERE, cudaMemcpy(m.there, m.host, BYTES, COPY_HOST_TO_DEVICE));
    TRY("down", TO_HOST, cudaMemcpy(m.host, m.there, BYTES, COPY_DEVICE_TO_HOST));
    TRY("up by address", TO_THERE, cudaMemcpy(m.there, m.host, BYTES, COPY_DEFAULT));
    TRY("down by address", TO_HOST, cudaMemcpy(m.host, m.there, BYTES, COPY_DEFAULT));
    TRY("up queued", TO_THERE, cudaMemcpyAsync(m.there, m.host, BYTES, COPY_HOST_TO_DEVICE, stream));
    TRY("down queued", TO_HOST, cudaMemcpyAsync(m.host, m.there, BYTES, COPY_DEVICE_TO_HOST, stream));
}

CASE(peers_runtime_rows, SIM | RUNTIME | DEVICES2) {
    struct memory m = open_memory();
    TRY("by address", TO_THERE, cudaMemcpy2D(m.there, WIDTH, m.here, WIDTH, WIDTH, ROWS, COPY_DEFAULT));
    TRY("by address back", TO_HERE, cudaMemcpy2D(m.here, WIDTH, m.there, WIDTH, WIDTH, ROWS, COPY_DEFAULT));
    TRY("device to device", TO_THERE,
        cudaMemcpy2D(m.there, WIDTH, m.here, WIDTH, WIDTH, ROWS, COPY_DEVICE_TO_DEVICE));
    TRY("device to device back", TO_HERE,
        cudaMemcpy2D(m.here, WIDTH, m.there, WIDTH, WIDTH, ROWS, COPY_DEVICE_TO_DEVICE));
    TRY("up", TO_THERE, cudaMemcpy2D(m.there, WIDTH, m.host, WIDTH, WIDTH, ROWS, COPY_HOST_TO_DEVICE));
    TRY("down", TO_HOST, cudaMemcpy2D(m.host, WIDTH, m.there, WIDTH, WIDTH, ROWS, COPY_DEVICE_TO_HOST));
}

#define FILL(name, call)                        \
    CASE(name, SIM | RUNTIME | DEVICES2) {      \
        struct memory m = open_memory();        \
        memset(m.some, 0x5A, BYTES);            \
        TRY("fill", TO_THERE, call);            \
    }

FILL(peers_runtime_fill, cudaMemset(m.there, 0x5A, BYTES))
FILL(peers_runtime_fill_of_rows, cudaMemset2D(m.there, WIDTH, 0x5A, WIDTH, ROWS))
FILL(peers_runtime_fill_queued, cudaMemsetAsync(m.there, 0x5A, BYTES, new_stream()))
