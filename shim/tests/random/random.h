/* What the parts of the random program share: its threads, the memory they
 * hold, and the rules that keep the program legal on a real GPU:
 *
 * - Every block is used along one line: whoever uses it on another stream first
 *   orders that stream behind the last one (`follow`), or knows on the host
 *   that all uses are complete (`lane` is DONE).
 * - Calls that a capture in global mode forbids to all threads hold
 *   `forbidden` for reading, such a capture for writing. Waits for a whole
 *   device hold `whole_device` for writing, captures for reading.
 */
#ifndef RANDOM_H
#define RANDOM_H

#include "runtime.h"
#include <pthread.h>

enum { DEVICES = 2, LANES = 8, OWN_LANES = 4, BLOCKS = 48, EVENTS = 6, GRAPHS = 3, IN_GRAPH = 4, DONE = -1 };
/* How often a call is made without which a thread cannot go on: injected failures
 * of several threads' calls can meet in one thread's. */
enum { TRIES = 10 };
/* The first lanes of a device: its default streams, and two that threads share. */
enum { LEGACY_LANE, PER_THREAD_LANE, SHARED_LANES };
/* The last two of a thread's own: captures begin and fork on them; never blocking. */
enum { CAPTURE_LANES = LANES - 2 };

typedef struct {
    Address base; /* 0: none */
    size_t bytes;
    int device, ordered, lane, filled, pinned;
    unsigned char value; /* of the bytes at both ends, where `filled` */
} Block;

typedef struct {
    Graph graph, ready; /* 0: none */
    int device, count;
    Block *uses[IN_GRAPH];
} Replay;

typedef struct {
    uint64_t seed;
    int devices, capturing, exclusive, refused_in_capture;
    /* Its manner, of ten: how often it allocates and frees by the calls that wait. */
    int plain, waiting;
    int favourite; /* the lane that it mostly uses, DONE for none */
    size_t sizes[8]; /* those that it asks for again and again */
    long operations, allocations, refused, captures;
    uint64_t held;
    Stream lanes[DEVICES][LANES];
    int blocking[DEVICES][LANES];
    Event events[DEVICES][EVENTS];
    Block blocks[BLOCKS];
    Replay replays[GRAPHS];
    unsigned char seen[2][256];
} Thread;

extern pthread_rwlock_t forbidden, whole_device;

/* random.c */
uint64_t pick(Thread *t, uint64_t below);
/* A call's answer: 0, or a code that this run may get. Others end the program. */
int answer(Thread *t, int code, const char *call, int allocates);
#define TRY(call) do { if (answer(t, (call), #call, 0)) return 1; } while (0)
#define ASK(call) do { if (answer(t, (call), #call, 1)) return 1; } while (0)
int is_on(const char *name);
_Noreturn void fail(const char *what, int value);

/* blocks.c: each returns 0, or 1 where a call was refused and nothing happened. */
Block *some_block(Thread *t, int device);
int some_lane(Thread *t);
int follow(Thread *t, Block *b, int lane);
int use(Thread *t, Block *b, int lane, int write);
size_t any_size(Thread *t);
int allocate(Thread *t, int device);
int release(Thread *t, Block *b);
int fill(Thread *t, Block *b);
int verify(Thread *t, Block *b);
int copy(Thread *t, Block *from, Block *to);
int read_side_by_side(Thread *t, Block *b);
void lane_done(Thread *t, int device, int lane);
/* For calls that a global capture forbids; while this thread captures globally
 * it holds the lock itself. */
void enter_forbidden(Thread *t);
void leave_forbidden(Thread *t);

/* capture.c */
int capture(Thread *t, int device);
int replay(Thread *t, Replay *r);
void drop_replay(Thread *t, Replay *r);

#endif
