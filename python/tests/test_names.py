"""Names come and go, and what is wrong is said."""
import os
import threading
import time
import unittest
from unittest import mock

import memcuda
from memcuda import _library, errors, names

import support


class Array:
    """As numpy's: it says that it is an integer and iterable, whichever it is."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        if not isinstance(self.value, int):
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return self.value

    def __iter__(self):
        return iter(self.value)


class Swapped:
    """As `numpy.dtype(">f4")`."""

    name, isnative = "float32", False

    def __str__(self):
        return ">f4"


class Names(support.Case):
    def test_a_name_is_made_listed_opened_and_deleted(self):
        before = time.time()
        with memcuda.create("layer/0", (3, 4), "f32", zeroed=True) as made:
            self.assertEqual((made.name, made.dtype, made.shape, made.nbytes), ("layer/0", "f32", (3, 4), 48))
            self.assertEqual(self.driver.read(made.address, 48), bytes(48))
            self.assertEqual([info.name for info in memcuda.list()], ["layer/0"])
            info = memcuda.show("layer/0")
            self.assertEqual((info.dtype, info.shape, info.nbytes, info.state), ("f32", (3, 4), 48, "ready"))
            self.assertGreaterEqual(info.mapped_bytes, 48)
            self.assertRegex(info.device_uuid, "^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
            self.assertTrue(before - 60 < info.created < time.time() + 60)
            self.assertEqual((info.references, info.holders, info.persist, info.version), (1, 1, False, 0))
            with memcuda.open("layer/0") as again:
                self.assertEqual((again.address, again.shape), (made.address, (3, 4)))
            memcuda.delete("layer/0")
            self.assertEqual(memcuda.list(), [])
            with self.assertRaises(memcuda.NotFound):
                memcuda.open("layer/0")
            # Its memory is there for as long as it is held.
            self.driver.write(made.address, b"x" * 48)
            with memcuda.create("layer/0", (3, 4), "f32") as other:
                self.assertNotEqual((other.generation, other.address), (made.generation, made.address))

    def test_a_name_ends_with_its_last_holder_unless_it_persists(self):
        memcuda.create("gone", nbytes=10).close()
        memcuda.create("kept", nbytes=10, persist=True).close()
        with memcuda.create("kept/later", nbytes=10):
            memcuda.persist("kept/later")
            self.assertIsNone(memcuda.show("kept/later").persist_until)
        with memcuda.create("for/a/while", nbytes=10):
            memcuda.persist("for/a/while", 3600.5)
            until = memcuda.show("for/a/while").persist_until
            self.assertAlmostEqual(until, time.time() + 3600, delta=60)
            memcuda.persist("for/a/while", 0)
            self.assertFalse(memcuda.show("for/a/while").persist)
        self.assertEqual([info.name for info in memcuda.list()], ["kept", "kept/later"])
        with memcuda.open("kept") as kept:
            self.assertEqual((kept.dtype, kept.shape, kept.nbytes), (None, (10,), 10))

    def test_create_or_open_is_either(self):
        with memcuda.create_or_open("either", 4, "i64") as first, memcuda.create_or_open("either", [4], "i64") as second:
            self.assertEqual(first.generation, second.generation)
            self.assertEqual(first.shape, (4,))
            self.assertEqual((first.made, second.made), (True, False))
            with first.view("u8") as bytes_of_first, memcuda.find(first) as found:
                self.assertEqual((bytes_of_first.made, found.made), (True, False))

    def test_one_of_all_who_open_or_make_is_told_to_fill_it(self):
        other = self.other()
        made = memcuda.create_or_open("weights", (4,), "u8", hidden=True, read_only=True)
        self.addCleanup(made.close)
        self.assertEqual((made.made, made.read_only), (True, False))
        self.driver.write(made.address, b"done")
        made.seal()
        self.assertEqual(other.tell("t = memcuda.create_or_open('weights', (4,), 'u8', hidden=True, read_only=True)"), "None")
        self.assertEqual(other.tell("t.made, t.read_only, driver.read(t.address, 4)"), "(False, True, b'done')")

    def test_a_name_that_is_yet_to_be_made_is_waited_for_where_that_is_said(self):
        other = self.other()
        self.assertIn("NotFound", other.tell("memcuda.open('late', wait=0.05)"))
        waiting = threading.Thread(target=lambda: said.append(other.tell("memcuda.open('late', wait=20).shape")))
        said = []
        waiting.start()
        time.sleep(0.1)
        with self.assertRaises(memcuda.NotFound):
            memcuda.open("late")
        with memcuda.create("late", (4,), "u8"):
            waiting.join()
        self.assertEqual(said, ["(4,)"])

    def test_a_keeper_that_is_yet_to_come_is_waited_for_and_one_that_is_off_is_not(self):
        opening = ("import memcuda, support, time; support.Driver().start(); began = time.monotonic()\n"
                   "try: memcuda.open('late', wait=%s)\n"
                   "except memcuda.Unavailable: print(time.monotonic() - began)")
        for keeper, wait, least, most in ((os.environ["MEMCUDA_KEEPER"] + "-none", 0.6, 0.6, 30), ("off", 20, 0, 10)):
            done = support.run(opening % wait, MEMCUDA_KEEPER=keeper,
                               PYTHONPATH=os.pathsep.join((support.TESTS, os.environ["PYTHONPATH"])))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(least <= float(done.stdout) <= most, (keeper, done.stdout))

    def test_each_failure_has_its_exception(self):
        held = memcuda.create("held", (8,), "f32")
        self.addCleanup(held.close)
        for kind, call in (
            (memcuda.Exists, lambda: memcuda.create("held", (8,), "f32")),
            (memcuda.NotFound, lambda: memcuda.open("nowhere")),
            (LookupError, lambda: memcuda.delete("nowhere")),
            (memcuda.NotFound, lambda: memcuda.show("nowhere")),
            (memcuda.NotFound, lambda: memcuda.persist("nowhere")),
            (memcuda.Mismatch, lambda: memcuda.open("held", (9,), "f32")),
            (memcuda.Mismatch, lambda: memcuda.open("held", (8,), "i32")),
            (memcuda.Mismatch, lambda: memcuda.open("held", nbytes=33)),
            (memcuda.Invalid, lambda: memcuda.open("two words")),
            (memcuda.Invalid, lambda: memcuda.open("")),
            (memcuda.Invalid, lambda: memcuda.open("a\0b")),
            (memcuda.Invalid, lambda: memcuda.create("cmd", nbytes=1)),
            (memcuda.Invalid, lambda: memcuda.create("n" * 201, nbytes=1)),
            (memcuda.Invalid, lambda: memcuda.create("new")),
            (memcuda.Invalid, lambda: memcuda.create("new", (-1,), "f32")),
            (memcuda.Invalid, lambda: memcuda.create("new", (2**62, 4), "f32")),
            (memcuda.Invalid, lambda: memcuda.create("new", (2,), "f33")),
            (memcuda.Invalid, lambda: memcuda.create("new", (2,), Swapped())),
            (memcuda.Invalid, lambda: memcuda.create("new", nbytes=2**64)),
            (memcuda.Invalid, lambda: held.publish(2**64)),
            (memcuda.Invalid, lambda: memcuda.persist("held", -1)),
            (memcuda.Invalid, lambda: memcuda.name_next("held", "maybe")),
            (TypeError, lambda: memcuda.create("new", ("2",), "f32")),
            (TypeError, lambda: memcuda.open(7)),
            (memcuda.Invalid, lambda: memcuda.open("\udc80")),
            (memcuda.Invalid, lambda: memcuda.open("held", wait=float("nan"))),
        ):
            with self.subTest(kind=kind.__name__), self.assertRaises(kind) as caught:
                call()
            self.assertTrue(str(caught.exception))
            if isinstance(caught.exception, memcuda.Error):
                self.assertNotEqual(caught.exception.code, 0)
        self.assertEqual([info.name for info in memcuda.list()], ["held"])

    def test_what_is_of_another_type_is_said_with_what_it_was_for(self):
        with memcuda.create("held", nbytes=8) as held:
            for said, call in (
                ("wait is a number of seconds, not str", lambda: memcuda.open("held", wait="x")),
                ("timeout is a number of seconds, not str", lambda: held.wait(99, timeout="1")),
                ("seconds is a number of seconds, not str", lambda: memcuda.persist("held", "3")),
                ("a shape is an integer or several, not float", lambda: held.view("u8", 8.0)),
                ("a shape is an integer or several, not float", lambda: memcuda.create("new", 8.0, "u8")),
                ("a handle is an integer, not str", lambda: memcuda.Tensor("held")),
                ("a stream is an integer, not str", lambda: held.publish(stream="")),
            ):
                with self.subTest(said=said), self.assertRaises(TypeError) as caught:
                    call()
                self.assertEqual(str(caught.exception), said)
            for shape in (4, Array(4), Array([2, 2])):
                with held.view("f16", shape) as view:
                    self.assertEqual(view.nbytes, 8)

    def test_a_result_of_a_newer_library_keeps_its_number(self):
        error = errors.of(99, "")
        self.assertEqual((type(error), error.code, str(error)), (memcuda.Error, 99, "the library answers 99"))

    def test_a_time_is_told_in_whole_seconds_and_never_as_none(self):
        for seconds, told in ((0, 0), (0.5, 1), (3600.5, 3601), (1e30, _library.FOREVER - 1),
                              (float("inf"), _library.FOREVER), (None, _library.FOREVER)):
            with mock.patch.object(names, "call") as call:
                memcuda.persist("w", seconds)
            call.assert_called_once_with("persist", b"w", told)

    def test_what_fails_while_names_are_listed_is_raised(self):
        with memcuda.create("w", nbytes=1), mock.patch.object(names.Info, "of", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                memcuda.list()

    def test_more_than_the_device_has_is_an_error_of_cuda(self):
        with self.assertRaises(memcuda.CudaError) as caught:
            memcuda.create("large", nbytes=1 << 40)
        self.assertEqual(caught.exception.result, 2)
        self.assertEqual(memcuda.list(), [])

    def test_a_hidden_name_is_found_once_it_is_sealed(self):
        hidden = memcuda.create("hidden", (4,), "u8", hidden=True)
        self.addCleanup(hidden.close)
        other = self.other()
        self.assertIn("InProgress", other.tell("memcuda.open('hidden', wait=0.05)"))
        self.driver.write(hidden.address, b"done")
        hidden.seal()
        self.assertEqual(other.tell("t = memcuda.open('hidden', read_only=True)"), "None")
        self.assertEqual(other.tell("driver.read(t.address, 4)"), "b'done'")
        self.assertIn("Sealed", other.tell("memcuda.open('hidden')"))

    def test_threads_have_their_own_messages(self):
        said = {}

        def fail(name):
            for _ in range(200):
                try:
                    memcuda.open(name)
                except memcuda.NotFound as error:
                    said.setdefault(name, set()).add(str(error))

        threads = [threading.Thread(target=fail, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in ("one", "two"):
            self.assertEqual(len(said[name]), 1, said)
            self.assertIn(name, said[name].pop())

    def test_the_next_allocation_has_a_name(self):
        import ctypes

        memcuda.name_next("hinted", dtype="f16", shape=(512,))
        address = ctypes.c_uint64()
        self.driver.must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(1024))
        with memcuda.find(address.value) as found:
            self.assertEqual((found.name, found.dtype, found.address), ("hinted", "f16", address.value))
        self.driver.must("cuMemFree_v2", address)
        memcuda.name_next("hidden", hidden=True)
        self.driver.must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(1024))
        other = self.other()
        with memcuda.find(address.value) as found:
            self.assertIn("InProgress", other.tell("memcuda.open('hidden', wait=0.05)"))
            found.seal()
            self.assertEqual(other.tell("memcuda.open('hidden', read_only=True).nbytes"), "1024")
        self.driver.must("cuMemFree_v2", address)
        memcuda.name_next("legacy", cuda_ipc=True)
        self.driver.must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(1024))
        self.assertTrue(memcuda.show("legacy").cuda_ipc)
        self.driver.must("cuMemFree_v2", address)
        memcuda.name_next("taken/back")
        memcuda.name_next(None)
        self.driver.must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(1024))
        with self.assertRaises(memcuda.Error):
            memcuda.find(address.value)
        self.driver.must("cuMemFree_v2", address)
        self.assertEqual(memcuda.list(), [])


if __name__ == "__main__":
    unittest.main()
