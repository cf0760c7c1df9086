/* Values of pointer attributes as relations to what the case knows. */
#include <inttypes.h>

#include "attributes.h"

static uint64_t wide(const void *value) {
    uint64_t number;
    memcpy(&number, value, sizeof number);
    return number;
}

static const char *number(int64_t value) {
    static char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return text;
}

static const char *of_context(CUcontext is, CUcontext known) {
    return is == NULL ? "none" : is == known ? "the allocating one" : "another";
}

const char *attribute_value(int attribute, const void *value, struct known memory,
                            CUdeviceptr at) {
    uint64_t all = wide(value);
    bool ordered = memory.pool != NULL;
    int word;
    memcpy(&word, value, sizeof word);
    switch (attribute) {
    case POINTER_CONTEXT:
        return of_context((CUcontext)all, memory.context);
    case POINTER_MEMORY_TYPE:
    case POINTER_DEVICE_ORDINAL:
    case POINTER_ACCESS_FLAGS:
        return number(word);
    case POINTER_DEVICE_POINTER:
        return all == at ? "itself" : all == 0 ? "0" : "another";
    case POINTER_SYNC_MEMOPS:
    case POINTER_IS_MANAGED:
    case POINTER_IS_LEGACY_IPC_CAPABLE:
    case POINTER_MAPPED:
    case POINTER_IS_RDMA_CAPABLE:
    case POINTER_IS_HW_DECOMPRESS_CAPABLE:
        return *(const unsigned char *)value ? "true" : "false";
    case POINTER_BUFFER_ID:
    case POINTER_MEMORY_BLOCK_ID:
        return all != 0 ? "some" : "0";
    case POINTER_RANGE_START:
        return all == memory.base ? "the base" : all == 0 ? "0" : "another";
    case POINTER_RANGE_SIZE:
        return all == memory.bytes ? "the size" : number((int64_t)all);
    case POINTER_MEMPOOL:
        return all == 0 ? "none" : (CUmemoryPool)all == memory.pool ? "the pool" : "another";
    /* How a memory pool maps its memory is its own affair. */
    case POINTER_MAPPING_SIZE:
        return ordered ? (all != 0 ? "some" : "0")
               : all == memory.bytes ? "the size" : all > memory.bytes ? "more" : all == 0 ? "0" : "less";
    case POINTER_MAPPING_BASE:
        return ordered ? (all != 0 && all <= at ? "at or below" : "elsewhere")
               : all == memory.base ? "the base" : all == 0 ? "0"
               : all < memory.base ? "below the base" : "above the base";
    default:
        return number((int64_t)all);
    }
}

/* As short as can be read: the lines are long. */
static const char *const names[] = {
    "", "context", "type", "device pointer", "host pointer", "tokens", "sync", "buffer id",
    "managed", "ordinal", "ipc", "start", "size", "mapped", "handle types", "rdma", "access",
    "pool", "mapping size", "mapping base", "block id", "decompress",
};

void say_attributes(struct known memory, CUdeviceptr at) {
    unsigned char value[16] = {0};
    int first = cuPointerGetAttribute(value, 1, at), same = 1;
    for (int attribute = 2; attribute <= 21; attribute++)
        same += cuPointerGetAttribute(value, attribute, at) == first;
    if (first != CU_OK && same == 21) {
        say_code("every attribute", first);
        return;
    }
    for (int attribute = 1; attribute <= 21; attribute++) {
        int code = cuPointerGetAttribute(value, attribute, at);
        if (code != CU_OK)
            say_code(names[attribute], code);
        else if (attribute == POINTER_P2P_TOKENS)
            say("%s: given", names[attribute]);
        else
            say("%s: %s", names[attribute], attribute_value(attribute, value, memory, at));
    }
}
