/* Copies of memory of a device that is not current, by every spelling: between it
 * and the host, and of rows and slices. The lines are those of the bare driver. */
#include "answers.h"

struct rows_end { size_t x, y; int kind; void *host; CUdeviceptr device; void *array; size_t pitch; };
struct rows { struct rows_end from, to; size_t width, height; };
struct slices_end {
    size_t x, y, z, level;
    int kind;
    void *host;
    CUdeviceptr device;
    void *array, *reserved;
    size_t pitch, height;
};
struct slices { struct slices_end from, to; size_t width, height, depth; };
enum { HOST = 1, DEVICE = 2 };

CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuCtxPushCurrent_v2(CUcontext);
CUresult cuCtxPopCurrent_v2(CUcontext *);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);

static CUcontext here, there;
static CUdeviceptr far, near;
static unsigned char *pinned, *pageable;
enum { PITCH = 1000, HEIGHT = 30, SLICES = 4, BYTES = PITCH * HEIGHT * SLICES };

static unsigned char byte_at(size_t at, int round) { return (unsigned char)(at * 7 + at / 251 + (size_t)round); }

static void put(CUdeviceptr at, CUcontext owner, int round) {
    static unsigned char bytes[BYTES];
    for (size_t i = 0; i < BYTES; i++) bytes[i] = byte_at(i, round);
    OK(cuCtxPushCurrent_v2(owner));
    OK(cuMemcpyHtoD_v2(at, bytes, BYTES));
    OK(cuCtxSynchronize());
    OK(cuCtxPopCurrent_v2(NULL));
}

/* How many bytes are those of the round, and where the first of them is. */
static size_t first;
static size_t right(const unsigned char *bytes, int round) {
    size_t count = 0;
    for (size_t i = BYTES; i-- > 0;)
        if (bytes[i] == byte_at(i, round)) first = i, count++;
    return count;
}

static size_t right_on(CUdeviceptr at, CUcontext owner, int round) {
    static unsigned char bytes[BYTES];
    OK(cuCtxPushCurrent_v2(owner));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(bytes, at, BYTES));
    OK(cuCtxPopCurrent_v2(NULL));
    return right(bytes, round);
}

static void lines(CUstream stream) {
    static const char *const up[] = {"cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2_ptsz"};
    static const char *const down[] = {"cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2_ptds", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2_ptsz"};
    for (int way = 0; way < 8; way++) {
        unsigned char *host = way & 1 ? pinned : pageable;
        int queued = way / 2 % 2 == 1;
        const char *name = way < 4 ? up[way] : down[way - 4];
        void *found = dlsym(RTLD_DEFAULT, name);
        int code;
        put(far, there, -1 - way);
        if (way < 4) {
            for (size_t i = 0; i < BYTES; i++) host[i] = byte_at(i, way);
            typedef CUresult Up(CUdeviceptr, const void *, size_t, CUstream);
            code = ((Up *)found)(far, host, BYTES, queued ? stream : NULL);
            if (host == pageable) memset(host, 0, BYTES); /* it was read */
            OK(cuCtxSynchronize());
            printf("%s: %d, right %zu\n", name, code, right_on(far, there, way));
        } else {
            put(far, there, way);
            memset(host, 0, BYTES);
            typedef CUresult Down(void *, CUdeviceptr, size_t, CUstream);
            code = ((Down *)found)(host, far, BYTES, queued ? stream : NULL);
            if (host == pinned && queued) OK(cuStreamSynchronize(stream));
            printf("%s: %d, right %zu\n", name, code, right(host, way));
        }
    }
}

static void blocks(CUstream stream, size_t pitch, size_t height, size_t depth) {
    static const char *const names[] = {
        "cuMemcpy2D_v2", "cuMemcpy2D_v2_ptds", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DUnaligned_v2_ptds",
        "cuMemcpy2DAsync_v2", "cuMemcpy2DAsync_v2_ptsz", "cuMemcpy3D_v2", "cuMemcpy3D_v2_ptds",
        "cuMemcpy3DAsync_v2", "cuMemcpy3DAsync_v2_ptsz"};
    typedef CUresult Shaped(const void *, CUstream);
    for (int way = 0; way < 10; way++)
        for (int ends = 0; ends < 4; ends++) {
            int round = 20 + 4 * way + ends, out = ends & 1, host = ends & 2;
            put(far, there, out ? round : -round);
            put(near, here, out ? -round : round);
            for (size_t i = 0; i < BYTES; i++) pinned[i] = byte_at(i, out ? -round : round);
            struct rows_end away = {.x = 5, .y = 3, .kind = DEVICE, .device = far, .pitch = pitch};
            struct rows_end home = away;
            home.kind = host ? HOST : DEVICE, home.host = pinned, home.device = near;
            struct rows rows = {out ? away : home, out ? home : away, 900, height};
            struct slices_end deep = {5, 3, 1, 0, DEVICE, NULL, far, NULL, NULL, pitch, HEIGHT}, flat = deep;
            flat.kind = home.kind, flat.host = pinned, flat.device = near;
            struct slices slices = {out ? deep : flat, out ? flat : deep, 900, height, depth};
            int code = ((Shaped *)dlsym(RTLD_DEFAULT, names[way]))(way < 6 ? (void *)&rows : (void *)&slices, stream);
            OK(cuCtxSynchronize());
            size_t bytes = !out ? right_on(far, there, round) : host ? right(pinned, round) : right_on(near, here, round);
            printf("%s, %s, %s: %d, right %zu", names[way], out ? "from it" : "to it", host ? "host" : "device", code, bytes);
            printf(bytes ? " from %zu on\n" : "\n", first);
        }
}

/* Of a block that leaves its allocation nothing is copied. */
static void refused(void) {
    typedef CUresult Shaped(const void *);
    CUdeviceptr behind = 0;
    OK(cuCtxPushCurrent_v2(there));
    OK(cuMemAlloc_v2(&behind, BYTES));
    OK(cuCtxPopCurrent_v2(NULL));
    struct rows_end away = {.kind = DEVICE, .device = far, .pitch = PITCH}, home = {.kind = HOST, .host = pinned, .pitch = PITCH};
    struct rows rows = {home, away, PITCH, HEIGHT * SLICES + 1};
    Shaped *copy = (Shaped *)dlsym(RTLD_DEFAULT, "cuMemcpy2D_v2");
    IS(INVALID_VALUE, copy(&rows));
    rows.height = HEIGHT * SLICES, rows.to.x = 1;
    IS(INVALID_VALUE, copy(&rows));
    rows.to.x = 0, rows.from.host = NULL;
    IS(INVALID_VALUE, copy(&rows));
    rows.to.device = 0;
    IS(INVALID_VALUE, copy(&rows));
    IS(INVALID_VALUE, copy(NULL));
    IS(INVALID_VALUE, cuMemcpyHtoD_v2(far, pinned, BYTES + 1));
    IS(INVALID_VALUE, cuMemcpyHtoD_v2(far, NULL, 8));
    IS(INVALID_VALUE, cuMemcpyDtoH_v2(pinned, far + BYTES - 1, 2));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);

/* What is queued needs no context to be current: that of its stream counts. */
static void *without_context(void *stream) {
    for (size_t i = 0; i < BYTES; i++) pinned[i] = byte_at(i, 70);
    SAY(cuMemcpyHtoDAsync_v2(far, pinned, BYTES, stream));
    SAY(cuStreamSynchronize(stream));
    printf("up: right %zu\n", right_on(far, there, 70));
    memset(pinned, 0, BYTES);
    SAY(cuMemcpyDtoHAsync_v2(pinned, far, BYTES, stream));
    SAY(cuStreamSynchronize(stream));
    printf("down: right %zu\n", right(pinned, 70));
    return NULL;
}

/* A copy that fails beside a capture opens nothing to the device that it was made from. */
static void beside_a_capture(void) {
    CUstream captured = NULL;
    CUgraph graph = NULL;
    OK(cuStreamCreate(&captured, 0));
    SAY(cuStreamBeginCapture_v2(captured, 0));
    SAY(cuMemcpyHtoDAsync_v2(far, pinned, 64, NULL));
    int code = cuStreamEndCapture(captured, &graph);
    printf("the capture: %d\n", code);
    SAY(cuMemsetD8Async(far, 1, 64, NULL));
}

int main(int argc, char **argv) {
    CUstream stream = NULL;
    void *host = NULL;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&here, 0));
    OK(cuDevicePrimaryCtxRetain(&there, 1));
    OK(cuCtxSetCurrent(there));
    OK(cuMemAlloc_v2(&far, BYTES));
    OK(cuCtxSetCurrent(here));
    OK(cuMemAlloc_v2(&near, BYTES));
    OK(cuMemHostAlloc(&host, BYTES, 0));
    OK(cuStreamCreate(&stream, 1));
    pinned = host;
    pageable = malloc(BYTES);
    if (argc > 1 && !strcmp(argv[1], "refused")) return refused(), 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, without_context, stream) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    beside_a_capture();
    lines(stream);
    blocks(stream, PITCH, 20, 2);
    blocks(stream, PITCH, 1, 1);
    blocks(stream, 904, 1, 1); /* shorter than the row */
    return 0;
}
