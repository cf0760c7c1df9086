/* Copies and fills of memory of a device that is not the current one, without
 * access between the two. */
#include "peers.h"

/* A copy and a fill have two sizes: a driver may treat small ones in its own way. */
enum { SMALL = 777, LARGE = 5 * 1024 * 1024 + 4 };

enum { UP = 1, DOWN = 2, QUEUED = 4 };

static const struct { const char *name; int how; } host_ways[] = {
    {"cuMemcpyHtoD", UP}, {"cuMemcpy up", UP},
    {"cuMemcpyHtoDAsync", UP | QUEUED}, {"cuMemcpyAsync up", UP | QUEUED},
    {"cuMemcpyDtoH", DOWN}, {"cuMemcpy down", DOWN},
    {"cuMemcpyDtoHAsync", DOWN | QUEUED}, {"cuMemcpyAsync down", DOWN | QUEUED},
};
enum { HOST_WAYS = sizeof host_ways / sizeof *host_ways };

static int copy_host(int way, CUdeviceptr at, void *host, size_t bytes, CUstream stream) {
    CUdeviceptr host_at = (CUdeviceptr)host;
    switch (way) {
    case 0: return cuMemcpyHtoD_v2(at, host, bytes);
    case 1: return cuMemcpy(at, host_at, bytes);
    case 2: return cuMemcpyHtoDAsync_v2(at, host, bytes, stream);
    case 3: return cuMemcpyAsync(at, host_at, bytes, stream);
    case 4: return cuMemcpyDtoH_v2(host, at, bytes);
    case 5: return cuMemcpy(host_at, at, bytes);
    case 6: return cuMemcpyDtoHAsync_v2(host, at, bytes, stream);
    default: return cuMemcpyAsync(host_at, at, bytes, stream);
    }
}

/* Every way between `host` and the second device's memory. */
static void copies_of_host(struct pair p, int kind, void *host, size_t bytes, CUstream stream) {
    CUdeviceptr at = get_memory_on(p.second, kind, bytes);
    unsigned char *some = pattern(bytes, 1);
    for (int way = 0; way < HOST_WAYS; way++) {
        int how = host_ways[way].how;
        if (how & UP) {
            memcpy(host, some, bytes);
            fill_on(p.second, at, bytes, 0);
        } else {
            memset(host, 0, bytes);
            put_on(p.second, at, some, bytes);
        }
        int code = copy_host(way, at, host, bytes, stream);
        int after = how & QUEUED ? cuStreamSynchronize(stream) : CU_OK;
        /* What a copy down brought has to be there when the call, or the stream, is done. */
        bool equal = how & DOWN ? memcmp(host, some, bytes) == 0 : false;
        if (after == CU_OK) after = settle(p);
        if (how & UP) equal = holds_on(p.second, at, some, bytes);
        say_done(host_ways[way].name, bytes, code, after, equal);
    }
    free(some);
}

static void copies_of_pageable(struct pair p, int kind, CUstream stream) {
    unsigned char *host = filled(LARGE, 0);
    copies_of_host(p, kind, host, SMALL, stream);
    copies_of_host(p, kind, host, LARGE, stream);
}

static void copies_of_pinned(struct pair p, int kind, CUstream stream) {
    void *host = NULL;
    NEED(cuMemHostAlloc(&host, LARGE, 0));
    copies_of_host(p, kind, host, SMALL, stream);
    copies_of_host(p, kind, host, LARGE, stream);
}

CASE(peers_copies_of_pageable, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_pageable(p, PLAIN, new_stream());
}

CASE(peers_copies_of_pageable_turned, SIM | DEVICES2) {
    struct pair p = open_pair_turned();
    copies_of_pageable(p, PLAIN, new_stream());
}

CASE(peers_copies_of_pageable_and_ordered, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_pageable(p, ORDERED, new_stream());
}

CASE(peers_copies_of_pageable_on_the_legacy_stream, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_pageable(p, PLAIN, CU_STREAM_LEGACY);
}

/* The stream is the memory's device's, the current context is not. */
CASE(peers_copies_of_pageable_on_its_own_stream, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_pageable(p, PLAIN, new_stream_on(p.second));
}

CASE(peers_copies_of_pinned, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_pinned(p, PLAIN, new_stream());
}

CASE(peers_copies_of_pinned_turned, SIM | DEVICES2) {
    struct pair p = open_pair_turned();
    copies_of_pinned(p, PLAIN, new_stream());
}

CASE(peers_copies_of_pinned_and_ordered, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_pinned(p, ORDERED, new_stream());
}

CASE(peers_copies_of_pinned_on_its_own_stream, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_pinned(p, PLAIN, new_stream_on(p.second));
}

/* Every way from memory of one device to memory of the other, with the first
 * context current. */
static void copies_between(struct pair p, CUdeviceptr to, bool to_first, CUdeviceptr from,
                           size_t bytes, CUstream stream) {
    static const char *const ways[] = {"cuMemcpyDtoD", "cuMemcpy", "cuMemcpyDtoDAsync",
                                       "cuMemcpyAsync", "cuMemcpyPeer", "cuMemcpyPeerAsync"};
    CUcontext owner = to_first ? p.first : p.second, other = to_first ? p.second : p.first;
    unsigned char *some = pattern(bytes, 2);
    put_on(other, from, some, bytes);
    for (int way = 0; way < 6; way++) {
        int code = CU_OK;
        fill_on(owner, to, bytes, 0);
        if (way == 0) code = cuMemcpyDtoD_v2(to, from, bytes);
        if (way == 1) code = cuMemcpy(to, from, bytes);
        if (way == 2) code = cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
        if (way == 3) code = cuMemcpyAsync(to, from, bytes, stream);
        if (way == 4) code = cuMemcpyPeer(to, owner, from, other, bytes);
        if (way == 5) code = cuMemcpyPeerAsync(to, owner, from, other, bytes, stream);
        int after = settle(p);
        say_done(ways[way], bytes, code, after, holds_on(owner, to, some, bytes));
    }
    free(some);
}

/* Both directions; the kinds are those of the first's memory and the second's. */
static void copies_of_kinds(struct pair p, int first, int second, CUstream stream) {
    for (int i = 0; i < 2; i++) {
        size_t bytes = i == 0 ? SMALL : LARGE;
        CUdeviceptr here = get_memory_on(p.first, first, bytes);
        CUdeviceptr there = get_memory_on(p.second, second, bytes);
        say("to the other");
        copies_between(p, there, false, here, bytes, stream);
        say("from the other");
        copies_between(p, here, true, there, bytes, stream);
    }
}

CASE(peers_copies_plain_and_plain, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_kinds(p, PLAIN, PLAIN, new_stream());
}

CASE(peers_copies_plain_and_plain_on_the_other_stream, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_kinds(p, PLAIN, PLAIN, new_stream_on(p.second));
}

CASE(peers_copies_plain_and_ordered, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_kinds(p, PLAIN, ORDERED, new_stream());
}

CASE(peers_copies_ordered_and_plain, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_kinds(p, ORDERED, PLAIN, new_stream());
}

CASE(peers_copies_ordered_and_ordered, SIM | DEVICES2) {
    struct pair p = open_pair();
    copies_of_kinds(p, ORDERED, ORDERED, new_stream());
}
