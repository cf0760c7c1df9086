/* Runs cases in processes of their own, each with a time limit. A process that
 * runs several prints a line for each; where it ends early, the case that it
 * was at gets what ended it, and the rest a new process. */
#define _GNU_SOURCE
#include "runner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_SECONDS = 20, MOST_TOGETHER = 1024 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Starts `conformance --case NAME...`; its standard output is to be read. */
static pid_t begin(const struct test **tests, const int *which, int count, int *output) {
    const char *arguments[MOST_TOGETHER + 3] = {"conformance", "--case"};
    int ends[2];
    for (int i = 0; i < count; i++) arguments[i + 2] = tests[which[i]]->name;
    if (pipe(ends) != 0) {
        perror("conformance: pipe");
        exit(3);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv("/proc/self/exe", (char **)arguments);
        perror("conformance: exec");
        _exit(127);
    }
    close(ends[1]);
    *output = ends[0];
    return child;
}

/* Reads a line of at most `room` bytes until `deadline`: 1 if there is one, 0
 * at the end of the output, -1 if the time is up. */
static int read_line(int from, char *line, size_t room, double deadline) {
    size_t length = 0;
    while (length + 1 < room) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        double left = deadline - seconds();
        if (left <= 0 || poll(&ready, 1, (int)(left * 1000) + 1) == 0) return -1;
        ssize_t got = read(from, line + length, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        if (line[length] == '\n') break;
        length++;
    }
    line[length] = '\0';
    return 1;
}

/* A text of its own for what a case gets to hear. */
__attribute__((format(printf, 1, 2))) static char *text(const char *format, ...) {
    char *made;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&made, format, arguments) < 0) {
        perror("conformance: out of memory");
        exit(3);
    }
    va_end(arguments);
    return made;
}

/* Runs these cases in one process; how many of them have a text now, at least one. */
static int run_together(const struct test **tests, char **texts, const int *which, int count) {
    char line[10000];
    int output, done = 0, status, got = 0;
    pid_t child = begin(tests, which, count, &output);
    while (done < count) {
        const char *name = tests[which[done]]->name;
        size_t length = strlen(name);
        got = read_line(output, line, sizeof line, seconds() + LIMIT_SECONDS);
        if (got != 1) break;
        /* Anything else that a library prints is not ours. */
        if (strncmp(line, name, length) != 0 || strncmp(line + length, ": ", 2) != 0) continue;
        texts[which[done++]] = strdup(line + length + 2);
    }
    /* What comes after the last case (exit, destructors) has a limit, too. */
    while (got == 1) got = read_line(output, line, sizeof line, seconds() + LIMIT_SECONDS);
    if (got == -1) kill(child, SIGKILL);
    close(output);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    char *end = NULL;
    if (got == -1)
        end = text("no end within %d s", LIMIT_SECONDS);
    else if (WIFSIGNALED(status))
        end = text("died by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0 || done < count)
        end = text("ended with status %d", WEXITSTATUS(status));
    if (end == NULL) return done;
    if (done < count) {
        texts[which[done]] = end;
        return done + 1;
    }
    /* All cases were done, and the process ended badly all the same. */
    char **last = &texts[which[count - 1]];
    *last = text("%s; then %s", *last, end);
    return done;
}

void run_all(const struct test **tests, char **texts, int count) {
    int shared[MOST_TOGETHER], found = 0;
    for (int i = 0; i < count && found < MOST_TOGETHER; i++)
        if (tests[i]->flags & SHARED) shared[found++] = i;
    for (int done = 0; done < found;)
        done += run_together(tests, texts, shared + done, found - done);
    for (int i = 0; i < count; i++)
        if (!(tests[i]->flags & SHARED)) run_together(tests, texts, &i, 1);
}
