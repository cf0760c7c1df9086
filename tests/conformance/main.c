/* conformance: asks the CUDA driver what programs ask it about memory.
 *
 *   conformance [--only PREFIX] [--flag FLAG]   runs; a line per case, `# N cases` last
 *   conformance --list                          names and flags
 *   conformance --case NAME...                  runs these here, in this process
 *
 * Ends with 0 when all ran, whatever they answered; 2 for bad usage, 3 without
 * a driver.
 */
#include "runner.h"

static const struct { const char *name; int flag; } flags[] = {
    {"SIM", SIM}, {"GPU", GPU}, {"SHARED", SHARED}, {"CRASHES", CRASHES},
    {"DEVICES2", DEVICES2}, {"RUNTIME", RUNTIME}, {"RAW", RAW},
};
enum { FLAGS = sizeof flags / sizeof *flags, MOST = 1024 };

extern const struct test *__start_cases[], *__stop_cases[];

static int by_place(const void *left, const void *right) {
    const struct test *a = *(const struct test *const *)left;
    const struct test *b = *(const struct test *const *)right;
    int files = strcmp(a->file, b->file);
    return files != 0 ? files : a->line - b->line;
}

static int bad_usage(const char *what, const char *value) {
    fprintf(stderr,
            "conformance: %s '%s'; accepted: --list, --only PREFIX, --flag "
            "SIM|GPU|SHARED|CRASHES|DEVICES2|RUNTIME|RAW, --case NAME...\n",
            what, value);
    return 2;
}

static void list(const struct test **tests, int count) {
    for (int i = 0; i < count; i++) {
        printf("%s", tests[i]->name);
        for (int f = 0; f < FLAGS; f++)
            if (tests[i]->flags & flags[f].flag) printf(" %s", flags[f].name);
        printf("\n");
    }
}

int device_count(void) {
    int count = 0;
    return cuInit(0) == CU_OK && cuDeviceGetCount(&count) == CU_OK ? count : 0;
}

static int run_here(const struct test **tests, int count, char **names) {
    for (; *names != NULL; names++) {
        int at = 0;
        while (at < count && strcmp(tests[at]->name, *names) != 0) at++;
        if (at == count) return bad_usage("no case", *names);
        int devices = tests[at]->flags & DEVICES2 ? device_count() : 1;
        printf("%s: %s\n", *names, run_case(tests[at], devices));
        fflush(stdout);
    }
    return 0;
}

static int run(const struct test **tests, int count) {
    static char *texts[MOST];
    driver_load(); /* without one, no case is worth a process */
    run_all(tests, texts, count);
    for (int i = 0; i < count; i++) printf("%s: %s\n", tests[i]->name, texts[i]);
    printf("# %d cases\n", count);
    return 0;
}

int main(int argc, char **argv) {
    static const struct test *tests[MOST];
    int count = 0, only_list = 0;
    const char *prefix = "";
    int flag = 0;
    for (const struct test **at = __start_cases; at < __stop_cases && count < MOST; at++)
        tests[count++] = *at;
    qsort(tests, (size_t)count, sizeof *tests, by_place);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--list") == 0) {
            only_list = 1;
        } else if (strcmp(argv[i], "--case") == 0 && value != NULL) {
            driver_load();
            return run_here(tests, count, argv + i + 1);
        } else if (strcmp(argv[i], "--only") == 0 && value != NULL) {
            prefix = argv[++i];
        } else if (strcmp(argv[i], "--flag") == 0 && value != NULL) {
            int f = 0;
            while (f < FLAGS && strcmp(flags[f].name, argv[i + 1]) != 0) f++;
            if (f == FLAGS) return bad_usage("no flag", argv[i + 1]);
            flag |= flags[f].flag;
            i++;
        } else {
            return bad_usage("unknown argument", argv[i]);
        }
    }
    int chosen = 0;
    for (int i = 0; i < count; i++) {
        int fits = strncmp(tests[i]->name, prefix, strlen(prefix)) == 0;
        if (fits && (tests[i]->flags & flag) == flag) tests[chosen++] = tests[i];
    }
    if (chosen == 0) return bad_usage("no case begins with", prefix);
    if (only_list)
        list(tests, chosen);
    else
        return run(tests, chosen);
    return 0;
}
