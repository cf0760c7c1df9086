/* Which calls about memory a capture allows, and which of them end it. */
#include "begin_capture.h"

static int call_alloc(struct scene *s) { return cuMemAlloc_v2(&s->made, 3 * MiB); }

CASE(captured_calls_alloc, SIM | SHARED) { in_every_mode(CU_STREAM_NON_BLOCKING, call_alloc); }

CASE(captured_calls_alloc_beside_a_blocking_stream, SIM | SHARED) { in_every_mode(0, call_alloc); }

static int call_alloc_small(struct scene *s) { return cuMemAlloc_v2(&s->made, 512); }

CASE(captured_calls_alloc_small, SIM | SHARED) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_alloc_small);
}

static int call_alloc_large(struct scene *s) { return cuMemAlloc_v2(&s->made, 300 * MiB); }

CASE(captured_calls_alloc_large, SIM | SHARED) { in_every_mode(0, call_alloc_large); }

static int call_free(struct scene *s) {
    int code = cuMemFree_v2(s->spare);
    if (code == CU_OK) s->spare = 0;
    return code;
}

CASE(captured_calls_free, SIM | SHARED) { in_every_mode(CU_STREAM_NON_BLOCKING, call_free); }

CASE(captured_calls_free_beside_a_blocking_stream, SIM | SHARED) { in_every_mode(0, call_free); }

static int call_alloc_and_free(struct scene *s) {
    (void)s;
    for (size_t i = 1; i <= 20; i++) {
        CUdeviceptr at = 0;
        int code = cuMemAlloc_v2(&at, i * MiB);
        if (code == CU_OK) code = cuMemFree_v2(at);
        if (code != CU_OK) return code;
    }
    return CU_OK;
}

CASE(captured_calls_alloc_and_free, SIM | SHARED) { in_every_mode(0, call_alloc_and_free); }

static int call_pitch(struct scene *s) {
    size_t pitch;
    return cuMemAllocPitch_v2(&s->made, &pitch, 5000, 500, 4);
}

CASE(captured_calls_pitch, SIM | SHARED) { in_every_mode(CU_STREAM_NON_BLOCKING, call_pitch); }

static int call_managed(struct scene *s) { return cuMemAllocManaged(&s->made, MiB, 1); }

CASE(captured_calls_managed, SIM | SHARED) { in_every_mode(CU_STREAM_NON_BLOCKING, call_managed); }

static int call_host(struct scene *s) {
    (void)s;
    void *at = NULL;
    int code = cuMemHostAlloc(&at, 4096, 0);
    return code == CU_OK ? cuMemFreeHost(at) : code;
}

CASE(captured_calls_host_memory, SIM | SHARED) { in_every_mode(CU_STREAM_NON_BLOCKING, call_host); }

static int call_alloc_async_elsewhere(struct scene *s) {
    return cuMemAllocAsync(&s->made, 3 * MiB, s->other);
}

CASE(captured_calls_alloc_async_elsewhere, SIM | SHARED) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_alloc_async_elsewhere);
}

static int call_free_async_elsewhere(struct scene *s) {
    int code = cuMemFreeAsync(s->ordered, s->other);
    if (code == CU_OK) s->ordered = 0;
    return code;
}

CASE(captured_calls_free_async_elsewhere, SIM | SHARED) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_free_async_elsewhere);
}

static int call_alloc_async_inside(struct scene *s) {
    CUdeviceptr at = 0;
    int code = cuMemAllocAsync(&at, 3 * MiB, s->stream);
    return code == CU_OK ? cuMemFreeAsync(at, s->stream) : code;
}

CASE(captured_calls_alloc_async_inside, SIM | SHARED) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_alloc_async_inside);
}

static int call_free_async_inside(struct scene *s) { return cuMemFreeAsync(s->ordered, s->stream); }

/* Memory from outside the graph. */
CASE(captured_calls_free_async_inside, SIM) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_free_async_inside);
}

static int call_free_plain_async_inside(struct scene *s) { return cuMemFreeAsync(s->spare, s->stream); }

CASE(captured_calls_free_plain_async_inside, SIM) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_free_plain_async_inside);
}

static int call_alloc_async_legacy(struct scene *s) {
    return cuMemAllocAsync(&s->made, MiB, CU_STREAM_LEGACY);
}

CASE(captured_calls_alloc_async_legacy, SIM) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_alloc_async_legacy);
}

CASE(captured_calls_alloc_async_legacy_beside_a_blocking_stream, SIM) {
    in_every_mode(0, call_alloc_async_legacy);
}

static int call_free_async_legacy(struct scene *s) {
    int code = cuMemFreeAsync(s->ordered, CU_STREAM_LEGACY);
    if (code == CU_OK) s->ordered = 0;
    return code;
}

CASE(captured_calls_free_async_legacy_beside_a_blocking_stream, SIM) {
    in_every_mode(0, call_free_async_legacy);
}

static int call_info(struct scene *s) {
    size_t one, two;
    (void)s;
    return cuMemGetInfo_v2(&one, &two);
}

CASE(captured_calls_info, SIM | SHARED) { in_every_mode(0, call_info); }

static int call_attribute(struct scene *s) {
    uint64_t id;
    return cuPointerGetAttribute(&id, POINTER_BUFFER_ID, s->spare);
}

CASE(captured_calls_pointer_attribute, SIM | SHARED) { in_every_mode(0, call_attribute); }

static int call_range(struct scene *s) {
    CUdeviceptr base;
    size_t bytes;
    return cuMemGetAddressRange_v2(&base, &bytes, s->spare);
}

CASE(captured_calls_address_range, SIM | SHARED) { in_every_mode(0, call_range); }

static int call_pool_attribute(struct scene *s) {
    CUmemoryPool pool;
    uint64_t value;
    (void)s;
    int code = cuDeviceGetDefaultMemPool(&pool, 0);
    return code == CU_OK ? cuMemPoolGetAttribute(pool, POOL_USED, &value) : code;
}

CASE(captured_calls_pool_attribute, SIM | SHARED) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_pool_attribute);
}

static int call_pool_trim(struct scene *s) {
    CUmemoryPool pool;
    (void)s;
    int code = cuDeviceGetDefaultMemPool(&pool, 0);
    return code == CU_OK ? cuMemPoolTrimTo(pool, 0) : code;
}

CASE(captured_calls_pool_trim, SIM) { in_every_mode(CU_STREAM_NON_BLOCKING, call_pool_trim); }

static int call_free_of_nothing(struct scene *s) {
    (void)s;
    return cuMemFree_v2(0);
}

CASE(captured_calls_free_of_nothing, SIM) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_free_of_nothing);
}

static int call_free_interior(struct scene *s) { return cuMemFree_v2(s->spare + 512); }

CASE(captured_calls_free_of_an_interior_address, SIM) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_free_interior);
}

static int call_alloc_of_nothing(struct scene *s) { return cuMemAlloc_v2(&s->made, 0); }

CASE(captured_calls_alloc_of_nothing, SIM) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_alloc_of_nothing);
}

static int call_alloc_of_too_much(struct scene *s) { return cuMemAlloc_v2(&s->made, 400 * GiB); }

CASE(captured_calls_alloc_of_too_much, SIM | SHARED) {
    in_every_mode(CU_STREAM_NON_BLOCKING, call_alloc_of_too_much);
}
