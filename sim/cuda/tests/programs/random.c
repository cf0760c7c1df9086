/* A random program, decided twice: every operation is first judged by an
 * oracle that keeps the whole history as bit sets (which operation comes before
 * which), then made. Operations that the oracle allows must pass. Without a second
 * argument those it forbids are left out; "data race" or "stale alias" makes one
 * of that kind in the end, announces it on standard output, and must be caught.
 */
#include "common.h"

enum { STREAMS = 6, LEGACY_STREAM = 6, ALL = 7, EVENTS = 6, OPERATIONS = 1500, SLOTS = 16, SLOT = 4096, WORDS = (OPERATIONS + 63) / 64 };
typedef struct { uint64_t bits[WORDS]; } Set;
typedef struct { int stream, alias, first, slots, write; } Operation;

static Operation ops[OPERATIONS];
static int count;
static Set before[ALL], fenced[ALL], host, recorded[EVENTS];
static int is_recorded[EVENTS];
static S streams[ALL];
static P events[EVENTS], aliases[2];

static int has(const Set *set, int i) { return set->bits[i / 64] >> (i % 64) & 1; }
static void put(Set *set, int i) { set->bits[i / 64] |= 1ull << (i % 64); }
static void join(Set *set, const Set *other) { for (int i = 0; i < WORDS; i++) set->bits[i] |= other->bits[i]; }

/* The first four streams do not know the legacy stream; the others order against it.
 * What comes back over another stream has completed in between, as by an event. */
static int blocking(int stream) { return stream >= 4; }
static void join_defaults(int stream) {
    for (int other = 4; other < ALL && blocking(stream); other++)
        if (other != stream && (stream == LEGACY_STREAM || other == LEGACY_STREAM)) {
            join(&before[stream], &before[other]); join(&fenced[stream], &before[other]);
        }
}

static const char *judge(const Operation *new) {
    Set known = before[new->stream], fence = fenced[new->stream];
    for (int other = 4; other < ALL && blocking(new->stream); other++)
        if (other != new->stream && (new->stream == LEGACY_STREAM || other == LEGACY_STREAM)) {
            join(&known, &before[other]); join(&fence, &before[other]);
        }
    for (int i = 0; i < count; i++) {
        const Operation *old = &ops[i];
        if (old->first >= new->first + new->slots || new->first >= old->first + old->slots || has(&host, i)) continue;
        if (old->stream != new->stream) {
            if ((old->write || new->write) && !has(&known, i)) return "data race";
        } else if (old->write && old->alias != new->alias && !has(&fence, i)) {
            /* Only the last write of each byte counts. */
            for (int slot = old->first; slot < old->first + old->slots; slot++) {
                int later = slot < new->first || slot >= new->first + new->slots;
                for (int j = i + 1; j < count && !later; j++)
                    later = ops[j].write && slot >= ops[j].first && slot < ops[j].first + ops[j].slots;
                if (!later) return "stale alias";
            }
        }
    }
    return 0;
}

static int launch(const Operation *op) { return touch(streams[op->stream], aliases[op->alias] + op->first * SLOT, op->slots * SLOT, op->write); }

int main(int argc, char **argv) {
    srand(argc > 1 ? atoi(argv[1]) : 1); start();
    for (int i = 0; i < STREAMS; i++) OK(cuStreamCreate(&streams[i], blocking(i) ? 0 : NON_BLOCKING));
    streams[LEGACY_STREAM] = LEGACY; P h = handle(PIECE); for (int i = 0; i < 2; i++) aliases[i] = mapped(PIECE, h);
    for (int i = 0; i < EVENTS; i++) events[i] = event();
    const char *planted = argc > 2 ? argv[2] : "";
    int forbidden = 0, plant = rand() % (planted[0] == 'd' ? 50 : 3);
    while (count < OPERATIONS) {
        int stream = rand() % ALL, e = rand() % EVENTS, first = rand() % SLOTS;
        Operation op = {stream, rand() % 8 == 0, first, 1 + rand() % 3, rand() % 2};
        switch (rand() % 12) {
        default: {
            const char *verdict = judge(&op);
            if (verdict && (strcmp(verdict, planted) || forbidden++ < plant)) break;
            if (verdict) { printf("%s after %d\n", verdict, count); fflush(stdout); }
            OK(launch(&op)); if (verdict) return 0;
            join_defaults(stream); put(&before[stream], count); ops[count++] = op; break;
        }
        case 5: case 6:
            OK(cuEventRecord(events[e], streams[stream])); join_defaults(stream); recorded[e] = before[stream]; is_recorded[e] = 1;
            if (stream == LEGACY_STREAM) join(&fenced[stream], &before[stream]);
            break;
        case 7: case 8:
            OK(cuStreamWaitEvent(streams[stream], events[e], 0)); if (!is_recorded[e]) break;
            join_defaults(stream); join(&before[stream], &recorded[e]); join(&fenced[stream], &recorded[e]); break;
        case 9: {
            int got = cuEventQuery(events[e]); TRUE(got == 0 || got == 600); if (!got && is_recorded[e]) join(&host, &recorded[e]); break;
        }
        case 10:
            if (rand() % 6) { OK(cuSimAdvance(rand() % 100000)); break; }
            OK(cuStreamSynchronize(streams[stream])); if (stream == LEGACY_STREAM) join_defaults(stream); join(&host, &before[stream]); break;
        case 11:
            if (rand() % 12) break;
            OK(cuCtxRecordEvent(context, events[e])); memset(&recorded[e], 0, sizeof(Set)); is_recorded[e] = 1;
            for (int i = 0; i < ALL; i++) join(&recorded[e], &before[i]);
            if (rand() % 8 == 0) { OK(cuCtxSynchronize()); join(&host, &recorded[e]); }
        }
    }
    return 0;
}
