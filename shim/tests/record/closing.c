/* Closes descriptors that it does not know, as daemons do, and has files of its own under
 * their numbers.
 *
 *   closing file PATH   its data, while it allocates
 *   closing pipe        one with something in it
 *   closing fork PATH   in a child they are still there
 *   closing log PATH    while there is something to say
 *   closing first       the first three, before CUDA starts: nothing but the simulated
 *                       GPU's own takes their numbers
 */
#include "../support/cuda.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST = 3, END = 64 };

static void have_instead(int own) {
    for (int number = FIRST; number < END; number++)
        if (number != own) CHECK(dup2(own, number) == number);
}

static void allocate(int pairs) {
    CUdeviceptr at;
    for (int n = 0; n < pairs; n++) {
        OK(cuMemAllocAsync(&at, 4096, NULL));
        OK(cuMemFreeAsync(at, NULL));
    }
}

/* More than there was room for, 393,216 events where somebody made it before the file was
 * closed, and time for somebody to see it. */
static void fill(void) {
    allocate(200000);
    sleep(2); /* on a loaded machine, too */
}

static int data(const char *path) {
    static char block[1 << 18];
    int file = open(path, O_RDWR | O_CREAT, 0600);
    memset(block, 'x', sizeof block);
    CHECK(file >= 0 && write(file, block, sizeof block) == sizeof block);
    return file;
}

static void has_a_pipe(void) {
    int ends[2];
    char bytes[100];
    CHECK(pipe2(ends, O_NONBLOCK) == 0 && write(ends[1], "sixteen of bytes", 16) == 16);
    ends[1] = fcntl(ends[1], F_DUPFD, END);
    have_instead(fcntl(ends[0], F_DUPFD, END));
    fill();
    CHECK(read(FIRST, bytes, sizeof bytes) == 16);
}

static void forks(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        for (int number = FIRST; number < END; number++)
            if (fcntl(number, F_GETFD) < 0) _exit(1);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void first_three(void) {
    char path[32], open[256];
    for (int number = 0; number < FIRST; number++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", number);
        ssize_t length = readlink(path, open, sizeof open - 1);
        open[length > 0 ? length : 0] = 0;
        if (length > 0 && !strstr(open, "memcuda-sim")) exit(10 + number);
    }
}

int main(int count, char **arguments) {
    CUdeviceptr at;
    const char *what = count > 1 ? arguments[1] : "";
    int first = strcmp(what, "first") == 0;
    for (int number = 0; first && number < FIRST; number++) close(number);
    start_cuda();
    allocate(1);
    if (first) {
        first_three();
        return 0;
    }
    if (count > 2) have_instead(data(arguments[2]));
    if (strcmp(what, "file") == 0) fill();
    else if (strcmp(what, "pipe") == 0) has_a_pipe();
    else if (strcmp(what, "fork") == 0) forks();
    else if (strcmp(what, "log") == 0) IS(OUT_OF_MEMORY, cuMemAlloc_v2(&at, (size_t)1 << 50));
    else return 1;
    return 0;
}
