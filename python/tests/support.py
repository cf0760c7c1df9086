"""What the tests share: the driver, other processes, and a consumer of DLPack.

They run over the simulated GPU, with the library preloaded and a keeper of their
own: `cargo test --test python` sees to all that.
"""
import contextlib
import ctypes
import os
import subprocess
import sys
import unittest

import memcuda
from memcuda import _dlpack

TESTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(TESTS))


class Driver:
    """The driver's copies, which wait."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        for name in ("cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"):
            getattr(self.library, name).argtypes = [ctypes.c_uint64 if "HtoD" in name else ctypes.c_void_p,
                                                    ctypes.c_void_p if "HtoD" in name else ctypes.c_uint64,
                                                    ctypes.c_size_t]

    def must(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise AssertionError(f"{name} answers {code}")

    def start(self):
        """A context on this thread."""
        context = ctypes.c_void_p()
        self.must("cuInit", 0)
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.must("cuCtxSetCurrent", context)

    def write(self, address, data):
        self.must("cuMemcpyHtoD_v2", address, data, len(data))

    def read(self, address, count):
        data = ctypes.create_string_buffer(count)
        self.must("cuMemcpyDtoH_v2", data, address, count)
        return data.raw


_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
_USED = {b"dltensor": ctypes.c_char_p(b"used_dltensor"), b"dltensor_versioned": ctypes.c_char_p(b"used_dltensor_versioned")}


class Consumer:
    """Takes what is in a capsule, as a library does."""

    def __init__(self, capsule):
        self.kind = _name(capsule)
        self.block = _pointer(capsule, self.kind)
        structure = _dlpack.Managed if self.kind == b"dltensor" else _dlpack.ManagedVersioned
        self.managed = structure.from_address(self.block)
        self.tensor = self.managed.tensor
        rank = self.tensor.ndim
        self.shape, self.strides = tuple(self.tensor.shape[:rank]), tuple(self.tensor.strides[:rank])
        if _rename(capsule, _USED[self.kind]):
            raise AssertionError("the capsule keeps its name")

    def delete(self):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.managed.deleter)(self.block)


class Other:
    """Another process, that evaluates what it is told, with `memcuda`, `driver` and
    whatever it has named before. A statement has no answer."""

    LOOP = ("import sys, memcuda; sys.path.insert(0, {tests!r}); import support\n"
            "driver = support.Driver(); driver.start()\n"
            "for line in sys.stdin:\n"
            "    try:\n"
            "        code = compile(line, 'told', 'eval')\n"
            "    except SyntaxError:\n"
            "        code = compile(line, 'told', 'exec')\n"
            "    try:\n"
            "        print(repr(eval(code)), flush=True)\n"
            "    except Exception as error:\n"
            "        print(type(error).__name__, error, flush=True)\n")

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", self.LOOP.format(tests=TESTS)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def run(script, **environment):
    """A script in a process of its own: its status, output and diagnostics. A
    variable set to None is removed."""
    variables = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    return subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=60)


class Case(unittest.TestCase):
    """A test with a context on this thread, and no names before or after it."""

    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()
        cls.driver.start()

    def setUp(self):
        self.clean()
        self.addCleanup(self.clean)

    def clean(self):
        _dlpack.sweep()
        for info in memcuda.list():
            memcuda.delete(info.name)

    def other(self):
        other = Other()
        self.addCleanup(other.end)
        return other
