/* A library that chooses a function as it is loaded (an IFUNC), by a variable; and a program that
 * needs it. Bound at once, it chooses before a preloaded library is relocated. */
#include <stdio.h>
#include <stdlib.h>

int chosen(void);

#ifdef PROGRAM
int main(void) {
    printf("chosen %d\n", chosen());
    return 0;
}
#else
static int plain(void) { return 1; }
static int special(void) { return 2; }
static int (*choose(void))(void) { return getenv("CHOICE") ? special : plain; }
int chosen(void) __attribute__((ifunc("choose")));
#endif
