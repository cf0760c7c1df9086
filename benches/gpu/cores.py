"""Which cores of a shared host are quick at the moment: some run Python at half the speed
of others, and not always the same ones. Measures nothing else.
"""
import os
import time

LOOK_S = 0.01               # that one core is watched


def speed(core):
    """Rounds of a small loop per second on this core, by this thread."""
    os.sched_setaffinity(0, {core})
    began, rounds = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < LOOK_S:
        for _ in range(100):
            rounds += 1
    return rounds / passed


def quickest(count):
    """So many cores of those that this thread may use, the quickest ones."""
    mine = os.sched_getaffinity(0)
    try:
        speeds = {core: speed(core) for core in mine}
    finally:
        os.sched_setaffinity(0, mine)
    return sorted(speeds, key=speeds.get, reverse=True)[:count]
