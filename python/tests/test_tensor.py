"""What other libraries are given: the array interface and DLPack."""
import copy
import ctypes
import gc
import pickle
import threading
import unittest

import memcuda
from memcuda import _dlpack, dtypes

import support
from support import Consumer


class Interface(support.Case):
    def test_the_array_interface_is_version_3(self):
        with memcuda.create("w", (2, 3), "f16") as tensor:
            self.assertEqual(tensor.__cuda_array_interface__,
                             dict(shape=(2, 3), typestr="<f2", data=(tensor.address, False), strides=None, stream=None,
                                  version=3))
            with memcuda.open("w", read_only=True) as reader:
                self.assertEqual(reader.__cuda_array_interface__["data"], (reader.address, True))

    def test_a_dtype_that_it_lacks_is_said_clearly(self):
        for name in ("bf16", "f8e4m3", "f8e5m2"):
            with memcuda.create(f"w/{name}", (2,), name) as tensor:
                with self.assertRaisesRegex(TypeError, f"{name}; use DLPack"):
                    hasattr(tensor, "__cuda_array_interface__")

    def test_a_closed_tensor_gives_nothing(self):
        tensor = memcuda.create("w", (2,), "f32")
        tensor.close()
        tensor.close()
        self.assertTrue(tensor.closed)
        self.assertIn("closed", repr(tensor))
        for use in (lambda: tensor.address, lambda: tensor.__dlpack__(), lambda: tensor.__cuda_array_interface__,
                    tensor.seal, tensor.info, lambda: tensor.view("u8"), tensor.__enter__):
            with self.assertRaisesRegex(memcuda.Invalid, "w is closed"):
                use()

    def test_a_view_is_the_same_memory_and_an_opening_of_its_own(self):
        tensor = memcuda.create("bytes", nbytes=64)
        self.assertEqual((tensor.dtype, tensor.__cuda_array_interface__["typestr"]), (None, "|u1"))
        view = tensor.view("f32", (4, 4))
        rest = tensor.view("c128")
        self.assertEqual((view.dtype, view.shape, view.nbytes, view.address), ("f32", (4, 4), 64, tensor.address))
        self.assertEqual(rest.shape, (4,))
        for shape in ((17,), (0,), (4, 5)):
            with self.assertRaisesRegex(memcuda.Invalid, "accepted: 1 to 64"):
                tensor.view("f32", shape)
        with self.assertRaises(memcuda.Invalid):
            tensor.view("u8", (65,))
        address = tensor.address
        for one in (tensor, rest):
            one.close()
        self.driver.write(address, b"y" * 64)
        self.assertEqual(memcuda.show("bytes").references, 1)
        view.close()
        self.assertEqual(memcuda.list(), [])

    def test_a_copy_is_an_opening_of_its_own(self):
        tensor = memcuda.create("w", (2, 3), "bf16")
        other = copy.copy(tensor.for_reader())
        tensor.close()
        gc.collect()
        self.assertEqual((other.dtype, other.shape, memcuda.show("w").references), ("bf16", (2, 3), 1))
        self.driver.write(other.address, b"y" * 12)
        other.close()
        self.assertEqual(memcuda.list(), [])

    def test_what_has_a_handle_of_this_process_goes_to_no_other(self):
        with memcuda.create("w", (2,), "f32") as tensor:
            for pack in (pickle.dumps, copy.deepcopy, lambda it: pickle.dumps([it], 0)):
                with self.assertRaisesRegex(TypeError, "w: an opening cannot be pickled.*open that there"):
                    pack(tensor)

    def test_a_tensor_that_nobody_has_any_more_is_closed(self):
        memcuda.create("w", (2,), "f32")
        gc.collect()
        self.assertEqual(memcuda.list(), [])


class Capsules(support.Case):
    def test_an_old_consumer_gets_the_old_structure(self):
        with memcuda.create("w", (2, 3, 4), "i16") as tensor:
            got = Consumer(tensor.__dlpack__())
            self.assertEqual(got.kind, b"dltensor")
            self.assertEqual((got.shape, got.strides), ((2, 3, 4), (12, 4, 1)))
            self.assertEqual((got.tensor.data, got.tensor.byte_offset), (tensor.address, 0))
            self.assertEqual((got.tensor.device_type, got.tensor.device_id), (2, 0))
            self.assertEqual(tensor.__dlpack_device__(), (2, 0))
            self.assertEqual((got.tensor.code, got.tensor.bits, got.tensor.lanes), (0, 16, 1))
            got.delete()

    def test_a_new_consumer_gets_the_versioned_one(self):
        with memcuda.create("w", (5,), "bf16") as tensor, memcuda.open("w", read_only=True) as reader:
            for asked, version in (((1, 0), (1, 0)), ((1, 1), (1, 1)), ((1, 9), (1, 1)), ((2, 0), (1, 1))):
                got = Consumer(tensor.__dlpack__(max_version=asked))
                self.assertEqual(got.kind, b"dltensor_versioned")
                self.assertEqual((got.managed.version.major, got.managed.version.minor), version)
                self.assertEqual((got.managed.flags, got.tensor.code, got.tensor.bits), (0, 4, 16))
                got.delete()
            got = Consumer(reader.__dlpack__(max_version=(1, 0), stream=1, dl_device=(2, 0), copy=False))
            self.assertEqual(got.managed.flags, _dlpack.READ_ONLY)
            got.delete()
            self.assertEqual(Consumer(tensor.__dlpack__(max_version=(0, 8))).kind, b"dltensor")

    def test_every_dtype_has_its_code(self):
        codes = dict(f64=(2, 64), f32=(2, 32), f16=(2, 16), bf16=(4, 16), f8e4m3=(10, 8), f8e5m2=(12, 8), i64=(0, 64),
                     i32=(0, 32), i16=(0, 16), i8=(0, 8), u64=(1, 64), u32=(1, 32), u16=(1, 16), u8=(1, 8), bool=(6, 8),
                     c64=(5, 64), c128=(5, 128))
        self.assertEqual(set(codes), set(dtypes.ALL))
        with memcuda.create("w", nbytes=64) as whole:
            for name, code in codes.items():
                with whole.view(name) as tensor:
                    got = Consumer(tensor.__dlpack__(max_version=(1, 1)))
                    self.assertEqual((got.tensor.code, got.tensor.bits), code)
                    got.delete()

    def test_one_element_has_no_extents(self):
        with memcuda.create("w", (), "f64") as tensor:
            got = Consumer(tensor.__dlpack__())
            self.assertEqual((got.tensor.ndim, tensor.shape, tensor.nbytes), (0, (), 8))
            got.delete()
        with memcuda.create("several", nbytes=24, dtype="f64") as tensor:
            self.assertEqual((tensor.shape, tensor.info().shape), ((3,), None))

    def test_what_cannot_be_given_is_refused(self):
        with memcuda.create("w", (5,), "f32") as tensor, memcuda.open("w", read_only=True) as reader:
            with self.assertRaises(ValueError):
                tensor.__dlpack__(stream=0)
            with self.assertRaisesRegex(BufferError, "copy"):
                tensor.__dlpack__(copy=True)
            with self.assertRaisesRegex(BufferError, "copy"):
                tensor.__dlpack__(dl_device=(1, 0))
            with self.assertRaisesRegex(BufferError, "DLPack 1.0.*for_reader"):
                reader.__dlpack__()
        self.assertEqual(memcuda.list(), [])

    def test_a_library_that_never_writes_gets_what_is_sealed(self):
        with memcuda.create("w", (3,), "f32") as tensor:
            tensor.seal()
            with memcuda.open("w", read_only=True) as reader:
                got = Consumer(reader.for_reader().__dlpack__(stream=1))
                self.assertEqual((got.kind, got.tensor.data, got.shape), (b"dltensor", reader.address, (3,)))
                flagged = Consumer(reader.for_reader().__dlpack__(max_version=(1, 0)))
                self.assertEqual(flagged.managed.flags, _dlpack.READ_ONLY)
                for one in (got, flagged):
                    one.delete()
        self.assertEqual(memcuda.list(), [])

    def test_what_was_given_holds_the_memory_by_itself(self):
        tensor = memcuda.create("w", (4,), "u8")
        got = [Consumer(tensor.__dlpack__(max_version=version)) for version in (None, (1, 0))]
        tensor.close()
        for left, one in zip((1, 0), got):
            self.assertEqual(memcuda.show("w").state, "ready")
            self.driver.write(one.tensor.data, b"abcd")
            self.assertEqual(self.driver.read(one.tensor.data, 4), b"abcd")
            one.delete()
            self.assertEqual(len(memcuda.list()), left)

    def test_a_capsule_that_nobody_takes_gives_the_memory_back(self):
        tensor = memcuda.create("w", (4,), "u8")
        capsule = tensor.__dlpack__()
        tensor.close()
        gc.collect()
        self.assertEqual(len(memcuda.list()), 1)
        del capsule
        gc.collect()
        self.assertEqual(memcuda.list(), [])

    def test_a_consumer_that_fails_keeps_its_own_exception(self):
        """A function of Python's would run here with the exception set, and hide it."""
        with memcuda.create("w", (4,), "u8") as tensor:
            with self.assertRaises(TypeError):
                int(tensor.__dlpack__())
        gc.collect()
        self.assertEqual(memcuda.list(), [])

    def test_what_is_collected_meanwhile_may_hand_out_too(self):
        tensor = memcuda.create("w", (4,), "u8")

        class Collected:
            def __init__(self):
                self.me = self

            def __del__(self):
                tensor.__dlpack__()

        def hand_out():
            for objects in range(2, 200):
                gc.collect()
                Collected()
                # A collection after so many, wherever that is.
                gc.set_threshold(objects)
                tensor.__dlpack__()
                gc.set_threshold(0)

        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        thread = threading.Thread(target=hand_out, daemon=True)
        thread.start()
        thread.join(30)
        self.assertFalse(thread.is_alive())
        gc.collect()
        tensor.close()
        gc.collect()
        self.assertEqual(memcuda.list(), [])

    def test_the_deleter_runs_in_a_thread_that_python_does_not_know(self):
        libc = ctypes.CDLL(None)
        tensor = memcuda.create("w", (4,), "u8")
        got = Consumer(tensor.__dlpack__())
        tensor.close()
        thread = ctypes.c_ulong()
        start = libc.pthread_create
        start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.assertEqual(start(ctypes.byref(thread), None, got.managed.deleter, got.block), 0)
        libc.pthread_join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
        self.assertEqual(libc.pthread_join(thread, None), 0)
        self.assertEqual(memcuda.list(), [])


if __name__ == "__main__":
    unittest.main()
