"""Several processes: the same name is the same memory, and versions order them."""
import os
import signal
import threading
import time
import unittest

import memcuda

import support


class Sharing(support.Case):
    def test_two_processes_have_the_same_bytes(self):
        other = self.other()
        with memcuda.create("shared", (6,), "u8") as tensor:
            self.assertEqual(other.tell("t = memcuda.open('shared', (6,), 'u8')"), "None")
            self.driver.write(tensor.address, b"across")
            self.assertEqual(other.tell("driver.read(t.address, 6)"), "b'across'")
            self.assertEqual(other.tell("driver.write(t.address, b'return')"), "None")
            self.assertEqual(self.driver.read(tensor.address, 6), b"return")
            info = memcuda.show("shared")
            self.assertEqual((info.references, info.holders, info.maker_pid), (2, 2, os.getpid()))

    def test_memory_outlives_a_maker_that_was_killed(self):
        other = self.other()
        other.tell("t = memcuda.create('orphan', (4,), 'u8'); driver.write(t.address, b'left')")
        with memcuda.open("orphan") as tensor:
            other.kill()
            self.assertEqual(self.driver.read(tensor.address, 4), b"left")
            end = time.monotonic() + 5
            while memcuda.show("orphan").references != 1 and time.monotonic() < end:
                time.sleep(0.001)
            self.assertEqual(memcuda.show("orphan").references, 1)
        self.assertEqual(memcuda.list(), [])

    def test_a_version_wakes_who_waits_for_it(self):
        other = self.other()
        with memcuda.create("versioned", (4,), "u8") as tensor:
            other.tell("t = memcuda.open('versioned')")
            self.assertEqual(tensor.version, 0)
            self.assertEqual(tensor.wait(0, 0), 0)
            with self.assertRaises(memcuda.Timeout):
                tensor.wait(1, 0.02)
            seen = []
            waiter = threading.Thread(target=lambda: seen.append(tensor.wait(2, 20)))
            waiter.start()
            self.assertEqual(other.tell("t.publish()"), "1")
            self.assertEqual(other.tell("t.publish(7)"), "7")
            waiter.join()
            self.assertEqual(seen, [7])
            self.assertEqual((tensor.version, memcuda.show("versioned").version), (7, 7))
            with self.assertRaises(memcuda.Invalid):
                tensor.publish(7)
            self.assertEqual(tensor.publish(), 8)

    def test_a_version_is_seen_by_who_only_looks(self):
        other = self.other()
        with memcuda.create("versioned", (4,), "u8") as tensor:
            other.tell("t = memcuda.open('versioned')")
            for version in (3, 7):
                tensor.publish(version)
                self.assertEqual(other.tell("t.version"), str(version))

    def test_a_signal_ends_a_wait(self):
        class Stop(Exception):
            pass

        def stop(*_):
            raise Stop

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, stop))
        with memcuda.create("versioned", (4,), "u8") as tensor:
            for wait in (lambda: tensor.wait(1, 20), lambda: memcuda.open("never", wait=20)):
                began = time.monotonic()
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                with self.assertRaises(Stop):
                    wait()
                self.assertLess(time.monotonic() - began, 10)
            with self.assertRaisesRegex(memcuda.Timeout, "version 1 of versioned did not come in 0.6 s; the newest is 0"):
                tensor.wait(1, 0.6)

    def test_a_version_on_a_stream_is_published_behind_its_work(self):
        class Stream:
            cuda_stream = 0

        with memcuda.create("streamed", (4,), "u8") as tensor:
            published = tensor.publish(stream=0)
            # On the simulated GPU time passes in calls of the driver only.
            self.driver.must("cuCtxSynchronize")
            self.assertEqual(tensor.wait(published, 5), published)
            published = tensor.publish(stream=Stream())
            tensor.wait(published, stream=Stream())
            self.driver.must("cuCtxSynchronize")
            self.assertEqual(tensor.version, published)
            with self.assertRaises(memcuda.Invalid):
                tensor.wait(1, 1.0, stream=0)


class Devices(support.Case):
    # Without any context: which primary ones there are behind the opening, and the memory's own.
    SCRIPT = """
import ctypes, sys, threading
sys.path.insert(0, {tests!r})
import memcuda, support
driver = support.Driver()
one, two = memcuda.open("far"), memcuda.open("far", device=1)
flags, active = ctypes.c_uint(), ctypes.c_int()
for device in (0, 1):
    driver.must("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active))
    print(active.value)
current, its = ctypes.c_void_p(), ctypes.c_void_p()
driver.must("cuDevicePrimaryCtxRetain", ctypes.byref(current), 1)
driver.must("cuPointerGetAttribute", ctypes.byref(its), 1, ctypes.c_uint64(one.address))
driver.must("cuCtxSetCurrent", current)
three = memcuda.open("far")
print(one.device, its.value == current.value, one.address == two.address == three.address)
"""

    def test_a_process_without_a_context_gets_that_of_the_memorys_device_alone(self):
        with memcuda.create("far", nbytes=4096, device=1):
            ran = support.run(self.SCRIPT.format(tests=support.TESTS))
            self.assertEqual(ran.stdout.split(), ["0", "1", "1", "True", "True"], ran.stderr)


class Ends(support.Case):
    """An interpreter ends with things open, in any order."""

    START = "import memcuda, support, sys\ndriver = support.Driver(); driver.start()\n"

    def ends_well(self, script):
        done = support.run(self.START + script, PYTHONPATH=os.pathsep.join((support.TESTS, os.environ["PYTHONPATH"])))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        end = time.monotonic() + 5
        while memcuda.list() and time.monotonic() < end:
            time.sleep(0.005)
        self.assertEqual(memcuda.list(), [])
        return done.stdout

    def test_with_tensors_open(self):
        self.ends_well("kept = memcuda.create('a', nbytes=4)\nsys.kept = memcuda.open('a')\n")

    def test_what_is_open_is_there_until_the_process_ends(self):
        said = self.ends_well("import atexit\n"
                              "atexit.register(lambda: print(driver.read(t.address, 4)))\n"
                              "t = memcuda.create('a', (4,), 'u8')\n"
                              "driver.write(t.address, b'late')\n")
        self.assertEqual(said, "b'late'\n")

    def test_with_capsules_taken_and_not_taken(self):
        self.ends_well("t = memcuda.create('a', (4,), 'u8')\n"
                       "sys.capsules = [t.__dlpack__(), t.__dlpack__(max_version=(1, 0))]\n"
                       "sys.consumer = support.Consumer(t.__dlpack__())\n")

    def test_a_consumer_lets_go_when_python_is_gone(self):
        self.ends_well("import ctypes\n"
                       "t = memcuda.create('a', (4,), 'u8')\n"
                       "got = support.Consumer(t.__dlpack__())\n"
                       "libc = ctypes.CDLL(None)\n"
                       # What runs at the end of the process, behind the interpreter's.
                       "at_exit = libc.__cxa_atexit\n"
                       "at_exit.argtypes = [ctypes.c_void_p] * 3\n"
                       "assert at_exit(got.managed.deleter, got.block, None) == 0\n")

    def test_a_cycle_and_a_thread_that_still_runs(self):
        self.ends_well("import threading, time\n"
                       "class Cycle: pass\n"
                       "cycle = Cycle(); cycle.me = cycle; cycle.t = memcuda.create('a', nbytes=4)\n"
                       "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n")

    def test_a_forked_child_closes_nothing_of_its_parents(self):
        said = self.ends_well("import gc, os\n"
                              "t = memcuda.create('a', (4,), 'u8')\n"
                              "import warnings; warnings.simplefilter('ignore')    # of threads\n"
                              "pid = os.fork()\n"
                              "if pid == 0:\n"
                              "    del t; gc.collect(); os._exit(len(memcuda._dlpack._refused))\n"
                              "print(os.waitpid(pid, 0)[1], memcuda.show('a').references)\n")
        self.assertEqual(said, "0 1\n")


class Refused(support.Case):
    # Beside a capture the wait of a close is an allocation and its free, for which there is no memory here.
    SCRIPT = """
import ctypes, gc, sys
sys.path.insert(0, {tests!r})
import memcuda, support
driver = support.Driver()
driver.start()
closed, collected, given = (memcuda.create(name, nbytes=4096) for name in ("closed", "collected", "given"))
consumer = support.Consumer(given.__dlpack__())
given.close()
stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
driver.must("cuStreamCreate", ctypes.byref(stream), 1)
driver.must("cuStreamBeginCapture_v2", stream, 2)
try:
    closed.close()
except memcuda.CudaError:
    print("refused", closed.closed)
del collected
consumer.delete()
print(sorted(info.name for info in memcuda.list()))
driver.must("cuStreamEndCapture", stream, ctypes.byref(graph))
closed.close()
gc.collect()
print(closed.closed, [info.name for info in memcuda.list()])
"""

    def test_what_could_not_be_closed_is_closed_later(self):
        ran = support.run(self.SCRIPT.format(tests=support.TESTS),
                          MEMCUDA_SIM_FAIL="cuMemAlloc_v2%1=2,cuMemHostAlloc%1=2")
        self.assertEqual(ran.stdout, "refused False\n['closed', 'collected', 'given']\nTrue []\n", ran.stderr)


if __name__ == "__main__":
    unittest.main()
