"""`make run`'s table, whatever the shell that calls it is set to."""
import os

import support
from support import RELEASE, ROOT, environment, needed


class Run(support.Test):
    def release(self):
        """What `make run` builds, without building."""
        folder = self.scratch / "release"
        folder.mkdir()
        for name in ("memcuda", "sim"):
            (folder / name).symlink_to(needed(RELEASE / name))
        for name in ("fragment", "named"):
            self.run_it("cc", "-std=c11", "-O2", ROOT / f"examples/{name}.c", "-o", folder / name,
                        "-L", needed(RELEASE / "sim"), "-l:libcudart.so.13")
        return folder

    def test_before_is_without_the_pool_in_a_shell_that_has_it(self):
        deep = self.scratch / ("a" * 90)
        deep.mkdir()
        # As `eval "$(memcuda env)"` leaves it, with settings that a user may have, and a place for
        # files whose path is too long for a socket.
        said = self.run_it(ROOT / "examples/run.sh", self.release(), cwd=self.scratch, env=environment(
            LD_PRELOAD=needed(RELEASE / "libmemcuda.so"), MEMCUDA_DISABLE="1", MEMCUDA_LIMIT="64MiB",
            MEMCUDA_NAMES="size=64MiB,name=other", TMPDIR=deep, HOME=self.scratch))
        self.assertRegex(said, r"(?m)^C example, 640 MiB live: held +960 MiB, 0 failed, data right +640 MiB, 0 failed, data right$")
        self.assertEqual(os.listdir(deep), [])


if __name__ == "__main__":
    support.unittest.main()
