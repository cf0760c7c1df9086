/* One thread passes torch's memory on, range by handle and offset, while another
 * makes torch map and unmap pages all around it. Whoever opens a handle has the tensor
 * that it was made for. usage: storm ROUNDS [tensors]
 * How often the two threads meet is the scheduler's to say: rounds go on until some
 * handles were opened. */
#include "../support/cuda.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

struct handle { unsigned char bytes[64]; };
struct passed { struct handle handle; uint64_t offset, bytes, number; };

void *torch_alloc(size_t);
void *torch_tensor(size_t);
void torch_free(void *);
void torch_empty(void);
int cudaIpcGetMemHandle(struct handle *, void *);
int cudaIpcOpenMemHandle(void **, struct handle, unsigned);
int cudaIpcCloseMemHandle(void *);
int cudaMemcpy(void *, const void *, size_t, int);

static atomic_int over;
static void *(*lend)(size_t) = torch_alloc;

static void *churn(void *unused) {
    void *held[6] = {NULL};
    unsigned seed = 1;
    CUcontext context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    while (!over) {
        seed = seed * 1664525u + 1013904223u;
        void **one = &held[(seed >> 8) % 6];
        if (*one) torch_free(*one), *one = NULL;
        else *one = lend(((seed >> 12) % 5 + 1) * 10 * MiB);
        if ((seed >> 16) % 3 == 0) torch_empty();
    }
    for (int i = 0; i < 6; i++) if (held[i]) torch_free(held[i]);
    return unused;
}

/* Says of each handle whether it was opened: 1, or refused: 0. */
static void take(int from, int to) {
    struct passed it;
    start_cuda();
    while (read(from, &it, sizeof it) == sizeof it) {
        void *at = NULL;
        int code = cudaIpcOpenMemHandle(&at, it.handle, 1);
        CHECK(code == SUCCESS || code == INVALID_VALUE);
        char opened = code == SUCCESS;
        for (uint64_t place = 0; opened && place < it.bytes; place += 4 * MiB) {
            uint64_t found = 0;
            OK(cudaMemcpy(&found, (char *)at + it.offset + place, sizeof found, 2));
            CHECK(found == it.number + place);
        }
        if (opened) OK(cudaIpcCloseMemHandle(at));
        CHECK(write(to, &opened, 1) == 1);
    }
}

int main(int argc, char **argv) {
    int to[2], from[2], opened = 0, changed = 0, status = 0, rounds = argc > 1 ? atoi(argv[1]) : 0, done = 0;
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    /* Before CUDA: a child of it has none. */
    pid_t child = fork();
    if (child == 0) return close(to[1]), close(from[0]), take(to[0], from[1]), 0;
    close(to[0]), close(from[1]);
    start_cuda();
    if (argc > 2) lend = torch_tensor;
    void *first = lend(MiB);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, churn, NULL) == 0);
    for (; done < rounds || (done < 100 * rounds && opened <= 5); done++) {
        struct passed it = {.bytes = (size_t)(done % 3 + 1) * 9 * MiB, .number = (uint64_t)done << 32};
        char *tensor = lend(it.bytes);
        for (uint64_t place = 0; place < it.bytes; place += 4 * MiB) {
            uint64_t word = it.number + place;
            OK(cudaMemcpy(tensor + place, &word, sizeof word, 1));
        }
        CUdeviceptr start = 0;
        uint64_t before = 0, after = 0;
        char answer = 0;
        OK(cuPointerGetAttribute(&before, 7, (CUdeviceptr)tensor));
        OK(cuPointerGetAttribute(&start, 11, (CUdeviceptr)tensor));
        OK(cudaIpcGetMemHandle(&it.handle, tensor));
        OK(cuPointerGetAttribute(&after, 7, (CUdeviceptr)tensor));
        it.offset = (CUdeviceptr)tensor - start;
        /* Else the start may not be that of the handle. */
        if (before != after) { changed++, torch_free(tensor); continue; }
        CHECK(write(to[1], &it, sizeof it) == sizeof it && read(from[0], &answer, 1) == 1);
        opened += answer;
        torch_free(tensor);
    }
    over = 1;
    CHECK(pthread_join(other, NULL) == 0);
    torch_free(first);
    torch_empty();
    close(to[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("%d opened, %d changed, %d in all\n", opened, changed, done);
    return 0;
}
