/* A plugin that allocates, of ROOM bytes of code beside that. */
int cudaMalloc(void **, unsigned long);
int cudaFree(void *);

__attribute__((used)) static void wide(void) { __asm__(".zero " ROOM); }

int run(void) {
    void *at;
    int code = cudaMalloc(&at, 1000);
    return code != 0 ? code : cudaFree(at);
}
