/* Opens one file after another as descriptor 2, has the library say a line, and prints which of
 * them got it. With an argument CUDA starts when such a file is open. Needs MEMCUDA_DEBUG=canary. */
#define _GNU_SOURCE
#include "../support/cuda.h"
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

CUresult cuMemsetD32_v2(CUdeviceptr, unsigned, size_t);

static const char *path;

/* Writes a word behind what it asked for, of which there is a line. */
static void provoke(void) {
    CUdeviceptr at;
    OK(cuMemAlloc_v2(&at, 1000));
    OK(cuMemsetD32_v2(at, 0, 251));
    OK(cuMemFree_v2(at));
}

/* `other` is the end at which that is read which is written to 2, or 2 itself. */
static void tell(const char *what, int other) {
    struct stat file;
    struct pollfd ready = {.fd = other, .events = POLLIN};
    provoke();
    if (fstat(other, &file)) exit(1);
    int got = S_ISREG(file.st_mode) ? file.st_size > 0 : poll(&ready, 1, 0) > 0;
    printf("%s: %s\n", what, got ? "a line" : "nothing");
}

/* The file, empty, as descriptor 2. */
static void opened(int flags) {
    close(2);
    if (open(path, flags | O_CREAT | O_TRUNC, 0600) != 2) exit(1);
}

int main(int count, char **words) {
    int before = dup(2), both[2];
    path = words[1];
    if (count > 2) {
        opened(O_RDWR);
        if (strcmp(words[2], "nameless") == 0) unlink(path);
        start_cuda();
        tell(words[2], 2);
        return 0;
    }
    start_cuda();

    opened(O_RDWR);
    tell("a data file", 2);
    opened(O_WRONLY | O_CLOEXEC);
    tell("one that no other program gets", 2);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, both)) return 1;
    dup2(both[1], 2);
    tell("a connection", both[0]);
    close(2);
    provoke();

    if (!freopen(path, "w", stderr) || fileno(stderr) != 2) return 1;
    tell("a file that is written", 2);
    opened(O_RDWR | O_APPEND);
    tell("a file that grows", 2);
    if (pipe(both)) return 1;
    dup2(both[1], 2);
    tell("a pipe", both[0]);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) || unlockpt(terminal)) return 1;
    dup2(open(ptsname(terminal), O_RDWR | O_NOCTTY), 2);
    tell("a terminal", terminal);

    /* The test's own. */
    dup2(before, 2);
    provoke();
    return 0;
}
