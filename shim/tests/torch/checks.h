// What has to hold: else the program ends and says which line it was.
#pragma once

#include <cstdio>
#include <cstdlib>

static void check(bool holds, const char* what, int line) {
    if (holds) return;
    fprintf(stderr, "line %d: does not hold: %s\n", line, what);
    exit(1);
}
#define CHECK(holds) check((holds), #holds, __LINE__)
#define OK(call) CHECK((call) == 0)
