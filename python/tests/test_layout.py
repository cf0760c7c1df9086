"""The structures are those of the C header, and of DLPack."""
import ctypes
import os
import subprocess
import tempfile
import unittest

from memcuda import _dlpack, _library, dtypes, errors

import support

NAMES = {_library.Options: "memcuda_options", _library.Info: "memcuda_info"}


class Layout(unittest.TestCase):
    def test_structures_and_numbers_are_the_headers(self):
        lines = []
        for kind, name in NAMES.items():
            lines.append(f'printf("%zu\\n", sizeof({name}));')
            lines += [f'printf("%zu\\n", offsetof({name}, {field}));' for field, _ in kind._fields_]
        constants = {
            "MEMCUDA_VERSION": _library.VERSION, "MEMCUDA_READ_ONLY": _library.READ_ONLY,
            "MEMCUDA_ZEROED": _library.ZEROED, "MEMCUDA_HIDDEN": _library.HIDDEN, "MEMCUDA_PERSIST": _library.PERSIST,
            "MEMCUDA_CUDA_IPC": _library.CUDA_IPC, "MEMCUDA_UNNAMED_ON_MISMATCH": _library.UNNAMED_ON_MISMATCH,
            "MEMCUDA_AWAIT": _library.AWAIT, "MEMCUDA_MADE": _library.MADE,
            "MEMCUDA_CREATE": _library.MODES["create"], "MEMCUDA_ATTACH": _library.MODES["attach"],
            "MEMCUDA_CREATE_OR_ATTACH": _library.MODES["create-or-attach"],
            "MEMCUDA_CREATING": _library.STATES.index("creating"), "MEMCUDA_READY": _library.STATES.index("ready"),
            "MEMCUDA_IS_SEALED": _library.STATES.index("sealed"), "MEMCUDA_DYING": _library.STATES.index("dying"),
            "MEMCUDA_MOST_RANK": _library.MOST_RANK,
            "MEMCUDA_INVALID": errors.Invalid.code, "MEMCUDA_NOT_FOUND": errors.NotFound.code,
            "MEMCUDA_EXISTS": errors.Exists.code, "MEMCUDA_MISMATCH": errors.Mismatch.code,
            "MEMCUDA_IN_PROGRESS": errors.InProgress.code, "MEMCUDA_DENIED": errors.Denied.code,
            "MEMCUDA_QUOTA": errors.QuotaExceeded.code, "MEMCUDA_SEALED": errors.Sealed.code,
            "MEMCUDA_PROTOCOL": errors.ProtocolMismatch.code, "MEMCUDA_UNAVAILABLE": errors.Unavailable.code,
            "MEMCUDA_TIMEOUT": errors.Timeout.code, "MEMCUDA_CUDA": errors.CudaError.code,
            "MEMCUDA_INTERNAL": errors.InternalError.code, "MEMCUDA_ABSENT": errors.Absent.code,
        }
        lines += [f'printf("%zu\\n", (size_t){constant});' for constant in constants]
        expected = []
        for kind in NAMES:
            expected.append(ctypes.sizeof(kind))
            expected += [getattr(kind, field).offset for field, _ in kind._fields_]
        expected += constants.values()
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
            with open(source, "w") as f:
                f.write('#include <stdio.h>\n#include "memcuda.h"\nint main(void) {' + "\n".join(lines) + "}")
            include = os.path.join(support.ROOT, "include")
            subprocess.run(["cc", "-I", include, "-o", program, source], check=True)
            said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        self.assertEqual([int(word) for word in said.split()], expected)

    def test_dlpacks_structures_are_as_in_dlpack_h(self):
        offsets = {field: getattr(_dlpack.DLTensor, field).offset for field, _ in _dlpack.DLTensor._fields_}
        self.assertEqual(offsets, dict(data=0, device_type=8, device_id=12, ndim=16, code=20, bits=21, lanes=22, shape=24,
                                       strides=32, byte_offset=40))
        self.assertEqual(ctypes.sizeof(_dlpack.DLTensor), 48)
        self.assertEqual([getattr(_dlpack.Managed, name).offset for name in ("tensor", "context", "deleter")], [0, 48, 56])
        versioned = _dlpack.ManagedVersioned
        names = ("version", "context", "deleter", "flags", "tensor")
        self.assertEqual([getattr(versioned, name).offset for name in names], [0, 8, 16, 24, 32])


class Dtypes(unittest.TestCase):
    def test_each_is_known_by_the_names_that_others_have(self):
        class Named:
            name = "float32"

        class TorchLike:
            def __str__(self):
                return "torch.bfloat16"

        class float8_e4m3fn:
            pass

        for given, name in (("f32", "f32"), ("float64", "f64"), (Named(), "f32"), (TorchLike(), "bf16"),
                            (float8_e4m3fn, "f8e4m3"), (bool, "bool"), (float, "f64"), (int, "i64"),
                            (complex, "c128"), ("float", "f32"), ("int", "i32"), ("uint16", "u16"), ("complex64", "c64")):
            self.assertEqual(dtypes.of(given).name, name)
        for name, dtype in dtypes.ALL.items():
            self.assertIs(dtypes.of(name), dtype)

    def test_another_one_is_refused_with_those_that_are_known(self):
        with self.assertRaisesRegex(ValueError, "'float128'.*accepted: f64 f32"):
            dtypes.of("float128")


if __name__ == "__main__":
    unittest.main()
