"""The package where libmemcuda.so is not in the process."""
import unittest

import support


class Absent(unittest.TestCase):
    def test_it_can_be_imported_and_says_what_is_missing(self):
        done = support.run(
            "import memcuda\n"
            "assert not memcuda.present()\n"
            "for call in (lambda: memcuda.open('x'), lambda: memcuda.create('x', nbytes=1), memcuda.list,\n"
            "             lambda: memcuda.Tensor(5), lambda: memcuda.delete('x'), lambda: memcuda.find(1), lambda: memcuda.name_next(None)):\n"
            "    try:\n"
            "        call()\n"
            "    except memcuda.Absent as error:\n"
            "        assert isinstance(error, memcuda.Error) and error.code == 14\n"
            "        assert 'memcuda run' in str(error), error\n"
            "    else:\n"
            "        raise AssertionError('no exception')\n", LD_PRELOAD=None)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
