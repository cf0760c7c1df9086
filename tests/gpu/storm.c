/* The processes of the kill storm: tests/gpu/storm.py starts, kills and judges
 * them. Each is meant to be killed at any moment, so nothing is cleaned up.
 *
 *     gcc -O2 -o storm tests/gpu/storm.c -ldl
 *
 *     storm work SEED NAMES BYTES   says ready; makes, opens, checks and deletes names
 *     storm keep NAME BYTES         makes one, and does what it reads, a line each:
 *                                   check, open, close
 *     storm hold NAME               opens one and says ready
 *     storm watch NAME              says when the number of its references changes
 *
 * Every word of a name's memory follows from the generation, so that whoever
 * opens it can tell whether it is what its maker wrote. Ends with 3 where it is
 * not, with 2 where a call fails that may not.
 */
#include "named.h"

static size_t words;
static uint64_t *room;

/* The first word of a generation's contents. */
static uint64_t first_word(const memcuda_info *info)
{
    uint64_t word;
    memcpy(&word, info->generation, sizeof word);
    return word | 1;
}

static memcuda_info describe(memcuda_handle handle)
{
    memcuda_info info = {.size = sizeof info};
    MUST(memcuda_describe(handle, &info));
    return info;
}

static void fill(memcuda_handle handle)
{
    memcuda_info info = describe(handle);
    uint64_t word = first_word(&info);
    for (size_t at = 0; at < words; at++)
        room[at] = word + at * 0x9e3779b97f4a7c15u;
    MUST(cuMemcpyHtoD_v2(info.address, room, words * 8));
}

/* Is it what its maker wrote? */
static int intact(memcuda_handle handle)
{
    memcuda_info info = describe(handle);
    uint64_t word = first_word(&info);
    MUST(cuMemcpyDtoH_v2(room, info.address, words * 8));
    for (size_t at = 0; at < words; at++)
        if (room[at] != word + at * 0x9e3779b97f4a7c15u) {
            fprintf(stderr, "%d: %s: word %zu of %zu is not its maker's\n", getpid(), info.name, at, words);
            return 0;
        }
    return 1;
}

/* What may be answered while names come and go and the keeper is killed. */
static int passes(int result)
{
    switch (result) {
    case MEMCUDA_OK:
    case MEMCUDA_NOT_FOUND:
    case MEMCUDA_EXISTS:
    case MEMCUDA_IN_PROGRESS:
    case MEMCUDA_UNAVAILABLE:
        return 1;
    default:
        fprintf(stderr, "%d: %s: %s\n", getpid(), memcuda_result_name(result), memcuda_message());
        exit(2);
    }
}

static uint64_t random_word(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void pause_us(uint64_t us)
{
    struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* A new name: hidden until its bytes are there, at times kept beyond its holders. */
static void make(const char *name, uint64_t chance, memcuda_handle *held)
{
    memcuda_options options = MEMCUDA_OPTIONS;
    options.bytes = words * 8;
    options.flags = MEMCUDA_HIDDEN | (chance % 4 == 0 ? MEMCUDA_PERSIST : 0);
    if (passes(memcuda_create(name, &options, held)) && *held) {
        fill(*held);
        passes(memcuda_seal(*held));
    }
}

static void open_and_check(const char *name, memcuda_handle *held)
{
    memcuda_options options = MEMCUDA_OPTIONS;
    options.flags = MEMCUDA_READ_ONLY;
    options.wait_us = 1000;
    if (passes(memcuda_open(name, &options, held)) && *held && !intact(*held))
        exit(3);
}

/* An allocation of the program that has a name, for a moment. */
static void allocate(unsigned number)
{
    memcuda_options options = MEMCUDA_OPTIONS;
    CUdeviceptr at;
    char name[32];
    options.flags = MEMCUDA_UNNAMED_ON_MISMATCH;
    snprintf(name, sizeof name, "storm/allocated/%u", number);
    passes(memcuda_name_next(name, MEMCUDA_CREATE_OR_ATTACH, &options));
    MUST(cuMemAlloc_v2(&at, words * 8));
    MUST(cuMemcpyHtoD_v2(at, room, words * 8));
    MUST(cuMemFree_v2(at));
}

__attribute__((noreturn)) static void work(uint64_t seed, unsigned names)
{
    enum { HELD = 8 };
    memcuda_handle held[HELD] = {0};
    uint64_t state = seed * 0x9e3779b97f4a7c15u | 1;
    puts("ready");
    fflush(stdout);
    for (;;) {
        uint64_t chance = random_word(&state);
        memcuda_handle *at = &held[chance % HELD];
        char name[32];
        snprintf(name, sizeof name, "storm/%llu", (unsigned long long)(random_word(&state) % names));
        if (*at) {
            passes(memcuda_close(*at));
            *at = 0;
        }
        switch (random_word(&state) % 9) {
        case 0:
        case 1:
        case 2:
            make(name, chance / HELD, at);
            break;
        case 3:
            passes(memcuda_delete(name));
            break;
        case 4:
            pause_us(random_word(&state) % 3000);
            break;
        case 5:
            allocate((unsigned)(chance % 4));
            break;
        default:
            open_and_check(name, at);
        }
    }
}

static int keep(const char *name)
{
    memcuda_options options = MEMCUDA_OPTIONS;
    memcuda_handle first = 0, again = 0;
    char line[32];
    options.bytes = words * 8;
    MUST(memcuda_create(name, &options, &first));
    fill(first);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "check\n")) {
            puts(intact(first) ? "intact" : "broken");
        } else if (!strcmp(line, "open\n")) {
            int result = memcuda_open(name, NULL, &again);
            puts(result ? memcuda_message() : intact(again) ? "intact" : "broken");
        } else if (!strcmp(line, "close\n")) {
            puts(memcuda_close(again) || memcuda_close(first) ? memcuda_message() : "closed");
        }
        fflush(stdout);
    }
    return 0;
}

__attribute__((noreturn)) static void hold(const char *name)
{
    memcuda_handle handle;
    MUST(memcuda_open(name, NULL, &handle));
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}

static int watch(const char *name)
{
    memcuda_info info = {.size = sizeof info};
    uint64_t before = ~0ull;
    while (getppid() != 1) {
        MUST(memcuda_show(name, &info));
        if (info.references != before)
            printf("%llu %llu\n", (unsigned long long)info.references, (unsigned long long)now_ns());
        before = info.references;
        fflush(stdout);
        pause_us(50);
    }
    return 0;
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    if (!memcuda_present()) {
        fprintf(stderr, "libmemcuda.so is not preloaded\n");
        return 2;
    }
    start();
    if (!strcmp(mode, "watch") && count == 3)
        return watch(arguments[2]);
    if (!strcmp(mode, "hold") && count == 3)
        hold(arguments[2]);
    words = count > 3 ? strtoull(arguments[count - 1], NULL, 10) / 8 : 0;
    room = malloc(words * 8);
    if (words && room && !strcmp(mode, "keep") && count == 4)
        return keep(arguments[2]);
    if (words && room && !strcmp(mode, "work") && count == 5)
        work(strtoull(arguments[2], NULL, 10), (unsigned)atoi(arguments[3]));
    fprintf(stderr, "usage: storm work SEED NAMES BYTES | keep NAME BYTES | hold NAME | watch NAME\n");
    return 2;
}
