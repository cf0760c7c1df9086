"""Samples, in a thread of the workload, what its process holds: for the repeat that is not
timed. Never asks cudaMemGetInfo, where a pool may count its idle memory as free.
"""
import os
import threading
import time

import pynvml
import torch

from results import thinned

PAUSE_S = 0.005


class Sampler:
    """`page` is the pool's statistics page or None. Made when the process has its context
    and before its first tensor: what NVML shows then is not counted."""

    def __init__(self, page, alone):
        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        self.gpu = pynvml.nvmlDeviceGetHandleByIndex(int(visible) if visible.isdigit() else 0)
        self.page, self.alone = page, alone
        self.source = "process" if self.of_process() is not None else "device" if alone else None
        self.before, self.peak, self.points = self.held(), 0, []
        self.begin, self.stop = time.monotonic(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def of_process(self):
        """Bytes of this process by NVML, None where it does not tell (inside some virtual machines)."""
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(self.gpu):
            if process.pid == os.getpid():
                return process.usedGpuMemory
        return None

    def held(self):
        if self.source == "process":
            return self.of_process() or 0
        return pynvml.nvmlDeviceGetMemoryInfo(self.gpu).used if self.source else 0

    def look(self):
        held = max(0, self.held() - self.before)
        self.peak = max(self.peak, held)
        counters = self.page.counters() if self.page and self.page.look() else None
        try:
            live = torch.cuda.memory_allocated()
        except Exception:
            live = None                 # an allocator from outside tells torch nothing
        # The same meter for all, where there is one.
        physical = counters["physical_bytes"] if counters and self.source != "process" else held
        self.points.append((round(time.monotonic() - self.begin, 4), live, physical))

    def run(self):
        while not self.stop.wait(PAUSE_S):
            self.look()

    def finish(self):
        """The last look, then {process_bytes, process_source, timeline}."""
        self.stop.set()
        self.thread.join()
        self.look()
        return dict(process_bytes=self.peak if self.source else None, process_source=self.source,
                    timeline=thinned(self.points))
