/* Frees in a context beside another one of the device, which has memory and works on it.
 *
 *   beside [alone]  nobody waits for the other context
 *   beside rows     nor where it has asked how the driver rounds rows
 *   beside shared   its work is on what is freed, which the driver's own memory forbids:
 *                   nobody gets these bytes before it is over */
#include "answers.h"

CUresult cuStreamQuery(CUstream);

enum { BYTES = 32 * MiB, SECOND = 1000000 };

struct place { CUcontext context; CUstream stream; CUdeviceptr at; };

static void there(struct place *place) { OK(cuCtxSetCurrent(place->context)); }

static void begin(struct place *place) {
    if (place->context == NULL) OK(cuCtxCreate_v2(&place->context, 0, 0));
    there(place);
    OK(cuStreamCreate(&place->stream, 1));
    OK(cuMemAlloc_v2(&place->at, BYTES));
}

static void works(struct place *place, CUdeviceptr at, int writes) {
    struct range range = {at, BYTES, writes};
    there(place);
    OK(cuSimLaunch(place->stream, &range, 1, SECOND));
}

static void alone(struct place *own, struct place *other) {
    works(other, other->at, 1);
    there(own);
    SAY(cuMemFree_v2(own->at));
    SAY(cuStreamQuery(other->stream));
    /* Of its own context it waits for every stream. */
    OK(cuMemAlloc_v2(&own->at, BYTES));
    works(own, own->at, 1);
    SAY(cuMemFree_v2(own->at));
    SAY(cuStreamQuery(own->stream));
    SAY(cuStreamQuery(other->stream));
}

static void rows(struct place *own, struct place *other) {
    CUmemoryPool pool;
    CUdeviceptr at;
    size_t pitch;
    there(other);
    OK(cuMemAllocPitch_v2(&at, &pitch, 100, 100, 4));
    works(other, other->at, 1);
    there(own);
    /* Something idle, to be given back. */
    OK(cuMemAllocAsync(&at, BYTES, own->stream));
    OK(cuMemFreeAsync(at, own->stream));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    SAY(cuMemPoolTrimTo(pool, 0));
    SAY(cuStreamQuery(other->stream));
    alone(own, other);
    /* In its own context it goes with the first free. */
    there(other);
    SAY(cuMemFree_v2(other->at));
    SAY(cuStreamQuery(other->stream));
}

static void shared(struct place *own, struct place *others, int count) {
    CUdeviceptr plain = 0, ordered = 0;
    for (int i = 0; i < count; i++) works(&others[i], own->at, 0);
    there(own);
    OK(cuMemFree_v2(own->at));
    for (int i = 0; i < count; i++) CHECK(cuStreamQuery(others[i].stream) != SUCCESS);
    OK(cuMemAlloc_v2(&plain, BYTES));
    OK(cuMemAllocAsync(&ordered, BYTES, own->stream));
    works(own, plain, 1);
    works(own, ordered, 1);
    /* What is in use cannot be given back either. */
    OK(cuMemFreeAsync(ordered, own->stream));
    OK(cuMemFree_v2(plain));
    OK(cuMemAlloc_v2(&plain, HUGE + HUGE / 2));
    OK(cuMemFree_v2(plain));
}

int main(int count, char **words) {
    struct place places[3] = {{0}};
    start_cuda();
    OK(cuCtxGetCurrent(&places[0].context));
    for (int i = 0; i < 3; i++) begin(&places[i]);
    if (count > 1 && strcmp(words[1], "shared") == 0) {
        shared(&places[0], &places[1], 1);
        there(&places[0]);
        OK(cuCtxSynchronize());
        OK(cuMemAlloc_v2(&places[0].at, BYTES));
        shared(&places[0], &places[1], 2);
    } else if (count > 1 && strcmp(words[1], "rows") == 0) {
        rows(&places[0], &places[1]);
    } else {
        alone(&places[0], &places[1]);
        alone(&places[2], &places[1]);
    }
    return 0;
}
