/* What a driver answers where no case of tests/conformance asks: 880 questions in fifteen groups, of which many may end the
 * process. No CUDA headers are needed:
 *   cc -O1 -w -o questions tests/gpu/questions/questions.c -ldl -lpthread && ./questions > real.txt
 *   LD_LIBRARY_PATH=target/debug/sim ./questions > sim.txt; diff real.txt sim.txt
 * One line a question: "group | question: answer". One that ends its process is answered "signal N" (14: it hung for 3 s),
 * and its group goes on in a new process. -1: there is no such call. ./questions GROUP asks one group. It ends after 58 s at
 * the latest. */
#include "ask.h"
#include "waits.h"
#include "captures.h"
#include "endings.h"
#include "memory.h"
#include "nowhere.h"
#include "devices.h"

static const struct { const char *name; void (*ask)(void); } groups[] = {
    {"capture", g_capture}, {"legacy", g_legacy}, {"waits", g_waits}, {"ipc", g_ipc}, {"crash", g_crash}, {"mapping", g_mapping}, {"pools", g_pools}, {"ends", g_ends}, {"host", g_host}, {"gone", g_gone}, {"nowhere", g_nowhere}, {"devices", g_devices}, {"across", g_across}, {"resets", g_resets}, {"torn", g_torn},
};

static volatile pid_t current;
static void late(int unused) { if (current > 0) kill(current, SIGKILL); printf(" no time\n"); fflush(stdout); _exit(0); }

int main(int argc, char **argv) {
    double began = ms();
    signal(SIGALRM, late); alarm(58);
    setenv("MEMCUDA_SIM_CLOCK", "real", 0);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (argc > 1 && strcmp(argv[1], groups[i].name)) continue;
        group = groups[i].name;
        for (from = 0;;) {
            if (ms() - began > 54e3) { printf("%s | not asked from question %d on: no time\n", group, from); break; }
            int p[2], status = 0, n, partial = 0, asked = 0;
            pipe(p); fflush(stdout);
            pid_t child = fork();
            if (!child) {
                signal(SIGALRM, SIG_DFL); dup2(p[1], 1); close(p[0]); close(p[1]); alarm(20);
                lib = dlopen("libcuda.so.1", RTLD_NOW);
                if (!lib) { printf("no libcuda.so.1\n"); _exit(9); }
                groups[i].ask(); fflush(stdout); _exit(0);
            }
            current = child; close(p[1]);
            char c; int column = 0; char head[8] = "";
            while (read(p[0], &c, 1) == 1) {
                if (column < 7) { head[column] = c; head[column + 1] = 0; }
                if (column == 2 && head[0] != ' ') asked++;
                column = c == '\n' ? 0 : column + 1;
                putchar(c);
            }
            close(p[0]); waitpid(child, &status, 0);
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 8) ;
            else if (column) printf("%s %d\n", WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            else printf("%s | ended between questions: %s %d\n", group, WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            if (!asked || WEXITSTATUS(status) == 9) break;
            from += asked;
        }
    }
    return 0;
}
