"""What is sampled over time is one meter's under every allocator."""
import os
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def sampled(of_process, page):
    """The held bytes of the first point; NVML tells of the process or only of the device."""
    processes = [types.SimpleNamespace(pid=os.getpid(), usedGpuMemory=of_process)] if of_process is not None else []
    nvml = mock.Mock()
    nvml.nvmlDeviceGetComputeRunningProcesses.return_value = processes
    nvml.nvmlDeviceGetMemoryInfo.return_value.used = 500
    torch = mock.Mock()
    torch.cuda.memory_allocated.return_value = 1
    with mock.patch.dict(sys.modules, pynvml=nvml, torch=torch), mock.patch("threading.Thread"):
        sys.modules.pop("sampler", None)
        import sampler
        one = sampler.Sampler(page, alone=True)
        one.before = 0
        one.look()
        return one.points[0][2]


class Sampled(unittest.TestCase):
    def test_nvml_tells_of_all_where_it_tells_of_a_process(self):
        page = mock.Mock()
        page.counters.return_value = dict(physical_bytes=70)
        self.assertEqual((sampled(80, page), sampled(80, None)), (80, 80))
        self.assertEqual((sampled(None, page), sampled(None, None)), (70, 500), "of the device it counts others, too")


if __name__ == "__main__":
    unittest.main()
