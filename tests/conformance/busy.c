#include "busy.h"

#include <pthread.h>

#include "work.h"

void busy(CUstream stream) {
    /* The first launch of a kernel may load it, which waits. */
    work_spin(stream, 1);
    NEED(cuCtxSynchronize());
    work_spin(stream, BUSY);
}

const char *is_over(CUstream stream) {
    int code = cuStreamQuery(stream);
    if (code == CU_OK) return "yes";
    return code == CU_NOT_READY ? "no" : code_name(code);
}

struct call {
    void (*body)(void *);
    void *argument;
    CUcontext context;
};

static void *run(void *argument) {
    struct call *call = argument;
    cuCtxSetCurrent(call->context);
    call->body(call->argument);
    return NULL;
}

void on_thread(void (*body)(void *), void *argument) {
    struct call call = {body, argument, context()};
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, run, &call));
    NEED(pthread_join(thread, NULL));
}
