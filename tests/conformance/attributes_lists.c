/* cuPointerGetAttributes, which asks for several at once and does not fail
 * where one of them does not apply. */
#include "attributes.h"

/* All of them in one call but the tokens, which the driver refuses in a list,
 * and where that differs from one at a time. */
static void say_list(struct known memory, CUdeviceptr at) {
    enum { ALL = 20 };
    int asked[ALL];
    unsigned char values[ALL][16], untouched[16];
    void *places[ALL];
    memset(untouched, 0xA5, 16);
    memset(values, 0xA5, sizeof values);
    for (int i = 0; i < ALL; i++) {
        asked[i] = i + 1 < POINTER_P2P_TOKENS ? i + 1 : i + 2;
        places[i] = values[i];
    }
    int code = cuPointerGetAttributes(ALL, asked, places, at);
    say_code("the list", code);
    int written = 0;
    for (int i = 0; i < ALL; i++) {
        bool here = memcmp(values[i], untouched, 16) != 0;
        written += here;
        if (code != CU_OK) continue;
        unsigned char one[16];
        memset(one, 0xA5, 16);
        int alone = cuPointerGetAttribute(one, asked[i], at);
        if (alone != CU_OK)
            say("%d: alone %s, here %s", asked[i], code_name(alone),
                !here ? "untouched"
                : memcmp(values[i], &at, sizeof at) == 0 ? "itself"
                : attribute_value(asked[i], values[i], memory, at));
        else if (memcmp(one, values[i], 16) != 0)
            say("%d differs", asked[i]);
    }
    say("written: %d", written);
}

static void of_plain(size_t offset) {
    CUdeviceptr at = allocate(64 * MiB);
    say_list((struct known){at, 64 * MiB, context(), NULL}, at + offset);
    NEED(cuMemFree_v2(at));
}

CASE(lists_plain_base, SIM | SHARED) { of_plain(0); }
CASE(lists_plain_last, SIM | SHARED) { of_plain(64 * MiB - 1); }
CASE(lists_plain_behind, SIM) { of_plain(64 * MiB); }

CASE(lists_async, SIM | SHARED) {
    CUmemoryPool pool = NULL;
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    CUdeviceptr at = allocate_async(64 * MiB, NULL);
    say_list((struct known){at, 64 * MiB, context(), pool}, at + 100);
    NEED(cuMemFreeAsync(at, NULL));
    NEED(cuStreamSynchronize(NULL));
}

CASE(lists_mapped, SIM | SHARED) {
    struct mapping own = map_own(64 * MiB);
    say_list((struct known){own.at, own.bytes, context(), NULL}, own.at);
    unmap_own(own);
}

CASE(lists_freed, SIM) {
    CUdeviceptr at = allocate(64 * MiB);
    NEED(cuMemFree_v2(at));
    say_list((struct known){at, 64 * MiB, context(), NULL}, at);
}

CASE(lists_nowhere, SIM | SHARED) {
    static int on_host;
    say_list((struct known){0, 0, context(), NULL}, (CUdeviceptr)&on_host);
}

CASE(lists_bad_arguments, SIM | SHARED) {
    CUdeviceptr at = allocate(MiB);
    uint64_t type[2] = {7, 7}, size[2] = {7, 7};
    int asked[] = {POINTER_MEMORY_TYPE, POINTER_RANGE_SIZE}, unknown[] = {POINTER_MEMORY_TYPE, 99};
    void *values[] = {type, size}, *one_null[] = {type, NULL};
    say_code("none asked", cuPointerGetAttributes(0, asked, values, at));
    say_code("no names", cuPointerGetAttributes(2, NULL, values, at));
    say_code("no places", cuPointerGetAttributes(2, asked, NULL, at));
    say("written: %s", yes(type[0] != 7 || size[0] != 7));
    say_code("an unknown name", cuPointerGetAttributes(2, unknown, values, at));
    say_code("a null place", cuPointerGetAttributes(2, asked, one_null, at));
    say_code("address 0", cuPointerGetAttributes(2, asked, values, 0));
    NEED(cuMemFree_v2(at));
}
