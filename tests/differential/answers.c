/* How answers are written down: without an address, which two drivers choose apart. */
#include "calls.h"
#include <stdarg.h>

static char line[8192], said[8192];
static size_t length;

void say(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int written = vsnprintf(line + length, sizeof line - length, format, list);
    va_end(list);
    if (written > 0 && length + (size_t)written < sizeof line) length += (size_t)written;
}

void say_code(const char *call, int code) { say(" %s=%d", call, code); }

const char *mark(int alive) { return alive ? "" : "!"; }

const char *answer(void) {
    memcpy(said, line, length);
    said[length] = 0;
    length = 0;
    return said;
}

/* "block + offset", or that it is nobody's. */
void say_address(const char *name, CUdeviceptr at) {
    if (at == 0) {
        say(" %s:0", name);
        return;
    }
    for (int i = 0; i < MEMORIES; i++) {
        const Memory *m = &memories[i];
        if (m->alive && at >= m->base && at < m->base + m->bytes) {
            say(" %s:m%d+%zu", name, i, (size_t)(at - m->base));
            return;
        }
    }
    for (int i = 0; i < HOSTS; i++) {
        CUdeviceptr base = (CUdeviceptr)hosts[i].at;
        if (base && at >= base && at < base + hosts[i].bytes) {
            say(" %s:h%d+%zu", name, i, (size_t)(at - base));
            return;
        }
    }
    say(" %s:?", name);
}

void say_memory_pool(CUmemoryPool pool) {
    for (int i = 0; i < POOLS; i++)
        if (pools[i].alive && pools[i].pool == pool) {
            say(" p%d", i);
            return;
        }
    say(pool ? " ?" : " none");
}
