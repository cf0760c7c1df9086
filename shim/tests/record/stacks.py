"""Memory by ctypes, which lets go of the interpreter's lock while it calls (CDLL)
or keeps it (PyDLL). Usage: stacks.py CASE. Prints, for each allocation in order, the
functions that it is in, the innermost first: line and name."""
import ctypes
import gc
import sys
import threading
import time

free_of_lock, with_lock = (kind("libcudart.so.13") for kind in (ctypes.CDLL, ctypes.PyDLL))
said = threading.Lock()


def allocate(library, bytes):
    at = ctypes.c_void_p()
    status = library.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(bytes))
    assert status == 0, status
    return library, at


def free(library, at):
    assert library.cudaFree(at) == 0


def expect():
    """Says what the caller's allocation is to have."""
    frame, found = sys._getframe(1), []
    # The call is on the line below that of `expect`.
    found.append((frame.f_lineno + 1, frame))
    while frame.f_back:
        frame = frame.f_back
        found.append((frame.f_lineno, frame))
    here = [(allocate.__code__.co_firstlineno + 2, "allocate")]
    names = here + [(line, f.f_code.co_qualname if hasattr(f.f_code, "co_qualname") else f.f_code.co_name)
                    for line, f in found]
    with said:
        print(" ".join(f"{line}!{name}" for line, name in names[:32]), flush=True)


class Net:
    def forward(self, library):
        expect()
        free(*allocate(library, 3 << 20))


def größe(library):
    Net().forward(library)


def recursive(library, depth):
    if depth:
        return recursive(library, depth - 1)
    expect()
    free(*allocate(library, 1 << 20))


def generator(library):
    expect()
    yield free(*allocate(library, 2 << 20))


def cases():
    for library in (free_of_lock, with_lock):
        Net().forward(library)
        größe(library)
        (lambda: Net().forward(library))()
        [_ for _ in generator(library)]
        recursive(library, 50)
        exec("größe(library)")
        thread = threading.Thread(target=größe, args=(library,))
        thread.start()
        thread.join()


def busy():
    """Threads allocate without the lock, while others make and drop frames, code
    and garbage."""
    over = threading.Event()

    def churn():
        while not over.is_set():
            code = compile("def f(n):\n return [x for x in range(n)]\nf(50)", "made", "exec")
            exec(code, {})
            sys._current_frames()
            gc.collect(0)
            time.sleep(0.0005)

    def ask():
        for number in range(300):
            exec(f"def f{number}(): free(*allocate(free_of_lock, 4096))\nf{number}()", globals())

    churning = [threading.Thread(target=churn) for _ in range(2)]
    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in churning + asking:
        thread.start()
    for thread in asking:
        thread.join()
    over.set()
    for thread in churning:
        thread.join()


def cells():
    """Code that goes before the next comes, as the cells of a notebook."""
    for number in range(8):
        names = {"allocate": allocate, "library": free_of_lock, "bytes": (number + 1) << 20}
        exec(compile("allocate(library, bytes)", f"<cell-{number}>", "exec"), names)


{"cases": cases, "busy": busy, "cells": cells}[sys.argv[1]]()
