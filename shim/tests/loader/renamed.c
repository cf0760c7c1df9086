// LIBRARY: torch's constructor of a line of its log and its question for a fabric, in a library of
// another name. Else a program that calls both.
#include <stdbool.h>
#include <stdio.h>

// Passed beside the registers, as torch's.
struct place {
    const char *function, *file;
    unsigned line;
};
void _ZN3c1013MessageLoggerC1ENS_14SourceLocationEib(int* line, struct place place, int severity, bool fatal);
bool _ZN3c104cuda17get_fabric_accessEa(signed char device);

#ifdef LIBRARY
void _ZN3c1013MessageLoggerC1ENS_14SourceLocationEib(int* line, struct place place, int severity, bool fatal) {
    *line = place.line * 100 + severity * 10 + fatal;
}
bool _ZN3c104cuda17get_fabric_accessEa(signed char device) { return device == 3; }
#else
int main(void) {
    int line = 0;
    _ZN3c1013MessageLoggerC1ENS_14SourceLocationEib(&line, (struct place){"f", "x", 7}, 1, true);
    printf("%d %d\n", line, _ZN3c104cuda17get_fabric_accessEa(3));
    return 0;
}
#endif
