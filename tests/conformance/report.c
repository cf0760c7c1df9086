/* A case's line, the names of codes, and the steps that many cases begin with. */
#include <setjmp.h>
#include <stdarg.h>

#include "conformance.h"
#include "runner.h"

static char line[8192];
static size_t length;
static jmp_buf end_of_case;

void say(const char *format, ...) {
    va_list arguments;
    size_t room = sizeof line - length;
    int wrote = length == 0 ? 0 : snprintf(line + length, room, "; ");
    va_start(arguments, format);
    int more = vsnprintf(line + length + wrote, room - (size_t)wrote, format, arguments);
    va_end(arguments);
    if ((size_t)(wrote + more) >= room) {
        fprintf(stderr, "conformance: a line of more than %zu bytes\n", sizeof line);
        exit(3);
    }
    length += (size_t)(wrote + more);
}

struct name { int code; const char *name; };

static const struct name driver_names[] = {
    {ABSENT, "ABSENT"}, {0, "SUCCESS"}, {1, "INVALID_VALUE"}, {2, "OUT_OF_MEMORY"},
    {3, "NOT_INITIALIZED"}, {4, "DEINITIALIZED"}, {100, "NO_DEVICE"}, {101, "INVALID_DEVICE"},
    {200, "INVALID_IMAGE"}, {201, "INVALID_CONTEXT"}, {205, "MAP_FAILED"}, {206, "UNMAP_FAILED"},
    {208, "ALREADY_MAPPED"}, {217, "PEER_ACCESS_UNSUPPORTED"}, {304, "OPERATING_SYSTEM"},
    {400, "INVALID_HANDLE"}, {401, "ILLEGAL_STATE"}, {500, "NOT_FOUND"}, {600, "NOT_READY"},
    {700, "ILLEGAL_ADDRESS"}, {702, "LAUNCH_TIMEOUT"}, {704, "PEER_ACCESS_ALREADY_ENABLED"},
    {705, "PEER_ACCESS_NOT_ENABLED"}, {708, "PRIMARY_CONTEXT_ACTIVE"},
    {709, "CONTEXT_IS_DESTROYED"}, {710, "ASSERT"}, {711, "TOO_MANY_PEERS"},
    {712, "HOST_MEMORY_ALREADY_REGISTERED"}, {713, "HOST_MEMORY_NOT_REGISTERED"},
    {716, "MISALIGNED_ADDRESS"}, {717, "INVALID_ADDRESS_SPACE"}, {719, "LAUNCH_FAILED"},
    {800, "NOT_PERMITTED"}, {801, "NOT_SUPPORTED"}, {900, "STREAM_CAPTURE_UNSUPPORTED"},
    {901, "STREAM_CAPTURE_INVALIDATED"}, {902, "STREAM_CAPTURE_MERGE"},
    {903, "STREAM_CAPTURE_UNMATCHED"}, {904, "STREAM_CAPTURE_UNJOINED"},
    {905, "STREAM_CAPTURE_ISOLATION"}, {906, "STREAM_CAPTURE_IMPLICIT"},
    {907, "CAPTURED_EVENT"}, {908, "STREAM_CAPTURE_WRONG_THREAD"}, {999, "UNKNOWN"},
};

/* Where the runtime's name of a number is another one than the driver's. */
static const struct name runtime_names[] = {
    {0, "Success"}, {1, "InvalidValue"}, {2, "MemoryAllocation"}, {3, "InitializationError"},
    {12, "InvalidPitchValue"}, {17, "InvalidDevicePointer"}, {21, "InvalidMemcpyDirection"},
    {46, "DevicesUnavailable"}, {101, "InvalidDevice"}, {201, "DeviceUninitialized"},
    {400, "InvalidResourceHandle"}, {600, "NotReady"}, {700, "IllegalAddress"},
};

static const char *text(const struct name *names, size_t count, int code) {
    static char texts[8][64];
    static unsigned turn;
    char *text = texts[turn++ % 8];
    for (size_t i = 0; i < count; i++)
        if (names[i].code == code) {
            snprintf(text, sizeof *texts, "%d %s", code, names[i].name);
            return text;
        }
    return NULL;
}

const char *code_name(int code) {
    const char *known = text(driver_names, sizeof driver_names / sizeof *driver_names, code);
    static char unknown[32];
    snprintf(unknown, sizeof unknown, "%d UNNAMED", code);
    return known != NULL ? known : unknown;
}

const char *runtime_name(int code) {
    const char *known = text(runtime_names, sizeof runtime_names / sizeof *runtime_names, code);
    return known != NULL ? known : code_name(code);
}

void say_code(const char *what, int code) { say("%s: %s", what, code_name(code)); }

void say_runtime(const char *what, int code) { say("%s: %s", what, runtime_name(code)); }

void need(int code, const char *step) {
    if (code == CU_OK) return;
    say("NOT REACHED: %s: %s", step, code_name(code));
    longjmp(end_of_case, 1);
}

const char *run_case(const struct test *test, int devices) {
    length = 0;
    line[0] = '\0';
    if ((test->flags & DEVICES2) && devices < 2) return "needs two devices";
    if ((test->flags & GPU) && simulated()) return "needs a real GPU";
    if ((test->flags & RUNTIME) && !runtime_load()) return "absent: no libcudart was found";
    if (setjmp(end_of_case) == 0) {
        if (!(test->flags & RAW)) start();
        test->body();
    }
    return line;
}

void start(void) {
    CUcontext primary;
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&primary, 0));
    NEED(cuCtxSetCurrent(primary));
}

CUcontext context(void) {
    CUcontext current = NULL;
    NEED(cuCtxGetCurrent(&current));
    return current;
}

CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr at = 0;
    NEED(cuMemAlloc_v2(&at, bytes));
    return at;
}

CUdeviceptr allocate_async(size_t bytes, CUstream stream) {
    CUdeviceptr at = 0;
    NEED(cuMemAllocAsync(&at, bytes, stream));
    return at;
}

CUstream new_stream(void) {
    CUstream stream = NULL;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

struct mapping map_own(size_t bytes) {
    struct mapping own = {0, bytes, {0, 0}};
    CUmemAllocationProp properties = {.type = ALLOCATION_PINNED,
                                      .requestedHandleTypes = HANDLE_POSIX_FD,
                                      .location = {LOCATION_DEVICE, 0}};
    CUmemAccessDesc access = {{LOCATION_DEVICE, 0}, ACCESS_READWRITE};
    NEED(cuMemAddressReserve(&own.at, bytes, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        NEED(cuMemCreate(&own.handles[i], bytes / 2, &properties, 0));
        NEED(cuMemMap(own.at + (size_t)i * (bytes / 2), bytes / 2, 0, own.handles[i], 0));
    }
    NEED(cuMemSetAccess(own.at, bytes, &access, 1));
    return own;
}

void unmap_own(struct mapping own) {
    NEED(cuMemUnmap(own.at, own.bytes));
    for (int i = 0; i < 2; i++) NEED(cuMemRelease(own.handles[i]));
    NEED(cuMemAddressFree(own.at, own.bytes));
}
